"""Who asks: whose conversation a request belongs to, who may read contents, how much comes in."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from starlette.requests import ClientDisconnect, Request

from context_compressor.gateway.upstream import KEY_HEADERS
from context_compressor.integrations.loopback import is_loopback
from context_compressor.memory.listing import Said
from context_compressor.messages.forms import Form

_NAMES = ("x-conversation", "x-session-id", "x-session-affinity")
"""Headers that name a conversation: everybody's, and opencode's."""
_TURN = "x-codex-turn-metadata"
"""Codex's, JSON with a session's id."""
_SILENT_SECONDS = 60.0
"""For how long a client may say nothing in the midst of a request: it holds one of the places there are."""
_NUMBER = re.compile(r"\d+")


class Identity(NamedTuple):
    """What tells a conversation from others."""

    name: str
    """A hash of all that tells it, the caller's key among them: nobody else's request has it."""
    owner: str
    """A hash of the caller's key."""
    said: str | None
    """How the request itself names the conversation, if it does."""


def hash_of(*parts: str) -> str:
    """Return 32 hex digits that stand for some texts."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def owner_of(headers: Mapping[str, str], query: str = "") -> str:
    """Return what stands for a caller: a hash of his key, which some providers take in the query.

    Callers without one are one.
    """
    return hash_of(*(headers.get(name, "") for name in KEY_HEADERS), query)


def identity_of(
    api: str,
    headers: Mapping[str, str],
    query: str,
    request: Mapping[str, Any],
    said: Sequence[Any],
    system: Any,
    form: Form,
) -> Identity:
    """Return whose conversation a request belongs to.

    Its name holds the caller's key, and what the request says of itself: a header, `prompt_cache_key`,
    Anthropic's `metadata.user_id`. It holds the instructions, numbers in them aside, such as a clock's: a
    client may ask for a title under the name of a session. Where nothing names the conversation its first
    message does. Which list goes on with which is then for the lists themselves.

    Args:
        api: its path.
        headers: of the request, by names in lower case.
        query: of its URL.
        request: its body.
        said: its list.
        system: what it carries beside the list.
        form: of the list.
    """
    owner = owner_of(headers, query)
    named = next((headers[name] for name in _NAMES if headers.get(name)), None) or _of_codex(headers)
    named = named or _text(request.get("prompt_cache_key"))
    user = (
        _text((request.get("metadata") or {}).get("user_id")) if _is_dict(request.get("metadata")) else None
    )
    begins = "" if named else Said(said, form).beginning()
    name = hash_of(api, owner, named or "", user or "", _instructions(said, system), begins)
    return Identity(name, owner, named or user)


def _is_dict(value: object) -> bool:
    return isinstance(value, Mapping)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _of_codex(headers: Mapping[str, str]) -> str | None:
    told: Any = None
    with suppress(ValueError):
        told = json.loads(headers.get(_TURN, ""))
    return _text(told.get("session_id")) if isinstance(told, dict) else None


def _instructions(said: Sequence[Any], system: Any) -> str:
    """Return what instructs the model, without numbers."""
    leading = []
    for one in said:
        if not (isinstance(one, Mapping) and one.get("role") in ("system", "developer")):
            break
        leading.append(one.get("content"))
    return _NUMBER.sub("", json.dumps([system, leading], ensure_ascii=False, default=str))


class TooLarge(Exception):
    """A request that holds more than it may."""


async def read_body(request: Request, most_bytes: int) -> bytes:
    """Return what a request holds.

    Raises:
        TooLarge: more than it may.
        ClientDisconnect: its client went away, or says nothing any more.
    """
    pieces, size, stream = [], 0, request.stream()
    while True:
        try:
            async with asyncio.timeout(_SILENT_SECONDS):
                piece = await anext(stream, b"")
        except TimeoutError:
            raise ClientDisconnect from None
        if not piece:
            break
        size += len(piece)
        if size > most_bytes:
            raise TooLarge
        pieces.append(piece)
    return b"".join(pieces)


def may_read(request: Request, token: str | None) -> bool:
    """Tell whether a request may read contents: it comes from this machine, or has the token.

    Args:
        request: with the token as `Authorization: Bearer`, or as the password of a base URL.
        token: None: contents are for this machine alone.
    """
    if token is not None:
        return hmac.compare_digest(_token_of(request).encode(), token.encode())
    # What a proxy passes on comes from this machine, too. The name that a browser asked for tells a page
    # elsewhere whose name was made to mean this machine.
    is_passed_on = any(name in request.headers for name in ("x-forwarded-for", "forwarded", "x-real-ip"))
    client = "" if request.client is None else request.client.host
    return not is_passed_on and is_loopback(client) and is_loopback(request.url.hostname or "")


def _token_of(request: Request) -> str:
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return given
    try:
        return base64.b64decode(given, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""
