"""Lines that name identifiers, each beside what brought it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence, Set

from context_compressor.summarizers.identifiers.describing import Described, describe
from context_compressor.summarizers.identifiers.finding import find_identifiers, is_number
from context_compressor.summarizers.identifiers.ranking import Identifier, Source
from context_compressor.summarizers.sections import strip_bullet

_LINE_CHARS = 190
_MIN_ROOM_CHARS = 20
"""Of a line of names at most; and what has to be left for another name to be tried."""

_LEAST_NUMBER_VALUE = 0.0065
"""Below this a number is one of many that were only printed, as the cells of a table are."""

_KEPT_SHARE = 0.05
"""Share of the room for names that the agent has used again and again, however long ago: among hundreds that
it used once and lately, the fall of the odds that they are needed would drop them in a merge. With .15 the
far known of long sessions is 3 points lower, with .05 the difference is chance."""
_LEAST_TIMES = 3
"""Uses from which a name is such a one."""

_LEAST_FIELDS = 3
"""Times that a name with a digit stands as a key in one text, for it to be the name of a field."""
_BETWEEN_WORDS = str.maketrans(dict.fromkeys("_-$@."))
"""What stands between the words of a key: `created_at`, `Content-Type`, `@odata.count`."""


class Index:
    """The identifiers of some sources, from which `lines` chooses.

    Args:
        sources: the texts.
        ranked: their identifiers, most value first.
    """

    def __init__(self, sources: Sequence[Source], ranked: Sequence[Identifier]) -> None:
        self._sources = sources
        tools = {_first_word(source.label) for source in sources if source.kind in ("call", "result")}
        # Of its tools the agent is told anyway.
        self._ranked = [identifier for identifier in ranked if identifier.text not in tools]
        kept = (found for found in self._ranked if found.times >= _LEAST_TIMES and not is_number(found.text))
        self._kept = sorted(kept, key=lambda found: -found.times)
        self._described: dict[str, tuple[int, Described, Collection[str]] | None] = {}
        """Where each name first stands in its source, what is said of it, and the names that this holds where
        colons join several; None of one that is a key."""

    def lines(self, covered: Collection[str], room: float) -> tuple[list[str], int, bool]:
        """Return lines of at most `room` characters, their length, and whether everything is named.

        Identifiers in `covered` are left out. The lines with the most valuable come first, so that a later
        summary which carries them forward knows their rank.
        """
        groups: dict[str, list[tuple[int, int, Described]]] = {}
        said: set[tuple[str, str]] = set()
        told: set[str] = set()
        spent = 0
        complete = True
        for number, identifier in enumerate((*self._kept, *self._ranked)):
            name, is_kept = identifier.text, number < len(self._kept)
            if is_kept and spent > _KEPT_SHARE * room:
                continue
            if (
                name in covered
                or name in told
                or (identifier.value < _LEAST_NUMBER_VALUE and is_number(name))
            ):
                continue
            source = self._sources[identifier.source]
            if name not in self._described:
                start = max(0, source.text.find(name))
                is_key = _is_key(name, source, start)
                self._described[name] = None if is_key else (start, *_describe(name, source, start))
            described = self._described[name]
            if described is None:
                continue
            start, item, names = described
            # The arguments of its call need not be said twice; the label shortens a path to its name.
            shown = name.rpartition("/")[2] if source.kind == "call" else name
            label = _first_word(source.label) if shown in source.label else source.label
            is_said = _is_one_word(item.words) and (label, item.words) in said
            cost = len(item.name if is_said else str(item)) + 3 + (0 if label in groups else len(label) + 4)
            if spent + cost > room:
                complete = False
                if room - spent < _MIN_ROOM_CHARS:
                    break
                continue
            spent += cost
            told.update(names, (name,))
            said.add((label, item.words))
            groups.setdefault(label, []).append((identifier.source, start, item))
        lines = (_wrap(label, [item for *_, item in sorted(group)]) for label, group in groups.items())
        return [line for wrapped in lines for line in wrapped], spent, complete


class ToldNames:
    """The names that segments tell of which stay in the view, and beside which tools they stand there.

    Names come back with other work. An old segment that has one from another tool says nothing of what the
    agent has it from now; whoever reads it there takes it for a part of what was done then.

    Args:
        lines: those of the segments, each with the identifiers in it.
    """

    def __init__(self, lines: Iterable[tuple[str, Set[str]]]) -> None:
        self._labels: dict[str, set[str]] = {}
        for line, names in lines:
            if names:
                label = _first_word(strip_bullet(line).partition(": ")[0])
                for name in names:
                    self._labels.setdefault(name, set()).add(label)

    def covers(self, name: str, source: Source) -> bool:
        """Tell whether the segments say of a name what an index would, from its newest source.

        Sources that are the agent's own, or lines of earlier summaries, tell no more than any segment does.
        """
        labels = self._labels.get(name)
        if labels is None:
            return False
        return source.is_carried or source.is_agents or _first_word(source.label) in labels


def _first_word(label: str) -> str:
    return label.split(" ", 1)[0]


def _describe(name: str, source: Source, start: int) -> tuple[Described, Collection[str]]:
    item = describe(name, source, start)
    return item, find_identifiers(str(item)) if ":" in str(item) else ()


def _is_one_word(words: str) -> bool:
    return words != "" and " " not in words


def _is_key(name: str, source: Source, start: int) -> bool:
    """Tell whether a name is a key of JSON data, or an argument's: it stands beside each of its values.

    Such a name consists of words. Ids and paths that data are kept by are keys, too, but name things; only
    where objects follow one another with the same key, as `sha256` or `address_line_1`, is it none of these.
    """
    if not name.translate(_BETWEEN_WORDS).isalpha() and source.text.count(f'"{name}":') < _LEAST_FIELDS:
        return False
    end = start + len(name)
    after = source.text[end : end + 2]
    if source.kind == "call":
        return after == ": " and source.text[start - 1 : start] in ("", "\n")
    return source.kind in ("result", "assistant") and after in ('":', "':")


def _wrap(label: str, items: list[Described]) -> Iterator[str]:
    """Yield `label: word item; item, item` lines, short enough that the label stands near each item.

    A word that says what several are in a row is said once (see `split_items`).
    """
    line = word = ""
    for item in items:
        if line and len(line) + len(str(item)) > _LINE_CHARS:
            yield line
            line, label = "", _first_word(label)
        if not line:
            line = f"{label}: {item}" if label else str(item)
        elif _is_one_word(word) and item.words == word:
            line = f"{line}; {item.name}"
        else:
            line = f"{line}, {item}"
        word = item.words
    yield line


def split_items(items: str) -> list[str]:
    """Return the items of a line, each with the word that says what it is."""
    split: list[str] = []
    for run in items.split(", "):
        first, *others = run.split("; ")
        word = first.partition(" ")[0]
        split += [first, *(f"{word} {other}" for other in others)]
    return split
