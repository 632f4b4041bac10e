"""MCP: a server by which agents find and read back what left their views, and have views made.

It serves one namespace of a `FileOffloadStore`, and nothing outside it, with mcp 1 and 2 alike.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from context_compressor.core.config import ConfigFields
from context_compressor.errors import ContextCompressorError, naming_extras
from context_compressor.integrations.loopback import address_of, host_in, is_loopback
from context_compressor.memory.sessions import MAX_NAME_CHARACTERS, Sessions
from context_compressor.messages.media import kind_of_media, source_of
from context_compressor.messages.text import sendable
from context_compressor.offload.files import FileOffloadStore
from context_compressor.offload.guide import LOAD_TOOL
from context_compressor.tokens.counter import TokenCounter
from context_compressor.tokens.tiktoken import as_counter
from context_compressor.tools.arguments import Arguments, FinalAnswer, show_value
from context_compressor.tools.namespace import NamespaceTexts
from context_compressor.tools.tools import OffloadTools

with naming_extras("mcp"):
    import uvicorn
    from mcp.server.transport_security import TransportSecuritySettings
    from mcp.types import CallToolResult, Tool
    from starlette.datastructures import Headers
    from starlette.responses import PlainTextResponse

IS_MCP_2 = find_spec("mcp.server.mcpserver") is not None
_module = import_module("mcp.server.mcpserver" if IS_MCP_2 else "mcp.server.fastmcp")
_Base: Any = _module.MCPServer if IS_MCP_2 else _module.FastMCP

logger = logging.getLogger(__name__)

COMPRESS = "compress"
PATH = "/mcp"
"""Where a server listens over HTTP."""
MAX_BODY_BYTES = 64 * 1024 * 1024
"""What a request over HTTP may hold: long conversations, images included. The SDK's own limit is 4 MiB."""
IDLE_SECONDS = 600.0
"""Seconds without a request after which a session over HTTP ends; its client then opens another one."""
MAX_SESSIONS = 1_000
"""Sessions over HTTP at a time."""
_ARGUMENTS = ("messages", "max_total_tokens", "session")
_SCHEMA: dict[str, Any] = {
    "name": COMPRESS,
    "description": (
        "Make a conversation fit a token budget. Hand over the whole list of messages so far, each time; "
        "send the messages that come back to the model instead. What left them is kept under refs, "
        "which the other tools read and search."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "messages": {
                "type": "array",
                "items": {"type": "object"},
                "description": "The whole conversation, as chat messages in OpenAI's form.",
            },
            "max_total_tokens": {
                "type": "integer",
                "minimum": 1,
                "description": "Tokens that the messages which come back may cost. Default 20000.",
            },
            "session": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_NAME_CHARACTERS,
                "description": "Names the conversation; under it stands what the next call goes on from.",
            },
        },
        "required": ["messages", "session"],
    },
}
_INSTRUCTIONS = (
    "Texts that left an agent's view lie here under refs such as ctx://0123456789abcdef. "
    "search_history finds passages, grep_offloaded exact lines, read_offloaded shows a text."
)


