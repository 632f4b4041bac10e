"""A chat service with many users, in several processes: sessions live in a database.

    pip install '.[sql]' fastapi uvicorn  # in a checkout
    export MEMORY_URL=sqlite+aiosqlite:///memory.db OPENAI_API_KEY=...
    uvicorn --app-dir examples --workers 2 web_service:app
    curl -d 'Where is order 1061?' -H "X-Request-Id: $(uuidgen)" localhost:8000/users/ada/sessions/1/messages
    curl -X DELETE localhost:8000/users/ada/sessions/1
    curl -X DELETE localhost:8000/users/ada

`MEMORY_URL` may be of PostgreSQL (postgresql+asyncpg://...) or MariaDB (mysql+asyncmy://...). Each process
has one engine for all its users. Whichever process gets a request goes on with the session.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Any
from uuid import UUID, uuid4

from fastapi import FastAPI, Header, HTTPException, Request, Response
from openai import APIStatusError, AsyncOpenAI, OpenAIError
from sqlalchemy.ext.asyncio import create_async_engine

from context_compressor import (
    CompressedMemory,
    Msg,
    OffloadTools,
    SQLAlchemyMemory,
    SQLAlchemyMemoryService,
    SQLAlchemyOffloadStore,
    TiktokenCounter,
    from_openai,
    is_overflow,
    limit_in,
    to_openai,
)
from context_compressor.backends.admin import delete_session

URL = os.environ.get("MEMORY_URL", "sqlite+aiosqlite:///memory.db")
BUDGET = int(os.environ.get("MEMORY_TOKENS", "16000"))
COUNTER = TiktokenCounter()
TURN_SECONDS = 300.0
"""How long a session waits for a process that died; an answer that takes half of it is given up."""
ORDER_TOOL: Any = {
    "type": "function",
    "function": {
        "name": "find_order",
        "description": "Tell what is known of an order.",
        "parameters": {"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]},
    },
}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open what all users of this process share, and close it."""
    limits: dict[str, Any] = {"pool_size": 10, "max_overflow": 20, "pool_pre_ping": True, "pool_timeout": 600}
    if URL.startswith("sqlite"):  # it has one writer at a time: more connections wait for each other
        limits = {"pool_size": 1, "max_overflow": 0, "pool_timeout": 600, "connect_args": {"timeout": 30}}
    app.state.engine = create_async_engine(URL, hide_parameters=True, **limits)
    COUNTER.load()  # half a second that the first request need not wait
    async with AsyncOpenAI() as app.state.client:
        yield
    await app.state.engine.dispose()


app = FastAPI(lifespan=lifespan)


@app.exception_handler(OpenAIError)
async def provider_failed(request: Request, error: Exception) -> Response:  # noqa: ARG001
    """Answer that the question may be sent again."""
    return Response("the provider of the model failed; send the question again", 502)


def opened(engine: Any, user: str, session: str) -> CompressedMemory:
    """Return a session's memory: history and texts in the database, views within the budget."""
    return CompressedMemory(
        SQLAlchemyMemory(engine, user_id=user, session_id=session),
        store=SQLAlchemyOffloadStore(engine, (user, session)),
        counter=COUNTER,
        max_total_tokens=BUDGET,
    )


async def ask(client: AsyncOpenAI, memory: CompressedMemory, tools: list[Any]) -> Any:
    """Send the view; a request that is too long all the same is sent once more, smaller."""
    while True:  # ends at the latest with ContextOverflowError, when nothing more can leave the view
        messages: Any = to_openai(await memory.get_memory())
        try:
            completion = await client.chat.completions.create(
                model="gpt-5-mini", messages=messages, tools=tools
            )
        except APIStatusError as error:
            if not is_overflow(error):
                raise
            memory.record_overflow(limit_in(error))
            continue
        if completion.usage is not None:  # the memory learns what the provider counts, tools included
            memory.record_usage(completion.usage.prompt_tokens)
        return completion.choices[0].message


