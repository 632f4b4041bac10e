"""`read` and `grep`: look into a store from outside, with no memory at hand."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from context_compressor.cli.exits import DONE, NO, TROUBLE, CommandError
from context_compressor.cli.outputs import write_stdout
from context_compressor.errors import OffloadError, OffloadNotFoundError
from context_compressor.offload.directory.namespaces import NAMESPACE
from context_compressor.offload.files import FileOffloadStore
from context_compressor.offload.pages import split_lines
from context_compressor.offload.protocol import REF_PREFIX
from context_compressor.offload.searching import PatternError, compile_pattern, search_text

GREP_SECONDS = 10.0
"""What the search of one text may take; a pattern can run for ever."""

_REF = re.compile(r"(?:ctx://)?([0-9a-f]{16})")
_NAMED = 3


class _SeenStore(FileOffloadStore):
    is_user = False  # having a look leaves no trace in the directory


class StoreView:
    """The namespaces of one store, to be read only.

    Args:
        path: the store's directory.
        namespace: the only one to look into; None for all.

    Raises:
        CommandError: there is no such directory or namespace.
    """

    def __init__(self, path: str, namespace: str | None) -> None:
        self.path = path
        directory = Path(path)
        if not directory.is_dir():
            what = "is no directory" if directory.exists() else "does not exist"
            raise CommandError(f"--store {path}: {what}; name the directory given to compress or the memory")
        try:
            if namespace is not None:
                FileOffloadStore(path, namespace)  # refuses a name that could leave the directory
            present = sorted(
                entry.name
                for entry in directory.iterdir()
                if NAMESPACE.fullmatch(entry.name) and entry.is_dir()
            )
        except ValueError as error:
            raise CommandError(f"--{error}") from None
        except OSError as error:
            raise CommandError(f"--store {path}: cannot be listed: {error.strerror}") from None
        if namespace is not None and namespace not in present:
            there = ", ".join(present[:_NAMED]) or "none"
            more = f" and {len(present) - _NAMED} more" if len(present) > _NAMED else ""
            raise CommandError(f"--namespace {namespace}: not in {path}; there: {there}{more}")
        self.stores: list[FileOffloadStore] = []
        names = present if namespace is None else [namespace]
        self.stores.extend(_SeenStore(path, name) for name in names)

    async def refs(self) -> list[str]:
        """Return every ref, by namespace; one that stands in several is named once."""
        found: dict[str, None] = {}
        for store in self.stores:
            found.update(dict.fromkeys(await self._listed(store)))
        return list(found)

    async def _listed(self, store: FileOffloadStore) -> list[str]:
        try:
            return await store.refs()
        except OffloadError as error:
            raise CommandError(f"--store {self.path}: {error}") from None

    async def read(self, ref: str) -> str:
        """Return the text under `ref`, from the first namespace that can give it.

        Raises:
            CommandError: no namespace has it, or what there is cannot be read.
        """
        failure: OffloadError | None = None
        for store in self.stores:
            try:
                return await store.read(ref)
            except OffloadNotFoundError:
                continue
            except OffloadError as error:
                failure = error
        if failure is not None:
            raise CommandError(str(failure))
        raise CommandError(await self._missing(ref), NO)

    async def _missing(self, ref: str) -> str:
        refs = await self.refs()
        if not refs:
            return f"{ref} is not stored in {self.path}, and nothing else is"
        named = ", ".join(refs[:_NAMED])
        more = f" and {len(refs) - _NAMED} more" if len(refs) > _NAMED else ""
        return f"{ref} is not stored in {self.path}; stored there: {named}{more}"


def check_ref(given: str) -> str:
    """Return a ref as stores take it; the 16 digits alone will do.

    Raises:
        CommandError: it is none.
    """
    found = _REF.fullmatch(given.strip().lower())
    if found is None:
        raise CommandError(f"{given!r} is not a ref; a ref is ctx:// and 16 hex digits")
    return REF_PREFIX + found[1]


def read_stored(ref: str, store: str, namespace: str | None, offset: int | None, limit: int | None) -> int:
    """Print a stored text, or `limit` lines of it from line `offset` on; return the exit code."""
    ref = check_ref(ref)
    text = asyncio.run(StoreView(store, namespace).read(ref))
    if offset is not None or limit is not None:
        first = offset or 1
        lines = split_lines(text)
        if first > len(lines):
            raise CommandError(f"--offset {first}: {ref} has {len(lines)} lines", NO)
        last = len(lines) if limit is None else min(first - 1 + limit, len(lines))
        # The line feed after the last line shown belongs to it, where the text has one.
        text = "\n".join(lines[first - 1 : last]) + ("\n" if last < len(lines) else "")
    write_stdout(text)
    return DONE


def grep_stored(
    pattern: str, store: str, namespace: str | None, ref: str | None, ignore_case: bool, context: int
) -> int:
    """Print the lines of stored texts that match, as grep does; return the exit code."""
    return asyncio.run(_grep(pattern, StoreView(store, namespace), ref, ignore_case, context))


async def _grep(pattern: str, view: StoreView, ref: str | None, ignore_case: bool, context: int) -> int:
    try:
        compiled = compile_pattern(pattern, ignore_case)
    except PatternError as error:
        raise CommandError(str(error)) from None
    refs = await view.refs() if ref is None else [check_ref(ref)]
    code, trouble = NO, ""
    for name in refs:
        try:
            text = await view.read(name)
        except CommandError as error:
            if ref is not None:
                raise
            trouble = str(error)  # the other texts can still be searched
            continue
        found = await asyncio.to_thread(search_text, text, name, compiled, GREP_SECONDS)
        lines = split_lines(text)
        if lines[-1] == "":
            lines.pop()  # a line feed ends the last line; it does not begin another
        numbers = [n for n in dict.fromkeys(hit.number for hit in found.hits) if n <= len(lines)]
        if numbers:
            if code == DONE and context:
                write_stdout("--\n")
            write_stdout("".join(_matches(name, lines, numbers, context)))
            code = DONE
        if found.timed_out:
            trouble = f"{name}: the search was stopped after {GREP_SECONDS:g} s; simplify the pattern"
    if trouble:
        raise CommandError(trouble, TROUBLE)
    return code


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
