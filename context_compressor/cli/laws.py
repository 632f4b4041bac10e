"""`laws`: which laws a compactor keeps, over random conversations."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from context_compressor.cli.options import DONE, NO, CommandError, Json
from context_compressor.cli.output import check_folder, make_console, make_progress, say, write_stdout

if TYPE_CHECKING:
    from context_compressor.laws import Report, Subject


class FormOption(StrEnum):
    """The forms that `--form` takes."""

    chat = "chat"
    responses = "responses"
    anthropic = "anthropic"


def laws(
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="A function from messages to messages, or a Subject; a module's name or a file.",
        ),
    ] = None,
    adapter: Annotated[str | None, typer.Option(metavar="NAME", help="Check what is known: memory.")] = None,
    form: Annotated[FormOption, typer.Option(help="Form of the messages.")] = FormOption.chat,
    budget: Annotated[int, typer.Option(help="Tokens that a view may cost.")] = 2_000,
    slack: Annotated[float, typer.Option(help="Share by which a view may exceed the budget.")] = 0.0,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Call FUNCTION for each conversation; it returns the compactor.")
    ] = False,
    without: Annotated[
        list[str] | None, typer.Option(metavar="LAW", help="A law that is not claimed; may be repeated.")
    ] = None,
    examples: Annotated[int, typer.Option(min=1, help="How many conversations.")] = 100,
    seed: Annotated[int, typer.Option(help="Of the conversations.")] = 0,
    folder: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write counterexamples there, as JSON and as pictures.")
    ] = None,
    script: Annotated[
        bool, typer.Option("--script", help="With --folder: also a program that shows each again.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Check which laws a compactor keeps, over random conversations that its provider accepts.

    Exit code 0: all that are claimed; 1: one is broken; 2: wrong arguments.
    """
    from context_compressor.laws.suite import check, dump, save

    if script and (folder is None or path is None):
        raise CommandError(
            "--script needs --folder and MODULE:FUNCTION: name where to write, and what to run"
        )
    if folder is not None:
        check_folder(folder, "--folder")
    try:
        subject = _subject(path, adapter, form.value, budget, fresh)
        left_out = {*subject.without, *(without or ())}
        if not hasattr(_made(subject, path), "read"):
            left_out.add("lossless")
        subject = replace(subject, slack=slack or subject.slack, without=left_out)
    except (ValueError, ImportError) as error:
        raise CommandError(str(error)) from None
    try:
        with make_progress(quiet=False) as progress:
            bar = progress.add_task("")
            report = check(
                subject,
                examples=examples,
                seed=seed,
                on_step=lambda what, number, of: progress.update(
                    bar, description=what, completed=number, total=of
                ),
            )
    except ImportError as error:
        raise CommandError(f"--form {form.value} {error}") from None
    files = save(report, Path(folder), path if script else None) if folder is not None else []
    if as_json:
        write_stdout(dump(report) + "\n")
    else:
        _print(report, files)
    return NO if report.broken else DONE


def _subject(path: str | None, adapter: str | None, form: Any, budget: int, fresh: bool) -> Subject:
    from context_compressor.laws import Subject

    if (path is None) == (adapter is None):
        raise CommandError("name one of MODULE:FUNCTION and --adapter")
    if adapter is not None:
        from context_compressor.laws.subject import memory

        if adapter != "memory":
            raise CommandError(f"--adapter {adapter}: there is none; it may be memory")
        return memory(form, budget)
    found = _load(str(path))
    if isinstance(found, Subject):
        return found
    if not callable(found):
        raise CommandError(f"{path}: a {type(found).__name__}; name a function, or a Subject")
    make: Callable[[], Any] = found if fresh else lambda: found
    return Subject(make=make, name=str(path).rpartition(":")[2], form=form, budget=budget)


def _made(subject: Subject, path: str | None) -> Any:
    try:
        return subject.make()
    except Exception as error:
        raise CommandError(f"{path}: cannot be called for a compactor: {_told(error)}") from None


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _load(path: str) -> Any:
    """Return what a path names, `module:name` or `file.py:name`."""
    place, _, name = path.rpartition(":")
    if not place or not name:
        raise CommandError(f"{path}: write MODULE:FUNCTION, such as mine.py:shorten")
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(place).stem, place)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        else:
            sys.path.insert(0, str(Path.cwd()))
            module = importlib.import_module(place)
    except Exception as error:  # whatever a user's module does
        raise CommandError(f"{path}: cannot be imported: {_told(error)}") from None
    try:
        return getattr(module, name)
    except AttributeError:
        raise CommandError(f"{path}: the module has no {name}") from None


def _print(report: Report, files: list[Path]) -> None:
    from context_compressor.laws import LAWS

    console = make_console()
    say(
        console,
        f"{report.name}, form {report.form}: {report.cases} conversations, {report.compacted} compacted"
        + (f", {report.refused} lists refused" if report.refused else "")
        + (", stopped: the last got no answer in time" if report.is_stopped else ""),
        "bold",
    )
    for law, says in LAWS.items():
        state = report.state_of(law)
        style = {"kept": "green", "broken": "red"}.get(state, "dim")
        say(console, f"{law:<11} {state:<12} {says}", style)
        if law in report.broken:
            say(
                console,
                f"{'':<11} {report.counts[law]} conversations; the smallest: {report.broken[law].what}",
            )
    if report.broken and not files:
        say(console, "--folder DIR writes these conversations, and a page for each that marks what is wrong")
    for file in files:
        say(console, f"wrote {file}")
