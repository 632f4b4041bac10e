"""Preview directory listings (`ls -l`, `ls -R`, `find`, `tree`, `git status`): the tree, root down."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from context_compressor.offload.previews.lines import (
    Show,
    counted,
    first_line,
    head_lines,
    looked_at,
    sample_lines,
    share,
)

LISTED_SHARE = 0.6
"""Of the lines of the sample, at least: the rest may be the command, its exit code, a total."""

HEADING_SHARE = 0.06
"""Of the lines of the sample that head a directory in `ls -R`, at least."""

MIN_ENTRIES = 8
MAX_SIBLINGS = 8
"""Of one directory that are shown before the next level: many are alike (languages, dates, numbers)."""

MAX_RANKED = 500
"""More never fit."""

MAX_PATH_CHARACTERS = 300

_OUTSIDERS = 50
"""One path in so many at either end of the order may stand outside the root: cut lines, other directories."""

_SIZE_CHARACTERS = 6
"""What the number of files of a directory costs, in characters of text: digits are a token each."""

_PATH = re.compile(
    r"[ \t]*(?:(?:create mode \d+|delete mode \d+|modified:|new file:|deleted:|[AMDRU?]{1,2})[ \t]+)?"
    r"((?:\.{0,2}/)?(?:[\w.@+,=~%()\[\]-]+/)+[\w.@+,=~%()\[\]-]*)$"
)
_LONG = re.compile(
    r"([-dlbcps])[rwxsStT-]{9}[.+@]?[ \t]+\d+[ \t]+\S+[ \t].{1,80}?[ \t]"
    r"(?:[A-Z][a-z]{2}|\d{1,2}月|\d{4}-\d\d-\d\d)[ \t]+"
    r"(?:\d{1,2}[ \t]+)?(?:\d\d:\d\d\S*|\d{4})(?:[ \t][+-]\d{4})?[ \t]+(\S.*)$"
)
_TREE = re.compile(r"((?:[│|][ \t\xa0]{1,3}|[ \t\xa0]{4}){0,40})(?:├──?|└──?|\|--|`--|\+--)[ \xa0]*(\S.*)$")
_HEADING = re.compile(r"((?:\.{0,2}/)?[\w./@+,=~%()\[\]-]+):$")
_NAMES = re.compile(r"[\w.@+=~%()\[\] \t-]+$")
_COLUMNS = re.compile(r"\t+|  +")


def show_listing(text: str) -> Show | None:
    """Return what shows a directory listing from its root down; None for another kind of text."""
    sample = sample_lines(text)
    read = _reader(sample)
    if read is None:
        return None
    lines = head_lines(text)
    paths = list(read([line[:MAX_PATH_CHARACTERS].rstrip() for line in lines]))
    if len(paths) < MIN_ENTRIES:
        return None
    paths = _marked(paths)
    root = _root(paths)
    files, directories = _tree([path.removeprefix(root) for path in paths if not _holds(path, root)])
    entries = _ranked(files, directories)
    summary = (
        f"[{counted(len(files), 'file')}, directories: {len(directories)}{looked_at(text, lines)}; "
        f"under {root or '.'}]"
    )

    def show(characters: int) -> str:
        head = first_line(lines, characters)
        room = characters - len(head) - len(summary)
        chosen = []
        for name, size in entries:
            is_counted = size > 0 and name.count("/") == 1
            room -= len(name) + 2 + _SIZE_CHARACTERS * is_counted
            if room < 0:
                break
            chosen.append(f"{name} ({size})" if is_counted else name)
        return "\n".join((head, summary, ", ".join(chosen)))

    return show


def _reader(sample: Sequence[str]) -> Callable[[Sequence[str]], Iterator[str]] | None:
    for pattern, read in ((_PATH, _read_paths), (_LONG, _read_long), (_TREE, _read_tree)):
        if share(pattern.match(line) is not None for line in sample) >= LISTED_SHARE:
            return read
    headings = [line for line in sample if "/" in line and _HEADING.match(line)]
    if len(headings) >= 2 and len(headings) >= HEADING_SHARE * len(sample):
        names = share(_NAMES.match(line) is not None for line in sample if line not in headings)
        return _read_blocks if names >= 0.8 else None
    return None


def _read_paths(lines: Sequence[str]) -> Iterator[str]:
    return (found[1] for line in lines if (found := _PATH.match(line)))


def _read_long(lines: Sequence[str]) -> Iterator[str]:
    inside = ""
    for line in lines:
        if found := _LONG.match(line):
            name = found[2].partition(" -> ")[0]
            if name not in (".", ".."):
                yield f"{inside}{name}/" if found[1] == "d" else inside + name
        elif found := _HEADING.match(line):
            inside = f"{found[1].rstrip('/')}/"


def _read_tree(lines: Sequence[str]) -> Iterator[str]:
    above: list[str] = []
    for line in lines:
        if found := _TREE.match(line):
            del above[len(found[1]) // 4 :]
            above.append(found[2].partition(" -> ")[0].rstrip("/"))
            yield "/".join(above)


def _read_blocks(lines: Sequence[str]) -> Iterator[str]:
    inside = ""
    for line in lines:
        if found := _HEADING.match(line):
            inside = f"{found[1].rstrip('/')}/"
            yield inside
        elif inside:
            for name in _COLUMNS.split(line.strip()):
                if name:
                    yield inside + name


def _root(paths: Sequence[str]) -> str:
    """Return the directory that all `paths` have in common, save a few: that of the first, if it is one."""
    inner = sorted(paths)
    outside = len(inner) // _OUTSIDERS
    top = paths[0]
    if top.endswith("/") and sum(path.startswith(top) for path in paths) >= len(paths) - outside:
        return top  # though nearly all of what is looked at may stand further below
    first, last = inner[outside], inner[-1 - outside]
    same = next(
        (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last))
    )
    return first[: first.rfind("/", 0, same) + 1]


def _marked(paths: Sequence[str]) -> list[str]:
    """Return `paths` with a slash behind each that is a directory: listed as such, or holds another path."""
    directories = {path for path in paths if path.endswith("/")}
    for path in paths:
        above = _parent(path)
        while above and above not in directories:
            directories.add(above)
            above = _parent(above)
    return [f"{path}/" if f"{path}/" in directories else path for path in paths]


def _parent(path: str) -> str:
    """Return the directory in which a path stands, with its slash; "" at the top."""
    above = path.rstrip("/").rpartition("/")[0]
    return f"{above}/" if above else ""


def _holds(directory: str, root: str) -> bool:
    return directory.endswith("/") and root.startswith(directory)


def _tree(paths: Sequence[str]) -> tuple[list[str], dict[str, int]]:
    """Return the files, and the directories with the number of files in and below each."""
    directories = dict.fromkeys((path for path in paths if path.endswith("/")), 0)
    files = [path for path in paths if not path.endswith("/")]
    own = Counter([_parent(path) for path in files])
    for directory in (*own, *directories):
        size, above = own.pop(directory, 0), directory
        while above:
            directories[above] = directories.get(above, 0) + size
            above = _parent(above)
    return files, directories


def _ranked(files: Sequence[str], directories: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return `(path, number of files)` from the root down, a few of each directory at a time.

    A level of directories comes before the files of the level above, the fullest first.
    """
    levels: dict[int, list[tuple[str, int]]] = {}
    for name in files:
        levels.setdefault(name.count("/") + 1, []).append((name, 0))
    for name, size in directories.items():
        levels.setdefault(name.count("/") - 1, []).append((name, size))
    ranked: list[tuple[str, int]] = []
    later: list[tuple[str, int]] = []
    for level in sorted(levels):
        if len(ranked) > MAX_RANKED:
            break
        siblings = Counter[str]()
        entries, later = [*later, *sorted(levels[level], key=lambda entry: -entry[1])], []
        for entry in entries:
            parent = _parent(entry[0])
            siblings[parent] += 1
            (ranked if siblings[parent] <= MAX_SIBLINGS else later).append(entry)
    return ranked + later
