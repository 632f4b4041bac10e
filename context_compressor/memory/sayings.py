"""What messages say, as the search index is told, and where a passage of it can be read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from context_compressor.compression.edits import ItemKey, SegmentEdit, StubEdit, message_id
from context_compressor.compression.transcript import Redact, redacted_text
from context_compressor.memory.state import MemoryState
from context_compressor.messages.msg import Msg, tool_calls, tool_results
from context_compressor.messages.parts import argument_lines, is_argument
from context_compressor.offload.protocol import ref_of
from context_compressor.offload.schemas import TOOL_NAMES
from context_compressor.recall.hits import Hit
from context_compressor.recall.passages import Document
from context_compressor.recall.ranking import Found

_MAX_PLACES = 200
"""Places of one text in a transcript that are looked at."""
_HEADER_END = " ===\n"
"""What stands before a message's text in a transcript."""


class _Said(NamedTuple):
    """A text of a message."""

    role: str
    tool: str | None
    text: str


class Place(NamedTuple):
    """A passage that was found, and what stands in the view and the ledger for its message."""

    found: Found
    shown: Sequence[Msg]
    stubs: Sequence[StubEdit]
    segment: SegmentEdit | None
    share: float
    """How far into the segment the message stands: 0 its beginning, 1 its end."""
    messages_ago: int

    @property
    def arguments(self) -> list[StubEdit]:
        """The stubs of arguments, where the passage is of a call: it is found in the text of one of them."""
        is_call = self.found.document.tool is not None and self.found.document.role != "tool"
        return [stub for stub in self.stubs if is_call and is_argument(stub.path)]

    @property
    def refs(self) -> list[str]:
        """The refs of the texts that tell its lines."""
        segment = [] if self.segment is None else [self.segment.ref]
        return [stub.ref for stub in self.arguments] + segment


