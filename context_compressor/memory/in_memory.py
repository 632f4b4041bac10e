"""`InMemoryMemory`: a history in this process, lost with it unless `state_dict` is kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from context_compressor.errors import InvalidMessageError, InvalidStateError
from context_compressor.memory.base import (
    MemoryBase,
    as_id_set,
    as_ids,
    as_mark,
    as_mark_update,
    as_marks,
    as_messages,
    as_summary,
    summary_message,
)
from context_compressor.messages.msg import Msg

_STATE_KEYS = frozenset({"_compressed_summary", "content"})


@dataclass(slots=True)
class _Entry:
    msg: Msg
    marks: dict[str, None]  # a set that keeps the order in which marks came


class InMemoryMemory(MemoryBase):
    """Keep messages in memory.

    Adding, deleting and marking a message take the same time however many there are; `get_memory(mark=...)`
    takes time for the messages that it returns. Not safe for use from several threads. `MemoryBase` says what
    each method does.
    """

    def __init__(self) -> None:
        super().__init__()
        # Numbers grow with every message, so a number is a message's place in the order.
        self._entries: dict[int, _Entry] = {}
        self._numbers_by_id: dict[str, list[int]] = {}
        self._numbers_by_mark: dict[str, set[int]] = {}
        self._next_number = 0
        self._revision = 0

    async def add(
        self,
        memories: Msg | list[Msg] | None,
        marks: str | list[str] | None = None,
        allow_duplicates: bool = False,
        **kwargs: Any,  # noqa: ARG002  # as AgentScope, whose callers may pass more
    ) -> None:
        """Append messages, all or none, each with the given marks; None adds nothing.

        Args:
            memories: the messages.
            marks: their marks.
            allow_duplicates: keep a message although its id is known; both then answer to the id.
            kwargs: accepted and ignored.

        Raises:
            InvalidArgumentError: not messages, or not marks.
            InvalidMessageError: a message nests too deep.
        """
        messages, names = as_messages(memories), as_marks(marks)
        copies = [msg.copy() for msg in messages]
        self._store(copies, names, allow_duplicates)

    async def add_owned(
        self, messages: list[Msg], marks: list[str], allow_duplicates: bool = False, **kwargs: Any
    ) -> None:
        """Append messages as they are, without copying; see `MemoryBase.add_owned`."""
        if type(self).add is not InMemoryMemory.add:  # a subclass does more in `add`
            await super().add_owned(messages, marks, allow_duplicates=allow_duplicates, **kwargs)
        else:
            self._store(messages, marks, allow_duplicates)

    def _store(self, messages: list[Msg], marks: list[str], allow_duplicates: bool) -> None:
        for msg in messages:
            numbers = self._numbers_by_id.get(msg.id)
            if numbers and not allow_duplicates:
                for number in numbers:
                    self._mark(number, marks)
            else:
                self._append(msg, marks)

    async def delete(self, msg_ids: list[str], **kwargs: Any) -> int:  # noqa: ARG002
        numbers = [number for msg_id in as_ids(msg_ids) for number in self._numbers_by_id.get(msg_id, ())]
        return self._remove(numbers)

    async def delete_by_mark(self, mark: str | list[str], *args: Any, **kwargs: Any) -> int:  # noqa: ARG002
        names = as_marks(mark, "mark", is_optional=False)
        return self._remove({number for name in names for number in self._numbers_by_mark.get(name, ())})

    async def size(self) -> int:
        return len(self._entries)

    async def clear(self) -> None:
        self._replace("", ())

    async def get_memory(
        self,
        mark: str | None = None,
        exclude_mark: str | None = None,
        prepend_summary: bool = True,
        **kwargs: Any,  # noqa: ARG002
    ) -> list[Msg]:
        as_mark(mark, "mark")
        as_mark(exclude_mark, "exclude_mark")
        if mark is None:
            entries: Iterable[_Entry] = self._entries.values()
        else:
            entries = [self._entries[number] for number in sorted(self._numbers_by_mark.get(mark, ()))]
        messages = [entry.msg.copy() for entry in entries if exclude_mark not in entry.marks]
        if prepend_summary and self._compressed_summary:
            return [summary_message(self._compressed_summary), *messages]
        return messages

    async def find(self, msg_ids: Collection[str]) -> list[Msg]:
        """Return the messages under these ids, as copies, in order."""
        if type(self).get_memory is not InMemoryMemory.get_memory:  # a subclass reads otherwise
            return await super().find(msg_ids)
        numbers = sorted(number for id in as_id_set(msg_ids) for number in self._numbers_by_id.get(id, ()))
        return [self._entries[number].msg.copy() for number in numbers]

    async def update_messages_mark(
        self, new_mark: str | None, old_mark: str | None = None, msg_ids: list[str] | None = None
    ) -> int:
        new, old, ids = as_mark_update(new_mark, old_mark, msg_ids)
        if old == new:
            return 0
        changed = 0
        for number in self._numbers(old, ids):
            if old is not None:
                self._unmark(number, old)
            is_new = new is not None and self._mark(number, [new])
            changed += is_new or old is not None
        return changed

    async def update_compressed_summary(self, summary: str) -> None:
        if as_summary(summary) != self._compressed_summary:
            self._compressed_summary = summary
            self._revision += 1

    def state_dict(self) -> dict[str, Any]:
        """Return messages, marks and summary as JSON-like data, in the form that AgentScope 1.0 writes."""
        content = [[entry.msg.to_dict(), list(entry.marks)] for entry in self._entries.values()]
        return {"_compressed_summary": self._compressed_summary, "content": content}

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
        self._replace(summary, items)

    def revision(self) -> int:
        """Return a number that grows with every change."""
        return self._revision

    # Each of these keeps the three indexes together.

    def _append(self, msg: Msg, marks: Iterable[str]) -> None:
        number = self._next_number
        self._next_number += 1
        self._entries[number] = _Entry(msg, {})
        self._numbers_by_id.setdefault(msg.id, []).append(number)
        self._revision += 1
        self._mark(number, marks)

    def _mark(self, number: int, marks: Iterable[str]) -> bool:
        entry = self._entries[number]
        new = [mark for mark in marks if mark not in entry.marks]
        for mark in new:
            entry.marks[mark] = None
            self._numbers_by_mark.setdefault(mark, set()).add(number)
        self._revision += len(new)
        return bool(new)

    def _unmark(self, number: int, mark: str) -> None:
        del self._entries[number].marks[mark]
        self._forget_mark(number, mark)
        self._revision += 1

    def _remove(self, numbers: Iterable[int]) -> int:
        removed = 0
        for number in numbers:
            entry = self._entries.pop(number)
            same_id = self._numbers_by_id[entry.msg.id]
            same_id.remove(number)
            if not same_id:
                del self._numbers_by_id[entry.msg.id]
            for mark in entry.marks:
                self._forget_mark(number, mark)
            removed += 1
        self._revision += removed
        return removed

    def _forget_mark(self, number: int, mark: str) -> None:
        numbers = self._numbers_by_mark[mark]
        numbers.remove(number)
        if not numbers:
            del self._numbers_by_mark[mark]

    def _replace(self, summary: str, items: Iterable[tuple[Msg, list[str]]]) -> None:
        self._entries.clear()
        self._numbers_by_id.clear()
        self._numbers_by_mark.clear()
        self._compressed_summary = summary
        self._revision += 1
        for msg, marks in items:
            self._append(msg, marks)

    def _numbers(self, mark: str | None, msg_ids: list[str] | None) -> list[int]:
        """Return the numbers of messages that bear `mark` and are among `msg_ids`, None meaning any."""
        if msg_ids is not None:
            return [
                number
                for msg_id in msg_ids
                for number in self._numbers_by_id.get(msg_id, ())
                if mark is None or mark in self._entries[number].marks
            ]
        return list(self._entries if mark is None else self._numbers_by_mark.get(mark, ()))


def _read_state(state: object, strict: bool) -> tuple[str, list[tuple[Msg, list[str]]]]:
    if not isinstance(state, Mapping):
        raise InvalidStateError(f"state: expected a dict, got {type(state).__name__}")
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
        raise InvalidStateError(f"{place}[1]: expected a list of strings, got {marks!r}")
    return _read_message(data, f"{place}[0]"), list(marks)


def _read_message(data: object, place: str) -> Msg:
    try:
        return Msg.from_dict(data)  # type: ignore[arg-type]  # which it checks
    except InvalidMessageError as error:
        raise InvalidStateError(f"{place}.{error}") from error
