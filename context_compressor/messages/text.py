"""Text hygiene: what no message, summary or report should carry. Pure."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, Literal


def sendable(text: str) -> str:
    """Return text that can be sent as UTF-8: the same, halves of surrogate pairs as escapes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def dump_sendable(value: Any, **options: Any) -> str:
    """Return JSON text that can be sent as UTF-8: readable, and escaped where it holds half a surrogate pair.

    Raises:
        TypeError, ValueError, RecursionError: as `json.dumps`, which gets the options.
    """
    text = json.dumps(value, ensure_ascii=False, **options)
    return text if sendable(text) is text else json.dumps(value, **options)


SPLIT_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
"""Two halves of a character side by side, as two chunks may bring them: JSON reads them back as one."""


def has_split_pair(text: str) -> bool:
    """Tell whether a text holds one, which few do: looking for any half at all is far cheaper."""
    return sendable(text) is not text and SPLIT_PAIR.search(text) is not None


def split_pairs_in(value: Any, path: tuple[Any, ...] = ()) -> list[list[Any]]:
    """Return where the texts of JSON-like data hold split pairs: `[path, places]` of each such text.

    The places are those of the characters in the text as JSON reads it back.
    """
    found: list[list[Any]] = []
    for key, one in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(one, str):
            if has_split_pair(one):
                places = [pair.start() - n for n, pair in enumerate(SPLIT_PAIR.finditer(one))]
                found.append([[*path, key], places])
        elif isinstance(one, dict | list | tuple):
            found += split_pairs_in(one, (*path, key))
    return found


def split_again(value: Any, path: Sequence[Any], places: Sequence[int]) -> Any:
    """Return JSON-like data with the pairs split that one entry of `split_pairs_in` names.

    Raises:
        KeyError, IndexError, TypeError: there is no such text.
    """
    if path:
        inner = split_again(value[path[0]], path[1:], places)
        if isinstance(value, Mapping):
            return {**value, path[0]: inner}
        return [*value[: path[0]], inner, *value[path[0] + 1 :]]
    if SPLIT_PAIR.search(value):  # never written as JSON
        return value
    characters = list(value)
    for place in places:
        whole = characters[place].encode("utf-16-be")
        characters[place] = "".join(chr(int.from_bytes(whole[at : at + 2])) for at in range(0, len(whole), 2))
    return "".join(characters)


_MOST_MARKS = 30
"""Unicode's stream-safe texts have no more in a row (UAX #15): no script needs as many on one letter."""
_MARK = r"[^\x00-\u02ff\u0370-\u0482\u048a-\u0590\u3000-\u3029\u3030-\u3098\u309b-\u9fff\uac00-\ud7ff\w\s]"
"""Any combining mark, and other signs without harm. Most letters are told by the ranges, which is faster."""


@cache
def _many_marks() -> re.Pattern[str]:
    """Compile the pattern, which takes milliseconds, for the first text that may need it."""
    return re.compile(f"{_MARK}{_MARK}{{{_MOST_MARKS - 1}}}")  # looks for the first by its class alone


def normalize(form: Literal["NFC", "NFKC", "NFKD"], text: str) -> str:
    """Return a text in a normal form; of more than 30 marks in a row only so many are put in order at a time.

    `unicodedata.normalize` sorts all marks on a letter at once, in quadratic time: 40,000 took 20 seconds, in
    which nothing else ran in the process.
    """
    if len(text) <= _MOST_MARKS or text.isascii():
        return unicodedata.normalize(form, text)
    if form != "NFC":  # letters by themselves, these two become marks
        text = text.replace("\uff9e", "\u3099").replace("\uff9f", "\u309a")
    return "".join([unicodedata.normalize(form, piece) for piece in _pieces(text)])


def _pieces(text: str) -> Iterator[str]:
    start = 0
    for found in _many_marks().finditer(text):
        yield text[start : found.end()]
        start = found.end()
    yield text[start:]


