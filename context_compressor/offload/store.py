"""The offload store: its contract, refs, calls with a time limit, and the store in memory."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import re
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

from context_compressor.errors import (
    InvalidArgumentError,
    InvalidStateError,
    OffloadCollisionError,
    OffloadCorruptError,
    OffloadError,
    OffloadNotFoundError,
    OffloadWriteError,
)
from context_compressor.messages.text import has_split_pair
from context_compressor.tokens.off_loop import run_off_loop

REF_PREFIX = "ctx://"
REF_PATTERN = re.compile(r"ctx://[0-9a-f]{16}(?![0-9a-f])")
"""A ref as it stands in a text."""


def ref_of(text: str) -> str:
    """Return a text's ref: `ctx://` and 16 hex digits of its SHA-256 over UTF-8 with `surrogatepass`.

    Raises:
        InvalidArgumentError: no string.
    """
    return REF_PREFIX + hashlib.sha256(check_text(text).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def check_ref(ref: object) -> str:
    """Return `ref` when it is well-formed, or raise OffloadNotFoundError, whose text shows the form."""
    if isinstance(ref, str) and REF_PATTERN.fullmatch(ref):
        return ref
    raise OffloadNotFoundError(f"{ref!r:.200} is not a ref; a ref is ctx:// and 16 lower-case hex digits")


def check_text(text: object) -> str:
    """Return `text` when it is a string, or raise InvalidArgumentError."""
    if not isinstance(text, str):
        raise InvalidArgumentError(f"text: expected a string, got {type(text).__name__}")
    return text


class StoredText(NamedTuple):
    """A text as it lies in a store."""

    ref: str
    bytes: int
    """What it takes there: less than the text where that is compressed."""
    age_seconds: float
    """Since it was last written, by the clocks of whoever wrote and whoever asks."""


@runtime_checkable
class OffloadStore(Protocol):
    """Keep texts under their content address, `ref_of(text)`: the same text is stored once."""

    async def write(self, text: str) -> str:
        """Make `text` durable and return its ref, `context_compressor.offload.store.ref_of(text)`.

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


async def write_text(store: OffloadStore, text: str, ref: str, timeout_seconds: float) -> None:
    """Write one text, whose ref is given, in so many seconds; raise OffloadError where it is not durable."""
    async with _answering(f"take {ref}", timeout_seconds, OffloadWriteError):
        answer = await store.write(text)
    if answer != ref:
        raise OffloadWriteError(
            f"the store answered {answer!r} to a text whose ref is {ref}; write has to return ref_of(text)"
        )


async def read_text(store: OffloadStore, ref: str, timeout_seconds: float) -> str:
    """Return the text under a ref, read within a time limit in seconds.

    Raises:
        OffloadError: the store does not give it; OffloadCorruptError if it gives something else.
    """
    async with _answering(f"give {ref}", timeout_seconds, OffloadError):
        text = await store.read(ref)
    if not isinstance(text, str) or await run_off_loop(len(text), ref_of, text) != ref:
        given = type(text).__name__
        raise OffloadCorruptError(f"the store did not give {ref} as it was written, but another {given}")
    return text


async def list_refs(store: OffloadStore, timeout_seconds: float) -> list[str]:
    """Return the refs of all that is stored, listed in so many seconds, or raise OffloadError."""
    async with _answering("name its refs", timeout_seconds, OffloadError):
        return [check_ref(ref) for ref in await store.refs()]


@asynccontextmanager
async def _answering(
    what: str, timeout_seconds: float, error_class: type[OffloadError]
) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_seconds):
            yield
    except OffloadError:
        raise
    except TimeoutError as error:
        raise error_class(f"the store did not {what} within {timeout_seconds:g} s") from error
    except Exception as error:
        raise error_class(f"the store failed to {what}: {error!r}") from error


