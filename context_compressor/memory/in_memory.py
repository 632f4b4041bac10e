"""`InMemoryMemory`: a memory over a history in this process, lost with it unless its state is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_compressor.errors import InvalidMessageError, InvalidStateError
from context_compressor.memory.base import MemoryBase
from context_compressor.memory.history import ListHistory
from context_compressor.messages.msg import Msg
from context_compressor.messages.text import split_again, split_pairs_in

_STATE_KEYS = frozenset({"_compressed_summary", "content"})
_SPLIT_KEY = "split_pairs"
"""Names the texts that JSON would read back as others; there only where there are any."""


class InMemoryMemory(MemoryBase):
    """Keep messages in memory.

    Adding, deleting and marking a message take the same time however many there are. Not safe for use from
    several threads. `MemoryBase` says what each method does.
    """

    def __init__(self) -> None:
        super().__init__(ListHistory())

    @property
    def history(self) -> ListHistory:
        """Where the messages live."""
        assert isinstance(self._history, ListHistory)
        return self._history

    @property
    def _compressed_summary(self) -> str:  # type: ignore[override]
        return self.history.summary

    def revision(self) -> int | None:
        """Return a number that differs after every change, at no cost."""
        return self.history.number

    def state_dict(self) -> dict[str, Any]:
        """Return messages, marks and summary as JSON-like data, in the form that AgentScope 1.0 writes."""
        entries = self.history.entries()
        content = [[entry.msg.to_dict(), list(entry.marks)] for entry in entries if entry.msg is not None]
        state = {"_compressed_summary": self.history.summary, "content": content}
        return with_split_pairs(state)

    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> None:
        """Replace everything by a saved state, ours or AgentScope's.

        Elements of `content` are pairs of a message and its marks; a bare message (AgentScope's older form)
        has no marks. `_compressed_summary` may be missing, as older states lack it.

        Args:
            state: what `state_dict` returned, or its JSON form.
            strict: refuse unknown keys and a state without `content`; else they are passed over, it is empty.

        Raises:
            InvalidStateError: the state cannot be loaded; the text names the place, the memory is as it was.
        """
        summary, items = _read_state(state, strict)
        self.history.replace(summary, items)


def with_split_pairs(state: dict[str, Any]) -> dict[str, Any]:
    """Return a saved state that tells where its texts hold halves of characters side by side."""
    found = split_pairs_in(state)
    return {**state, _SPLIT_KEY: found} if found else state


def without_split_pairs(state: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """Return what `with_split_pairs` was given, though JSON joined those halves.

    Raises:
        InvalidStateError: the state tells of texts that it does not have; `place` is where it stands.
    """
    if _SPLIT_KEY not in state:
        return state
    restored: dict[str, Any] = {key: value for key, value in state.items() if key != _SPLIT_KEY}
    try:
        for path, places in state[_SPLIT_KEY]:
            restored = split_again(restored, path, places)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InvalidStateError(f"{place}{_SPLIT_KEY}: there is no such text ({error!r})") from error
    return restored


def _read_state(state: object, strict: bool) -> tuple[str, list[tuple[Msg, list[str]]]]:
    if not isinstance(state, Mapping):
        raise InvalidStateError(f"state: expected a dict, got {type(state).__name__}")
    state = without_split_pairs(state, "")
    unknown = [key for key in state if key not in _STATE_KEYS]
    if strict and unknown:
        raise InvalidStateError(f"{unknown[0]}: unknown key; strict=False passes over it")
    if strict and "content" not in state:
        raise InvalidStateError("content: missing; strict=False takes it as empty")
    summary = state.get("_compressed_summary", "")
    if not isinstance(summary, str):
        raise InvalidStateError(f"_compressed_summary: expected a string, got {type(summary).__name__}")
    content = state.get("content", [])
    if not isinstance(content, list | tuple):
        raise InvalidStateError(f"content: expected a list, got {type(content).__name__}")
    return summary, [_read_item(item, f"content[{index}]") for index, item in enumerate(content)]


def _read_item(item: object, place: str) -> tuple[Msg, list[str]]:
    if isinstance(item, Mapping):
        return _read_message(item, place), []
    if not isinstance(item, list | tuple) or len(item) != 2:
        raise InvalidStateError(f"{place}: expected a message and its marks, got {type(item).__name__}")
    data, marks = item
    if not isinstance(marks, list | tuple) or not all(isinstance(mark, str) for mark in marks):
        raise InvalidStateError(f"{place}[1]: expected a list of strings, got {marks!r:.200}")
    return _read_message(data, f"{place}[0]"), list(marks)


def _read_message(data: object, place: str) -> Msg:
    try:
        return Msg.from_dict(data)  # type: ignore[arg-type]  # which it checks
    except InvalidMessageError as error:
        raise InvalidStateError(f"{place}.{error}") from error