# Colours and cursor moves; titles and links, which hold a text of their own; the other short ones.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]?"
)
LINE_ENDS = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
"""What ends a line to a reader, be it a program or a model: for a set in a pattern."""
_OTHER_LINE_ENDS = re.compile(rf"\r\n|(?!\n)[{LINE_ENDS}]")
_LINE_START = re.compile(rf"\A|(?<=[{LINE_ENDS}])(?!(?<=\r)\n)")
_HIDDEN = (
    "\x00-\x08\x0e-\x1f\x7f-\x9f",  # control characters
    "\u200b\u2060-\u2064\ufeff\u00ad\u180e",  # without width; joiners stay, which scripts and emoji need
    "\u061c\u202a-\u202e\u2066-\u2069",  # overrides of the writing direction; plain marks stay
    "\U000e0000-\U000e007f",  # tags: a second, invisible ASCII
)
_HIDDEN_CHARACTER = re.compile(f"[{''.join(_HIDDEN)}]")
_PLAIN = bytes([*b"\n\t", *range(0x20, 0x7F)])
_TEMPLATE_MARK = re.compile(
    r"<(?=[|｜][\w▁:/ -]{1,40}[|｜]>|/?s>|(?:start|end)_of_turn>|</?SYS>>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_(?:CALLS|RESULTS))\])"
)
"""ChatML and its kin; Mistral and Llama, whose `</s>` ends a text; Gemma."""
# Each mark in ASCII has one of these in it.
_TEMPLATE_PARTS = ("<|", "s>", "_of_turn>", "SYS>>", "INST]", "S]", "SYSTEM_PROMPT]")


def clean(text: str) -> str:
    r"""Return `text` with lines ended by `\n` only, and without control, escape and invisible characters.

    Lone surrogates, which no request body can carry, become question marks. The marks of chat templates
    (`<|im_start|>`, `[INST]`), which some servers take for their own wherever they stand, get a space that
    breaks them.
    """
    if text.isascii() and not text.encode().translate(None, _PLAIN):
        return _break_marks(text)
    text = _ESCAPES.sub("", text) if "\x1b" in text else text
    text = _HIDDEN_CHARACTER.sub("", _OTHER_LINE_ENDS.sub("\n", text))
    return _break_marks(text.encode("utf-8", "replace").decode("utf-8"))


def indent_lines(text: str, like: re.Pattern[str] | None = None) -> str:
    """Put a space before the lines of a text from outside, so that none passes for a line of ours.

    A line begins behind any of `LINE_ENDS`, which stay as they are.

    Args:
        text: what somebody said.
        like: how the lines begin that are indented; None for all.
    """
    if like is None:
        return _LINE_START.sub(" ", text)
    return _LINE_START.sub(lambda start: " " if like.match(text, start.end()) else "", text)


def _break_marks(text: str) -> str:
    if "<" not in text and "[" not in text:
        return text
    has_mark = "｜>" in text or any(map(text.__contains__, _TEMPLATE_PARTS))
    return _TEMPLATE_MARK.sub(r"\g<0> ", text) if has_mark else text


_MAX_INDENT = 200
_TAG = re.compile(
    r"</?(?:seed:)?(?:think|thinking|thought|reasoning)>|◁/?think▷|(?-i:\[/?THINK\])", re.IGNORECASE
)
"""As most models write them, Doubao's, Kimi's and Mistral's."""
# Harmony, the form of the gpt-oss models; `clean` puts a space into its marks.
_CHANNEL = re.compile(r"\s*(?:< ?\|start\|>assistant)?< ?\|channel\|>")
_FINAL = re.compile(r"< ?\|channel\|>final\b[^<\n]{0,40}(?:< ?\|constrain\|>\w{1,20})?< ?\|message\|>")
_END = re.compile(r"< ?\|(?:end|return)\|>\Z")


def strip_reasoning(text: str) -> str:
    """Return `text` without a model's reasoning, which stands in tags; left open, it hides all that follows.

    A tag opens reasoning only at the start of a line: within one, a summary speaks of it. Of an answer in
    channels only the final one is kept.
    """
    if _CHANNEL.match(text):
        final = _FINAL.search(text)
        text = _END.sub("", text[final.end() :].rstrip()) if final else ""
    kept = ""
    since = 0
    inside = False
    # The first behind `since`; looked for anew at each tag, it would take the square.
    heading = text.find("\n#")
    for tag in _TAG.finditer(text):
        start, end = tag.span()
        closes = "/" in tag[0]
        before = text[max(0, start - _MAX_INDENT) : start]
        starts_line = not before.rpartition("\n")[2].strip() and (start <= _MAX_INDENT or "\n" in before)
        if inside:
            if closes:
                inside, since = False, end
        elif not closes:
            if starts_line:
                kept += text[since:start]
                inside = True
        # Some chat templates open the tag in the prompt, so that the answer only closes it.
        elif starts_line or text[end : end + 1] in ("", "\n"):
            while 0 <= heading < since:
                heading = text.find("\n#", heading + 1)
            has_heading = kept.startswith("#") or text.startswith("#", since) or 0 <= heading < start
            if starts_line or not has_heading:
                kept, since = "", end
    return (kept if inside else kept + text[since:]).strip()


def line_at(text: str, at: int) -> str:
    """Return the line of a text in which a character stands."""
    return text[text.rfind("\n", 0, at) + 1 :].partition("\n")[0]
