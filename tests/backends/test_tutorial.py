"""The programs of AgentScope 1's tutorial on memory, word for word but for the import.

They lie beside this in `tutorial`. Where the tutorial leaves something out (an agent's model, what is done
with a memory), a line of this test stands in its place; where it takes a fake Redis, it is given a real one,
which others use at the same time: the user's id is another each time.
"""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import httpx
import pytest
from agentscope.formatter import OpenAIChatFormatter
from agentscope.model import OpenAIChatModel
from redis.asyncio import ConnectionPool, Redis

from context_compressor import RedisMemory, SQLAlchemyMemory
from context_compressor.backends.sql.engines import dispose
from tests.support.model_server import ModelServer, answer

OURS = ["context_compressor.integrations.agentscope", "context_compressor"]
"""For messages of AgentScope's, and for this library's own."""
HINT = "<system-hint>Create a plan first"


def program(name: str, module: str, **changed: str) -> Any:
    """Return a program, compiled with another import and without what it leaves out."""
    text = (Path(__file__).parent / "tutorial" / f"{name}.txt").read_text("utf-8")
    assert text.count("from agentscope.memory import") == 1
    text = text.replace("from agentscope.memory import", f"from {module} import")
    if module == "context_compressor":
        text = text.replace("from agentscope.message import", f"from {module} import")
    for place, code in changed.items():
        assert text.count(PLACES[place]) == 1
        text = text.replace(PLACES[place], code)
    return compile(text.replace("user_1", uuid4().hex), name, "exec", dont_inherit=True)


PLACES = {"agent": "        # ...\n", "handled": "        # yield msg to the client\n", "used": "    ...\n"}


def run(code: Any, **names: Any) -> dict[str, Any]:
    names["__name__"] = "tutorial"
    exec(code, names)
    return names


@pytest.fixture(autouse=True)
def what_programs_leave_open_ends_with_them() -> Iterator[None]:
    """They close no engine and no client, which, found at any later time, would be another test's fault."""
    gc.disable()
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    gc.enable()


@pytest.fixture(autouse=True)
def a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def real_redis(monkeypatch: pytest.MonkeyPatch, server: Callable[[str], int]) -> int:
    """Let what is imported as fakeredis be a Redis in a server, and that server have the usual address."""
    port = server("redis")
    fake = SimpleNamespace(aioredis=SimpleNamespace(FakeRedis=partial(Redis, port=port)))
    monkeypatch.setitem(sys.modules, "fakeredis", fake)

    class Pool(ConnectionPool):
        def __init__(self, **given: Any) -> None:
            super().__init__(**given | {"port": port})

    monkeypatch.setattr("redis.asyncio.ConnectionPool", Pool)
    return port


@pytest.mark.parametrize("module", OURS)
def test_in_memory(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(program("in_memory", module))
    shown = capsys.readouterr().out
    assert "The messages with mark 'hint':\n- Msg(id='" in shown
    assert "Deleted 1 messages with mark 'hint'." in shown
    before, _, after = shown.partition("Deleted 1")
    assert before.count(HINT) == 2
    assert HINT not in after
    assert "Generate a report" in after


@pytest.mark.parametrize("module", OURS)
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # it leaves its engines open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_sqlalchemy(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(program("sqlalchemy", module))
    marked, _, everything = capsys.readouterr().out.partition("All messages in the memory:\n")
    assert marked.startswith("The messages with mark 'hint':\n- Msg(")
    assert marked.count(HINT) == 1
    lines = everything.splitlines()
    assert ["Generate" in line for line in lines] == [True, False, True]


@pytest.mark.parametrize("module", OURS)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_redis(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(program("redis", module))
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 2
    assert HINT in shown[1]


async def post(app: Any, path: str, **params: str) -> httpx.Response:
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client,
    ):
        return await client.post(path, params=params)


async def test_fastapi_with_a_session_of_sqlalchemy() -> None:
    said: list[str] = []
    code = program(
        "fastapi_sqlalchemy",
        OURS[0],
        agent="name='Friday', sys_prompt='You help.', model=model, formatter=formatter,\n",
        handled="        said.append(msg.get_text_content())\n",
    )
    async with ModelServer(lambda messages: answer(f"Seen: {len(messages)}.")) as model_server:
        settings = {"base_url": model_server.url, "max_retries": 0}
        model = OpenAIChatModel("scripted", "test", stream=False, client_kwargs=settings)
        names = run(code, model=model, formatter=OpenAIChatFormatter(), said=said)
        for user in ("ada", "ada", "bob"):
            response = await post(names["app"], "/chat", user_id=user, session_id="s", input="Hello.")
            assert response.status_code == 200
        await model.client.close()
    assert said == ["Seen: 2.", "Seen: 4.", "Seen: 2."]
    assert await SQLAlchemyMemory(names["engine"], user_id="ada", session_id="s").size() == 4
    await dispose(names["engine"])  # a request's session is closed behind its answer


@pytest.mark.parametrize("module", OURS)
async def test_fastapi_with_a_pool_of_redis(module: str, real_redis: int) -> None:
    used = "    await memory.add(Msg('user', input, 'user'))\n"
    names = run(program("fastapi_redis", module, used=used))
    user = uuid4().hex
    for _ in range(2):
        response = await post(names["app"], "/chat_endpoint", user_id=user, session_id="s", input="Hello.")
        assert response.status_code == 200
    async with RedisMemory(port=real_redis, user_id=user, session_id="s") as memory:
        assert await memory.size() == 2
