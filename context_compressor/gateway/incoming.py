"""What comes in: who may read contents, and how much a request may hold."""

from __future__ import annotations

import base64
import binascii
import hmac

from starlette.requests import Request

from context_compressor.integrations.loopback import is_loopback


class TooLarge(Exception):
    """A request that holds more than it may."""


async def read_body(request: Request, most_bytes: int) -> bytes:
    """Return what a request holds.

    Raises:
        TooLarge: more than it may.
    """
    pieces, size = [], 0
    async for piece in request.stream():
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
