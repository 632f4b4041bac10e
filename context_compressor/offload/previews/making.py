"""A preview of any text: what kind it is, what of it is shown, and its names, within so many tokens."""

from __future__ import annotations

import re
from collections.abc import Callable

from context_compressor.messages.frames import Report, unframe, without_clock
from context_compressor.offload.fitting import CHARS_PER_TOKEN_BOUND, largest_fitting
from context_compressor.offload.previews.code import show_code
from context_compressor.offload.previews.diagnostics import show_diagnostics
from context_compressor.offload.previews.escaped import as_resolved, show_escaped
from context_compressor.offload.previews.json import show_json
from context_compressor.offload.previews.lines import Show
from context_compressor.offload.previews.listing import show_listing
from context_compressor.offload.previews.markup import show_markup
from context_compressor.offload.previews.matches import show_matches
from context_compressor.offload.previews.names import find_names, name_line, names_tokens
from context_compressor.offload.previews.snapshot import show_snapshot
from context_compressor.offload.previews.table import show_table
from context_compressor.offload.previews.text import show_text

Recogniser = Callable[[str], Show | None]
"""Takes a text; returns what shows it, or None when the text is not of its kind."""

NAMES_SHARE = 0.5
"""Part of a preview kept for the names in the text, where no other part is better for its kind; the gain that
`name_line` cites was measured with it."""

RECOGNISERS: dict[Recogniser, float] = {
    show_json: 0.7,
    show_escaped: 0.7,
    show_snapshot: 0.3,
    show_listing: 0.1,  # it consists of names
    show_matches: 0.7,
    show_diagnostics: 0.3,
    show_code: 0.3,
    show_markup: NAMES_SHARE,
    show_table: NAMES_SHARE,
}
"""Asked in this order; what none of them knows is plain text. Behind each, the part of a preview of its kind
that is kept for names, by `benchmarks/previews.py`."""

CHARACTERS_PER_TOKEN = 3.0
"""Supposed where nothing is known of the text."""

_COLOURS = re.compile(r"\x1b\[[0-9;?]{0,30}[A-Za-z]")
"""How terminals colour text and move about: it would glue to names, and take their room."""

_FRAMED = re.compile(r"\s*(?:[\[{]|CallToolResult\(|_?meta=|content=\[)")
"""May begin what a server of tools answered."""

_MIN_TOKENS_FOR_NAMES = 50
"""Below this a preview has no room for a list of names beside its body."""
_NAMES_LOOKED_AT = 1.2
"""Tokens of names that are looked at, as a part of the preview: some will stand in its body."""

_DENSER = 0.92
"""Characters per token of what is shown, line numbers included, as a part of those of the text."""

_WELL_FILLED = 0.8
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

    Args:
        text: any text.
        max_tokens: what the preview may cost.
        count: counts the tokens of what would stand in the view.
        plain: whether only head and tail are wanted, whatever kind of text it is.
        characters_per_token: of `text`, as far as known; saves counts.
    """
    if max_tokens <= 0:
        return ""
    if "\x1b" in text:
        text = _COLOURS.sub("", text)
    text = without_clock(text)
    density = _DENSER * min(max(characters_per_token, 0.25), CHARS_PER_TOKEN_BOUND)
    report = unframe(text) if _FRAMED.match(text) and not plain else Report(text)
    is_framed = report.said is not text
    show, names_share = _recognise(report.said, plain, is_framed)
    if is_framed:
        text, show = report.said, as_resolved(show, report.status)
    with_names = max_tokens >= _MIN_TOKENS_FOR_NAMES
    names = find_names(text, max_tokens * _NAMES_LOOKED_AT) if with_names else []
    in_names = names_tokens(names)
    made: dict[int, str] = {}

    def cost(tokens: int) -> int:
        """Make the preview that should cost `tokens`, and return what it does cost."""
        room = tokens * density
        # Where the part of it that names leave is too small for anything, they get what it leaves.
        body = show(int(room - min(room * names_share, in_names * density))) or show(int(room))
        line = name_line(names, body, tokens - len(body) / density)
        made[tokens] = "\n".join(filter(None, (body, line)))
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


def _recognise(text: str, plain: bool, is_framed: bool) -> tuple[Show, float]:
    """Return what shows `text`, and the part of its preview that is kept for names."""
    if plain:
        return show_text(text, errors=False), NAMES_SHARE
    for recognise, names_share in RECOGNISERS.items():
        # The lines of what stood in a frame are not those of the text that is stored.
        is_json = recognise is show_json
        show = show_json(text, is_numbered=not is_framed) if is_json else recognise(text)
        if show is not None:
            return show, names_share
    return show_text(text), NAMES_SHARE
