"""`read` and `grep`: look into a store from outside, with no memory at hand."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import regex
import typer

from context_compressor.cli.options import (
    DEFAULT_STORE,
    DONE,
    NO,
    CommandError,
    Namespace,
    Store,
    check_path,
    check_store,
)
from context_compressor.cli.output import check_stdout, for_terminal, write_stdout
from context_compressor.errors import OffloadError, OffloadNotFoundError
from context_compressor.offload.files import TextFiles
from context_compressor.offload.folders import NAMESPACE, check_namespace
from context_compressor.offload.store import REF_PREFIX
from context_compressor.tools.grep import PatternError, compile_pattern, search_text

GREP_SECONDS = 10.0
"""What the search of all texts may take, their loading not included; a pattern can run for ever."""

_REF = re.compile(r"(?:ctx://)?([0-9a-f]{16})")
_NAMED = 3
"""Refs that a warning names; the others are counted."""


def read(
    ref: Annotated[str, typer.Argument(metavar="REF", help="ctx:// and 16 hex digits, as a view names it.")],
    store: Store = DEFAULT_STORE,
    namespace: Namespace = None,
    offset: Annotated[int | None, typer.Option(min=1, metavar="N", help="First line to print.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Lines to print at most.")] = None,
) -> int:
    """Print a text that left a view, as it was.

    Exit code 1 where no such text is stored.
    """
    check_stdout()
    ref = ref_given(ref)
    text = StoreView(store, namespace).read(ref)
    if offset is not None or limit is not None:
        first = offset or 1
        lines = text.split("\n")
        if first > len(lines):
            raise CommandError(f"--offset {first}: {ref} has {len(lines)} lines", NO)
        last = len(lines) if limit is None else min(first - 1 + limit, len(lines))
        # The line feed after the last line shown belongs to it, where the text has one.
        text = "\n".join(lines[first - 1 : last]) + ("\n" if last < len(lines) else "")
    _print(text)
    return DONE


def grep(
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="A regular expression, as in Python.")],
    store: Store = DEFAULT_STORE,
    namespace: Namespace = None,
    ref: Annotated[str | None, typer.Option(metavar="REF", help="Search this text only.")] = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Match either case.")] = False,
    context: Annotated[
        int, typer.Option("--context", "-C", min=0, metavar="N", help="Lines to print around each match.")
    ] = 0,
) -> int:
    """Search the texts that left views; prints ref:line:text.

    Exit code 0 where something matched, 1 where nothing did, 2 where the search could not be done.
    """
    check_stdout()
    view = StoreView(store, namespace)
    try:
        return _grep(compile_pattern(pattern, ignore_case), view, ref, context)
    except PatternError as error:
        raise CommandError(str(error)) from None


def _grep(pattern: regex.Pattern[str], view: StoreView, ref: str | None, context: int) -> int:
    refs = view.refs() if ref is None else [ref_given(ref)]
    code, seconds_left = NO, GREP_SECONDS
    unread: list[str] = []
    unsearched: list[str] = []
    for name in refs:
        if seconds_left <= 0:
            unsearched.append(name)
            continue
        try:
            text = view.read(name)
        except CommandError as error:
            if ref is not None:
                raise
            unread.append(str(error))  # the other texts can still be searched
            continue
        found = search_text(text, name, pattern, seconds_left)
        seconds_left -= found.seconds
        lines = text.split("\n")
        if lines[-1] == "":
            lines.pop()  # a line feed ends the last line; it does not begin another
        numbers = [n for n in dict.fromkeys(match.number for match in found.matches) if n <= len(lines)]
        if numbers:
            if code == DONE and context:
                _print("--\n")
            _print("".join(_matches(name, lines, numbers, context)))
            code = DONE
        if found.timed_out:
            unsearched.append(name)
            seconds_left = 0.0
    if unread or unsearched:
        raise CommandError(_troubles(unread, unsearched))
    return code


class StoreView:
    """The namespaces of one store, to be read only: having a look leaves no trace in the directory."""

    def __init__(self, path: str, namespace: str | None) -> None:
        check_path(path, "--store")
        self.path = path
        directory = check_store(path, f"--store {path}")
        try:
            present = sorted(
                entry.name
                for entry in directory.iterdir()
                if NAMESPACE.fullmatch(entry.name) and entry.is_dir()
            )
            names = present if namespace is None else [check_namespace(namespace)]
            self.namespaces = [TextFiles(directory.absolute() / name) for name in names]
        except ValueError as error:
            raise CommandError(f"--{error}") from None
        except OSError as error:
            raise CommandError(f"--store {path}: cannot be listed: {error.strerror}") from None
        if namespace is not None and namespace not in present:
            raise CommandError(f"--namespace {namespace}: not in {path}; there: {_named(present) or 'none'}")

    def refs(self) -> list[str]:
        """Return every ref, by namespace; one that stands in several is named once."""
        found: dict[str, None] = {}
        for files in self.namespaces:
            try:
                found.update(dict.fromkeys(files.refs()))
            except OffloadError as error:
                raise CommandError(f"--store {self.path}: {error}") from None
        return list(found)

    def read(self, ref: str) -> str:
        """Return the text under `ref`, from the first namespace that can give it.

        Raises:
            CommandError: no namespace has it, or what there is cannot be read.
        """
        failure: OffloadError | None = None
        for files in self.namespaces:
            try:
                return files.read(ref)
            except OffloadNotFoundError:
                continue
            except OffloadError as error:
                failure = error
        if failure is not None:
            raise CommandError(str(failure))
        stored = self.refs()
        others = f"; stored there: {_named(stored)}" if stored else ", and nothing else is"
        raise CommandError(f"{ref} is not stored in {self.path}{others}", NO)


def ref_given(given: str) -> str:
    """Return a ref as stores take it; the 16 digits alone will do."""
    found = _REF.fullmatch(given.strip().lower())
    if found is None:
        raise CommandError(f"{given!r} is not a ref; a ref is ctx:// and 16 hex digits")
    return REF_PREFIX + found[1]


def _print(text: str) -> None:
    """Print a stored text as it was; to a terminal, without what that would obey."""
    write_stdout(for_terminal(text) if sys.stdout.isatty() else text)


def _troubles(unread: Sequence[str], unsearched: Sequence[str]) -> str:
    """Return what kept a search from being whole."""
    troubles = []
    if unread:
        more = f" (and {len(unread) - 1:,} more that cannot be read)" if len(unread) > 1 else ""
        troubles.append(f"{unread[0]}{more}")
    if unsearched:
        what = "1 text was" if len(unsearched) == 1 else f"{len(unsearched):,} texts were"
        troubles.append(
            f"the search was stopped after {GREP_SECONDS:g} s, so {what} not searched to the end: "
            f"{_named(unsearched)}; simplify the pattern"
        )
    return "; ".join(troubles)


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _matches(ref: str, lines: Sequence[str], numbers: Sequence[int], context: int) -> Iterator[str]:
    """Yield output lines: `ref:number:text` for a match, `ref-number-text` for what stands around it."""
    matching = set(numbers)
    shown = 0
    for number in numbers:
        first, last = max(number - context, shown + 1), min(number + context, len(lines))
        if context and shown and first > shown + 1:
            yield "--\n"
        for current in range(first, last + 1):
            mark = ":" if current in matching else "-"
            yield f"{ref}{mark}{current}{mark}{lines[current - 1]}\n"
        shown = max(shown, last)
