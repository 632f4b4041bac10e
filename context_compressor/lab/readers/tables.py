"""Formats told by a table: for each type of record, the steps that say it to a transcript.

A step takes what it needs by paths: keys joined by dots, a number for a place in a list; of several paths the
first counts that holds something. A record of a type that is not in the table is no record of the format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from context_compressor.lab.readers.documents import Numbered
from context_compressor.lab.readers.reader import Reader
from context_compressor.lab.readers.session import Format, UnreadableError
from context_compressor.lab.readers.transcript import (
    API_ERRORS,
    Part,
    Transcript,
    as_object,
    dump,
    first_in,
    keys_of,
    kind_of,
    opaque_part,
    text_in,
    text_part,
    to_part,
)

Step = Callable[[Transcript, Any, int], None]
Kind = Callable[[dict[str, Any]], str | None]
Table = Mapping[str, Sequence[Step]]
"""Of each type of record, what it says."""

_ROOTS = ("", "__root__")
"""What a record says of its parent that has none."""
_LISTS = ("messages", "events", "history", "conversation", "steps")
"""Where a session keeps its records."""


def pick(record: Any, *paths: str) -> Any:
    """Return what stands under the first path that holds something, or None."""
    for path in paths:
        value = record
        for key in path.split("."):
            if isinstance(value, list):
                value = value[int(key)] if key.isdigit() and int(key) < len(value) else None
            else:
                value = value.get(key) if isinstance(value, dict) else None
        if value not in (None, "", []):
            return value
    return None


def is_there(record: Any, path: str) -> bool:
    """Tell whether a record has a path, even if its value is empty."""
    above, _, key = path.rpartition(".")
    holder = pick(record, above) if above else record
    return isinstance(holder, dict) and key in holder


def parts_of(value: Any) -> list[Part]:
    """Return a text, a block, or a list of such as parts."""
    if value is None or value == "":
        return []
    if isinstance(value, list):
        return [part for one in value for part in parts_of(one)]
    if not isinstance(value, dict):
        return [opaque_part(value)]
    answer = pick(value, "functionResponse.response.output", "functionResponse.response")
    if answer is not None:
        return parts_of(answer)
    inline = value.get("inlineData")
    url = text_in(value, "url", "image")
    if isinstance(inline, dict):
        return [to_part({"type": "image", "source": inline})]
    if url and text_in(value, "mime", "type", "kind").startswith("image"):
        return [{"type": "image_url", "image_url": {"url": url}}]
    if value.keys() <= {"text", "thought", "thoughtSignature"} and isinstance(value.get("text"), str):
        return [text_part(value["text"])]
    if value.get("kind") == "binary":
        return [to_part({"type": "file", "source": value})]
    return [to_part(value) if "type" in value else opaque_part(value)]


def says(role: str, *paths: str) -> Step:
    """Return the step that says something for a person or a program, if there is something to say."""

    def step(transcript: Transcript, record: Any, line: int) -> None:
        if parts := parts_of(pick(record, *paths)):
            transcript.say(role, parts, line)

    return step


def begins(transcript: Transcript, _record: Any, _line: int) -> None:
    """End the reply: what the model says, thinks or calls next is of another."""
    transcript.close()


def goes_on(transcript: Transcript, _record: Any, _line: int) -> None:
    """End the reply if it has said or called something: thoughts belong to what follows them."""
    transcript.close_said()


def replies(key: str = "", name: str = "") -> Step:
    """Return the step that opens a reply by somebody, or goes on with the one that has the same key."""

    def step(transcript: Transcript, record: Any, line: int) -> None:
        known, who = pick(record, key), pick(record, name)
        transcript.reply(line, text_of(known) if known else None, who if isinstance(who, str) else None)

    return step


def speaks(*paths: str) -> Step:
    """Return the step that adds what the model said; what goes on with the last text is joined to it."""

    def step(transcript: Transcript, record: Any, line: int) -> None:
        transcript.speak(parts_of(pick(record, *paths)), line, is_delta=bool(pick(record, "delta")))

    return step


def thinks(*paths: str) -> Step:
    """Return the step that adds what the model thought."""

    def step(transcript: Transcript, record: Any, line: int) -> None:
        for part in parts_of(pick(record, *paths)):
            transcript.think(text_in(part, "text"), line)

    return step


def calls(id: str, name: str, *given: str, result: Sequence[str] = (), called: str = "") -> Step:
    """Return the step that adds a call, and its result where the same record may have one.

    `called`: its name where no key says it. An id is made where it has none.
    """

    def step(transcript: Transcript, record: Any, line: int) -> None:
        call_id = pick(record, id)
        call_id = transcript.make_id() if call_id is None else text_of(call_id)
        arguments = pick(record, *given)
        if not isinstance(arguments, dict | str):
            arguments = {} if arguments is None else {given[0].rpartition(".")[2]: arguments}
        elif isinstance(arguments, str) and not arguments.lstrip().startswith("{"):
            arguments = {given[0].rpartition(".")[2]: arguments}
        transcript.call(call_id, text_of(pick(record, name) or called), arguments, line)
        found = pick(record, *result)
        if found is not None:
            transcript.answer(call_id, parts_of(found), line)
            transcript.go_on()

    return step


def answers(ids: Sequence[str], *paths: str) -> Step:
    """Return the step that adds the result of a call: of the first that waits, where no id is told.

    What answers no call is said by the user, as its program shows it to the model.
    """

    def step(transcript: Transcript, record: Any, line: int) -> None:
        call_id, parts = pick(record, *ids), parts_of(pick(record, *paths))
        if not any(is_there(record, path) for path in paths):
            raise UnreadableError(f"{paths[0]}: expected the result of a call, but it is missing")
        if call_id is None:
            call_id = next((waiting for waiting, _ in transcript.pending), None)
        if call_id is None:
            transcript.say("user", parts, line)
        else:
            transcript.answer(text_of(call_id), parts, line)

    return step


def keeps(role: str) -> Step:
    """Return the step that keeps a block as it is, or as its JSON text if its type is unknown."""

    def step(transcript: Transcript, block: Any, line: int) -> None:
        if role == "assistant":
            transcript.speak(parts_of(block), line)
        elif parts := parts_of(block):
            transcript.say(role, parts, line)

    return step


def each(path: str, kind: Kind, table: Table, other: Sequence[Step] = (keeps("assistant"),)) -> Step:
    """Return the step that looks each block of a list up in a table of its own; `other` is for the rest."""

    def step(transcript: Transcript, record: Any, line: int) -> None:
        found = pick(record, path)
        for block in found if isinstance(found, list) else [] if found is None else [found]:
            block = {"type": "text", "text": block} if isinstance(block, str) else block
            found_kind = kind(block) if isinstance(block, dict) else None
            before = transcript.pieces, transcript.told
            for one in table.get(found_kind or "", other):
                one(transcript, block, line)
            if (transcript.pieces, transcript.told) == before:
                transcript.miss(f"{found_kind or kind_of(block)} in {path.rpartition('.')[2]}")

    return step


def fails(*paths: str) -> Step:
    """Return the step that notes an error which a program wrote in the place of a reply."""

    def step(transcript: Transcript, record: Any, _line: int) -> None:
        if pick(record, *paths) is not None:
            transcript.leave_out(API_ERRORS)

    return step


def names(*paths: str) -> Step:
    """Return the step that takes the name of the session."""

    def step(transcript: Transcript, record: Any, _line: int) -> None:
        found = pick(record, *paths)
        transcript.id = transcript.id or (str(found) if isinstance(found, str | int) else "")
        transcript.told += 1

    return step


def titled(*paths: str) -> Step:
    """Return the step that takes the title of the session; the last one holds."""

    def step(transcript: Transcript, record: Any, _line: int) -> None:
        found = pick(record, *paths)
        transcript.title = found if isinstance(found, str) and found.strip() else transcript.title

    return step


def compacts(*paths: str) -> Step:
    """Return the step that tells of a summary that the program put in the place of earlier records."""

    def step(transcript: Transcript, record: Any, line: int) -> None:
        transcript.compact()
        says("user", *paths)(transcript, record, line)

    return step


def bookkeeping(*kinds: str) -> dict[str, Sequence[Step]]:
    """Return the rows of records that are known, and say nothing."""

    def left(kind: str) -> Step:
        return lambda transcript, _record, _line: transcript.leave_out(kind)

    return {kind: (left(kind),) for kind in kinds}


def by(*keys: str) -> Kind:
    """Return how a type is found: the first of some keys that holds a text."""
    return lambda record: text_in(record, *keys) or None


Prune = Callable[[Transcript, list[Numbered]], list[Numbered]]


class TableReader(Reader):
    """A reader by a table.

    Args:
        format: which it is.
        kind: returns the type of a record, None of what is no record of this format.
        table: what each type says.
        prune: takes out records that others replace or take back, and tells how many.
        id_keys: under which a holder of records says what it calls itself.
        among: returns the type of a record that nothing marks, where others tell of the format.
        spreads: whether one record that is marked tells of all that `among` knows.
    """

    def __init__(
        self,
        format: Format,
        kind: Kind,
        table: Table,
        prune: Prune = lambda _, items: items,
        id_keys: tuple[str, ...] = ("id", "session_id", "sessionId", "info.id"),
        among: Kind = lambda _: None,
        *,
        spreads: bool = False,
    ) -> None:
        self.format = format
        self._kind, self._table, self._prune, self._among = kind, table, prune, among
        self._names, self.id_keys, self._spreads = names(*id_keys), (), spreads

    def claims(self, sample: Sequence[Any]) -> int:
        """Count the records, or the sessions of which most are records."""
        return max(self._count(sample), sum(map(self._is_session, sample)))

    def is_item(self, value: Any) -> bool:
        """Tell whether a value is a record, be it marked by others alone."""
        return _is_record(value) and (self._kind(value) or self._among(value)) in self._table

    def _is_own(self, value: Any) -> bool:
        return _is_record(value) and self._kind(value) in self._table

    def _count(self, values: Sequence[Any]) -> int:
        own = sum(map(self._is_own, values))
        return sum(map(self.is_item, values)) if own and self._spreads else own

    def _is_session(self, value: Any) -> bool:
        held = first_in(value, *_LISTS) if isinstance(value, dict) else value
        return isinstance(held, list) and 2 * self._count(held) > len(held)

    def unwrap(self, value: Any) -> list[Any]:
        """Return the list under the first key of a session's that is there."""
        held = first_in(value, *_LISTS) if isinstance(value, dict) else value
        if not isinstance(held, list):
            raise UnreadableError(f"expected a record or a list of records, got {kind_of(held)}")
        return held

    def begin(self, transcript: Transcript, holder: Any, line: int) -> list[Numbered]:
        """Take the session's name, say its instructions, and tell of lists that are left out."""
        self._names(transcript, holder, line)
        if isinstance(holder, dict):
            says("system", "system")(transcript, holder, line)
            for key, held in holder.items():
                if key not in _LISTS and (self._is_own(held) or self._is_session(held)):
                    transcript.leave_out(key)
        return []

    def prune(self, transcript: Transcript, items: list[Numbered]) -> list[Numbered]:
        """Take out what the format's own rule takes out."""
        return self._prune(transcript, items)

    def add(self, transcript: Transcript, item: Any, line: int) -> None:
        """Take the steps that the table has for the type of a record."""
        item = as_object(item, f"expected a record of {self.format.title}")
        kind = self._kind(item) or self._among(item)
        steps = self._table.get(kind or "")
        if steps is None:
            kind = kind or text_in(item, "type")
            what = f"type {kind!r} is not known" if kind else f"has no type ({keys_of(item)})"
            raise UnreadableError(f"expected a record of {self.format.title}: {what}")
        for step in steps:
            step(transcript, item, line)


