"""The contract of a memory: AgentScope's ten methods, and checks of what comes from outside."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from inspect import isawaitable
from typing import Any, NoReturn

from context_compressor.core.config import CompressionConfig
from context_compressor.errors import ConflictError, InvalidArgumentError, check_members
from context_compressor.memory.history import Add, Change, Delete, Entry, Head, History, Mark, SetSummary
from context_compressor.messages.msg import Msg
from context_compressor.summarizers.protocol import check_summarizer, is_rules
from context_compressor.tokens.counter import check_counter


def check_collaborators(config: Any, store: Any, summarizer: Any, counter: Any, on_event: Any) -> None:
    """Check what a memory is given; None stands for a default.

    Raises:
        InvalidArgumentError: something is not what it should be; the text names it and what it lacks.
    """
    if not (config is None or isinstance(config, CompressionConfig)):
        raise InvalidArgumentError(
            f"config: expected a CompressionConfig or None, got {type(config).__name__}; "
            "CompressionConfig(**fields) makes one"
        )
    if store is not None:
        members = ("write", "read", "delete", "refs")
        check_members("store", store, "an OffloadStore", members, "FileOffloadStore(path) keeps files")
    if not is_rules(summarizer):
        check_summarizer("summarizer", summarizer, "'rules' asks no model")
    check_counter(counter)
    if not (on_event is None or callable(on_event)):
        raise InvalidArgumentError(f"on_event: expected a callable or None, got {type(on_event).__name__}")


_SUMMARY_TIMESTAMP = "1970-01-01 00:00:00.000"


class MemoryBase:
    """Hold a conversation's messages in order, with marks: AgentScope's ten methods over a `History`.

    The same in every backend:

    - A message whose id is known is not added again; the one that is there gets the marks it comes with.
    - Messages come out in the order in which they went in, whatever filter is applied.
    - Counts are counts of messages changed: none is counted twice, none that stays as it was.
    - A call that raises `InvalidArgumentError` or `ValueError` has changed nothing.
    - Messages are copied on the way in and out: no caller can change the history by writing into one.
    - Every method works before the first `add`.

    Args:
        history: where the messages live. A subclass that has the ten methods itself gives none; wrapped by a
            `CompressedMemory` it may have that one writer only.
    """

    _history: History | None = None
    _compressed_summary: str = ""
    """What a subclass with methods of its own has for a summary."""

    def __init__(self, history: History | None = None) -> None:
        self._history = history

    @property
    def history(self) -> History:
        """Where the messages live.

        Raises:
            NotImplementedError: this memory has none, and lacks the method that was called.
        """
        if self._history is None:
            raise NotImplementedError(
                f"{type(self).__name__}: give MemoryBase.__init__ a history, or write the ten methods"
            )
        return self._history

    async def add(
        self, memories: Msg | list[Msg] | None, marks: str | list[str] | None = None, **kwargs: Any
    ) -> None:
        """Append messages, all or none, each with the given marks; None adds nothing.

        Args:
            memories: the messages.
            marks: their marks.
            kwargs: `allow_duplicates=True` keeps a message although its id is known; both then answer to the
                id. Others are passed over, here and below: callers of AgentScope's memories may give some.

        Raises:
            InvalidArgumentError: not messages, or not marks.
            InvalidMessageError: a message nests too deep.
        """
        messages, names = as_messages(memories), as_marks(marks)
        duplicates = bool(kwargs.get("allow_duplicates"))
        if messages:
            await self.history.write([Add(msg.copy(), names, duplicates) for msg in messages])

    async def delete(self, msg_ids: list[str], **kwargs: Any) -> int:  # noqa: ARG002
        """Remove the messages with these ids and return how many were removed; unknown ids are skipped.

        Raises:
            InvalidArgumentError: not a list of strings.
        """
        ids = as_ids(msg_ids)
        return await self._change(lambda: self.history.read(ids=ids), _deletion)

    async def delete_by_mark(self, mark: str | list[str], *args: Any, **kwargs: Any) -> int:  # noqa: ARG002
        """Remove the messages that bear the mark, or any of the marks, and return how many were removed.

        Raises:
            InvalidArgumentError: not a mark or a list of marks.
        """
        names = as_marks(mark, "mark", is_optional=False)

        async def find() -> list[Entry]:
            bearing = [entry for name in names for entry in await self.history.read(mark=name)]
            return list({entry.key: entry for entry in bearing}.values())

        return await self._change(find, _deletion)

    async def size(self) -> int:
        """Return how many messages there are; the compressed summary is none."""
        return (await self.history.head()).size

    async def clear(self) -> None:
        """Remove every message, and the compressed summary."""
        await self._change(
            self.history.read, lambda found: (len(found), [*_deletion(found)[1], SetSummary("")])
        )

    async def get_memory(
        self,
        mark: str | None = None,
        exclude_mark: str | None = None,
        prepend_summary: bool = True,
        **kwargs: Any,  # noqa: ARG002
    ) -> list[Msg]:
        """Return the messages, as copies, in the order in which they were added.

        Args:
            mark: only messages that bear it.
            exclude_mark: only messages that do not bear it; both may be given.
            prepend_summary: begin with the compressed summary as a user message, if there is one.
            kwargs: for other implementations.

        Raises:
            InvalidArgumentError: a mark is neither a string nor None.
        """
        borne, excluded = as_mark(mark, "mark"), as_mark(exclude_mark, "exclude_mark")
        entries = await self.history.read(mark=borne)
        messages = [e.msg.copy() for e in entries if e.msg is not None and excluded not in e.marks]
        summary = (await self.history.head()).summary if prepend_summary else ""
        return [summary_message(summary), *messages] if summary else messages

    async def update_messages_mark(
        self, new_mark: str | None, old_mark: str | None = None, msg_ids: list[str] | None = None
    ) -> int:
        """Add, replace or remove a mark, and return how many messages changed.

        Args:
            new_mark: the mark to add; None removes `old_mark`.
            old_mark: only messages that bear it, which lose it.
            msg_ids: only these messages; all when None.

        Raises:
            InvalidArgumentError: an argument of the wrong type.
            ValueError: neither `new_mark` nor `old_mark`.
        """
        new, old, ids = as_mark_update(new_mark, old_mark, msg_ids)

        def make(found: Sequence[Entry]) -> tuple[int, list[Change]]:
            keys = [entry.key for entry in found if old is not None or new not in entry.marks]
            return len(keys), [Mark(keys, add=new, remove=old)] if keys else []

        return 0 if new == old else await self._change(lambda: self.history.read(ids=ids, mark=old), make)

    async def update_compressed_summary(self, summary: str) -> None:
        """Set the summary with which `get_memory` begins; "" removes it.

        Raises:
            InvalidArgumentError: not a string.
        """
        if as_summary(summary) != (await self.history.head()).summary:
            await self.history.write([SetSummary(summary)])

    def state_dict(self) -> dict[str, Any]:
        """Return what is needed to bring this memory back, as data that goes through `json.dumps`.

        Raises:
            NotImplementedError: the history lasts by itself.
        """
        self._refuse("state_dict")

    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> None:  # noqa: ARG002
        """Replace everything by what `state_dict` returned.

        Args:
            state: the saved state.
            strict: refuse what is missing or unknown, instead of passing over it.

        Raises:
            InvalidStateError: the state cannot be loaded; the memory is as it was.
            NotImplementedError: the history lasts by itself.
        """
        self._refuse("load_state_dict")

    def _refuse(self, method: str) -> NoReturn:
        raise NotImplementedError(
            f"{method}: the messages of a {type(self).__name__} are not held in this process; "
            "`await memory.save()` and `await memory.load(state)` are for every memory"
        )

    async def _change(
        self,
        find: Callable[[], Awaitable[list[Entry]]],
        make: Callable[[list[Entry]], tuple[int, Sequence[Change]]],
    ) -> int:
        """Change messages that have to be found first, anew where others wrote meanwhile; return how many."""
        while True:
            head: Head = await self.history.head()
            count, changes = make(await find())
            if not changes:
                return count
            try:
                await self.history.write(changes, at=head.number)
            except ConflictError:
                continue
            return count


def _deletion(found: Sequence[Entry]) -> tuple[int, list[Change]]:
    return len(found), [Delete([entry.key for entry in found])] if found else []


def as_messages(memories: object) -> list[Msg]:
    """Return what `add` accepts as a list.

    Raises:
        InvalidArgumentError: anything else than a `Msg`, a list of them, or None.
    """
    if memories is None:
        return []
    if isinstance(memories, Msg):
        return [memories]
    if not isinstance(memories, list):
        expected = "memories: expected a Msg, a list of Msg or None"
        if isawaitable(memories):
            raise InvalidArgumentError(f"{expected}, got {_shown(memories)}; await it")
        if isinstance(memories, tuple | set | Iterator):
            raise InvalidArgumentError(f"{expected}, got {_shown(memories)}; list(...) makes a list of it")
        raise _no_msg(expected, memories)
    for index, item in enumerate(memories):
        if not isinstance(item, Msg):
            raise _no_msg(f"memories[{index}]: expected a Msg", item)
    return list(memories)


def _no_msg(expected: str, value: object) -> InvalidArgumentError:
    mend = (
        "make one from chat dicts with from_openai, from another library's message with "
        "Msg.from_dict(other.to_dict())"
    )
    if type(value).__module__.startswith("agentscope."):
        mend = "an agent of AgentScope's takes an AgentScopeCompressedMemory; else " + mend
    return InvalidArgumentError(f"{expected}, got {_shown(value)}; {mend}")


def as_marks(marks: object, argument: str = "marks", *, is_optional: bool = True) -> list[str]:
    """Return marks as a list, each once, in order, out of an enum, whose members format as something else.

    Raises:
        InvalidArgumentError: anything else than a string, a list of strings, or, if optional, None.
    """
    if marks is None and is_optional:
        return []
    if isinstance(marks, str):
        return [str.__str__(marks)]
    if isinstance(marks, list) and all(isinstance(mark, str) for mark in marks):
        return list(dict.fromkeys(map(str.__str__, marks)))
    accepted = "a string, a list of strings or None" if is_optional else "a string or a list of strings"
    raise InvalidArgumentError(f"{argument}: expected {accepted}, got {_shown(marks)}")


def as_mark(mark: object, argument: str) -> str | None:
    """Return a single mark, out of an enum as `as_marks` does, or None.

    Raises:
        InvalidArgumentError: anything else than a string or None.
    """
    if mark is None:
        return None
    if isinstance(mark, str):
        return str.__str__(mark)
    raise InvalidArgumentError(f"{argument}: expected a string or None, got {_shown(mark)}")


def as_ids(msg_ids: object) -> list[str]:
    """Return ids as a list, each once, in order.

    Raises:
        InvalidArgumentError: anything else than a list of strings.
    """
    if isinstance(msg_ids, list) and all(isinstance(msg_id, str) for msg_id in msg_ids):
        return list(dict.fromkeys(msg_ids))
    raise InvalidArgumentError(f"msg_ids: expected a list of strings, got {_shown(msg_ids)}")


def as_summary(summary: object) -> str:
    """Return a summary.

    Raises:
        InvalidArgumentError: not a string.
    """
    if isinstance(summary, str):
        return summary
    raise InvalidArgumentError(f"summary: expected a string, got {_shown(summary)}")


def as_mark_update(
    new_mark: object, old_mark: object, msg_ids: object
) -> tuple[str | None, str | None, list[str] | None]:
    """Return the arguments of `update_messages_mark`: marks as `as_mark` does, ids as `as_ids`, None for all.

    Raises:
        InvalidArgumentError: one of the wrong type.
        ValueError: neither mark is given.
    """
    new, old = as_mark(new_mark, "new_mark"), as_mark(old_mark, "old_mark")
    ids = None if msg_ids is None else as_ids(msg_ids)
    if new is None and old is None:
        raise ValueError("new_mark and old_mark are both None; name the mark to add, to replace or to remove")
    return new, old, ids


def summary_message(summary: str) -> Msg:
    """Return the user message with which `get_memory` begins: for the same summary the same, id included."""
    digest = hashlib.sha256(summary.encode("utf-8", "surrogatepass")).hexdigest()
    return Msg("user", summary, "user", timestamp=_SUMMARY_TIMESTAMP, id=f"summary_{digest[:16]}")


def _shown(value: object) -> str:
    text = repr(value)
    return f"{text if len(text) <= 200 else text[:200] + '…'} ({type(value).__name__})"