class ContextServer(_Base):
    """Serve one namespace of a store.

    Args:
        store: the namespace; texts that others write there are served, too.
        counter: measures answers and messages; offline tiktoken when None.
        options: of the SDK's own server: `FastMCP` in mcp 1, `MCPServer` in mcp 2.
    """

    def __init__(
        self, store: FileOffloadStore, *, counter: TokenCounter | str | None = None, **options: Any
    ) -> None:
        counter = as_counter(counter)
        # In this form media are a URL under the name of their kind, and schemas those of chat.
        self._offloaded = OffloadTools(NamespaceTexts(store, counter), wire="dashscope")
        self._sessions = Sessions(store, counter)
        super().__init__("context-compressor", instructions=_INSTRUCTIONS, **options)

    async def list_tools(self) -> Any:
        """Return the tools as the SDK has them."""
        functions = [schema["function"] for schema in self._offloaded.schemas]
        reading = [
            {
                "name": function["name"],
                "description": function["description"],
                "inputSchema": function["parameters"],
                "annotations": {"readOnlyHint": True},
            }
            for function in functions
        ]
        return [Tool.model_validate(schema) for schema in [*reading, _SCHEMA]]

    async def call_tool(self, name: str, arguments: Mapping[str, Any], _context: Any = None) -> Any:
        """Run a tool and return its answer as the SDK has it; what is wrong is said in words."""
        try:
            if name == COMPRESS:
                answer = await self._compress(Arguments(COMPRESS, arguments))
            elif name in self._offloaded.names:
                answer = await self._offload_answer(name, arguments)
            else:
                known = ", ".join([*sorted(self._offloaded.names), COMPRESS])
                raise FinalAnswer(f"There is no tool {show_value(name)} here; use {known}.")
        except (FinalAnswer, ContextCompressorError, ValueError) as error:
            answer = _said(_in_words(error), is_error=True)
        except Exception as error:
            logger.exception("%s failed", name)
            text = (
                f"{name} failed in the server ({type(error).__name__}); its log says why. Go on without it."
            )
            answer = _said(text, is_error=True)
        return CallToolResult.model_validate(answer)

    async def _offload_answer(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        shown = await self._offloaded.attachment(name, arguments) if name == LOAD_TOOL else None
        if shown is None:
            return _said(await self._offloaded.call(name, arguments))
        note, media = shown["content"]
        answer = _said(note["text"])
        answer["content"].append(_media(next(iter(media.values()))))
        return answer

    async def _compress(self, arguments: Arguments) -> dict[str, Any]:
        arguments.check(*_ARGUMENTS)
        messages = arguments.required("messages")
        if isinstance(messages, str):  # as models write lists
            with suppress(ValueError, RecursionError):
                messages = json.loads(messages)
        if not isinstance(messages, list):
            raise FinalAnswer(f"messages must be a list of chat messages, got {show_value(messages)}.")
        tokens = arguments.integer("max_total_tokens")
        fields: ConfigFields = {} if tokens is None else {"max_total_tokens": tokens}
        view = await self._sessions.compress(messages, arguments.text("session"), **fields)
        stats = view.result.stats
        told: dict[str, Any] = {
            "messages": view.result.messages,
            "history_tokens": stats.history_tokens,
            "view_tokens": stats.view_tokens,
        }
        if view.unsaved is not None:
            told["note"] = view.unsaved
        text = json.dumps(told, ensure_ascii=False)
        if sendable(text) is not text:  # half a surrogate pair: an escape in a text carries it, and no data
            return _said(json.dumps(told))
        return {**_said(text), "structuredContent": json.loads(text)}


def _said(text: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": sendable(text)}], "isError": is_error}


def _in_words(error: Exception) -> str:
    """Return an error's text; of pydantic's, which take many lines, what is wrong with the first field."""
    faults = getattr(error, "errors", None)
    if not callable(faults):
        return str(error)
    first = faults()[0]
    place = ".".join(map(str, first["loc"]))
    said = first["msg"].removeprefix("Value error, ")
    return f"{place}: {said}, got {show_value(first['input'])}" if place else said


def _media(url: str) -> dict[str, Any]:
    """Return a `data:` URL as MCP's content: an image, sound, or else a resource."""
    source = source_of(url)
    kind, media_type, data = kind_of_media(url), source.get("media_type", ""), source.get("data", "")
    if kind in ("image", "audio"):
        return {"type": kind, "data": data, "mimeType": media_type}
    resource = {"uri": "ctx://media", "mimeType": media_type or None, "blob": data}
    return {"type": "resource", "resource": resource}


def serve_stdio(store: FileOffloadStore) -> None:
    """Serve over this process's stdin and stdout until stdin ends; logs go to stderr."""
    _be_quiet()
    asyncio.run(ContextServer(store).run_stdio_async())


def serve_http(store: FileOffloadStore, listening: socket.socket, names: Iterable[str] = ()) -> None:
    """Serve over streamable HTTP at `PATH` on a socket that is bound, until the process is told to end.

    Args:
        store: the namespace.
        listening: the socket.
        names: host names that are allowed beside addresses and this machine's name. At a loopback address
            only loopback names are.
    """
    _be_quiet()
    app = http_app(store, listening.getsockname()[0], names)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=3)
    asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))


def http_app(store: FileOffloadStore, address: str, names: Iterable[str] = ()) -> Door:
    """Return the application that `serve_http` runs at an address."""
    options: dict[str, Any] = {
        "max_request_body_size": MAX_BODY_BYTES,
        "session_idle_timeout": IDLE_SECONDS,
        "max_sessions": MAX_SESSIONS,
        # Our check covers every address; the SDK's covers three names.
        "transport_security": TransportSecuritySettings(enable_dns_rebinding_protection=False),
    }
    if IS_MCP_2:
        app = ContextServer(store).streamable_http_app(**options)
    else:
        app = ContextServer(store, **options).streamable_http_app()
    if is_loopback(address):
        return Door(app, None)
    return Door(app, {socket.gethostname().lower(), *map(str.lower, names)})


class Door:
    """Refuse requests with a foreign Host or Origin. A web page could let its own name point to this machine,
    or send requests to it from another origin.

    Args:
        app: answers the other requests.
        names: host names that are allowed beside addresses; None: loopback names and addresses alone.
    """

    def __init__(self, app: Any, names: set[str] | None) -> None:
        self.app = app
        self._names = names

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            name, origin = host_in(f"//{headers.get('host', '')}"), headers.get("origin")
            if not self._is_ours(name):
                answer = PlainTextResponse("Host: not a name of this server; see --allow-host", 421)
                return await answer(scope, receive, send)
            if origin is not None and not (host_in(origin) == name or is_loopback(host_in(origin))):
                answer = PlainTextResponse("Origin: a page of another server", 403)
                return await answer(scope, receive, send)
        await self.app(scope, receive, send)

    def _is_ours(self, name: str) -> bool:
        if self._names is None or is_loopback(name):
            return is_loopback(name)
        return name in self._names or address_of(name) is not None


def _be_quiet() -> None:
    """Let the SDK log what went wrong, not each request."""
    logging.getLogger("mcp").setLevel(logging.WARNING)
