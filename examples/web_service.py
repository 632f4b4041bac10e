"""A chat service with many users, in several processes: sessions live in a database.

    pip install '.[sql]' fastapi uvicorn  # in a checkout
    export MEMORY_URL=sqlite+aiosqlite:///memory.db OPENAI_API_KEY=...
    uvicorn --app-dir examples --workers 2 web_service:app
    curl -d 'Where is order 1061?' -H 'X-Request-Id: 1' localhost:8000/users/ada/sessions/1/messages
    curl -X DELETE localhost:8000/users/ada/sessions/1
    curl -X DELETE localhost:8000/users/ada

`MEMORY_URL` may be of PostgreSQL (postgresql+asyncpg://...) or MariaDB (mysql+asyncmy://...). Each process
has one engine for all its users. Whichever process gets a request goes on with the session. A client names
each question by an id of its own, and sends it again under the same id when it gets 503, or nothing.
"""

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI, Header, HTTPException, Request
from openai import APIError, APIStatusError, AsyncOpenAI
from sqlalchemy.ext.asyncio import create_async_engine

from context_compressor import (
    CompressedMemory,
    Msg,
    OffloadTools,
    SessionNotFoundError,
    SQLAlchemyMemory,
    SQLAlchemyMemoryService,
    SQLAlchemyOffloadStore,
    SQLAlchemyStates,
    TiktokenCounter,
    from_openai,
    is_overflow,
    limit_in,
    to_openai,
)
from context_compressor.backends.admin import delete_session
from context_compressor.memory.leases import take_turn

URL = os.environ.get("MEMORY_URL", "sqlite+aiosqlite:///memory.db")
BUDGET = int(os.environ.get("MEMORY_TOKENS", "16000"))
COUNTER = TiktokenCounter()
ANSWER_SECONDS = 120.0
"""How long a client waits for an answer at most, other requests of the session included."""
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
async def chat(request: Request, user: str, session: str, x_request_id: str = Header()) -> str:
    """Answer a user, who may be sent to another process the next time."""
    engine = request.app.state.engine
    question = Msg("user", (await request.body()).decode(), "user", id=f"question {x_request_id}")
    base = SQLAlchemyMemory(engine, user_id=user, session_id=session)
    try:
        async with asyncio.timeout(ANSWER_SECONDS), take_turn(base.history):
            if not await is_deleted(engine, user, session):
                async with opened(engine, user, session) as memory:
                    await memory.add(question)  # one with a known id is not added again
                    if not await is_deleted(engine, user, session):
                        return await answered(request.app.state.client, memory, question)
                # The deletion may have looked for sessions before this one was there.
                await delete_session(base, SQLAlchemyOffloadStore(engine, (user, session)))
    except (APIError, TimeoutError) as error:
        logging.warning("no answer: %r", error)
        wanted = "no answer came: send the question again, under the same id"
        raise HTTPException(503, wanted, {"Retry-After": "5"}) from error
    raise HTTPException(410, "this session, or its user, was deleted")


async def answered(client: AsyncOpenAI, memory: CompressedMemory, question: Msg) -> str:
    """Return the answer to a question that was added; to one that was answered before, the same."""
    answer_id = question.id.replace("question", "answer", 1)
    history = memory.base.history  # the view may have them no more
    known: dict[str, Any] = {
        entry.msg.id: entry for entry in await history.read(ids=[question.id, answer_id]) if entry.msg
    }
    asked = known[question.id]
    if asked.msg.get_text_content() != question.get_text_content():
        raise HTTPException(422, "this id is that of another question")
    if answer_id in known:
        return known[answer_id].msg.get_text_content() or ""
    if any(entry.msg and entry.msg.role == "user" for entry in await history.read(after=asked.changed)):
        raise HTTPException(409, "the user has asked something else since: ask again, under a new id")
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


@app.delete("/users/{user}")
@app.delete("/users/{user}/sessions/{session}")
async def delete(request: Request, user: str, session: str | None = None) -> list[Any]:
    """Delete a session, or all of a user: refuse questions from now on, wait for those under way, delete."""
    engine, certificates = request.app.state.engine, []
    await SQLAlchemyStates(engine).set(deleted_key(user, session), {"deleted": True})
    async with SQLAlchemyMemoryService(engine) as service:
        sessions = [session] if session is not None else await service.list_sessions(user)
    for name in sessions:
        base = SQLAlchemyMemory(engine, user_id=user, session_id=name)
        async with take_turn(base.history):
            with suppress(SessionNotFoundError):  # it is deleted already
                deletion = await delete_session(base, SQLAlchemyOffloadStore(engine, (user, name)))
                certificates.append(json.loads(deletion.certificate()))
    return certificates


def deleted_key(user: str, session: str | None) -> str:
    """Return under what it is kept that a session was deleted; None: that the user was."""
    return f"deleted {(user, session)}"


async def is_deleted(engine: Any, user: str, session: str) -> bool:
    """Tell whether a session or its user was deleted."""
    states = SQLAlchemyStates(engine)
    return any([await states.get(deleted_key(user, name)) for name in (session, None)])
