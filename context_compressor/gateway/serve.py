"""Running a gateway: one process, or several workers on one socket."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import tempfile
from dataclasses import asdict, dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette

from context_compressor.gateway.app import Gateway, Settings
from context_compressor.gateway.backend import Backend
from context_compressor.gateway.upstream import Upstream

_KEEP_ALIVE_SECONDS = 75
_HUNG_SECONDS = 60
"""A worker that says nothing for so long is killed, whatever it is about, and another one started. On a busy
machine it may well need more than uvicorn's five seconds, above all to start."""
_OPTIONS = "CONTEXT_COMPRESSOR_GATEWAY"
"""The variable by which workers get the options."""


@dataclass(frozen=True)
class Options:
    """All that a gateway is made of, for each worker anew.

    Args:
        upstream: its base URL.
        settings: what views are made by.
        backend, store, key_prefix: as `Backend` takes them.
        connect_seconds, read_seconds: as `Upstream` takes them.
        grace_seconds: for how long requests under way may go on when the gateway is to end.
    """

    upstream: str
    settings: Settings = field(default_factory=Settings)
    backend: str | None = None
    store: str | None = None
    key_prefix: str = ""
    connect_seconds: float = 10.0
    read_seconds: float = 600.0
    grace_seconds: int = 30


def make_gateway(options: Options, backend: Backend | None = None) -> Gateway:
    """Return a gateway, over a backend that is open already where there is one.

    Raises:
        InvalidArgumentError, ValueError: an option that cannot be.
        ImportError: a package is missing; the text names the extra.
    """
    upstream = Upstream(
        options.upstream, connect_seconds=options.connect_seconds, read_seconds=options.read_seconds
    )
    if backend is None:
        backend = Backend(options.backend, options.store, key_prefix=options.key_prefix)
    return Gateway(upstream, options.settings, backend)


def serve(gateway: Gateway, options: Options, listening: socket.socket, workers: int = 1) -> None:
    """Serve on a socket that is bound, until the process is told to end.

    Args:
        gateway: what serves; several workers make one each.
        options: what it is made of.
        listening: the socket.
        workers: processes; more than one need a backend.
    """
    shared: dict[str, Any] = {
        "log_level": "warning",
        "timeout_keep_alive": _KEEP_ALIVE_SECONDS,
        "timeout_graceful_shutdown": options.grace_seconds,
        "timeout_worker_healthcheck": _HUNG_SECONDS,
        "server_header": False,
        "date_header": False,  # the upstream's goes through
    }
    if workers == 1:
        _keep_what_is_loaded()
        server = uvicorn.Server(uvicorn.Config(gateway.app(), **shared))
        asyncio.run(server.serve(sockets=[listening]))
        return
    with tempfile.TemporaryDirectory(prefix="context-compressor-") as folder:
        os.environ.setdefault("PROMETHEUS_MULTIPROC_DIR", folder)
        os.environ[_OPTIONS] = json.dumps(asdict(options))
        app = f"{__name__}:app_of_worker"
        uvicorn.run(app, factory=True, workers=workers, fd=listening.fileno(), **shared)


def app_of_worker() -> Starlette:
    """Return the application of one of several workers, by the options in their environment."""
    said = json.loads(os.environ[_OPTIONS])
    app = make_gateway(Options(**{**said, "settings": Settings(**said["settings"])})).app()
    _keep_what_is_loaded()
    return app


def _keep_what_is_loaded() -> None:
    """Have the garbage collector pass over what lives as long as the process.

    Code is most of what it would look through each time, for some 50 ms in which no request goes on.
    """
    gc.collect()
    gc.freeze()
