"""`session`: list, show, export, import and delete sessions of a database or of Redis, and tidy stores."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from context_compressor.cli.gc import read_age
from context_compressor.cli.options import DONE, NO, CommandError, Json, check_path, read_size
from context_compressor.cli.output import (
    check_output,
    check_stdout,
    make_console,
    make_table,
    print_table,
    say,
    write_output,
)
from context_compressor.cli.session_options import (
    ByIds,
    Grace,
    KeyFile,
    KeyPrefix,
    SessionName,
    StoreNamespace,
    StoreOptions,
    TextStore,
    Url,
    User,
    find,
    namespace_for,
    opened_store,
    run,
    with_directory,
)
from context_compressor.errors import InvalidArgumentError
from context_compressor.messages.msg import Msg, tool_results
from context_compressor.messages.text import counted, one_line

if TYPE_CHECKING:  # their packages are extras
    from context_compressor.backends.archive import Archived
    from context_compressor.backends.sessions import SessionDirectory

_MAX_ROWS = 200
"""Sessions shown in the table; `--json` has all."""


def list_sessions(
    url: Url,
    user: User = None,
    key_prefix: KeyPrefix = "",
    as_json: Json = False,
) -> int:
    """List users and sessions, with sizes and where their histories stand."""
    check_stdout()

    async def work(directory: SessionDirectory) -> int:
        found = await directory.infos(user)
        if as_json:
            told = [
                {
                    "user_id": one.user_id,
                    "session_id": one.session_id,
                    "number": one.head.number,
                    "messages": one.head.size,
                    "edits": one.edits,
                    "tokens": one.tokens,
                }
                for one in found
            ]
            print(json.dumps({"place": directory.place, "sessions": told}, indent=2))
            return DONE
        console = make_console()
        if found:
            table = make_table("", "user", ("session", "messages", "tokens", "edits", "writes"), fold=True)
            for one in found[:_MAX_ROWS]:
                tokens = "-" if one.tokens is None else f"{one.tokens:,}"
                ids = (Text(_shown(one.user_id)), Text(_shown(one.session_id)))
                table.add_row(*ids, f"{one.head.size:,}", tokens, f"{one.edits:,}", f"{one.head.number:,}")
            print_table(console, table)
            if len(found) > _MAX_ROWS:
                say(console, f"{len(found) - _MAX_ROWS:,} more; --json lists all")
        say(console, f"{directory.place}: {counted(len(found), 'session')}")
        return DONE

    return with_directory(url, key_prefix, work)


def show_session(
    url: Url,
    user: User = None,
    session: SessionName = None,
    store: TextStore = None,
    namespace: StoreNamespace = "default",
    by_ids: ByIds = False,
    store_options: StoreOptions = None,
    key_file: KeyFile = None,
    key_prefix: KeyPrefix = "",
    as_json: Json = False,
) -> int:
    """Show one session: messages, ledger, summary, the size of its view, and its texts. Nothing is changed.

    Exit code 1 where there is no such session.
    """
    check_stdout()

    async def work(directory: SessionDirectory) -> int:
        from context_compressor.backends.snapshots import shown, take_snapshot

        one = await find(directory, user, session)
        space = namespace_for(store, namespace, (one.user_id, one.session_id), by_ids=by_ids)
        snapshot = await take_snapshot(directory.history(one.user_id, one.session_id))
        async with AsyncExitStack() as stack:
            texts = opened_store(stack, store, space, store_options, key_file, key_prefix, is_read=True)
            memory = await stack.enter_async_context(shown(snapshot, texts))
            view = await memory.get_memory()
            stats = memory.stats()
            stored = None
            if texts is not None:
                held = set(await texts.refs())
                stored = sum(ref in held for ref in snapshot.refs)
        roles = Counter(_role_of(entry.msg) for entry in snapshot.entries if entry.msg is not None)
        marks = Counter(mark for entry in snapshot.entries for mark in entry.marks)
        told: dict[str, Any] = {
            "user_id": one.user_id,
            "session_id": one.session_id,
            "number": snapshot.head.number,
            "messages": len(snapshot.entries),
            "roles": dict(roles),
            "marks": dict(marks),
            "tokens": stats.history_tokens,
            "view_messages": len(view),
            "view_tokens": stats.view_tokens,
            "edits": len(snapshot.edits),
            "noted": stats.noted,
            "stubs": stats.offloaded,
            "texts": len(snapshot.refs),
            "texts_stored": stored,
            "texts_pending": len(snapshot.pending),
            "summary": snapshot.head.summary,
        }
        if as_json:
            print(json.dumps(told, indent=2))
            return DONE
        _print_session(told)
        return DONE

    return with_directory(url, key_prefix, work)


def _role_of(msg: Msg) -> str:
    """Return the role of a message; results of calls, which are stored as system messages, are of a tool."""
    is_result = msg.role != "assistant" and 0 < len(tool_results(msg)) == len(msg.content)
    return "tool" if is_result else msg.role


def _print_session(told: dict[str, Any]) -> None:
    console = make_console()

    def each(counts: dict[str, int]) -> str:
        return ", ".join(f"{name} {number:,}" for name, number in sorted(counts.items())) or "none"

    stored = "" if told["texts_stored"] is None else f", {told['texts_stored']:,} of them in the store"
    lines = {
        "session": f"{_shown(told['session_id'])} of user {_shown(told['user_id'])}",
        "messages": f"{told['messages']:,} ({each(told['roles'])}), {told['tokens']:,} tokens",
        "marks": each(told["marks"]),
        "writes": f"{told['number']:,}",
        "view": f"{counted(told['view_messages'], 'message')}, {told['view_tokens']:,} tokens",
        "ledger": f"{counted(told['edits'], 'edit')}: notes of {counted(told['noted'], 'message')}, "
        f"{counted(told['stubs'], 'stub')}",
        "texts": f"{told['texts']:,}{stored}; pending {told['texts_pending']:,}",
        "summary": one_line(told["summary"])[:500] or "none",
    }
    for name, text in lines.items():
        say(console, f"{name:<10}{text}")


def export_session(
    url: Url,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The archive; gzipped where it ends in .gz.")],
    user: User = None,
    session: SessionName = None,
    store: TextStore = None,
    namespace: StoreNamespace = "default",
    by_ids: ByIds = False,
    store_options: StoreOptions = None,
    key_file: KeyFile = None,
    key_prefix: KeyPrefix = "",
) -> int:
    """Write one session with its ledger and texts into a file, from which `import` makes it anywhere.

    Exit code 1 where there is no such session.
    """
    check_output(file, "FILE")
    if file == "-":
        raise CommandError("FILE -: an archive takes a file")

    async def work(directory: SessionDirectory) -> int:
        from context_compressor.backends import moving

        one = await find(directory, user, session)
        space = namespace_for(store, namespace, (one.user_id, one.session_id), by_ids=by_ids)
        async with AsyncExitStack() as stack:
            texts = opened_store(stack, store, space, store_options, key_file, key_prefix, is_read=True)
            base = directory.history(one.user_id, one.session_id)
            done = await moving.export_session(base, texts, file)
        console = make_console(stderr=True)
        say(console, f"{file}: {_summed(done)}")
        if done.missing:
            say(
                console,
                f"not to be found any more: {', '.join(done.missing[:5])} ({len(done.missing)} in all)",
            )
        return DONE

    return with_directory(url, key_prefix, work)


def import_session(
    url: Url,
    file: Annotated[str, typer.Argument(metavar="FILE", help="An archive that `export` wrote.")],
    user: User = None,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="ID", help="What to call it. Default: as it was called."),
    ] = None,
    store: TextStore = None,
    namespace: StoreNamespace = "default",
    by_ids: ByIds = False,
    store_options: StoreOptions = None,
    key_file: KeyFile = None,
    key_prefix: KeyPrefix = "",
    max_unpacked: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory that its unpacked lines may take. Default: 512MiB."),
    ] = None,
) -> int:
    """Make a session of an archive, which is checked whole before; refused where the session exists."""
    check_path(file, "FILE")

    async def work(directory: SessionDirectory) -> int:
        from context_compressor.backends import moving
        from context_compressor.backends.archive import MAX_BYTES, read_archive

        most = MAX_BYTES if max_unpacked is None else read_size(max_unpacked, "--max-unpacked")
        space: str | tuple[str, str] = namespace
        if by_ids:
            told = read_archive(Path(file), most)
            names = (told.user_id if user is None else user, told.session_id if session is None else session)
            space = namespace_for(store, namespace, names, by_ids=by_ids)
        async with AsyncExitStack() as stack:
            texts = opened_store(stack, store, space, store_options, key_file, key_prefix)
            done = await moving.import_session(
                file, directory, texts, user_id=user, session_id=session, max_bytes=most
            )
        name, whose = (done.session_id, session), (done.user_id, user)
        ids = [_shown(old if new is None else new) for old, new in (name, whose)]
        say(make_console(stderr=True), f"session {ids[0]} of user {ids[1]}: {_summed(done)}")
        return DONE

    return with_directory(url, key_prefix, work, may_make=True)


def delete_session(
    url: Url,
    user: User = None,
    session: SessionName = None,
    store: TextStore = None,
    namespace: StoreNamespace = "default",
    by_ids: ByIds = False,
    message: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID", help="Delete this message only, and what stood in for it; may be repeated."
        ),
    ] = None,
    certificate: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="List here every object that was removed or rewritten; SQLite's files are rewritten for it.",
        ),
    ] = None,
    own_namespace: Annotated[
        bool, typer.Option("--own-namespace", help="Nothing else uses the namespace: remove all of it.")
    ] = False,
    grace: Grace = "1d",
    store_options: StoreOptions = None,
    key_file: KeyFile = None,
    key_prefix: KeyPrefix = "",
) -> int:
    """Delete one session: messages, marks, summary, ledger, leases, and its texts.

    Exit code 1 where there is no such session or message, or not all could be removed.
    """
    if certificate is not None:
        check_output(certificate, "--certificate")
    seconds = read_age(grace, "--grace")

    async def work(directory: SessionDirectory) -> int:
        from context_compressor.backends import deleting

        one = await find(directory, user, session)
        space = namespace_for(store, namespace, (one.user_id, one.session_id), by_ids=by_ids)
        base = directory.history(one.user_id, one.session_id)
        named: dict[str, Any] = {"grace_seconds": seconds, "rewrite": certificate is not None}
        async with AsyncExitStack() as stack:
            texts = opened_store(stack, store, space, store_options, key_file, key_prefix, is_read=True)
            if not message:
                done = await deleting.delete_session(base, texts, own_namespace=own_namespace, **named)
            else:
                try:
                    done = await deleting.delete_messages(base, texts, message, **named)
                except InvalidArgumentError as error:
                    raise CommandError(str(error), NO) from None
        if certificate is not None:
            write_output(certificate, done.certificate(), "--certificate")
        console = make_console(stderr=True)
        what = f"session {_shown(one.session_id)} of user {_shown(one.user_id)}"
        if message:
            what = f"{counted(len(message), 'message')} of {what}"
        removed = [each for each in done.objects if each.action == "removed"]
        size = counted(sum(each.bytes for each in removed), "byte")
        say(
            console,
            f"{what}: removed {counted(len(removed), 'object')}, {size}; kept texts {len(done.kept):,}",
        )
        for problem in done.problems:
            say(console, problem)
        return DONE if done.is_complete else NO

    return with_directory(url, key_prefix, work)


def collect(
    url: Annotated[
        list[str], typer.Argument(metavar="URL...", help="All databases with sessions whose texts lie there.")
    ],
    store: Annotated[
        str,
        typer.Option(metavar="WHERE", help="The texts: a directory, s3://..., or a URL of the same kinds."),
    ],
    namespace: Annotated[
        str | None, typer.Option(metavar="NAME", help="Look at this namespace only. Default: all of them.")
    ] = None,
    grace: Grace = "1d",
    branches: Annotated[
        str,
        typer.Option(
            metavar="AGE", help="How long adapters keep what their lists no longer say (branch_seconds)."
        ),
    ] = "1h",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    store_options: StoreOptions = None,
    key_prefix: KeyPrefix = "",
    as_json: Json = False,
) -> int:
    """Remove the texts of a store that no live ledger, nor state of an adapter, of these databases names.

    Also remove from states of adapters what their lists have not said for an hour.

    A session that is kept elsewhere, and whose texts lie there, would lose them: name all databases.
    """
    check_stdout()
    seconds, branch_seconds = read_age(grace, "--grace"), read_age(branches, "--branches")

    async def work(stack: AsyncExitStack) -> int:
        from context_compressor.backends.collecting import collect_texts
        from context_compressor.backends.opening import REDIS_SCHEMES, open_sessions, scheme_of

        directories = []
        for one in url:
            directory = open_sessions(one, key_prefix=key_prefix if scheme_of(one) in REDIS_SCHEMES else "")
            directories.append(await stack.enter_async_context(directory))
            await directory.check()
        texts = opened_store(
            stack, store, namespace or "default", store_options, None, key_prefix, is_read=True
        )
        assert texts is not None
        done = await collect_texts(
            directories,
            texts,
            grace_seconds=seconds,
            branch_seconds=branch_seconds,
            all_namespaces=namespace is None,
            dry_run=dry_run,
        )
        if as_json:
            print(json.dumps({"store": store, **done.to_dict()}, indent=2))
        else:
            console = make_console()
            verb = "would be removed" if dry_run else "removed"
            size = counted(done.bytes_before - done.bytes_after, "byte")
            say(
                console,
                f"{store}: {counted(done.namespaces, 'namespace')}, {counted(done.bytes_before, 'byte')}; "
                f"named by ledgers {done.named:,}, young {done.young:,}",
            )
            say(console, f"{verb}: {counted(len(done.removed), 'text')}, {size}")
            for problem in done.problems:
                say(console, problem)
        return NO if done.problems else DONE

    return run(work)


def _summed(archived: Archived) -> str:
    snapshot = archived.snapshot
    return (
        f"{counted(len(snapshot.entries), 'message')}, {counted(len(snapshot.edits), 'edit')}, "
        f"{counted(len(archived.texts), 'text')}"
    )


def _shown(name: str) -> str:
    """Return an id as a terminal may show it."""
    return one_line(name) if name else '""'


COMMANDS: dict[str, Callable[..., int]] = {
    "list": list_sessions,
    "show": show_session,
    "export": export_session,
    "import": import_session,
    "delete": delete_session,
    "gc": collect,
}
"""By their names under `session`."""