def _is_record(value: Any) -> bool:
    """Tell whether a value may be a record, and holds no list of them."""
    return isinstance(value, dict) and not isinstance(first_in(value, *_LISTS), list)


def keep_path(key: str, parent: str) -> Prune:
    """Return how records are pruned that are linked to the one before: those the last descends from stay.

    A record whose parent is not in the file follows the one that stands before it.
    """

    def prune(transcript: Transcript, items: list[Numbered]) -> list[Numbered]:
        linked = {text_in(item, key): item for _, item in items if isinstance(item, dict) and parent in item}
        before = dict(zip(list(linked)[1:], linked, strict=False))
        name = next(reversed(linked), "")
        path: set[int] = set()
        while name in linked and id(linked[name]) not in path:
            path.add(id(linked[name]))
            held = linked[name][parent]
            above = held if isinstance(held, str) else "" if held is None else None
            is_lost = above not in linked and above not in _ROOTS
            name = before.get(name, "") if is_lost or above is None else above
        linked_ids = {id(item) for item in linked.values()}
        kept = [(line, item) for line, item in items if id(item) in path or id(item) not in linked_ids]
        if len(items) > len(kept):
            transcript.leave_out("records of other branches", len(items) - len(kept))
        return kept

    return prune


def text_of(value: Any) -> str:
    """Return a value as text."""
    return value if isinstance(value, str) else dump(value)