class KeepingStore:
    """Keep texts that a memory no longer names: an earlier view, or another state, still may.

    Args:
        kept: the only refs that stay; None for all of them.
    """

    def __init__(self, wrapped: OffloadStore, kept: Collection[str] | None = None) -> None:
        self.wrapped = wrapped
        self._kept = kept
        self.write, self.read, self.refs = wrapped.write, wrapped.read, wrapped.refs

    async def delete(self, ref: str) -> None:
        """Remove the text under `ref` unless it is to stay."""
        if self._kept is not None and ref not in self._kept:
            await self.wrapped.delete(ref)


class InMemoryOffloadStore:
    """Keep texts in a dict; they end with the process unless `to_state` carries them on.

    Args:
        texts: texts to begin with, by ref.

    Raises:
        OffloadNotFoundError: a key of `texts` is no ref.
        InvalidArgumentError: `texts` is no mapping, or a value of it no string.
    """

    def __init__(self, texts: Mapping[str, str] | None = None) -> None:
        if not isinstance(texts, Mapping | None):
            raise InvalidArgumentError(f"texts: expected texts by ref, got {type(texts).__name__}")
        self._texts: dict[str, str] = {}
        for ref, text in (texts or {}).items():
            self._texts[check_ref(ref)] = check_text(text)

    async def write(self, text: str) -> str:
        """Keep `text` and return its ref; see `OffloadStore.write` for the errors."""
        ref = ref_of(check_text(text))
        held = self._texts.get(ref)
        if held is not None and held != text and ref_of(held) == ref:
            raise OffloadCollisionError(f"another text already holds {ref}; the text at hand was not stored")
        self._texts[ref] = text  # what stood there may be corrupt, and the right text is at hand
        return ref

    async def read(self, ref: str) -> str:
        """Return the text under `ref`; see `OffloadStore.read` for the errors."""
        text = self._texts.get(check_ref(ref))
        if text is None:
            raise OffloadNotFoundError(f"{ref} is not stored here; refs() lists what is")
        # Texts handed to the constructor may come from an edited state file, so they are checked like files.
        if ref_of(text) != ref:
            raise OffloadCorruptError(f"the text under {ref} was changed: it hashes to {ref_of(text)}")
        return text

    async def delete(self, ref: str) -> None:
        """Forget the text under `ref`; absent is fine."""
        self._texts.pop(check_ref(ref), None)

    async def refs(self) -> list[str]:
        """Return every ref that is stored, sorted."""
        return sorted(self._texts)

    def texts(self) -> dict[str, str]:
        """Return a copy of all texts, by ref, in the order of writing."""
        return dict(self._texts)

    def to_state(self) -> dict[str, Any]:
        """Return all texts, sorted by ref, in a form that survives `json.dumps` and `json.loads` unchanged.

        A text is itself, except where JSON would join two unpaired surrogates into one character: such a
        text is `{"base64": ...}` over UTF-8 with `surrogatepass`.
        """
        texts = sorted(self._texts.items())  # they are written in any order where several are hashed at once
        return {ref: _pack(text) if has_split_pair(text) else text for ref, text in texts}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Build a store from `to_state`'s form.

        Raises:
            InvalidStateError: a key is no ref, or a value is no text; the message names it.
        """
        if not isinstance(state, Mapping):
            raise InvalidStateError(f"offloaded texts: expected an object, got {type(state).__name__}")
        try:
            return cls({ref: _unpack(ref, value) for ref, value in state.items()})
        except OffloadNotFoundError as error:
            raise InvalidStateError(f"offloaded texts: {error}") from error


def _pack(text: str) -> dict[str, str]:
    return {"base64": base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")}


def _unpack(ref: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return base64.b64decode(value["base64"], validate=True).decode("utf-8", "surrogatepass")
    except (TypeError, KeyError, binascii.Error, UnicodeDecodeError) as error:
        raise InvalidStateError(
            f"offloaded texts: {ref!r} holds neither a text nor a base64 object"
        ) from error
