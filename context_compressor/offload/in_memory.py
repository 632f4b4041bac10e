"""`InMemoryOffloadStore`: texts kept in this process, and carried in saved state."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Self

from context_compressor.errors import (
    InvalidArgumentError,
    InvalidStateError,
    OffloadCollisionError,
    OffloadCorruptError,
    OffloadNotFoundError,
)
from context_compressor.offload.protocol import check_ref, check_text, ref_of

_SPLIT_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
"""Two unpaired surrogates that `json` would write and read back as one character."""


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
        return {ref: _pack(text) if _SPLIT_PAIR.search(text) else text for ref, text in texts}

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
