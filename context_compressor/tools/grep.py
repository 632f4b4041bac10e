"""Search stored texts: find the lines that match a pattern, make one page of them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from context_compressor.offload.pages import FoundLine, FoundSection, ago_of, closing_found, found_page
from context_compressor.tokens.counter import TokenCounter, largest_fitting

if TYPE_CHECKING:
    import regex

MAX_PATTERN_CHARACTERS = 1000
MAX_REPEATS = 100_000
"""Product of the `{n}` in a pattern. `regex` unrolls nested ones when it compiles, which no timeout stops:
`((x{500}){500}){500}` takes gigabytes, 100,000 takes 0.1 s."""

_ANYTHING_BEFORE = re.compile(r"\A\^?\.\*\??(?![*+?{])")
_REPEAT = re.compile(r"\{\s*(\d+)")
_RECURSION = re.compile(r"\(\?(?:R|&|P>|[+-]?\d)")
_BEYOND_ASCII = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\(\?P?<\w+>|([^\x00-\x7f])", re.DOTALL)
"""A character that JSON may have written as an escape, outside of sets and of names of groups."""


class PatternError(ValueError):
    """Report a pattern that cannot be used; the text is an answer for the model."""


def compile_pattern(pattern: str, ignore_case: bool) -> regex.Pattern[str]:
    """Compile a pattern from outside; `^` and `$` match at every line.

    Raises:
        PatternError: it is invalid, too long, recursive, or its repeats multiply beyond `MAX_REPEATS`.
    """
    import regex  # which only a search loads

    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise PatternError(
            f"The pattern has {len(pattern)} characters; use at most {MAX_PATTERN_CHARACTERS}."
        )
    repeats = 1
    for match in _REPEAT.finditer(pattern):
        repeats *= max(int(match[1][:9]), 1)
        if repeats > MAX_REPEATS:
            raise PatternError(
                f"The counted repeats of this pattern multiply beyond {MAX_REPEATS}; lower them."
            )
    if _RECURSION.search(pattern):
        # Measured: such a pattern takes a gigabyte of memory per second before the timeout ends it.
        raise PatternError("Patterns that call themselves are not supported; write it without recursion.")
    # `.*` and the like at the beginning match text before the place that is to be shown.
    pattern = _ANYTHING_BEFORE.sub("", pattern) or pattern
    try:
        return regex.compile(pattern, regex.MULTILINE | (regex.IGNORECASE if ignore_case else 0))
    except (regex.error, RecursionError, MemoryError, OverflowError, ValueError) as error:
        raise PatternError(
            f"Invalid pattern: {error}. "
            "Put a backslash before each of . * + ? ( ) [ ] { } | ^ $ \\ that is meant literally."
        ) from error


def with_escapes(pattern: regex.Pattern[str]) -> regex.Pattern[str]:
    """Return a pattern that finds characters beyond ASCII also where JSON wrote them as escapes."""
    import regex

    if pattern.pattern.isascii():
        return pattern
    try:
        return regex.compile(_BEYOND_ASCII.sub(_or_escaped, pattern.pattern), pattern.flags)
    except regex.error:
        return pattern


def _or_escaped(found: re.Match[str]) -> str:
    if not found[1]:
        return found[0]
    units = found[1].encode("utf-16-be", "surrogatepass").hex()
    escapes = "".join(rf"\\+u{units[start : start + 4]}" for start in range(0, len(units), 4))
    return f"(?:{found[1]}|(?i:{escapes}))"


SEARCH_SECONDS = 2.0
"""What one search may take over all texts, their loading not included: a pattern from a model can run for
ever."""
LINE_WIDTHS = (200, 80)
"""Characters shown of a long line, the first width with which anything fits: 200 hold a path or a stack frame
with what stands around it."""
LAST_WIDTH = 24
"""Where nothing else fits: of use with a word that was looked for, and with no line around it."""
_COMPARED_CHARACTERS = 4_000
"""Of a longer line no other is taken for a repeat: to compare them whole takes a copy for each match."""
_FIRST_GUESS = 8
"""Matches tried first: about what the 300 tokens of an ordinary search hold."""


class Match(NamedTuple):
    """A match: the line in which it begins (1-based), and offsets into the text."""

    number: int
    line_start: int
    line_end: int
    match_start: int


@dataclass(frozen=True, slots=True)
class TextMatches:
    """What was found in one text, in the order of the text."""

    ref: str
    text: str
    matches: list[Match]
    seconds: float = 0.0
    timed_out: bool = False


_Pick = tuple[TextMatches, Match, int]
"""A match to show, with its text and how many lines read the same."""


def search_text(
    text: str, ref: str, pattern: regex.Pattern[str], seconds: float, left_out: Sequence[tuple[int, int]] = ()
) -> TextMatches:
    """Find matches in `text`, for at most `seconds`: one per line, more in a line too long to show whole.

    Searches the whole text and counts line feeds between matches: a line without a match costs no step.

    `left_out`: where in it no match may begin.
    """
    matches: list[Match] = []
    if "\\u" in text:
        pattern = with_escapes(pattern)
    began = time.monotonic()
    number, start, end, timed_out = 1, 0, -1, False  # of the line of the latest match
    position = line_start = 0  # where to go on, and the start of that line
    try:
        while position <= len(text):
            # `concurrent` releases the interpreter lock, so that the event loop goes on meanwhile.
            left = max(began + seconds - time.monotonic(), 1e-6)
            match = pattern.search(text, position, timeout=left, concurrent=True)
            if match is None:
                break
            if beyond := next((end for begin, end in left_out if begin <= match.start() < end), None):
                position, line_start = beyond, text.rfind("\n", 0, beyond) + 1
                continue
            line_start = text.rfind("\n", position, match.start()) + 1 or line_start
            if end < line_start:
                number += text.count("\n", start, line_start)
                start = line_start
                end = text.find("\n", match.start())
                end = len(text) if end < 0 else end
            matches.append(Match(number, start, end, match.start()))
            following = max(match.end(), match.start() + LINE_WIDTHS[0])
            if following < end:
                position = following
            else:
                position = line_start = end + 1
    except TimeoutError:
        timed_out = True
    except MemoryError as error:
        raise PatternError("This pattern needs too much memory; simplify it.") from error
    return TextMatches(ref, text, matches, time.monotonic() - began, timed_out)


def search_page(
    found: Sequence[TextMatches],
    counter: TokenCounter,
    *,
    max_tokens: int,
    first_max_tokens: int = 0,
    limit: int | None = None,
    context: int = 0,
    stopped_seconds: int = 0,
    unreadable: int = 0,
    ages: Mapping[str, tuple[int, int]] | None = None,
    of_all: bool = False,
) -> str:
    """Return one page of what was found (at least one match), or a sentence when not even one fits.

    Texts come in the order given, newest first; within a text the last match comes first. Without context,
    lines that read the same are shown once, at their newest place, with a count. With context, neighbouring
    blocks are joined, and a block reads from top to bottom; where there is no room for the context of even
    one match, less of it is shown.

    `first_max_tokens`: what it may cost where `max_tokens` holds not even one match; 0 for no more.
    `context`: lines to show before and after each match.
    `of_all`: whether all texts were searched.
    `ages`: how many messages ago the newest and the oldest were of which a text is, by ref.
    """
    matches = sum(len(text.matches) for text in found)
    picks = [(text, match, 1) for text in found for match in reversed(text.matches)]
    if not context:
        picks = _without_repeats(picks)
    lines = {text.ref: text.text.split("\n") if context else [] for text in found}
    totals = {text.ref: text.text.count("\n") + 1 for text in found}

    def page(around: int, width: int, count: int) -> str:
        sections = []
        for ref, group in groupby(picks[:count], lambda pick: pick[0].ref):
            shown = list(group)
            if context:
                found_lines = _blocks(shown, lines[ref], around, width)
            else:
                found_lines = [_cut_match(text, match, width, repeats) for text, match, repeats in shown]
            ago = ago_of(*ages[ref]) if ages and ref in ages else ""
            sections.append(FoundSection(ref, totals[ref], len(shown[0][0].matches), found_lines, ago))
        covered = sum(repeats for _, _, repeats in picks[:count])
        less = around if around < context else None
        return found_page(
            sections, closing_found(covered, matches, stopped_seconds, unreadable, less, of_all=of_all)
        )

    def page_tokens(around: int, width: int, count: int) -> int:
        return counter.count_text(page(around, width, count))

    most = min(len(picks), max_tokens if limit is None else limit, max_tokens)
    for around, width, tokens in _attempts(context, max_tokens, first_max_tokens):
        upper = most if tokens == max_tokens else 1
        # With context one match may be all that fits, and a try costs as much as it shows.
        guess = 1 if around else _FIRST_GUESS
        count = largest_fitting(partial(page_tokens, around, width), upper, tokens, guess)
        if count:
            return page(around, width, count)
    text, match, _ = picks[0]
    return f"{matches} matches, and no room to show one: the newest is in line {match.number} of {text.ref}."


def _attempts(context: int, max_tokens: int, first_max_tokens: int) -> Iterator[tuple[int, int, int]]:
    """Yield `(lines of context, width of a line, tokens)` to try a page with, the best first."""
    limits = (max_tokens, first_max_tokens) if first_max_tokens > max_tokens else (max_tokens,)
    around = context
    while True:
        yield from ((around, width, tokens) for tokens in limits for width in LINE_WIDTHS)
        if not around:
            break
        around //= 2
    yield 0, LAST_WIDTH, limits[-1]


def _without_repeats(picks: Sequence[_Pick]) -> list[_Pick]:
    newest: dict[object, _Pick] = {}
    for text, match, _ in picks:
        # Of a line that can only be shown in part, each part is shown.
        part = match.match_start - match.line_start
        length = match.line_end - match.line_start
        key: object = (text.ref, match)
        if length <= _COMPARED_CHARACTERS:
            line = text.text[match.line_start : match.line_end]
            key = (line, part if length > LINE_WIDTHS[0] else 0)
        before = newest.get(key)
        newest[key] = (text, match, 1) if before is None else (before[0], before[1], before[2] + 1)
    return list(newest.values())


def _blocks(shown: Sequence[_Pick], lines: Sequence[str], context: int, width: int) -> list[FoundLine]:
    by_line: dict[int, list[_Pick]] = {}
    for pick in reversed(shown):
        by_line.setdefault(pick[1].number, []).append(pick)
    numbers: set[int] = set()
    for number in by_line:
        numbers.update(range(max(number - context, 1), min(number + context, len(lines)) + 1))
    blocks: list[list[int]] = []
    for number in sorted(numbers):
        if blocks and blocks[-1][-1] == number - 1:
            blocks[-1].append(number)
        else:
            blocks.append([number])
    found: list[FoundLine] = []
    for number in (number for block in reversed(blocks) for number in block):
        if number in by_line:
            found.extend(_cut_match(text, match, width) for text, match, _ in by_line[number])
        else:
            line = lines[number - 1]
            is_long = len(line) > width
            found.append(FoundLine(number, line[:width], 1 if is_long else None, is_match=False))
    return found


def _cut_match(text: TextMatches, match: Match, width: int, repeats: int = 1) -> FoundLine:
    if match.line_end - match.line_start <= width:
        return FoundLine(match.number, text.text[match.line_start : match.line_end], None, repeats)
    # A third of the width before the match, the rest for the match and what follows it.
    begin = min(max(match.match_start - width // 3, match.line_start), match.line_end - width)
    return FoundLine(match.number, text.text[begin : begin + width], begin - match.line_start + 1, repeats)
