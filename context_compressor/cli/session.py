"""`session`: list, show, export, import and delete sessions of a database or of Redis, and tidy stores."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import wraps
from inspect import Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich.text import Text

from context_compressor.cli.gc import read_age
from context_compressor.cli.options import DONE, NO, CommandError, Json, check_path, read_size
from context_compressor.cli.output import (
    check_output,
    check_stdout,
    counted,
    make_console,
    make_table,
    one_line,
    print_table,
    say,
    write_output,
)
from context_compressor.errors import ContextCompressorError, InvalidArgumentError, shown_url
from context_compressor.memory.history import History
from context_compressor.messages.msg import Msg, tool_results
from context_compressor.offload.store import OffloadStore

if TYPE_CHECKING:  # their packages are extras
    from context_compressor.backends.admin.archive import Archived
    from context_compressor.backends.admin.deletion import Deletion
    from context_compressor.backends.admin.sessions import SessionDirectory, SessionInfo
    from context_compressor.offload.files import FileOffloadStore
    from context_compressor.offload.packed import PackedOffloadStore

_DRIVERS = frozenset({"asyncmy", "asyncpg", "psycopg", "pymysql", "redis", "sqlalchemy"})
"""Packages whose errors tell of a server: that it has gone, say."""
_MAX_ROWS = 200
"""Sessions shown in the table; `--json` has all."""

Url = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        help="Database or Redis: sqlite:///memory.db, postgresql://..., mysql://..., redis://...",
    ),
]
User = Annotated[str | None, typer.Option(metavar="ID", help="The session's user.")]
StoreOptions = Annotated[
    str | None, typer.Option(metavar="JSON", help="Options for the file system behind s3:// and the like.")
]
KeyPrefix = Annotated[str, typer.Option(metavar="TEXT", help="What all keys of Redis begin with.")]
Grace = Annotated[
    str, typer.Option(metavar="AGE", help="Texts younger than that may belong to an event under way.")
]
Certificate = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="List here every object that was removed or rewritten; SQLite's files are rewritten for it.",
    ),
]
File = Annotated[
    str,
    typer.Argument(metavar="FILE", help="The archive; `export` gzips it where its name ends in .gz."),
]


@dataclass(frozen=True, slots=True)
class Target:
    """Which session is meant, where it is, and where its texts are: the options of most commands."""

    url: Url
    user: User = None
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            metavar="ID",
            help="The session. Default: default_session; for `import`, as it was called.",
        ),
    ] = None
    store: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="The texts that left views: a directory, s3://..., or a URL of the same kinds.",
        ),
    ] = None
    namespace: Annotated[str, typer.Option(metavar="NAME", help="The texts' namespace.")] = "default"
    by_ids: Annotated[
        bool,
        typer.Option(
            "--by-ids",
            help="The texts' namespace is the ids of user and session, as it is with memory services.",
        ),
    ] = False
    store_options: StoreOptions = None
    key_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Holds the key by which the texts are encrypted.")
    ] = None
    key_prefix: KeyPrefix = ""

    @asynccontextmanager
    async def sessions(self, *, may_make: bool = False) -> AsyncIterator[SessionDirectory]:
        """Give the sessions behind the URL."""
        from context_compressor.backends.admin.opening import open_sessions

        async with open_sessions(self.url, key_prefix=self.key_prefix) as sessions:
            await sessions.check(may_make=may_make)
            yield sessions

    @asynccontextmanager
    async def found(self) -> AsyncIterator[tuple[SessionInfo, History, OffloadStore | None]]:
        """Give the session that is meant, its history, and its texts."""
        async with self.sessions() as sessions:
            info = await self._info(sessions)
            async with self.texts((info.user_id, info.session_id), is_read=True) as texts:
                yield info, sessions.history(info.user_id, info.session_id), texts

    async def _info(self, sessions: SessionDirectory) -> SessionInfo:
        """Return the session that is meant: where no user is given, the default one's, or else the only
        one's of that name.

        Raises:
            CommandError: there is none, or several users have one of that name.
        """
        from context_compressor.backends.records import DEFAULT_SESSION, DEFAULT_USER

        name = DEFAULT_SESSION if self.session is None else self.session
        named = [one for one in await sessions.infos(self.user) if one.session_id == name]
        if len(named) > 1:
            named = [one for one in named if one.user_id == DEFAULT_USER] or named
        if len(named) > 1:
            users = ", ".join(repr(one.user_id) for one in named[:5])
            raise CommandError(f"several users have a session {name!r} ({users}): say whose with --user")
        if not named:
            whose = "" if self.user is None else f" of user {self.user!r}"
            raise CommandError(
                f"{sessions.place}: there is no session {name!r}{whose}; `session list` lists all", NO
            )
        return named[0]

    @asynccontextmanager
    async def texts(
        self, ids: tuple[str, str] = ("", ""), *, is_read: bool = False
    ) -> AsyncIterator[FileOffloadStore | PackedOffloadStore | None]:
        """Give the store, None where none is named; `is_read`: a directory has to be there."""
        store = self._store(ids, is_read)
        try:
            yield store
        finally:
            if store is not None and (closing := store.close()) is not None:
                await closing

    def _store(self, ids: tuple[str, str], is_read: bool) -> FileOffloadStore | PackedOffloadStore | None:
        """Return the store.

        Raises:
            CommandError: two namespaces are named, or there is no store at that place.
        """
        where = self.store
        if where is None:
            needs = {"by-ids": self.by_ids, "store-options": self.store_options, "key-file": self.key_file}
            for name, given in needs.items():
                if given not in (None, False):
                    raise CommandError(f"--{name} needs --store")
            return None
        if self.by_ids and self.namespace != "default":
            raise CommandError("--by-ids and --namespace: give one of them")
        check_path(where, "--store")
        if "://" not in where and is_read and not Path(where).is_dir():
            raise CommandError(f"--store {shown_url(where)}: there is no such directory")
        from context_compressor.backends.admin.opening import open_store

        try:
            told = None if self.store_options is None else json.loads(self.store_options)
            if not (told is None or isinstance(told, dict)):
                raise ValueError("expected an object")
        except ValueError as error:
            raise CommandError(f"--store-options: no JSON object ({error})") from None
        try:
            key = None if self.key_file is None else Path(self.key_file).read_text("ascii").strip()
        except ValueError:
            raise CommandError(f"--key-file {self.key_file}: holds no key") from None
        space = ids if self.by_ids else self.namespace
        try:
            return open_store(where, space, key_prefix=self.key_prefix, encryption_key=key, options=told)
        except (ValueError, TypeError) as error:
            raise CommandError(f"--store {shown_url(where)}: {error}") from None


def _run(work: Coroutine[Any, Any, int]) -> int:
    """Do work, and call what goes wrong by its name.

    Raises:
        CommandError: it could not be done.
    """
    try:
        return asyncio.run(work)
    except (ContextCompressorError, ImportError) as error:
        raise CommandError(str(error)) from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] in _DRIVERS:
            raise CommandError(f"the server failed: {getattr(error, 'orig', None) or error}") from None
        raise


def on_target(work: Callable[..., Coroutine[Any, Any, int]]) -> Callable[..., int]:
    """Return a command whose options are those of a `Target`, which the function gets first, and its own."""
    shared, (_, *own) = signature(Target).parameters, signature(work).parameters.values()
    hints = get_type_hints(Target, include_extras=True) | get_type_hints(work, include_extras=True)

    @wraps(work)
    def command(**given: Any) -> int:
        target = Target(**{name: given.pop(name) for name in shared})
        return _run(work(target, **given))

    told = [
        one.replace(annotation=hints[one.name], kind=one.KEYWORD_ONLY) for one in (*shared.values(), *own)
    ]
    command.__signature__ = Signature(told)  # type: ignore[attr-defined]  # what typer reads
    command.__annotations__ = {one.name: one.annotation for one in told}
    return command


def list_sessions(url: Url, user: User = None, key_prefix: KeyPrefix = "", as_json: Json = False) -> int:
    """List users and sessions, with sizes and where their histories stand."""
    check_stdout()
    return _run(_list(Target(url, user, key_prefix=key_prefix), as_json))


async def _list(target: Target, as_json: bool) -> int:
    async with target.sessions() as sessions:
        found = await sessions.infos(target.user)
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
            print(json.dumps({"place": sessions.place, "sessions": told}, indent=2))
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
        say(console, f"{sessions.place}: {counted(len(found), 'session')}")
        return DONE


@on_target
async def show_session(target: Target, as_json: Json = False) -> int:
    """Show one session: messages, ledger, summary, the size of its view, and its texts. Nothing is changed.

    Exit code 1 where there is no such session.
    """
    check_stdout()
    from context_compressor.backends.admin.archive import shown, take_snapshot

    async with target.found() as (one, history, texts):
        snapshot = await take_snapshot(history)
        async with await shown(snapshot, texts) as memory:
            view = await memory.get_memory()
            stats = memory.stats()
        held = None if texts is None else set(await texts.refs())
    roles = Counter(role_of(entry.msg) for entry in snapshot.entries if entry.msg is not None)
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
        "events": {number: made.reason for number, made in snapshot.ledger().events().items()},
        "noted": stats.noted,
        "stubs": stats.offloaded,
        "texts": len(snapshot.refs),
        "texts_stored": None if held is None else sum(ref in held for ref in snapshot.refs),
        "texts_pending": len(snapshot.pending),
        "summary": snapshot.head.summary,
    }
    if as_json:
        print(json.dumps(told, indent=2))
    else:
        _print_session(told)
    return DONE


def role_of(msg: Msg) -> str:
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
        "events": each_event(told["events"]),
        "texts": f"{told['texts']:,}{stored}; pending {told['texts_pending']:,}",
        "summary": one_line(told["summary"])[:500] or "none",
    }
    for name, text in lines.items():
        say(console, f"{name:<10}{text}")


def each_event(events: Mapping[int, str]) -> str:
    """Return events with their reasons, as a line."""
    return ", ".join(f"{number} ({reason})" for number, reason in events.items()) or "none"


@on_target
async def export_session(target: Target, file: File) -> int:
    """Write one session with its ledger and texts into a file, from which `import` makes it anywhere.

    Exit code 1 where there is no such session.
    """
    check_output(file, "FILE")
    if file == "-":
        raise CommandError("FILE -: an archive takes a file")
    from context_compressor.backends.admin import archive

    async with target.found() as (_, history, texts):
        done = await archive.export_session(history, texts, file)
    console = make_console(stderr=True)
    say(console, f"{file}: {_summed(done)}")
    if done.missing:
        named = ", ".join(done.missing[:5])
        say(console, f"not to be found any more: {named} ({len(done.missing)} in all)")
    return DONE


@on_target
async def import_session(
    target: Target,
    file: File,
    max_unpacked: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory that its unpacked lines may take. Default: 512MiB."),
    ] = None,
) -> int:
    """Make a session of an archive, which is checked whole before; refused where the session exists."""
    check_path(file, "FILE")
    from context_compressor.backends.admin import archive

    async with target.sessions(may_make=True) as sessions:
        most = archive.MAX_BYTES if max_unpacked is None else read_size(max_unpacked, "--max-unpacked")
        user, session, ids = target.user, target.session, ("", "")
        if target.by_ids:
            ids = _named(archive.read_archive(Path(file), most), user, session)
        async with target.texts(ids) as texts:
            done = await archive.import_session(
                file, sessions, texts, user_id=user, session_id=session, max_bytes=most
            )
    say(make_console(stderr=True), f"{called(*_named(done, user, session))}: {_summed(done)}")
    return DONE


@on_target
async def delete_session(
    target: Target,
    message: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID", help="Delete this message only, and what stood in for it; may be repeated."
        ),
    ] = None,
    certificate: Certificate = None,
    own_namespace: Annotated[
        bool, typer.Option("--own-namespace", help="Nothing else uses the namespace: remove all of it.")
    ] = False,
    grace: Grace = "1d",
) -> int:
    """Delete one session: messages, marks, summary, ledger, leases, and its texts.

    Exit code 1 where there is no such session or message, or not all could be removed.
    """
    if certificate is not None:
        check_output(certificate, "--certificate")
    named: dict[str, Any] = {
        "grace_seconds": read_age(grace, "--grace"),
        "rewrite": certificate is not None,
    }
    from context_compressor.backends.admin import deletion

    async with target.found() as (_, history, texts):
        if not message:
            done = await deletion.delete_session(history, texts, own_namespace=own_namespace, **named)
        else:
            try:
                done = await deletion.delete_messages(history, texts, message, **named)
            except InvalidArgumentError as error:
                raise CommandError(str(error), NO) from None
    return tell_deletion(done, certificate)


def tell_deletion(done: Deletion, certificate: str | None) -> int:
    """Write the certificate of a deletion, and say what was done."""
    if certificate is not None:
        write_output(certificate, done.certificate(), "--certificate")
    what = called(done.user_id, done.session_id)
    if done.messages is not None:
        what = f"{counted(len(done.messages), 'message')} of {what}"
    removed = [each for each in done.objects if each.action == "removed"]
    size = counted(sum(each.bytes for each in removed), "byte")
    told = f"{what}: removed {counted(len(removed), 'object')}, {size}; kept texts {len(done.kept):,}"
    for line in (told, *done.problems):
        say(make_console(stderr=True), line)
    return DONE if done.is_complete else NO


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
    forget_after: Annotated[
        str | None,
        typer.Option(
            metavar="AGE",
            help="Also forget conversations of adapters and of a gateway in which nothing happened for so "
            "long, with their texts: 30d, 2w.",
        ),
    ] = None,
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
    ages = {
        "grace_seconds": read_age(grace, "--grace"),
        "branch_seconds": read_age(branches, "--branches"),
        "forget_seconds": None if forget_after is None else read_age(forget_after, "--forget-after"),
    }
    target = Target(
        "", store=store, namespace=namespace or "default", store_options=store_options, key_prefix=key_prefix
    )
    wanted = {"all_namespaces": namespace is None, "dry_run": dry_run, **ages}
    return _run(_collect(target, url, wanted, as_json))


async def _collect(target: Target, urls: list[str], wanted: dict[str, Any], as_json: bool) -> int:
    from context_compressor.backends.admin.collection import collect_texts
    from context_compressor.backends.admin.opening import REDIS_SCHEMES, scheme_of

    async with AsyncExitStack() as stack:
        places = []
        for url in urls:
            is_redis = scheme_of(url) in REDIS_SCHEMES
            one = replace(target, url=url, key_prefix=target.key_prefix if is_redis else "")
            places.append(await stack.enter_async_context(one.sessions()))
        texts = await stack.enter_async_context(target.texts(is_read=True))
        assert texts is not None
        done = await collect_texts(places, texts, **wanted)
    if as_json:
        print(json.dumps({"store": target.store, **done.to_dict()}, indent=2))
    else:
        verb = "would be removed" if done.is_dry_run else "removed"
        size = counted(done.bytes_before - done.bytes_after, "byte")
        for line in (
            f"{target.store}: {counted(done.namespaces, 'namespace')}, {counted(done.bytes_before, 'byte')}; "
            f"named by ledgers {done.named:,}, young {done.young:,}",
            f"{verb}: {counted(len(done.removed), 'text')}, {size}; "
            f"{counted(done.forgotten, 'conversation')} {'would be ' * done.is_dry_run}forgotten",
            *done.problems,
        ):
            say(make_console(), line)
    return NO if done.problems else DONE


def _summed(archived: Archived) -> str:
    snapshot = archived.snapshot
    return (
        f"{counted(len(snapshot.entries), 'message')}, {counted(len(snapshot.edits), 'edit')}, "
        f"{counted(len(archived.texts), 'text')}"
    )


def _named(archived: Archived, user: str | None, session: str | None) -> tuple[str, str]:
    """Return what an archive's user and session are to be called."""
    return (archived.user_id if user is None else user, archived.session_id if session is None else session)


def _shown(name: str) -> str:
    """Return an id as a terminal may show it."""
    return one_line(name) if name else '""'


def called(user_id: str, session_id: str) -> str:
    return f"session {_shown(session_id)} of user {_shown(user_id)}"


COMMANDS: dict[str, Callable[..., int]] = {
    "list": list_sessions,
    "show": show_session,
    "export": export_session,
    "import": import_session,
    "delete": delete_session,
    "gc": collect,
}
"""By their names under `session`."""
