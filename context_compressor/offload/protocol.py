"""What an offload store is, and how texts are addressed."""

from __future__ import annotations

import hashlib
import re
from typing import Protocol, runtime_checkable

from context_compressor.errors import InvalidArgumentError, OffloadNotFoundError

REF_PREFIX = "ctx://"
REF_PATTERN = re.compile(r"ctx://[0-9a-f]{16}(?![0-9a-f])")
"""A ref as it stands in a text."""


def ref_of(text: str) -> str:
    """Return a text's ref: `ctx://` and 16 hex digits of its SHA-256 over UTF-8 with `surrogatepass`."""
    return REF_PREFIX + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def check_ref(ref: object) -> str:
    """Return `ref` when it is well-formed.

    Raises:
        OffloadNotFoundError: it is not; the text shows it and the form expected.
    """
    if isinstance(ref, str) and REF_PATTERN.fullmatch(ref):
        return ref
    raise OffloadNotFoundError(f"{ref!r} is not a ref; a ref is ctx:// and 16 lower-case hex digits")


def check_text(text: object) -> str:
    """Return `text` when it is a string.

    Raises:
        InvalidArgumentError: it is none.
    """
    if not isinstance(text, str):
        raise InvalidArgumentError(f"text: expected a string, got {type(text).__name__}")
    return text


@runtime_checkable
class OffloadStore(Protocol):
    """Keep texts under their content address, `ref_of(text)`: the same text is stored once."""

    async def write(self, text: str) -> str:
        """Make `text` durable and return its ref, `context_compressor.offload.protocol.ref_of(text)`.

        Raises:
            OffloadCollisionError: another text holds this ref.
            OffloadWriteError: it could not be made durable (subclasses say why).
        """
        ...

    async def read(self, ref: str) -> str:
        """Return the text under `ref`, as it was written.

        Raises:
            OffloadNotFoundError: the ref is absent or malformed.
            OffloadCorruptError: what is stored no longer matches its ref.
        """
        ...

    async def delete(self, ref: str) -> None:
        """Remove the text under `ref`; absent is fine.

        Cancelled, it must not remove the text any more once it has returned: it may be named again by then.

        Raises:
            OffloadNotFoundError: the ref is malformed.
        """
        ...

    async def refs(self) -> list[str]:
        """Return every ref that is stored, sorted."""
        ...
