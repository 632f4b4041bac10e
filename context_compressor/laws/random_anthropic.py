"""Random histories of Anthropic messages that the API accepts, by `anthropic_rules`."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from context_compressor.laws.pieces import ARGUMENTS, NAMES, PDF, PNG, Dict, Pieces

FOUND = "sonar_scan"
"""A tool that the model knows from where a search for tools found it."""
REFERENCE: Dict = {"type": "tool_reference", "tool_name": FOUND}
_MARKABLE = frozenset({"text", "image", "document", "tool_use", "tool_result", "search_result"})


def random_anthropic(rng: Random, turns: int) -> list[Dict]:
    """Return a history of so many turns; a turn is a request and all that is done for it."""
    return _History(Pieces(rng)).write(turns)


class _History:
    """Some models think, some also between two calls; some clients mark what is to be cached.

    What Anthropic runs itself may give its result in the assistant's next message: `_owed`.
    """

    def __init__(self, pieces: Pieces) -> None:
        self._draw = pieces
        self._thinks = pieces.one_in(2)
        self._marks = not pieces.one_in(3)
        self._owed: list[Dict] = []
        self._names = NAMES

    def write(self, turns: int) -> list[Dict]:
        draw = self._draw
        messages: list[Dict] = []
        if turns and draw.one_in(10):
            messages.append({"role": "assistant", "content": [self._compaction()]})
        for number in range(turns):
            messages.append({"role": "user", "content": self._request()})
            if draw.one_in(12):
                messages.append({"role": "user", "content": self._request()})
            rounds = draw.pick((0, 0, 1, 1, 2, 3))
            for _ in range(rounds):
                messages += self._program() if draw.one_in(10) else self._round()
            if draw.one_in(30):
                messages.append({"role": "system", "content": draw.pick((draw.text(), [self._text()]))})
                messages += self._answers()
            elif number < turns - 1 or not draw.one_in(3):
                messages += self._answers()
        if self._marks:
            self._mark(messages)
        _end_without_space(messages)
        return [draw.keys(message) for message in messages]

    def _request(self) -> str | list[Dict]:
        draw = self._draw
        if draw.one_in(2):
            return draw.text()
        blocks = [draw.keys(self._given()) for _ in range(draw.pick((1, 1, 2, 3)))]
        return blocks if draw.one_in(2) else [*blocks, self._text()]

    def _text(self) -> Dict:
        return {"type": "text", "text": self._draw.text()}

    def _given(self) -> Dict:
        """A block that a user, or a tool, may hand over."""
        draw = self._draw
        match draw.number(0, 9):
            case 0:
                return {"type": "image", "source": self._source("image")}
            case 1:
                return {"type": "document", "source": self._source("document")} | draw.some(
                    title="A page", context=None, citations={"enabled": True}
                )
            case 2:
                found = {"type": "search_result", "source": "https://example.com", "title": "A page"}
                return {**found, "content": [self._text()], **draw.some(citations={"enabled": True})}
        return self._text() | draw.some(citations=None)

    def _source(self, kind: str) -> Dict:
        draw = self._draw
        media, data = ("image/png", PNG) if kind == "image" else ("application/pdf", PDF)
        sources: list[Dict] = [
            {"type": "base64", "media_type": media, "data": data},
            {"type": "url", "url": "https://example.com/a"},
            {"type": "file", "file_id": "file_1"},
        ]
        if kind == "document":
            sources += [
                {"type": "text", "media_type": "text/plain", "data": draw.output()},
                {"type": "content", "content": draw.pick((draw.text(), [self._text()]))},
            ]
        return draw.pick(sources)

    def _round(self) -> list[Dict]:
        """An assistant's message with calls, and the user's with their results."""
        draw = self._draw
        blocks = self._opening()
        if draw.one_in(2):
            blocks.append(self._text())
        if draw.one_in(8):
            blocks += [*self._ran(), *self._later_thoughts(blocks)]
        if draw.one_in(8):
            for call, result in (self._hosted(), self._hosted())[: draw.pick((1, 1, 2))]:
                blocks.append(call)
                self._owed.append(result)
        calls = [self._call() for _ in range(draw.pick((1, 1, 1, 2, 3, 4)))]
        blocks += calls
        results = draw.order([self._result(call["id"]) for call in calls])
        self._load(results)
        if draw.one_in(6):
            results += [draw.keys(self._given()) for _ in range(draw.pick((1, 2)))]
        return [
            {"role": "assistant", "content": [draw.keys(block) for block in blocks]},
            {"role": "user", "content": results},
        ]

    def _program(self) -> list[Dict]:
        """A program that Anthropic runs, which calls the client's tools; its result is owed then."""
        draw = self._draw
        program, result = self._hosted("code_execution")
        caller = {"type": draw.pick(("code_execution_20250825", "code_execution_20260120"))}
        messages: list[Dict] = []
        for number in range(draw.pick((1, 2, 3))):
            calls = [self._call() for _ in range(draw.pick((1, 1, 2)))]
            for call in calls:
                call["caller"] = {**caller, "tool_id": program["id"]}
            blocks = [*self._opening(), program, *calls] if number == 0 else calls
            messages.append({"role": "assistant", "content": blocks})
            results = [self._result(call["id"]) for call in calls]
            messages.append({"role": "user", "content": draw.order(results)})
        self._owed.append(result)
        return messages

    def _answers(self) -> list[Dict]:
        """An assistant's message, in two where the turn was paused."""
        draw = self._draw
        messages: list[Dict] = []
        if draw.one_in(10):
            call, result = self._hosted()
            messages.append({"role": "assistant", "content": [*self._opening(), call]})
            self._owed.append(result)
        return [*messages, {"role": "assistant", "content": self._answer()}]

    def _opening(self) -> list[Dict]:
        """What an assistant's message begins with: results that are owed, else thoughts."""
        owed, self._owed = self._owed, []
        self._load(owed)
        return owed or self._thoughts()

    def _load(self, found: list[Dict]) -> None:
        """From a result that names it on the model may call the tool that is found."""
        if "tool_reference" in json.dumps(found):
            self._names = (*NAMES, FOUND, FOUND, FOUND)

    def _ran(self) -> list[Dict]:
        """A call that Anthropic runs itself, and its result in the same message."""
        pair = [*self._hosted()]
        self._load(pair)
        return pair

    def _answer(self) -> str | list[Dict]:
        draw = self._draw
        blocks = self._opening()
        if not blocks and draw.one_in(3):
            return draw.text()
        if not blocks and draw.one_in(12):
            blocks.append(self._compaction())
        if draw.one_in(8):
            blocks += [*self._ran(), *self._later_thoughts(blocks)]
        if draw.one_in(20):
            blocks.append({"type": "future_block", "data": {"text": draw.text()}})
        for _ in range(draw.pick((1, 1, 2))):
            block = self._text()
            if draw.one_in(5):
                cited = {"cited_text": "x", "document_index": 0, "document_title": None}
                block["citations"] = [
                    {"type": "char_location", "start_char_index": 0, "end_char_index": 1, **cited}
                ]
            blocks.append(block)
        return [draw.keys(block) for block in blocks]

    def _compaction(self) -> Dict:
        """What the API wrote in place of all that came before."""
        draw = self._draw
        block = {"type": "compaction", "content": draw.pick((draw.text(), None))}
        return block | draw.some(signature="c2ln", encrypted_content="EqQBCg==")

    def _thoughts(self) -> list[Dict]:
        draw = self._draw
        if not self._thinks or draw.one_in(4):
            return []
        return [self._thought() for _ in range(draw.pick((1, 1, 1, 2)))]

    def _later_thoughts(self, blocks: list[Dict]) -> list[Dict]:
        thinks = bool(blocks) and blocks[0]["type"] in ("thinking", "redacted_thinking")
        return [self._thought()] if thinks and self._draw.one_in(2) else []

    def _thought(self) -> Dict:
        draw = self._draw
        signature = draw.fresh("sig") + "ErUBCkYIBxgC" * draw.number(5, 60)
        if draw.one_in(5):
            return {"type": "redacted_thinking", "data": signature}
        return {
            "type": "thinking",
            "thinking": draw.pick(("", draw.output(), draw.text())),
            "signature": signature,
        }

    def _call(self) -> Dict:
        draw = self._draw
        call = {"type": "tool_use", "id": draw.fresh("toolu"), "name": draw.pick(self._names)}
        return {**call, "input": json.loads(draw.pick(ARGUMENTS)), **draw.some(caller={"type": "direct"})}

    def _result(self, call_id: str) -> Dict:
        draw = self._draw
        result: Dict = {"type": "tool_result", "tool_use_id": call_id}
        kind = draw.number(0, 9)
        if kind == 0:
            return result
        if kind == 1:
            result["content"] = draw.pick(([], "", draw.output() + "x"))
            result["is_error"] = bool(result["content"])
        elif kind == 2 and draw.one_in(3):
            result["content"] = [dict(REFERENCE)]
        elif kind < 5:
            texts = [draw.output() + "." for _ in range(draw.pick((1, 1, 2)))]
            result["content"] = [{"type": "text", "text": text} for text in texts]
            if draw.one_in(4):
                result["content"].append(draw.keys(self._given()))
        else:
            result["content"] = draw.output()
            result |= draw.some(is_error=False)
        return draw.keys(result)

    def _hosted(self, wanted: str | None = None) -> tuple[Dict, Dict]:
        """A call that Anthropic runs itself, of any tool or of one, and its result."""
        draw = self._draw
        if wanted is None and draw.one_in(6):
            call_id = draw.fresh("mcptoolu")
            call = {"type": "mcp_tool_use", "id": call_id, "name": "look", "server_name": "docs", "input": {}}
            content = draw.pick((draw.output(), [self._text()]))
            return call, {
                "type": "mcp_tool_result",
                "tool_use_id": call_id,
                "is_error": False,
                "content": content,
            }
        call_id = draw.fresh("srvtoolu")
        found = {"type": "web_search_result", "url": "https://example.com", "title": "A page"}
        page = {"type": "text", "media_type": "text/plain", "data": draw.output()}
        ran = {"stdout": draw.output(), "stderr": "", "return_code": 0, "content": []}
        kinds: tuple[tuple[str, Dict, Any], ...] = (
            (
                "web_search",
                {"query": "x"},
                [{**found, "encrypted_content": "EqQBCgYI" * draw.number(10, 90), "page_age": None}],
            ),
            (
                "web_search",
                {"query": "x"},
                {"type": "web_search_tool_result_error", "error_code": "unavailable"},
            ),
            (
                "web_fetch",
                {"url": "https://example.com"},
                {
                    "type": "web_fetch_result",
                    "url": "https://example.com",
                    "content": {"type": "document", "source": page},
                },
            ),
            ("bash_code_execution", {"command": "ls"}, {"type": "bash_code_execution_result", **ran}),
            ("code_execution", {"code": "print(1)"}, {"type": "code_execution_result", **ran}),
            (
                "tool_search_tool_bm25",
                {"query": "sonar"},
                {"type": "tool_search_tool_search_result", "tool_references": [dict(REFERENCE)]},
            ),
        )
        name, given, content = draw.pick([one for one in kinds if wanted in (None, one[0])])
        return (
            {"type": "server_tool_use", "id": call_id, "name": name, "input": given},
            {
                "type": f"{name.removesuffix('_tool_bm25')}_tool_result",
                "tool_use_id": call_id,
                "content": content,
            },
        )

    def _mark(self, messages: list[Dict]) -> None:
        """Mark up to four blocks: the last ones, as most clients do, or any."""
        draw = self._draw
        mark = draw.pick(({"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}))
        blocks = [
            block
            for message in messages
            if isinstance(message["content"], list)
            for block in message["content"]
            if block["type"] in _MARKABLE
        ]
        for _ in range(draw.number(0, 4)):
            if blocks:
                block = blocks.pop() if draw.one_in(2) else blocks.pop(draw.rng.randrange(len(blocks)))
                block["cache_control"] = dict(mark)


def _end_without_space(messages: list[Dict]) -> None:
    """A last message of the assistant is a prefill, which may not end with a space."""
    if messages and messages[-1]["role"] == "assistant":
        content = messages[-1]["content"]
        if isinstance(content, str):
            messages[-1]["content"] = content.rstrip()
        elif content[-1]["type"] == "text":
            content[-1]["text"] = content[-1]["text"].rstrip()
