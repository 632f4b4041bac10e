"""Between messages and the search index: what it is told of them, and where a hit can be read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from context_compressor.compression.edits import ItemKey, StubEdit, message_id
from context_compressor.compression.shown import (
    Redact,
    call_text,
    redacted_call,
    redacted_text,
    shown_message,
)
from context_compressor.memory.state import MemoryState
from context_compressor.messages.media import is_data_url
from context_compressor.messages.msg import Msg, tool_calls, tool_results
from context_compressor.messages.parts import PartPath, argument_lines, is_argument, part_at
from context_compressor.messages.speech import is_handed
from context_compressor.messages.text import dump_sendable
from context_compressor.offload.pages import is_read_back
from context_compressor.offload.store import ref_of
from context_compressor.search.hits import Document, Hit, find_all

if TYPE_CHECKING:
    from context_compressor.search import Found

_MAX_PLACES = 200
"""Places of one text in a transcript that are looked at."""
_HEADER_END = " ===\n"
"""What stands before a message's text in a transcript."""


class _Lines(NamedTuple):
    """Where a passage stands in a text, 1-based."""

    first: int
    last: int
    column: int
    """Of its first character, in the first line."""


class Place(NamedTuple):
    """A passage that was found, and what stands in the view and the ledger for its message."""

    found: Found
    shown: Sequence[Msg]
    stubs: Sequence[StubEdit]
    segments: Mapping[str, float]
    """The refs of the segments that hold parts of the message, and how far into each these stand: 0 its
    beginning, 1 its end."""
    messages_ago: int
    msg: Msg | None
    """The message itself, for the call that the passage is of."""
    stand_ins: Mapping[PartPath, str]
    """What stands in a segment for single texts of the message."""

    @property
    def is_call(self) -> bool:
        """Whether the passage is of a call's arguments."""
        return self.found.document.tool is not None and self.found.document.role != "tool"

    @property
    def arguments(self) -> list[StubEdit]:
        """The stubs of arguments, where the passage is of a call: it may stand in the text of one of them."""
        return [stub for stub in self.stubs if self.is_call and is_argument(stub.path)]

    @property
    def refs(self) -> list[str]:
        """The refs of the texts that tell its lines."""
        return [*(stub.ref for stub in self.arguments), *self.segments]


class Places:
    """Tell where passages can be read. Runs in any thread.

    Args:
        said: tells what messages say.
    """

    def __init__(self, said: Sayings) -> None:
        self._said = said

    def place(self, found: Found, state: MemoryState, messages_ago: int, msg: Msg | None) -> Place:
        """Return what view and ledger have for the message of a passage.

        Args:
            found: the passage.
            state: in step with the history.
            messages_ago: how many messages came after it.
            msg: its message, None where it is gone.
        """
        key = found.document.key
        orphans = [f"#orphan{number}" for number in range(len(self._said.tools_of(key)))]
        items = [ItemKey(key, part) for part in ("", "#results", "#text", *orphans)]
        shown = [item.msg for item in state.items if item.key.key == key and item.kind != "segment"]
        stubs = [stub for item in items for stub in state.ledger.stubs_of(item).values() if not stub.page]
        segments: dict[str, float] = {}
        for item in items:
            held = state.ledger.segment_of(item)
            if held is not None:
                segments.setdefault(held.ref, held.items.index(item) / len(held.items))
        stand_ins = {path: stub.text for path, stub in state.ledger.stubs_of(items[0]).items()}
        return Place(found, shown, stubs, segments, messages_ago, msg, stand_ins)

    def _call_of(self, place: Place) -> str:
        """Return the call of a passage as a transcript has it; empty where its message is another by now."""
        document, msg = place.found.document, place.msg
        texts = [] if msg is None else self._said.texts(msg, self._said.tools_of(document.key))
        if msg is None or document.part >= len(texts):
            return ""
        stand_ins = {path: text for path, text in place.stand_ins.items() if part_at(msg, path) is not None}
        blocks = shown_message(msg, stand_ins, {}, self._said.redact).get_content_blocks()
        block = blocks[texts[document.part].block]
        return call_text(block) if block.get("type") == "tool_use" else ""

    def hit(self, place: Place, texts: Mapping[str, str], query: str) -> Hit:
        """Return a passage with where it stands.

        Args:
            place: the passage.
            texts: the texts under `place.refs`, as far as they could be read.
            query: what was asked.
        """
        sought = _lines_sought(place.found.text, query) if place.is_call else []
        found, document = place.found, place.found.document
        # Of a call with a stub the line that was asked for may still be there.
        told = found.text[slice(*sought[0])] if sought else found.text
        in_view = any(told in said.text for msg in place.shown for said in self._said.texts(msg))
        ref: str | None = None
        lines: _Lines | None = None
        whole = ref_of(document.text) if place.stubs else ""
        argument = _argument_with(place, texts, sought)
        if any(stub.ref == whole for stub in place.stubs):
            ref, lines = whole, _lines_of(document.text, found.start, found.end)
        elif argument is not None:
            ref, lines = argument
        elif place.segments:
            ref, lines = self._in_segments(place, texts, sought)
        return Hit(
            text=found.text,
            ref=ref,
            message_ids=(message_id(document.key),),
            role=document.role,
            tool=document.tool,
            lines=None if lines is None else (lines.first, lines.last),
            in_view=in_view,
            messages_ago=place.messages_ago,
            column=1 if lines is None else lines.column,
        )

    def _in_segments(
        self, place: Place, texts: Mapping[str, str], sought: Sequence[tuple[int, int]]
    ) -> tuple[str, _Lines | None]:
        """Return ref and lines of the segment with a passage: the parts of a message may leave apart."""
        call = self._call_of(place) if place.is_call else ""
        for ref, share in place.segments.items():
            transcript = texts.get(ref, "")
            if place.is_call:
                lines = _lines_of_call(transcript, call, place.found.text, share, sought)
            else:
                lines = _lines_in(transcript, place.found, share)
            if lines is not None:
                return ref, lines
        return next(iter(place.segments)), None


