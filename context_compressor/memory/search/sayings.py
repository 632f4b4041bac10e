"""What messages say, as the search index is told."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from context_compressor.compression.redaction import Redact, redacted_call, redacted_text
from context_compressor.memory.read_back import is_read_back
from context_compressor.messages.media import is_data_url
from context_compressor.messages.msg import Msg, tool_calls, tool_results
from context_compressor.messages.parts import argument_lines
from context_compressor.recall.passages import Document

_OTHER_TEXTS = (("refusal",), ("audio", "transcript"), ("file", "filename"), ("source", "url"))
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
        self._calls.update((call["id"], call["name"]) for call in tool_calls(msg) if call["id"])
        digest = hashlib.blake2b(digest_size=8)
        for document in self.documents(key, msg):
            said = f"{document.role}\0{document.tool}\0{document.text}\0"
            digest.update(said.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def documents(self, key: str, msg: Msg) -> list[Document]:
        """Return the texts of a message, an empty one where it has none.

        What the tools read back is left out: it stands in the history already.
        """
        texts = self.texts(msg, self.tools_of(key)) or [Said(msg.role, None, "", 0)]
        return [Document(key, number, said.role, said.tool, said.text) for number, said in enumerate(texts)]

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