class Sayings:
    """Tell what messages say. `digests` has to see them in the order of the history; all runs in any thread.

    Args:
        redact: what every text goes through.
    """

    def __init__(self, redact: Redact | None) -> None:
        self._redact = redact
        self._calls: dict[str, str] = {}
        self._tools: dict[str, tuple[str | None, ...]] = {}
        """Of each message with results, the tools that these are of."""

    def start_anew(self) -> None:
        """Forget which result is of which tool."""
        self._calls, self._tools = {}, {}

    def digests(self, messages: Iterable[tuple[str, Msg | None]]) -> dict[str, str]:
        """Return a digest of what each message says, those that come next in the history."""
        return {key: self._digest(key, msg) for key, msg in messages if msg is not None}

    def _digest(self, key: str, msg: Msg) -> str:
        # A result names the call before it; an id may be used again.
        results = tool_results(msg)
        if results:
            self._tools[key] = tuple(self._calls.get(block["id"]) or block.get("name") for block in results)
        self._calls.update((call["id"], call["name"]) for call in tool_calls(msg))
        digest = hashlib.blake2b(digest_size=8)
        for document in self.documents(key, msg):
            said = f"{document.role}\0{document.tool}\0{document.text}\0"
            digest.update(said.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def documents(self, key: str, msg: Msg) -> list[Document]:
        """Return the texts of a message, an empty one where it has none.

        What the tools read back is left out: it stands in the history already.
        """
        texts = self._texts(msg, self._tools.get(key, ())) or [_Said(msg.role, None, "")]
        return [Document(key, number, said.role, said.tool, said.text) for number, said in enumerate(texts)]

    def _texts(self, msg: Msg, tools: Sequence[str | None] = ()) -> list[_Said]:
        return [
            said._replace(text=redacted_text(said.text, self._redact))
            for said in _all_texts(msg, tools)
            if said.text.strip() and said.tool not in TOOL_NAMES
        ]

    def place(self, found: Found, state: MemoryState, messages_ago: int) -> Place:
        """Return what view and ledger have for the message of a passage."""
        key = found.document.key
        orphans = [f"#orphan{number}" for number in range(len(self._tools.get(key, ())))]
        items = [ItemKey(key, part) for part in ("", "#results", "#text", *orphans)]
        shown = [item.msg for item in state.items if item.key.key == key and item.kind != "segment"]
        stubs = [stub for item in items for stub in state.ledger.stubs_of(item).values() if not stub.page]
        segment, share = None, 0.0
        for item in items:
            held = state.ledger.segment_of(item)
            if held is not None and segment is None:
                segment, share = held, held.items.index(item) / len(held.items)
        return Place(found, shown, stubs, segment, share, messages_ago)

    def hit(self, place: Place, texts: Mapping[str, str]) -> Hit:
        """Return a passage with where it stands.

        Args:
            place: the passage.
            texts: the texts under `place.refs`, as far as they could be read.
        """
        found, document = place.found, place.found.document
        in_view = any(found.text in said.text for msg in place.shown for said in self._texts(msg))
        ref: str | None = None
        lines: tuple[int, int] | None = None
        whole = ref_of(document.text) if place.stubs else ""
        argument = _argument_with(place, texts)
        if any(stub.ref == whole for stub in place.stubs):
            ref, lines = whole, _lines_of(document.text, found.start, found.end)
        elif argument is not None:
            ref, lines = argument
        elif place.segment is not None:
            ref = place.segment.ref
            lines = _lines_in(texts.get(ref, ""), found, place.share)
        return Hit(
            text=found.text,
            ref=ref,
            message_ids=(message_id(document.key),),
            role=document.role,
            tool=document.tool,
            lines=lines,
            in_view=in_view,
            messages_ago=place.messages_ago,
        )


def _all_texts(msg: Msg, tools: Sequence[str | None]) -> Iterator[_Said]:
    """Yield all that a message says, the results by the tools that they are of."""
    names = iter(tools)
    for block in msg.get_content_blocks():
        kind = block.get("type")
        if kind in ("text", "thinking"):
            yield _Said(msg.role, None, str(block.get(kind) or ""))
        elif kind == "tool_use":
            # As JSON, line feeds would stick to words.
            yield _Said(msg.role, block["name"], "\n".join(argument_lines(block["input"])))
        elif kind == "tool_result":
            tool = next(names, None) or block.get("name")
            output = block["output"]
            for one in [{"type": "text", "text": output}] if isinstance(output, str) else output:
                if one.get("type") == "text":
                    yield _Said("tool", tool, str(one.get("text") or ""))


def _argument_with(place: Place, texts: Mapping[str, str]) -> tuple[str, tuple[int, int]] | None:
    """Return ref and lines of the stored argument that a passage of a call is from."""
    found = place.found
    for stub in place.arguments:
        stored = texts.get(stub.ref)
        start = found.document.text.find(stored) if stored else -1
        if stored and start >= 0 and found.start < start + len(stored) and start < found.end:
            return stub.ref, _lines_of(stored, max(0, found.start - start), found.end - start)
    return None


def _lines_in(transcript: str, found: Found, share: float) -> tuple[int, int] | None:
    """Return the lines of a passage in the transcript with its message, told from like texts by its place."""
    text = found.document.text
    places: list[int] = []
    at = transcript.find(text)
    while at >= 0 and len(places) < _MAX_PLACES:
        places.append(at)
        at = transcript.find(text, at + 1)
    if not places:
        # The arguments of a call stand there as JSON.
        line = max(found.text.split("\n"), key=len).partition(": ")
        at = transcript.find(json.dumps(line[2] or line[0], ensure_ascii=False)[1:-1])
        return None if at < 0 else _lines_of(transcript, at, at + 1)
    whole = [at for at in places if transcript.endswith(_HEADER_END, 0, at)]
    start = min(whole or places, key=lambda at: abs(at - share * len(transcript)))
    return _lines_of(transcript, start + found.start, start + found.end)


def _lines_of(text: str, start: int, end: int) -> tuple[int, int]:
    first = text.count("\n", 0, start) + 1
    return first, first + text.count("\n", start, max(start, end - 1))
