"""A service with many users, in several processes: sessions live in a database or in Redis.

    pip install 'agent-context-compressor[sql]' fastapi uvicorn  # [redis] for Redis, in its place or beside
    export MEMORY_URL=sqlite+aiosqlite:///memory.db OPENAI_API_KEY=...
    uvicorn --app-dir examples --workers 2 service_fastapi:app
    curl -X POST 'localhost:8000/chat?user_id=ada&session_id=1&input=Hello'

`MEMORY_URL` may be of PostgreSQL (postgresql+asyncpg://...), MariaDB (mysql+asyncmy://...) or Redis (redis://...).
Each process has one pool for all its users. Whichever process gets a request goes on with the session.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from openai import AsyncOpenAI

from context_compressor import CompressedMemory, Msg, to_openai

URL = os.environ.get("MEMORY_URL", "sqlite+aiosqlite:///memory.db")
BUDGET = int(os.environ.get("MEMORY_TOKENS", "16000"))


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open what all users of this process share, and close it."""
    async with AsyncOpenAI() as app.state.client:
        if URL.startswith("redis"):
            from redis.asyncio import BlockingConnectionPool

            from context_compressor import RedisMemory, RedisOffloadStore

            pool: Any = BlockingConnectionPool.from_url(URL, max_connections=10, decode_responses=True)
            app.state.opened = lambda user, session: CompressedMemory(
                RedisMemory(pool, user_id=user, session_id=session, key_ttl=30 * 86_400),
                store=RedisOffloadStore(pool, (user, session), key_ttl=30 * 86_400),  # ends with the session
                max_total_tokens=BUDGET,
            )
            yield
            await pool.disconnect()
        else:
            from sqlalchemy.ext.asyncio import create_async_engine

            from context_compressor import SQLAlchemyMemory, SQLAlchemyOffloadStore

            limits: dict[str, Any] = {"pool_size": 10, "max_overflow": 20, "pool_timeout": 30}
            if URL.startswith("sqlite"):  # it has one writer at a time: more connections wait for each other
                limits = {"pool_size": 1, "max_overflow": 0, "pool_timeout": 600}
                limits["connect_args"] = {"timeout": 30}
            engine = create_async_engine(URL, **limits)
            app.state.opened = lambda user, session: CompressedMemory(
                SQLAlchemyMemory(engine, user_id=user, session_id=session),
                store=SQLAlchemyOffloadStore(engine, (user, session)),
                max_total_tokens=BUDGET,
            )
            yield
            await engine.dispose()


app = FastAPI(lifespan=lifespan)


@app.post("/chat")
async def chat(request: Request, response: Response, user_id: str, session_id: str, input: str) -> str:
    """Answer a user, who may be sent to another process the next time."""
    async with request.app.state.opened(user_id, session_id) as memory:
        await memory.add(Msg("user", input, "user"))
        messages: Any = to_openai(await memory.get_memory())
        completion = await request.app.state.client.chat.completions.create(
            model="gpt-4o-mini", messages=messages
        )
        answer = completion.choices[0].message.content or "(no answer)"
        await memory.add(Msg("assistant", answer, "assistant"))
        response.headers["x-process"] = str(os.getpid())
        return answer