def _lines_sought(text: str, query: str) -> list[tuple[int, int]]:
    """Return where lines of a text begin and end: those with most of what is sought, then the longest."""
    from context_compressor.search.query import places_in  # which only a search loads

    places = places_in(text, query)
    ranked: list[tuple[int, int, int]] = []
    start = 0
    for line in text.split("\n"):
        end = start + len(line)
        ranked.append((len({place.term for place in places if start <= place.start < end}), start, end))
        start = end + 1
    ranked.sort(key=lambda one: (one[0], one[2] - one[1]), reverse=True)
    return [(start, end) for _, start, end in ranked]


def _argument_with(
    place: Place, texts: Mapping[str, str], sought: Sequence[tuple[int, int]]
) -> tuple[str, _Lines] | None:
    """Return ref and lines of the stored argument that holds what was sought of a call."""
    found = place.found
    for stub in place.arguments:
        stored = texts.get(stub.ref)
        start = found.document.text.find(stored) if stored else -1
        if not stored or start < 0:
            continue
        end = start + len(stored)
        first, last = (found.start + at for at in sought[0])
        if first < end and start < last:
            return stub.ref, _lines_of(stored, max(0, found.start - start), found.end - start)
    return None


def _lines_of_call(
    transcript: str, call: str, text: str, share: float, sought: Sequence[tuple[int, int]]
) -> _Lines | None:
    """Return the lines of a call in the transcript with it, of those the ones with what was sought.

    Where the call is not found as a whole, what was sought tells them if it stands there just once.
    """
    places = _places_of(call, transcript)
    begin, end = 0, len(transcript)
    if places:
        at = _nearest(places, transcript, share)
        begin, end = at + call.index("\n") + 1, at + len(call)
    for start, stop in sought if places else sought[:1]:
        line = text[start:stop]
        value = line.partition(": ")[2] or line
        # Arguments stand there as JSON, of which there are two forms, those of a custom tool as they are.
        for needle in (dump_sendable(value)[1:-1], json.dumps(value)[1:-1], line):
            at = transcript.find(needle, begin, end) if needle else -1
            if at >= 0 and (places or transcript.find(needle, at + 1) < 0):
                return _lines_of(transcript, at, at + len(needle))
    return _lines_of(transcript, begin, end) if places else None


def _lines_in(transcript: str, found: Found, share: float) -> _Lines | None:
    """Return the lines of a passage in the transcript with its message, told from like texts by its place."""
    places = _places_of(found.document.text, transcript)
    if not places:
        return None
    whole = [at for at in places if transcript.endswith(_HEADER_END, 0, at)]
    start = _nearest(whole or places, transcript, share)
    return _lines_of(transcript, start + found.start, start + found.end)


def _places_of(text: str, transcript: str) -> list[int]:
    """Return where a text begins in a transcript, the first of the places that there are."""
    return list(islice(find_all(text, transcript), _MAX_PLACES))


def _nearest(places: Sequence[int], transcript: str, share: float) -> int:
    return min(places, key=lambda at: abs(at - share * len(transcript)))


def _lines_of(text: str, start: int, end: int) -> _Lines:
    first = text.count("\n", 0, start) + 1
    last = first + text.count("\n", start, max(start, end - 1))
    return _Lines(first, last, start - text.rfind("\n", 0, start))


