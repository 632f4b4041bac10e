"""What the commands of `session` share: options, opening databases and stores, errors by their names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from context_compressor.cli.options import NO, CommandError, check_path
from context_compressor.errors import ContextCompressorError, shown_url

if TYPE_CHECKING:  # their packages are extras
    from context_compressor.backends.sessions import SessionDirectory, SessionInfo
    from context_compressor.backends.stores import PackedOffloadStore
    from context_compressor.offload.files import FileOffloadStore

_DRIVERS = frozenset({"asyncmy", "asyncpg", "psycopg", "pymysql", "redis", "sqlalchemy"})
"""Packages whose errors tell of a server: that it has gone, say."""

Url = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        help="Database or Redis: sqlite:///memory.db, postgresql://..., mysql://..., redis://...",
    ),
]
User = Annotated[str | None, typer.Option(metavar="ID", help="The session's user.")]
SessionName = Annotated[
    str | None, typer.Option("--session", metavar="ID", help="The session. Default: default_session.")
]
TextStore = Annotated[
    str | None,
    typer.Option(
        metavar="WHERE", help="The texts that left views: a directory, s3://..., or a URL of the same kinds."
    ),
]
StoreNamespace = Annotated[str, typer.Option(metavar="NAME", help="The texts' namespace.")]
ByIds = Annotated[
    bool,
    typer.Option(
        "--by-ids",
        help="The texts' namespace is the ids of user and session, as it is with memory services.",
    ),
]
StoreOptions = Annotated[
    str | None, typer.Option(metavar="JSON", help="Options for the file system behind s3:// and the like.")
]
KeyFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="Holds the key by which the texts are encrypted.")
]
KeyPrefix = Annotated[str, typer.Option(metavar="TEXT", help="What all keys of Redis begin with.")]
Grace = Annotated[
    str, typer.Option(metavar="AGE", help="Texts younger than that may belong to an event under way.")
]


def with_directory(
    url: str,
    key_prefix: str,
    work: Callable[[SessionDirectory], Awaitable[int]],
    *,
    may_make: bool = False,
) -> int:
    """Do work on the sessions behind a URL."""

    async def opened(stack: AsyncExitStack) -> int:
        from context_compressor.backends.opening import open_sessions

        directory = await stack.enter_async_context(open_sessions(url, key_prefix=key_prefix))
        await directory.check(may_make=may_make)
        return await work(directory)

    return run(opened)


def run(work: Callable[[AsyncExitStack], Awaitable[int]]) -> int:
    """Do work, and call what goes wrong by its name.

    Raises:
        CommandError: it could not be done.
    """

    async def main() -> int:
        async with AsyncExitStack() as stack:
            return await work(stack)

    try:
        return asyncio.run(main())
    except (ContextCompressorError, ImportError) as error:
        raise CommandError(str(error)) from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] in _DRIVERS:
            raise CommandError(f"the server failed: {getattr(error, 'orig', None) or error}") from None
        raise


async def find(directory: SessionDirectory, user: str | None, session: str | None) -> SessionInfo:
    """Return the session that is meant: where no user is given, the default one's, or else the only one's
    of that name.

    Raises:
        CommandError: there is none, or several users have one of that name.
    """
    from context_compressor.backends.records import DEFAULT_SESSION, DEFAULT_USER

    name = DEFAULT_SESSION if session is None else session
    named = [one for one in await directory.infos(user) if one.session_id == name]
    if len(named) > 1:
        named = [one for one in named if one.user_id == DEFAULT_USER] or named
    if len(named) > 1:
        users = ", ".join(repr(one.user_id) for one in named[:5])
        raise CommandError(f"several users have a session {name!r} ({users}): say whose with --user")
    if not named:
        whose = "" if user is None else f" of user {user!r}"
        raise CommandError(
            f"{directory.place}: there is no session {name!r}{whose}; `session list` lists all", NO
        )
    return named[0]


def namespace_for(
    where: str | None, namespace: str, ids: tuple[str, str], *, by_ids: bool
) -> str | tuple[str, str]:
    """Return the namespace that is meant.

    Raises:
        CommandError: two are named, or no store.
    """
    if not by_ids:
        return namespace
    if where is None:
        raise CommandError("--by-ids needs --store")
    if namespace != "default":
        raise CommandError("--by-ids and --namespace: give one of them")
    return ids


def opened_store(
    stack: AsyncExitStack,
    where: str | None,
    namespace: str | tuple[str, str],
    options: str | None,
    key_file: str | None,
    key_prefix: str,
    *,
    is_read: bool = False,
) -> FileOffloadStore | PackedOffloadStore | None:
    """Return a store, which is closed at the end; None where none is named.

    Raises:
        CommandError: there is none at that place.
    """
    if where is None:
        for name, given in (("--store-options", options), ("--key-file", key_file)):
            if given is not None:
                raise CommandError(f"{name} needs --store")
        return None
    check_path(where, "--store")
    if "://" not in where and is_read and not Path(where).is_dir():
        raise CommandError(f"--store {shown_url(where)}: there is no such directory")
    from context_compressor.backends.opening import open_store

    try:
        told = None if options is None else json.loads(options)
        if not (told is None or isinstance(told, dict)):
            raise ValueError("expected an object")
    except ValueError as error:
        raise CommandError(f"--store-options: no JSON object ({error})") from None
    try:
        key = None if key_file is None else Path(key_file).read_text("ascii").strip()
    except ValueError:
        raise CommandError(f"--key-file {key_file}: holds no key") from None
    try:
        made = open_store(where, namespace, key_prefix=key_prefix, encryption_key=key, options=told)
    except (ValueError, TypeError) as error:
        raise CommandError(f"--store {shown_url(where)}: {error}") from None
    stack.push_async_callback(_closed, made)
    return made


async def _closed(store: FileOffloadStore | PackedOffloadStore) -> None:
    done = store.close()
    if done is not None:
        await done
