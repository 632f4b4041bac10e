"""A preview of any text: what kind it is, and how much of it fits so many tokens."""

from __future__ import annotations

import re
from collections.abc import Callable

from context_compressor.offload.previews.data import show_json
from context_compressor.offload.previews.text import Show, show_escaped, show_html, show_text
from context_compressor.tokens.counter import largest_fitting

Recogniser = Callable[[str], Show | None]
"""Takes a text; returns what shows it, or None when the text is not of its kind."""

RECOGNISERS: dict[str, Recogniser] = {"JSON": show_json, "escaped": show_escaped, "HTML": show_html}
"""By the names of kinds, asked in this order; what none of them knows is plain text.

Each shows more of the lines that an agent quotes later than head and tail alone, by `benchmarks/previews.py`.
Source code has no kind: the lines of its definitions take more than they tell."""

CHARACTERS_PER_TOKEN = 3.0
"""Supposed where nothing is known of the text."""

CHARS_PER_TOKEN_BOUND = 16
"""Characters per token that no text worth showing exceeds: long runs of blanks or dashes do, prose stays near
5. It bounds how much is rendered and counted when a limit in tokens is given."""

_COLOURS = re.compile(r"\x1b\[[0-9;?]{0,30}[A-Za-z]")
"""How terminals colour text and move about: it would glue to words, and take their room."""

_DENSER = 0.92
"""Characters per token of what is shown, line numbers included, as a part of those of the text."""

_WELL_FILLED = 0.9
"""Fill at which no better preview is looked for: each try costs a count."""

_FIRST_GUESS = 0.97
"""What the first try is made for, as a part of the limit; it costs 5 % less on average, seldom more."""

_COUNTS = 5
"""After so many counts any preview that fits is taken."""


def preview(
    text: str,
    max_tokens: int,
    count: Callable[[str], int],
    *,
    plain: bool = False,
    characters_per_token: float = CHARACTERS_PER_TOKEN,
) -> str:
    """Return a preview of at most `max_tokens`, the same for the same text; "" when nothing fits.

    Its size is estimated, and counted in the end, 1 or 2 times as a rule.

    `count`: counts the tokens of what would stand in the view. `characters_per_token`: of `text`, as far as
    known; saves counts.
    """
    if max_tokens <= 0:
        return ""
    if "\x1b" in text:
        text = _COLOURS.sub("", text)
    density = _DENSER * min(max(characters_per_token, 0.25), CHARS_PER_TOKEN_BOUND)
    show = show_text(text, errors=False) if plain else recognise(text)[1]
    made: dict[int, str] = {}

    def cost(tokens: int) -> int:
        """Make the preview that should cost `tokens`, and return what it does cost."""
        made[tokens] = show(int(tokens * density))
        return count(made[tokens])

    best = largest_fitting(
        cost,
        max_tokens * CHARS_PER_TOKEN_BOUND,
        max_tokens,
        int(max_tokens * _FIRST_GUESS),
        good_enough=_WELL_FILLED,
        calls=_COUNTS,
    )
    return made[best] if best else ""


def recognise(text: str) -> tuple[str, Show]:
    """Return which kind of text it is, and what shows it."""
    for kind, recogniser in RECOGNISERS.items():
        show = recogniser(text)
        if show is not None:
            return kind, show
    return "text", show_text(text)
