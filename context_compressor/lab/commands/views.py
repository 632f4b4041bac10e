"""Views of sessions on the command line: shown, compared and explained; undone, and rid of a text."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from context_compressor.cli.gc import read_age
from context_compressor.cli.options import DONE, NO, CommandError, Json, check_path
from context_compressor.cli.output import (
    check_output,
    check_stdout,
    counted,
    for_terminal,
    make_console,
    one_line,
    say,
    write_stdout,
)
from context_compressor.cli.session import (
    Certificate,
    Grace,
    Target,
    called,
    each_event,
    on_target,
    role_of,
    tell_deletion,
)
from context_compressor.cli.stored import ref_given
from context_compressor.core.edits import Edit, StubEdit, name_of, refs_of
from context_compressor.core.ledger import Ledger
from context_compressor.core.shown import render_transcript
from context_compressor.errors import ContextOverflowError, InvalidArgumentError
from context_compressor.lab.commands.options import (
    BaseUrl,
    Model,
    SummarizerChoice,
    SummarizerKind,
    make_config,
    make_summarizer,
)
from context_compressor.lab.readers import UnreadableError, read_path
from context_compressor.memory.forgetting import Forgotten
from context_compressor.memory.history import Entry
from context_compressor.messages.chat import from_openai
from context_compressor.messages.msg import Msg, tool_results

_FIRST_CHARACTERS = 80
"""Of a message that is listed."""

At = Annotated[
    int | None, typer.Option(metavar="N", help="As it stood after this event; `session show` tells which.")
]


@on_target
async def view_session(target: Target, at: At = None, as_json: Json = False) -> int:
    """Print a session's view: what the model sees of it, or saw after an event. Nothing is changed.

    Exit code 1 where there is no such session or event.
    """
    check_stdout()
    view = await _view(target, at)
    if as_json:
        write_stdout(json.dumps([msg.to_dict() for msg in view], indent=2) + "\n")
    else:
        write_stdout(for_terminal(_written(view)))
    return DONE


async def _view(target: Target, at: int | None) -> list[Msg]:
    """Return the view of a session, as it is or as an event left it."""
    from context_compressor.backends.admin.archive import shown, take_snapshot

    async with (
        target.found() as (_, history, texts),
        await shown(await take_snapshot(history), texts) as memory,
    ):
        try:
            return await (memory.get_memory() if at is None else memory.view_at(at))
        except InvalidArgumentError as error:
            raise CommandError(str(error).removeprefix("n: "), NO) from None


def _written(view: Sequence[Msg]) -> str:
    """Return a view as a text: who speaks, and what they say."""
    return render_transcript(view).text.partition("\n\n")[2] + "\n"


@on_target
async def diff_session(
    target: Target,
    n: Annotated[int, typer.Argument(metavar="N", help="The view after this event, ...")],
    m: Annotated[
        int | None, typer.Argument(metavar="M", help="... and after this one. Default: as it is now.")
    ] = None,
) -> int:
    """Print what changed in a session's view from one event to another, as `diff -u` does.

    Exit code 1 where there is no such session or event.
    """
    check_stdout()
    names = (f"after event {n}", "now" if m is None else f"after event {m}")
    _print_difference(_written(await _view(target, n)), _written(await _view(target, m)), names)
    return DONE


def diff(
    one: Annotated[str, typer.Argument(metavar="FILE", help="A view, or any file of chat messages ...")],
    other: Annotated[str, typer.Argument(metavar="FILE", help="... and another one.")],
) -> int:
    """Print how two views in files differ, message by message, as `diff -u` does."""
    check_stdout()
    _print_difference(_read(one), _read(other), (one, other))
    return DONE


def _read(path: str) -> str:
    check_path(path, "FILE")
    try:
        sessions = list(read_path(Path(path), []))
    except UnreadableError as error:
        raise CommandError(str(error.at(path))) from None
    if len(sessions) != 1:
        raise CommandError(f"{path}: holds {counted(len(sessions), 'session')}; a file with one is compared")
    return _written(from_openai(sessions[0].messages))


def _print_difference(one: str, other: str, names: tuple[str, str]) -> None:
    lines = difflib.unified_diff(one.splitlines(), other.splitlines(), *names, lineterm="")
    write_stdout("".join(f"{for_terminal(line)}\n" for line in lines) or "no difference\n")


@on_target
async def explain(
    target: Target,
    what: Annotated[
        str, typer.Argument(metavar="REF|EVENT", help="A ref, as a view names it, or the number of an event.")
    ],
    as_json: Json = False,
) -> int:
    """Tell what left a session's view under a ref or at an event: why, when, and what stands for it now.

    Exit code 1 where there is no such session, ref or event.
    """
    check_stdout()
    from context_compressor.backends.admin.archive import take_snapshot

    async with target.found() as (_, history, texts):
        snapshot = await take_snapshot(history)
        held = None if texts is None else set(await texts.refs())
    ledger = snapshot.ledger()
    if what.isdecimal() and len(what) < 16:
        found = [edit for edit in ledger.entries if edit.made is not None and edit.made.event == int(what)]
        mend = f"there are: {each_event({n: made.reason for n, made in ledger.events().items()})}"
    else:
        what = ref_given(what)
        found = [edit for edit in ledger.entries if what in refs_of(edit)]
        mend = "a view names those that there are"
    if not found:
        kind = "event" if what.isdecimal() else "ref"
        raise CommandError(f"the ledger has no {kind} {what}; {mend}", NO)
    told = [_told(edit, ledger, snapshot.entries, held) for edit in found]
    if as_json:
        print(json.dumps(told, indent=2))
        return DONE
    console = make_console()
    for one in told:
        for name in ("what", "why", "when", "read"):
            say(console, f"{name:<6}{one[name]}")
        write_stdout(f"now   {for_terminal(one['now'])}\n\n")
    return DONE


def _told(edit: Edit, ledger: Ledger, entries: Sequence[Entry], held: set[str] | None) -> dict[str, Any]:
    """Return what there is to say of an edit."""
    places = {entry.key: place for place, entry in enumerate(entries, 1)}
    if isinstance(edit, StubEdit):
        place = places.get(edit.item.key, 0)
        msg = entries[place - 1].msg if place else None
        what, now = f"a text of message {place}{_of(msg)}", edit.text
    else:
        covered = sorted(places[item.key] for item in edit.items if item.key in places)
        span = f"{covered[0]} to {covered[-1]}" if covered else "none"
        what, now = f"{counted(len(covered), 'message')}, {span}", edit.text
    top = ledger.top_segment_of(name_of(edit)[0])
    if top is not None and top is not edit:
        now = top.text or "(its words are in the store)"
    made, refs = edit.made, refs_of(edit)
    why = "an earlier release did it" if made is None else f"event {made.event}: {made.reason}"
    return {
        "event": None if made is None else made.event,
        "what": what,
        "why": why,
        "when": "not known" if made is None else _when(made.messages, entries),
        "read": f"{', '.join(refs)}: {_where(refs, held)}",
        "now": now,
    }


def _where(refs: Sequence[str], held: set[str] | None) -> str:
    if held is None:
        return "in its store (--store and --namespace tell whether it is there)"
    return "in the store" if held.issuperset(refs) else "not in this store: made from the history"


def _of(msg: Msg | None) -> str:
    """Return of whom a message is, and when it came."""
    if msg is None:
        return ""
    names = ", ".join(str(block.get("name") or msg.name) for block in tool_results(msg))
    return f" ({one_line(f'{role_of(msg)} {names}'.strip())}, {one_line(msg.timestamp)})"


def _when(messages: int, entries: Sequence[Entry]) -> str:
    last = entries[messages - 1].msg if 0 < messages <= len(entries) else None
    return f"behind message {messages:,}{_of(last)}; there are {len(entries):,} now"


@on_target
async def undo_session(
    target: Target,
    budget: Annotated[
        int, typer.Option(metavar="N", help="Tokens that a view of this session may cost. Default: 16000.")
    ] = 16_000,
    to: Annotated[
        int | None,
        typer.Option(metavar="N", help="Make the part anew, so that the view costs that many tokens."),
    ] = None,
    note: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Make the part anew, and keep this in it.")
    ] = None,
    summarizer: SummarizerChoice = SummarizerKind.EXTRACTIVE,
    model: Model = None,
    base_url: BaseUrl = None,
) -> int:
    """Withdraw the last part: what the newest event took out of a session's view.

    Exit code 1 where there is no such session or part, or the earlier view does not fit.
    """
    from context_compressor.backends.admin.deletion import check_store
    from context_compressor.backends.admin.sessions import named_by
    from context_compressor.memory.compressed import CompressedMemory

    config, writer = make_config(max_total_tokens=budget), make_summarizer(summarizer, model, base_url)
    if target.store is None and not (to is None and note is None):
        raise CommandError("--to and --note need --store: the texts of the new part go there")
    async with target.found() as (one, history, texts):
        await check_store(texts, await named_by(history))
        async with CompressedMemory(history, config, store=texts, summarizer=writer) as memory:
            try:
                event = await memory.undo(to, note)
            except ContextOverflowError as error:
                told = str(error).replace("give undo a budget or a note", "give --to or --note")
                raise CommandError(told.replace("raise max_total_tokens", "raise --budget"), NO) from None
            except InvalidArgumentError as error:
                raise CommandError(f"--to: {str(error).removeprefix('budget: ')}") from None
    what = called(one.user_id, one.session_id)
    if event is None:
        raise CommandError(f"{what}: there is no part to undo", NO)
    say(make_console(stderr=True), f"{what}: {event}")
    return DONE


@on_target
async def forget(
    target: Target,
    text: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What is to be found nowhere any more, exactly.")
    ] = None,
    message: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="This message; may be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would go.")] = False,
    certificate: Certificate = None,
    grace: Grace = "1d",
) -> int:
    """Delete each message that holds a text, with its exchange, and the notes that quote it; list it first.

    Exit code 1 where there is no such session or message, nothing holds the text, or not all could be
    removed.
    """
    check_stdout()
    if (text is None) == (not message):
        raise CommandError("--text and --message: give one of them")
    if certificate is not None:
        check_output(certificate, "--certificate")
    from context_compressor.backends.admin import deletion
    from context_compressor.memory.compressed import CompressedMemory

    async with target.found() as (_, history, texts):
        memory = CompressedMemory(history, store=texts)
        try:
            told = await memory.forget(message or None, text, dry_run=True)
        except InvalidArgumentError as error:
            raise CommandError(f"--{error}") from None
        _list(await history.read(), told)
        if dry_run:
            return DONE if told.message_ids or told.parts or told.summary else NO
        if texts is None and told.refs:
            raise CommandError(f"{counted(len(told.refs), 'text')} would stay where they are: give --store")
        try:
            done = await deletion.delete_messages(
                history,
                texts,
                message or (),
                text=text,
                grace_seconds=read_age(grace, "--grace"),
                rewrite=certificate is not None,
            )
        except InvalidArgumentError as error:
            raise CommandError(str(error), NO) from None
    return tell_deletion(done, certificate)


def _list(entries: Sequence[Entry], told: Forgotten) -> None:
    """Print what is to go, a message a line."""
    console, gone = make_console(), set(told.message_ids)
    for place, entry in enumerate(entries, 1):
        if entry.msg is not None and entry.msg.id in gone:
            said = one_line(_written([entry.msg]).partition("\n")[2])[:_FIRST_CHARACTERS]
            say(console, f"message {place}, {role_of(entry.msg)} {one_line(entry.msg.id)}: {said}")
    summary = ", the history's own summary" if told.summary else ""
    say(
        console,
        f"{counted(len(gone), 'message')}, {counted(len(told.parts), 'part')} of the notes, "
        f"{counted(told.stubs, 'stub')}, {counted(len(told.refs), 'text')}{summary}",
    )


COMMANDS: dict[str, Callable[..., int]] = {
    "view": view_session,
    "diff": diff_session,
    "explain": explain,
    "undo": undo_session,
    "forget": forget,
}
"""By their names under `session`."""
