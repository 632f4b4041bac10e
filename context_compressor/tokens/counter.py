"""What counts tokens, and what one message costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from context_compressor.errors import InvalidArgumentError, check_members
from context_compressor.messages.msg import Block, Msg
from context_compressor.messages.parts import plain_texts
from context_compressor.messages.remark import beside, beside_content
from context_compressor.messages.text import dump_sendable
from context_compressor.tokens.media import ENCODED_CHARACTERS, is_encoded


@runtime_checkable
class TokenCounter(Protocol):
    """Measure texts and messages in tokens.

    A counter should be additive: a list of messages costs no more than the sum of its messages counted alone,
    because the wrapper counts each message once in its life and adds up. Several threads may call it at once:
    much text is counted, and what stands in for text is made, beside the event loop.
    """

    def count_text(self, text: str) -> int:
        """Return the tokens of a text; strings that look like special tokens count as plain text."""
        ...

    def count_messages(self, messages: Sequence[Msg | dict[str, Any]]) -> int:
        """Return the tokens of messages (`Msg` or chat dicts): calls, results, names, overhead included."""
        ...


def check_counter(counter: object) -> None:
    """Check what is given as a counter: a counter, a model's name, or None for the default.

    Raises:
        InvalidArgumentError: it is none; the text names what it lacks.
    """
    if not (counter is None or isinstance(counter, str)):
        members = ("count_text", "count_messages")
        check_members("counter", counter, "a TokenCounter", members, "leave it out for TiktokenCounter()")


class MessageTokens(NamedTuple):
    """What a message costs."""

    total: int
    """Tokens of the whole message."""
    texts: tuple[int, ...]
    """Tokens of each of its texts, aligned with `text_parts(msg)`; never more than `total` together."""


def name_of_counter(counter: TokenCounter) -> str:
    """Return what counts of a counter are kept under: others of that name count alike."""
    return str(getattr(counter, "encoding_name", None) or type(counter).__qualname__)


def measure(counter: TokenCounter, msg: Msg) -> MessageTokens:
    """Return what a message and its texts cost, asking the counter once.

    A counter with a method `measure(msg) -> MessageTokens` knows the texts. From any other,
    `count_messages([msg])` gives the total, of which each text gets its share by characters.

    Raises:
        InvalidArgumentError: the counter returned anything but a number of tokens.
    """
    measure_message = getattr(counter, "measure", None)
    if measure_message is not None:
        measured = measure_message(msg)
        if isinstance(measured, MessageTokens) and len(measured.texts) == len(plain_texts(msg)):
            return measured
        raise InvalidArgumentError(
            f"{counter!r}.measure returned {measured!r}; expected MessageTokens with a number for each of "
            f"{len(plain_texts(msg))} texts"
        )
    total = counter.count_messages([msg])
    if not isinstance(total, int) or isinstance(total, bool) or total < 0:
        raise InvalidArgumentError(
            f"{counter!r}.count_messages returned {total!r}; expected tokens as an int, 0 or more"
        )
    characters = max(count_characters(msg), 1)
    return MessageTokens(total, tuple(total * len(text) // characters for text in plain_texts(msg)))


def count_characters(msg: Msg, *, with_media: bool = False) -> int:
    """Return the characters of a message's texts, thinking, names, arguments; of media if asked."""
    total = len(msg.name) + _count_other_characters(beside_content(msg), with_media)
    if isinstance(msg.content, str):
        return total + len(msg.content)
    for block in msg.content:
        told = TOLD.get(str(block.get("type")), ())
        total += _count_other_characters(beside(block, *told), with_media)
        if "input" in told:
            total += len(block["name"]) + len(block.get("raw_input") or written_arguments(block))
        elif "output" not in told:
            total += sum(len(block[key]) for key in told)
        elif isinstance(block["output"], str):
            total += len(block["output"])
        else:
            total += sum(
                len(inner["text"]) if is_text(inner) else _count_other_characters(inner, with_media)
                for inner in block["output"]
            )
    return total


TOLD = {
    "text": ("text",),
    "thinking": ("thinking",),
    "tool_use": ("id", "name", "input", "raw_input"),
    "tool_result": ("id", "name", "output"),
}
"""Keys of our own blocks whose contents are counted by their kind."""


def is_text(inner: Any) -> bool:
    """Tell whether a part of a tool's output is a text."""
    return isinstance(inner, dict) and inner.get("type") == "text" and isinstance(inner.get("text"), str)


def _count_other_characters(value: Any, with_media: bool) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return sum(_count_other_characters(item, with_media) for item in value)
    if not isinstance(value, str):
        return 0
    # The beginning tells media from text; to read megabytes here would take too long on the loop.
    return len(value) if with_media or not is_encoded(value[: 4 * ENCODED_CHARACTERS]) else 0


def written_arguments(block: Block) -> str:
    """Return a tool call's arguments as they will be written: `raw_input`, unless `input` has outgrown it."""
    raw = block.get("raw_input")
    # Nothing that parses to `input` is shorter than the strings in it, so a shorter text is out of date.
    if isinstance(raw, str) and len(raw) >= _string_characters(block["input"]):
        return raw
    return dump_sendable(block["input"], default=str)


def _string_characters(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(len, value)) + sum(map(_string_characters, value.values()))
    return sum(map(_string_characters, value)) if isinstance(value, list) else 0


GOOD_ENOUGH = 0.96
"""Fill at which the search ends: the last few percent would cost as many counts as all that came before."""


def largest_fitting(
    cost: Callable[[int], int],
    upper: int,
    limit: int,
    guess: int,
    *,
    good_enough: float | None = GOOD_ENOUGH,
    calls: int | None = None,
) -> int:
    """Return a large `n` in `0..upper` with `cost(n) <= limit`, in tokens; 0 when none was found.

    `cost` should grow with `n`, more or less; the `n` returned was measured, or is 0. Interpolates from
    `guess`, then bisects: typically 3 to 6 calls of `cost`, and 1 or 2 after a good guess at a low fill. Ends
    at a cost of `good_enough` of the limit (None: at the largest `n`), and after so many `calls` with what it
    has, if it has anything.
    """
    fits, too_many = 0, upper + 1
    aim = 1.0 if good_enough is None else (1 + good_enough) / 2
    n = min(max(guess, 1), upper)
    called = 0
    while too_many - fits > 1 and (calls is None or called < calls or not fits):
        tokens = cost(n)
        called += 1
        if tokens > limit:
            too_many = n
        else:
            fits = n
            if good_enough is not None and tokens >= good_enough * limit:
                break
        n = int(n * limit * aim) // max(tokens, 1) if called <= 3 else (fits + too_many) // 2
        n = min(max(n, fits + 1), too_many - 1)
    return fits
