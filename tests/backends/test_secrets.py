"""A password that came in a URL stands in no error, no name and no repr."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from context_compressor import (
    FsspecOffloadStore,
    InvalidArgumentError,
    RedisMemory,
    RedisMemoryService,
    RedisOffloadStore,
    SQLAlchemyMemory,
    SQLAlchemyMemoryService,
    SQLAlchemyOffloadStore,
)
from context_compressor.backends.admin.opening import open_sessions, open_store
from context_compressor.backends.admin.sessions import SessionDirectory
from context_compressor.cli.app import run
from context_compressor.errors import shown_url

SECRET = "hunter2secret"
AUTHORITIES = [
    f"u:{SECRET}@127.0.0.1:1",
    f":{SECRET}@127.0.0.1:1",
    f"u:{SECRET}@127.0.0.1:port",
    f"u:{SECRET}@127.0.0.1:99999999",
    f"127.0.0.1:1/0?password={SECRET}",
    f"u:x@127.0.0.1:1/0?foo={SECRET}",
    f"u:{SECRET}#x@127.0.0.1:1",
    f"u:x#{SECRET}@127.0.0.1:1",
    f"u:{SECRET}/y@127.0.0.1:1",
    f"u:{SECRET}?y@127.0.0.1:1",
    f"u:{SECRET}@y@127.0.0.1:1",
    f"u:{SECRET}%40y@127.0.0.1:1",
    f"/file:x?vfs={SECRET}&mode=zz&uri=true",
]


async def _told_by(make: Callable[[], Any]) -> str:
    """Return what is said while something is made and asked for the first time."""
    made, said = None, ""
    try:
        made = make()
        said = f"{made!r} {getattr(made, 'place', '')}"
        if isinstance(made, SessionDirectory):  # the others raise what drivers say, which know no URL
            await made.check()
    except Exception as error:
        said += "".join(traceback.format_exception(error))
    if made is not None:
        close = getattr(made, "close", None) or made.stop
        try:
            await close()
        except Exception as error:
            said += str(error)
    return said


@pytest.mark.parametrize("rest", AUTHORITIES)
@pytest.mark.parametrize(
    "scheme", ["redis", "redis+cluster", "sqlite+aiosqlite", "postgresql+asyncpg", "nosuch"]
)
async def test_no_door_that_takes_a_url_shows_its_password(scheme: str, rest: str) -> None:
    url = f"{scheme}://{rest}"
    doors: list[Callable[[], Any]] = [lambda: open_sessions(url), lambda: open_store(url)]
    if scheme.startswith("redis"):
        doors += [lambda: RedisMemory(url), lambda: RedisMemoryService(url)]
        doors += [lambda: RedisOffloadStore(url)]
    else:
        doors += [lambda: SQLAlchemyMemory(url), lambda: SQLAlchemyMemoryService(url)]
        doors += [lambda: SQLAlchemyOffloadStore(url), lambda: FsspecOffloadStore(url)]
    for door in doors:
        assert SECRET not in await _told_by(door)


@pytest.mark.parametrize("rest", [f"u:{SECRET}@{{}}/x", f"{{}}/x?signature={SECRET}"])
async def test_a_file_system_whose_paths_are_urls_shows_no_password(rest: str) -> None:
    """What a server refuses is named by its URL."""

    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=403)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", refuse)
    ref = "ctx://" + "0" * 16
    async with TestServer(app) as server:
        url = f"http://{rest}".format(f"127.0.0.1:{server.port}")
        store = FsspecOffloadStore(url)
        asked: list[Callable[[], Any]] = [lambda: store.write("a"), lambda: store.read(ref)]
        asked += [store.refs, store.namespaces, lambda: store.delete(ref), lambda: store.remove_halves(0)]
        for ask in asked:
            with pytest.raises(Exception) as raised:  # noqa: PT011 - as a file system has it
                await ask()
            assert SECRET not in "".join(traceback.format_exception(raised.value))
        assert SECRET not in store.where(ref)
        await store.close()


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(InvalidArgumentError, match="pip install asyncpg"):
        SQLAlchemyMemory("postgresql+asyncpg://127.0.0.1/x")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://me:secret@host:1/0", "redis://me:***@host:1/0"),
        ("https://token@host/texts", "https://***@host/texts"),
        ("redis://host/0?password=secret", "redis://host/0?password=***"),
        ("redis://me:se?cret@host", "redis://***"),
        ("postgresql:/me:secret@host", "postgresql:/***"),
        ("sqlite:////home/me@work/memory.db", "sqlite:////home/me@work/memory.db"),
        ("working_memory", "working_memory"),
    ],
)
def test_a_url_is_shown_as_far_as_it_says_where(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@pytest.mark.parametrize("rest", [AUTHORITIES[4], AUTHORITIES[6]])
def test_nor_does_the_command_line(
    capsys: pytest.CaptureFixture[str], rest: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for url in (f"redis://{rest}", f"postgresql://{rest}", f"sqlite:/{rest}"):
        assert run(["session", "list", url]) == 2
        assert run(["session", "gc", url, "--store", url]) == 2
        assert run(["compress", "-", "--budget", "2000", "--store", url]) == 2
        assert run(["read", "ctx://" + "0" * 16, "--store", url]) == 2
    shown = capsys.readouterr()
    assert SECRET not in shown.out + shown.err