_OTHER_TEXTS = (
    *(("refusal",), ("content",), ("audio", "transcript"), ("file", "filename"), ("source", "url")),
    *(("source", "file_id"), ("file", "file_id"), ("openai_part", "file_id"), ("openai_part", "file_url")),
)
"""Where a block of another kind has what it says, or what it is asked for by."""


class Said(NamedTuple):
    """A text of a message."""

    role: str
    tool: str | None
    text: str
    block: int
    """Number of the content block that says it."""


class Sayings:
    """Tell what messages say. `digests` has to see them in the order of the history; all runs in any thread.

    Args:
        redact: what every text goes through.

    Attributes:
        redact: as given.
    """

    def __init__(self, redact: Redact | None) -> None:
        self.redact = redact
        self._calls: dict[str, str] = {}
        self._tools: dict[str, tuple[str | None, ...]] = {}
        """Of each message with results, the tools that these are of."""
        self._said_by: dict[str, dict[str, None]] = {}
        """The messages of each role, in order."""
        self._asking: dict[str, None] = {}
        """Messages in which a user speaks, in order."""

    def start_anew(self) -> None:
        """Forget which result is of which tool."""
        self._calls, self._tools, self._said_by, self._asking = {}, {}, {}, {}

    def digests(self, messages: Iterable[tuple[str, Msg | None]]) -> dict[str, str]:
        """Return a digest of what each message says, those that come next in the history."""
        return {key: self._digest(key, msg) for key, msg in messages if msg is not None}

    def _digest(self, key: str, msg: Msg) -> str:
        # A result names the call before it; an id may be used again.
        results = tool_results(msg)
        if results:
            self._tools[key] = tuple(self._calls.get(block["id"]) or block.get("name") for block in results)
        self._calls.update((call["id"], call["name"]) for call in tool_calls(msg) if call["id"])
        if msg.role == "user" and not results and not is_handed(msg):
            self._asking[key] = None
        digest = hashlib.blake2b(digest_size=8)
        for document in self.documents(key, msg):
            self._said_by.setdefault(document.role, {})[key] = None
            said = f"{document.role}\0{document.tool}\0{document.text}\0"
            digest.update(said.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def documents(self, key: str, msg: Msg) -> list[Document]:
        """Return the texts of a message, an empty one where it has none.

        What the tools read back is left out: it stands in the history already.
        """
        texts = self.texts(msg, self.tools_of(key)) or [Said(msg.role, None, "", 0)]
        return [Document(key, number, said.role, said.tool, said.text) for number, said in enumerate(texts)]

    def said_by(self, role: str) -> Collection[str]:
        """Return the keys of the messages in which a role says something."""
        return self._said_by.get(role, ())

    def newest_request(self, keys: Collection[str]) -> str | None:
        """Return the newest of these messages in which a user speaks."""
        there = set(keys)
        return next((key for key in reversed(self._asking) if key in there), None)

    def tools_of(self, key: str) -> tuple[str | None, ...]:
        """Return the tools that a message's results are of."""
        return self._tools.get(key, ())

    def texts(self, msg: Msg, tools: Sequence[str | None] = ()) -> list[Said]:
        """Return what a message says, its results by these tools; redacted."""
        return [
            said._replace(text=redacted_text(said.text, self.redact))
            for said in _all_texts(msg, tools, self.redact)
            if said.text.strip() and not is_read_back(said.tool, said.text if said.role == "tool" else None)
        ]


def _all_texts(msg: Msg, tools: Sequence[str | None], redact: Redact | None) -> Iterator[Said]:
    """Yield all that a message says, the results by the tools that they are of, calls redacted as JSON."""
    names = iter(tools)
    for number, block in enumerate(msg.get_content_blocks()):
        kind = block.get("type")
        if kind in ("text", "thinking"):
            yield Said(msg.role, None, str(block.get(kind) or ""), number)
        elif kind == "tool_use":
            call = block if redact is None else redacted_call(block, redact)
            # As JSON, line feeds would stick to words.
            yield Said(msg.role, block["name"], "\n".join(argument_lines(call["input"])), number)
        elif kind == "tool_result":
            tool = next(names, None) or block.get("name")
            output = block["output"]
            for one in [{"type": "text", "text": output}] if isinstance(output, str) else output:
                if one.get("type") == "text":
                    yield Said("tool", tool, str(one.get("text") or ""), number)
        else:
            for path in _OTHER_TEXTS:
                value: object = block
                for name in path:
                    value = value.get(name) if isinstance(value, dict) else None
                if isinstance(value, str) and not is_data_url(value):
                    yield Said(msg.role, None, value, number)
