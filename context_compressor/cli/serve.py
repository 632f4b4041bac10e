"""`serve`: a gateway, by whose base URL any agent gets views."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from context_compressor.cli.options import DONE, CommandError, listen_at, shown_address
from context_compressor.core.config import as_config
from context_compressor.errors import ContextCompressorError, naming_extras
from context_compressor.summarizers.protocol import OWN, RULES

_HOST, _PORT = "127.0.0.1", 8080
_TOKEN = "CONTEXT_COMPRESSOR_TOKEN"
_KEY = "OPENAI_API_KEY"


def serve(
    upstream: Annotated[
        str,
        typer.Option(metavar="URL", help="Base URL of the provider, as a client is given it."),
    ],
    max_total_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Tokens that a request may cost. Default: 20000."),
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="HOST", help=f"Address to listen at. Default: {_HOST}.")
    ] = _HOST,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, metavar="N", help=f"Port; 0 for any free one. Default: {_PORT}.")
    ] = _PORT,
    backend: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Redis or database for what is known of conversations; else they live in this process.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="WHERE", help="Directory or URL for texts that left. Default: the backend."),
    ] = None,
    summarizer: Annotated[
        str,
        typer.Option(
            metavar="WHO",
            help="Who writes notes: own (the model of the request), rules, or a model of the upstream's by "
            f"its name, asked with the key in {_KEY}. Working memories have no model of their own.",
        ),
    ] = OWN,
    tools: Annotated[
        bool, typer.Option(help="Offer tools that read back what left, and answer them.")
    ] = True,
    observe: Annotated[
        bool,
        typer.Option(
            "--observe", help="Change nothing, and write down how large requests are, for **replay**."
        ),
    ] = False,
    observe_log: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Where --observe writes. Default: observed.jsonl."),
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other field of CompressionConfig."),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Processes; several need --backend.")] = 1,
    most_requests: Annotated[
        int, typer.Option(min=1, metavar="N", help="Requests at a time in a worker.")
    ] = 512,
    max_body: Annotated[int, typer.Option(min=1, metavar="MB", help="What a request may hold.")] = 64,
    connect_timeout: Annotated[float, typer.Option(min=0.1, metavar="SECONDS")] = 10.0,
    read_timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="For how long the upstream may say nothing.")
    ] = 600.0,
) -> int:
    """Serve a gateway: agents in any language get views by its base URL.

    Requests for chat completions, responses and messages go on with views that fit the budget; all else
    passes through untouched. Callers' keys are passed on, and kept nowhere. A page at / shows what goes on,
    and /v1/working-memory keeps sessions of agent-memory-client's: both for this machine, and for whoever
    has the token in the environment variable CONTEXT_COMPRESSOR_TOKEN. /openapi.json describes it. Needs
    the extra `gateway`.

    Example: context-compressor serve --upstream https://api.openai.com/v1 --max-total-tokens 32000
    """
    try:
        with naming_extras("gateway"):
            from context_compressor.gateway.app import Settings
            from context_compressor.gateway.backend import Backend
            from context_compressor.gateway.serve import Options, make_gateway
            from context_compressor.gateway.serve import serve as run
            from context_compressor.integrations.loopback import is_loopback
    except ImportError as error:
        raise CommandError(f"serve {error}") from None
    if workers > 1 and backend is None:
        raise CommandError("--workers: several processes need --backend, where they share what they know")
    if observe_log is not None and not observe:
        raise CommandError("--observe-log says where --observe writes; give both")
    if summarizer not in (OWN, RULES) and not os.environ.get(_KEY):
        raise CommandError(f"--summarizer {summarizer} needs a key: set {_KEY}, or choose own or rules")
    fields = _fields(field or [])
    if max_total_tokens is not None:
        fields["max_total_tokens"] = max_total_tokens
    options = Options(
        upstream,
        Settings(
            {
                **fields,
                "summarizer": summarizer,
                "tools": tools,
                "observe": observe and (observe_log or True),
            },
            token=os.environ.get(_TOKEN) or None,
            max_body_bytes=max_body * 1024 * 1024,
            most_requests=most_requests,
        ),
        backend,
        store,
        connect_seconds=connect_timeout,
        read_seconds=read_timeout,
    )
    try:
        as_config(None, fields, serve)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        name = ".".join(map(str, fault["loc"])) or "--set"
        raise CommandError(f"{name}: {fault['msg']}") from None
    except (ContextCompressorError, ValueError, TypeError) as error:
        raise CommandError(f"--set {error}") from None
    try:
        opened = Backend(backend, store)
    except (ContextCompressorError, ValueError) as error:
        raise CommandError(f"--backend, --store: {error}") from None
    except ImportError as error:
        raise CommandError(str(error)) from None
    try:
        gateway = make_gateway(options, opened)
    except ContextCompressorError as error:
        raise CommandError(f"--{error}") from None
    with listen_at(host, port) as listening:
        address, shown = listening.getsockname()[0], shown_address(listening)
        if not is_loopback(address):
            print(
                "anybody who reaches this address may send requests on with a key of his own", file=sys.stderr
            )
        print(f"serving {upstream} at http://{shown}/v1; Ctrl-C ends", file=sys.stderr, flush=True)
        run(gateway, options, listening, workers)
    return DONE


def _fields(given: list[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for one in given:
        name, mark, value = one.partition("=")
        if not mark:
            raise CommandError(f"--set {one}: expected NAME=VALUE, such as target_ratio=0.5")
        try:
            fields[name.strip()] = json.loads(value)
        except ValueError:
            fields[name.strip()] = value
    return fields
