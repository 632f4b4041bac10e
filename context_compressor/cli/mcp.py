"""`mcp`: serve one namespace of a store to agents over the Model Context Protocol."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from context_compressor.cli.options import DONE, CommandError, listen_at, shown_address
from context_compressor.cli.output import check_folder, check_stdout
from context_compressor.offload.files import FileOffloadStore
from context_compressor.offload.folders import check_namespace

_HOST, _PORT = "127.0.0.1", 8000


class Transport(StrEnum):
    """How clients reach the server."""

    STDIO = "stdio"
    HTTP = "streamable-http"


def mcp(
    store: Annotated[
        str, typer.Option(metavar="DIR", help="Directory with the full texts of what left a view.")
    ],
    namespace: Annotated[
        str, typer.Option(metavar="NAME", help="The namespace to serve; nothing outside it is reached.")
    ],
    transport: Annotated[
        Transport, typer.Option(metavar="HOW", help="stdio (default) or streamable-http.")
    ] = Transport.STDIO,
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help=f"Address to listen at. Default: {_HOST}.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, metavar="N", help=f"Port; 0 for any free one. Default: {_PORT}."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Host name by which clients call the server, if it is not one of this machine.",
        ),
    ] = None,
) -> int:
    """Serve a store to agents over MCP: read, grep and search what left views, and compress conversations.

    The tool `compress` keeps the state of each session beside the texts. Over HTTP anybody who reaches the
    port may read the namespace: there is no password. Needs the extra `mcp`.

    Example: context-compressor mcp --store working_memory --namespace notes
    """
    check_folder(store, "--store")
    check_stdout()
    try:
        check_namespace(namespace)
    except ValueError as error:
        raise CommandError(f"--{error}") from None
    if transport is Transport.STDIO:
        given = {"--host": host, "--port": port, "--allow-host": allow_host or None}
        option = next((name for name, value in given.items() if value is not None), None)
        if option is not None:
            raise CommandError(f"{option} needs --transport streamable-http; stdio has no address")
        if sys.stdin is None:
            raise CommandError("stdin is closed, and the client speaks there; --transport streamable-http")
    try:
        from context_compressor.integrations.loopback import is_loopback
        from context_compressor.integrations.mcp import PATH, serve_http, serve_stdio
    except ImportError as error:
        raise CommandError(f"mcp {error}") from None
    texts = FileOffloadStore(store, namespace)
    if transport is Transport.STDIO:
        serve_stdio(texts)
        return DONE
    host, port = _HOST if host is None else host, _PORT if port is None else port
    with listen_at(host, port) as listening:
        address, shown = listening.getsockname()[0], shown_address(listening)
        if not is_loopback(address):
            print("anybody who reaches this address may read the namespace", file=sys.stderr)
        print(f"serving {namespace} at http://{shown}{PATH}; Ctrl-C ends", file=sys.stderr, flush=True)
        serve_http(texts, listening, allow_host or ())
    return DONE
