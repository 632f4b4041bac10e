"""What a model that summarises reads of what leaves: edits whole, and of long results the telling part."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from context_compressor.compression.view import READ_TOKENS
from context_compressor.messages.msg import Msg
from context_compressor.messages.parts import PartPath, other_parts, replace_parts, text_parts
from context_compressor.summarizers.cutting import cut
from context_compressor.tokens.protocol import TokenCounter

MAX_TOKENS = {"tool_result": READ_TOKENS, "argument": 4_000}
"""What is read of one result, and of one argument. Readers of summaries asked for the new side of edits, so
they are whole in all but the largest; of results they used heads, tails and errors."""
HEAD_SHARE, TAIL_SHARE = 0.45, 0.3
"""Of what is read of a result; the rest is for lines that speak of errors between them."""

REPEATED = "[the same as an earlier result"
_LAST_CHARS = 200
_REPEATED_CHARS = 200
"""A result from this length on is read once."""
_ROUNDS, _SLACK, _ENOUGH = 4, 0.97, 0.9
_LONGEST_TOKEN_CHARS = 16
"""More characters than that for each token, and a text is too long without being counted whole."""
_ERROR = re.compile(
    r"error|exception|traceback|fail|fatal|panic|denied|refused|错误|失败|异常|拒绝", re.IGNORECASE
)
_MAX_ERROR_LINE_CHARS = 400


def abridge(messages: Iterable[Msg], counter: TokenCounter) -> tuple[Msg, ...]:
    """Return messages with long results and arguments cut, what is left out being marked; others as they are.

    Args:
        messages: what leaves.
        counter: measures.
    """
    seen: set[str] = set()
    return tuple(_abridge(msg, counter, seen) for msg in messages)


def _abridge(msg: Msg, counter: TokenCounter, seen: set[str]) -> Msg:
    shown: dict[PartPath, str] = {}
    for part in (*text_parts(msg), *other_parts(msg)):
        max_tokens = MAX_TOKENS.get(part.kind)
        if max_tokens is None or len(part.text) <= _REPEATED_CHARS:
            continue
        if part.text in seen and part.kind == "tool_result":
            last = part.text.rstrip().rpartition("\n")[2]
            shown[part.path] = f"{REPEATED}, which ends: {cut(last, _LAST_CHARS)}]"
            continue
        seen.add(part.text)
        if len(part.text) > max_tokens:
            short = shorten(part.text, max_tokens, counter)
            if short != part.text:
                shown[part.path] = short
    return replace_parts(msg, shown) if shown else msg


def shorten(text: str, max_tokens: int, counter: TokenCounter) -> str:
    """Return head and tail of a text, and lines with errors between, in about `max_tokens` tokens at most."""
    sample = text[: max_tokens * _LONGEST_TOKEN_CHARS]
    tokens = max(1, counter.count_text(sample))
    if tokens <= max_tokens and len(sample) == len(text):
        return text
    room = len(sample) * max_tokens / tokens
    best = ""
    for _ in range(_ROUNDS):
        short = "\n".join(_telling_part(text, int(room)))
        tokens = counter.count_text(short)
        if len(best) < len(short) < len(text) and tokens <= max_tokens:
            best = short
        if _ENOUGH * max_tokens <= tokens <= max_tokens:
            break
        room *= _SLACK * max_tokens / max(1, tokens)  # where few errors are, heads and tails may be longer
    return best or text


def _telling_part(text: str, room: int) -> Iterator[str]:
    """Yield head, lines with errors and tail of a text in about `room` characters, and marks between them."""
    end = int(HEAD_SHARE * room)
    start = max(end, len(text) - int(TAIL_SHARE * room))
    # Whole lines, where that does not cost most of the share.
    end = max(text.rfind("\n", end // 2, end), 0) or end
    start = text.find("\n", start, (start + len(text)) // 2) + 1 or start
    yield text[:end]
    left = room - end - (len(text) - start)
    seen: set[str] = set()
    at = end
    for match in _ERROR.finditer(text, end, start):
        first = max(text.rfind("\n", end, match.start()) + 1, end)
        last = text.find("\n", match.end(), start)
        last = start if last < 0 else last
        if first < at:
            continue  # this line is shown already
        line = text[max(first, match.start() - _MAX_ERROR_LINE_CHARS // 2) : last][:_MAX_ERROR_LINE_CHARS]
        if line.strip() in seen:
            continue
        if len(line) > left:
            break
        seen.add(line.strip())
        yield from _left_out(text[at:first])
        yield line
        left -= len(line)
        at = last
    yield from _left_out(text[at:start])
    yield text[start:]


def _left_out(gap: str) -> Iterator[str]:
    if gap.strip():
        lines = gap.strip("\n").count("\n") + 1
        what = f"{lines:,} lines" if lines > 1 else f"{len(gap):,} characters"
        yield f"[... {what} left out ...]"
