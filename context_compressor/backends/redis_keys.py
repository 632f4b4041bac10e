"""Which sessions and namespaces there are in Redis: found by their keys."""

from __future__ import annotations

from typing import Any

from context_compressor.backends.redis import Client
from context_compressor.backends.redis_rows import as_text

_DIGEST_CHARACTERS = 64
_AT_ONCE = 1_000
"""Keys that a server looks at for one answer."""
_SPECIAL = frozenset("\\[]*?^-")
"""What a pattern does not take as itself."""


async def keys_like(client: Client, stem: str, end: str = "") -> list[str]:
    """Return the keys that begin and end so, sorted; every key of the server is looked at."""
    escaped = "".join(f"\\{one}" if one in _SPECIAL else one for one in stem)
    found: Any = client.scan_iter(f"{escaped}*{end}", _AT_ONCE)
    return sorted({as_text(key) async for key in found})


async def digests_under(client: Client, key_prefix: str, part: str) -> list[str]:
    """Return what stands in the braces of the keys for one part of sessions, or namespaces, sorted."""
    stem, end = f"{key_prefix}context_compressor:{{", f"}}:{part}"
    found = (key.removeprefix(stem).removesuffix(end) for key in await keys_like(client, stem, end))
    return [one for one in found if len(one) == _DIGEST_CHARACTERS]