async def result_of(call: Any, read_back: OffloadTools) -> dict[str, Any]:
    """Run a tool: one that reads back what left the view, or one of ours."""
    name, arguments = call.function.name, call.function.arguments
    if name in read_back.names:
        said = await read_back.call(name, arguments)
    else:
        said = f"Order {json.loads(arguments)['order']}: shipped on Monday."
    return {"role": "tool", "tool_call_id": call.id, "content": said}


@app.post("/users/{user}/sessions/{session}/messages")
async def chat(request: Request, user: str, session: str, x_request_id: Annotated[UUID, Header()]) -> str:
    """Answer a user, who may be sent to another process the next time."""
    question = Msg("user", (await request.body()).decode(), "user", id=str(x_request_id))
    engine = request.app.state.engine
    async with turn(engine, user, session), opened(engine, user, session) as memory:
        return await answered(request.app.state.client, memory, question)


@asynccontextmanager
async def turn(engine: Any, user: str, session: str) -> AsyncIterator[None]:
    """Let one request at a time have a session; a process that dies loses its turn in time."""
    history, holder = SQLAlchemyMemory(engine, user_id=user, session_id=session).history, uuid4().hex
    if not await history.claim("turn", holder, TURN_SECONDS):
        raise HTTPException(409, "this session answers another request", {"Retry-After": "2"})
    try:
        async with asyncio.timeout(TURN_SECONDS / 2):
            yield
    except TimeoutError:
        raise HTTPException(504, "no answer in time; send the question again") from None
    finally:
        await history.claim("turn", holder, 0)


async def answered(client: AsyncOpenAI, memory: CompressedMemory, question: Msg) -> str:
    """Return the answer to a question; to one that was answered before, the same."""
    answer_id = f"{question.id}:answer"
    entries = await memory.base.history.read(ids=[question.id, answer_id])  # the view may have them no more
    known = {entry.msg.id: entry.msg.get_text_content() or "" for entry in entries if entry.msg is not None}
    if known.get(question.id, question.get_text_content()) != question.get_text_content():
        raise HTTPException(422, "another question had this X-Request-Id")
    if answer_id in known:
        return known[answer_id]
    await memory.add(question)  # one with a known id is not added again
    if [msg.id for msg in await memory.get_memory() if msg.role == "user"][-1:] != [question.id]:
        raise HTTPException(410, "a later question was asked since; ask again under another X-Request-Id")
    read_back = memory.tools()
    while True:
        said = await ask(client, memory, [ORDER_TOOL, *read_back.schemas])
        if not said.tool_calls:
            await memory.add(Msg("assistant", said.content or "", "assistant", id=answer_id))
            return said.content or ""
        await memory.add(from_openai([said.model_dump(exclude_none=True)]))
        await memory.add(from_openai([await result_of(call, read_back) for call in said.tool_calls]))


@app.get("/users/{user}/sessions/{session}/messages")
async def history(request: Request, user: str, session: str) -> list[Any]:
    """Return the whole conversation, word for word."""
    async with opened(request.app.state.engine, user, session) as memory:
        return to_openai(await memory.get_history())


@app.delete("/users/{user}/sessions/{session}")
async def delete(request: Request, user: str, session: str) -> Response:
    """Delete a session with its texts; the answer lists what was removed."""
    engine = request.app.state.engine
    base = SQLAlchemyMemory(engine, user_id=user, session_id=session)
    async with turn(engine, user, session):  # what is under way would write it anew
        deletion = await delete_session(base, SQLAlchemyOffloadStore(engine, (user, session)))
    return Response(deletion.certificate(), media_type="application/json")


@app.delete("/users/{user}", status_code=204)
async def delete_user(request: Request, user: str) -> None:
    """Delete all sessions of a user, with their texts. Refuse the user's requests before."""
    engine = request.app.state.engine
    async with SQLAlchemyMemoryService(engine) as service, AsyncExitStack() as turns:
        for session in await service.list_sessions(user):
            await turns.enter_async_context(turn(engine, user, session))
        await service.delete_memory(user)
