"""Random histories of chat dicts that OpenAI's chat completions accept, by `chat_rules`."""

from __future__ import annotations

from random import Random

from context_compressor.laws.pieces import ARGUMENTS, NAMES, PDF, PNG, Dict, Pieces


def random_chat(rng: Random, turns: int, *, plain: bool = False) -> list[Dict]:
    """Return a history of so many turns; a turn is a request and all that is done for it.

    A plain one holds texts and calls alone, and instructions at its start.
    """
    return _History(Pieces(rng), plain).write(turns)


class _History:
    def __init__(self, pieces: Pieces, plain: bool) -> None:
        self._draw = pieces
        self._plain = plain
        self._reasons = not plain and pieces.one_in(3)

    def write(self, turns: int) -> list[Dict]:
        draw = self._draw
        messages: list[Dict] = [self._instruction()] if draw.one_in(2) else []
        for _ in range(turns):
            named = {} if self._plain else draw.some(name="ann")
            messages.append({"role": "user", "content": self._content(media=True), **named})
            for _ in range(draw.pick((0, 0, 1, 1, 2, 3))):
                messages += self._round()
            if not draw.one_in(6):
                messages.append(self._reply())
            if not self._plain and draw.one_in(12):
                messages.append(self._instruction())
        return [draw.keys(message) for message in messages]

    def _instruction(self) -> Dict:
        role = "system" if self._plain else self._draw.pick(("system", "developer"))
        return {"role": role, "content": self._content()}

    def _content(self, *, media: bool = False) -> str | list[Dict]:
        draw = self._draw
        if self._plain or draw.one_in(2):
            return draw.text()
        parts: list[Dict] = [{"type": "text", "text": draw.text()} for _ in range(draw.pick((1, 1, 2)))]
        return [*parts, self._medium()] if media and draw.one_in(2) else parts

    def _medium(self) -> Dict:
        url, pdf = f"data:image/png;base64,{PNG}", f"data:application/pdf;base64,{PDF}"
        kinds: tuple[Dict, ...] = (
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
            {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
            {"type": "input_audio", "input_audio": {"data": PDF, "format": "wav"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": pdf}},
            {"type": "file", "file": {"file_id": "file-1"}},
        )
        return self._draw.pick(kinds)

    def _round(self) -> list[Dict]:
        """Calls, and behind them their results."""
        draw = self._draw
        calls: list[Dict] = []
        for _ in range(draw.pick((1, 1, 1, 2, 3, 4))):
            named = {"name": draw.pick(NAMES), "arguments": draw.pick(ARGUMENTS)}
            calls.append({"id": draw.fresh("call"), "type": "function", "function": named})
        said = self._reply() if draw.one_in(3) else {"role": "assistant", "content": None, **self._thoughts()}
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": self._result()}
            for call in draw.order(calls)
        ]
        return [{**said, "tool_calls": calls}, *results]

    def _reply(self) -> Dict:
        draw, content = self._draw, self._content()
        if not self._plain and draw.one_in(20):
            content = [{"type": "refusal", "refusal": "I cannot help with that."}]
        return {"role": "assistant", "content": content, **self._thoughts()}

    def _thoughts(self) -> Dict:
        thinks = self._reasons and not self._draw.one_in(3)
        return {"reasoning_content": self._draw.text()} if thinks else {}

    def _result(self) -> str | list[Dict]:
        draw = self._draw
        is_text = self._plain or not draw.one_in(5)
        return draw.output() if is_text else [{"type": "text", "text": draw.output()}]
