"""Memory services over this process, databases and Redis: one suite."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from pydantic import BaseModel
from redis.asyncio import Redis
from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine

from context_compressor import (
    CompressedMemory,
    InMemoryMemoryService,
    InvalidArgumentError,
    InvalidMessageError,
    MemoryService,
    Msg,
    NotStartedError,
    RedisMemory,
    RedisMemoryService,
    SQLAlchemyMemory,
    SQLAlchemyMemoryService,
)
from tests.services.messages import DataContent, Message, Plain, TextContent, message

BACKENDS = ["memory", "sqlite", "redis", "asyncpg", "mariadb"]
"""The last two are run with --all."""
URLS = {
    "sqlite": "sqlite+aiosqlite:///{folder}/memory.db",
    "asyncpg": "postgresql+asyncpg://postgres@127.0.0.1:{port}/postgres",
    "mariadb": "mysql+asyncmy://test@127.0.0.1:{port}/test",
}
SERVERS = {"asyncpg": "postgres", "mariadb": "mariadb", "redis": "redis"}
Make = Callable[..., MemoryService]

pytestmark = pytest.mark.variants(3)


@pytest.fixture(params=BACKENDS)
async def make(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Make]:
    """Return what makes services over one and the same backend, in this process but for the first kind."""
    kind = request.param
    port = request.getfixturevalue("server")(SERVERS[kind]) if kind in SERVERS else 0
    async with AsyncExitStack() as stack:
        if kind == "memory":
            yield InMemoryMemoryService
        elif kind == "redis":
            client = Redis(port=port, decode_responses=True)
            stack.push_async_callback(client.aclose)
            prefix = uuid4().hex
            yield lambda **options: RedisMemoryService(redis_client=client, key_prefix=prefix, **options)
        else:
            engine = create_async_engine(URLS[kind].format(folder=tmp_path, port=port))
            if kind == "sqlite":  # no test pulls the plug
                event.listen(
                    engine.sync_engine, "connect", lambda db, _: db.execute("PRAGMA synchronous=OFF")
                )
            stack.push_async_callback(engine.dispose)
            yield lambda **options: SQLAlchemyMemoryService(engine, **options)


@pytest.fixture
async def service(make: Make) -> AsyncIterator[MemoryService]:
    async with make() as service:
        yield service


@pytest.fixture
def other(make: Make, service: MemoryService) -> MemoryService:
    """Return another service over the same backend, to be started."""
    if isinstance(service, InMemoryMemoryService):
        pytest.skip("the sessions of this process are those of one service")
    return make()


@pytest.fixture
def user() -> str:
    return uuid4().hex  # databases are shared by the tests of a run


def says(messages: list[Any]) -> list[str]:
    return [one["content"] if isinstance(one, dict) else text(one) for one in messages]


def text(one: Any) -> str:
    content = one.content
    return content if isinstance(content, str) else content[0].text


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def word(number: int) -> str:
    """Return a word that no search takes for another."""
    return "".join("bdfgklmnpr"[int(digit)] + "aeiou"[int(digit) // 2] for digit in f"{number:03}")


def chat(*texts: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": one} for one in texts]


async def test_what_agentscope_runtime_promises_holds(service: MemoryService, user: str) -> None:
    assert await service.list_memory(user) == await service.search_memory(user, chat("hello")) == []
    await service.delete_memory(user)
    await service.add_memory(user, [message("hello world")])
    await service.add_memory(user, [message("hello again"), message("good bye", "assistant")], "b")
    await service.add_memory(user, [message("Hello, first")], session_id="a")
    everything = ["Hello, first", "hello again", "good bye", "hello world"]
    assert says(await service.list_memory(user)) == everything  # a, b, default
    assert says(await service.list_memory(user, {"page_size": 2, "page_num": 1})) == everything[:2]
    assert says(await service.list_memory(user, {"page_size": 3, "page_num": 2})) == everything[3:]
    assert await service.list_memory(user, {"page_size": 3, "page_num": 3}) == []
    found = await service.search_memory(user, [message("unheeded bye"), message("HELLO")])
    assert sorted(says(found)) == sorted(set(everything) - {"good bye"})
    assert all(isinstance(one, Message) for one in found)
    assert says(await service.search_memory(user, [message("bye")], {"top_k": 1, "score": 0.5})) == [
        "good bye"
    ]
    assert len(await service.search_memory(user, [message("hello")], filters={"top_k": 2})) == 2
    for nothing in ([], None, "hello", [message("")]):
        assert await service.search_memory(user, nothing) == []  # type: ignore[arg-type]
    await service.delete_memory(user, "b")
    await service.delete_memory(user, "unknown")
    assert says(await service.list_memory(user)) == ["Hello, first", "hello world"]
    assert says(await service.search_memory(user, [message("hello again")])) != []
    assert "hello again" not in says(await service.search_memory(user, [message("hello again")]))
    await service.delete_memory(user)
    assert await service.list_memory(user) == await service.search_memory(user, chat("hello")) == []
    await service.add_memory(user, chat("anew"), "b")
    assert says(await service.list_memory(user)) == ["anew"]


async def test_messages_come_back_as_they_came(service: MemoryService, user: str) -> None:
    given: list[Any] = [
        Msg("ada", "a zebra", "user", {"any": "thing"}, id="1"),
        {"role": "user", "content": [{"type": "text", "text": "zebra of a dict"}], "name": "ada"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "zebra", "arguments": '{"a": 1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "zebra \ud83d found"},
        message("zebra of an object"),
        Message(role="assistant", type="plugin_call", content=[DataContent(data={"name": "zebra"})]),
        Message(role="tool", type="plugin_call_output", content=[TextContent(text="zebra out")]),
        Message(role="system", content=[TextContent(text="zebra rule\0"), TextContent(text="two")]),
        message("half a zebra \ud83d"),
        Plain("ada", [{"type": "text", "text": "plain zebra"}], "assistant", "p"),
        Plain("ada", "odd zebra", "critic", "q"),
    ]
    await service.add_memory(user, given)
    assert await service.list_memory(user, {"page_size": 100}) == given
    found = await service.search_memory(user, chat("zebra"), {"top_k": 50})
    assert all(one in given for one in found)
    assert len(found) == len(given) - 1  # data has no text
    assert await service.search_memory(user, [Msg("user", "odd", "user")]) == [given[-1]]
    # A rule of a tool's or an unknown role's is nobody's instruction.
    kept = await service.memory(user).get_memory()
    assert [msg.role for msg in kept] == [
        *("user", "user", "assistant", "system", "user", "assistant", "system", "system"),
        *("user", "assistant", "assistant"),
    ]
    assert kept[6].has_content_blocks("tool_result")


async def test_a_message_that_is_there_is_not_added_again(service: MemoryService, user: str) -> None:
    first, second = message("one"), Msg("user", "two", "user")
    await service.add_memory(user, [first, second])
    await service.add_memory(user, [first, second, message("one")])
    await service.add_memory(user, [first], "elsewhere")
    assert says(await service.list_memory(user)) == ["one", "two", "one", "one"]


async def test_what_a_session_compressed_away_is_found_by_later_ones(
    service: MemoryService, user: str
) -> None:
    base, store = service.memory(user, "first"), service.store(user, "first")
    async with CompressedMemory(base, store=store, max_total_tokens=1_500) as memory:
        await memory.add(Msg("user", "The gate code of the north yard is 7731-B.", "user"))
        for number in range(18):
            await memory.add(Msg("user", f"Parcel {number} went out by lorry. " * 12, "user"))
            view = await memory.get_memory()
        assert not any("7731-B" in str(msg.content) for msg in view[1:])
        assert memory.stats().noted
    assert await store.refs()
    await service.add_memory(user, chat("Another day, another parcel."), "second")
    query = chat("What is the gate code of the north yard?")
    (best, *_) = await service.search_memory(user, query)
    assert best == {"role": "user", "content": "The gate code of the north yard is 7731-B."}
    assert await service.search_memory(f"{user}2", query) == []
    await service.delete_memory(user, "first")
    assert await store.refs() == await base.history.read() == []
    assert not any(entry.edits for entry in await base.history.ledger())
    assert says(await service.search_memory(user, chat("gate code parcel"))) == [
        "Another day, another parcel."
    ]
    assert await memory.get_memory() == []


async def test_ids_of_any_kind_are_kept_apart(service: MemoryService, user: str) -> None:
    names = ["a:b", "a", "{a}", "*", "é" * 300, "\0\ud83d", "'; DROP TABLE x; --", "%", " a", "a ", "A"]
    pairs = [(user + one, other) for one in names[:2] for other in names]
    pairs += [(user + one, "s") for one in names[2:]]
    for number, (who, session) in enumerate(pairs):
        await service.add_memory(who, chat(word(number)), session)
    for who in dict.fromkeys(who for who, _ in pairs):
        mine = sorted((session, word(n)) for n, (one, session) in enumerate(pairs) if one == who)
        assert says(await service.list_memory(who, {"page_size": 99})) == [told for _, told in mine]
        for _, told in mine[:2]:
            assert says(await service.search_memory(who, chat(told))) == [told]
    assert says(await service.search_memory(pairs[0][0], chat(word(21)))) == []
    await service.delete_memory(user + "*")
    assert len(await service.list_memory(user + "a", {"page_size": 99})) == len(names)


async def test_two_writers_lose_nothing(service: MemoryService, other: MemoryService, user: str) -> None:
    async def write(one: MemoryService, name: str) -> None:
        for number in range(20):
            await one.add_memory(user, chat(f"{name} {number}"))

    async with other:
        await asyncio.gather(write(service, "a"), write(other, "b"), write(other, "c"))
    told = says(await service.list_memory(user, {"page_size": 100}))
    for name in "abc":
        assert [one for one in told if one[0] == name] == [f"{name} {number}" for number in range(20)]


async def test_the_index_follows_whoever_writes(
    service: MemoryService, other: MemoryService, user: str
) -> None:
    async def found(query: str) -> list[str]:
        return says(await service.search_memory(user, chat(query)))

    async with other:
        await service.add_memory(user, chat("the red fox", "the grey goose"))
        assert await found("fox") == ["the red fox"]
        await other.add_memory(user, chat("a white fox"))
        await other.add_memory(user, chat("a blue fox"), "later")
        assert sorted(await found("fox")) == ["a blue fox", "a white fox", "the red fox"]
        memory = other.memory(user)
        (goose,) = [msg for msg in await memory.get_memory() if "goose" in str(msg.content)]
        await memory.delete([goose.id])
        assert await found("goose") == []
        await other.delete_memory(user, "later")
        assert "a blue fox" not in await found("fox")
        # A session that is begun anew counts its writes anew.
        await other.delete_memory(user)
        for number in range(5):
            await other.add_memory(user, chat(f"fox {number}"))
        assert sorted(await found("fox")) == [f"fox {number}" for number in range(5)]


async def test_a_result_that_is_marked_later_stays_that_of_its_tool(
    service: MemoryService, user: str
) -> None:
    """Though the id of its call was used again meanwhile."""
    for tool, said in (("bash", "the zebrafile is here"), ("list_dir", "a yakfile")):
        call = {"id": "c0", "type": "function", "function": {"name": tool, "arguments": "{}"}}
        made = {"role": "assistant", "content": None, "tool_calls": [call]}
        await service.add_memory(user, [made, {"role": "tool", "tool_call_id": "c0", "content": said}])
    before = await service.search_memory(user, chat("bash"))
    memory = service.memory(user)
    await memory.update_messages_mark("kept", msg_ids=[(await memory.get_memory())[1].id])
    assert await service.search_memory(user, chat("bash")) == before != []


async def test_a_search_that_is_given_up_holds_nobody(make: Make, user: str) -> None:
    service = make()
    async with asyncio.timeout(60), service:
        await service.add_memory(user, chat(*(f"lynx {number}" for number in range(300))))
        for wait in (0, 0.001, 0.01, 0.05):
            search = asyncio.create_task(service.search_memory(user, chat("lynx")))
            await asyncio.sleep(wait)
            search.cancel()
        assert len(await service.search_memory(user, chat("lynx"))) == 10
        search = asyncio.create_task(service.search_memory(user, chat("lynx")))
        await asyncio.sleep(0.005)
        search.cancel()
    await asyncio.gather(search, return_exceptions=True)


async def test_indexes_are_bounded(make: Make, user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("context_compressor.memory.index._AT_HAND", 10)
    async with make(indexed_messages=50) as service:
        indexes = service._indexes
        assert indexes is not None
        for who, count in (("a", 20), ("b", 25), ("c", 15), ("d", 60)):
            texts = [f"badger {who} {number}" for number in range(count)]
            await service.add_memory(user + who, chat(*texts))
            await service.add_memory(user + who, chat("the last badger"), "z")
            found = await service.search_memory(user + who, chat("badger"), {"top_k": 100})
            assert sorted(says(found)) == sorted([*texts, "the last badger"])
            assert sum(index.size for index in indexes._users.values()) <= 50
        assert [name.removeprefix(user) for name in indexes._users] == []  # the last one alone is too large
        assert len(await service.search_memory(user + "a", chat("badger"))) == 10
    async with make(idle_seconds=0.02) as service:
        await service.add_memory(user, chat("badger"))
        await service.search_memory(user, chat("badger"))
        await until(lambda: not service._indexes._users)
        assert says(await service.search_memory(user, chat("badger")))[0] == "badger"


async def test_old_messages_go_where_a_session_may_not_grow(make: Make, user: str) -> None:
    async with make(max_messages_per_session=3) as service:
        for number in range(5):
            await service.add_memory(user, chat(f"fact {number}"))
        assert says(await service.list_memory(user)) == ["fact 2", "fact 3", "fact 4"]
        await service.add_memory(user, chat(*"abcde"))
        assert says(await service.list_memory(user)) == ["c", "d", "e"]
        assert await service.search_memory(user, chat("fact")) == []


async def test_life(make: Make, user: str) -> None:
    service = make()
    assert not await service.health()
    for call in (
        service.add_memory(user, chat("a")),
        service.search_memory(user, chat("a")),
        service.list_memory(user),
        service.delete_memory(user),
    ):
        with pytest.raises(NotStartedError, match="has not started"):
            await call
    with pytest.raises(RuntimeError):
        service.memory(user)
    for _ in range(2):
        await service.start()
        assert await service.health()
    await service.add_memory(user, chat("a heron"))
    assert says(await service.search_memory(user, chat("heron"))) == ["a heron"]
    for _ in range(2):
        await service.stop()
        assert not await service.health()
    async with service:
        assert says(await service.list_memory(user)) == (
            [] if isinstance(service, InMemoryMemoryService) else ["a heron"]
        )
        assert len(await service.search_memory(user, chat("heron"))) == len(await service.list_memory(user))


async def test_what_is_wrong_is_refused_by_name_and_changes_nothing(
    service: MemoryService, user: str
) -> None:
    async def refused(call: Any, match: str, kind: type[Exception] = InvalidArgumentError) -> None:
        with pytest.raises(kind, match=match):
            await call

    await refused(service.add_memory(5, chat("a")), "user_id: expected a string, got int")  # type: ignore[arg-type]
    await refused(service.add_memory(user, chat("a"), 5), "session_id")  # type: ignore[arg-type]
    await refused(service.add_memory(user, [*chat("a"), 7]), r"messages\[1\]: expected a Msg, a chat dict")
    await refused(service.add_memory(user, message("a")), "put a single message in a list")  # type: ignore[arg-type]
    bad = [*chat("a"), {"role": "queen", "content": "a"}]
    await refused(service.add_memory(user, bad), r"messages\[1\].role", InvalidMessageError)
    await refused(service.add_memory(user, [object.__new__(_Bare)]), "to_dict", InvalidMessageError)
    await refused(service.search_memory(user, chat("a"), {"top_k": 0}), r"filters\['top_k'\]")
    await refused(service.search_memory(user, chat("a"), [1]), "filters: expected a dict")  # type: ignore[arg-type]
    await refused(service.list_memory(user, {"page_num": "1"}), r"filters\['page_num'\]")
    await refused(service.delete_memory(user, 5), "session_id")  # type: ignore[arg-type]
    assert await service.list_memory(user) == []
    await service.add_memory(user, None)
    await service.add_memory(user, [])
    await service.add_memory(user, chat("a"))
    for name in ("page_size", "top_k"):  # however many that are
        assert await service.list_memory(user, {name: 10**30}) == chat("a")
        assert await service.search_memory(user, chat("a"), {name: 10**30}) == chat("a")


class Order(BaseModel):
    """A model of an application, that does something where it is made."""

    made: ClassVar[list[Any]] = []

    def model_post_init(self, context: Any) -> None:
        self.made.append(context)


class _Bare:
    role, content = "user", "a"


async def test_a_class_is_made_of_what_is_stored_only_where_it_reads_messages(
    service: MemoryService, user: str
) -> None:
    own = f"{__name__}:Order"
    for name in (own, "os:system", "subprocess:Popen", "nowhere:Message", "builtins:dict", ":"):
        noted = {"service": {"as": name, "data": {"role": "user", "content": "a"}}}
        await service.memory(user).add(Msg("user", "a", "user", noted))
    assert {type(one) for one in await service.list_memory(user)} == {Msg}
    assert Order.made == []


async def test_over_a_backend_of_its_own_it_finds_what_memories_hold(
    make: Make, tmp_path: Path, server: Callable[[str], int], user: str
) -> None:
    if make is InMemoryMemoryService:
        pytest.skip("its sessions are its own")
    if isinstance(made := make(), RedisMemoryService):
        url = f"redis://127.0.0.1:{server('redis')}/0"
        memory: Any = RedisMemory(url, user_id=user, session_id="chat")
        service: MemoryService = RedisMemoryService(url)
    else:
        url = f"sqlite+aiosqlite:///{tmp_path}/own.db"
        memory, service = SQLAlchemyMemory(url, user_id=user, session_id="chat"), SQLAlchemyMemoryService(url)
    assert not await made.health()
    async with memory, service:
        await memory.add(Msg("user", "an ibex", "user"))
        assert says(await service.search_memory(user, chat("ibex"))) == ["an ibex"]
        assert says(await service.list_memory(user)) == ["an ibex"]
