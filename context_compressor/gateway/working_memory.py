"""Working memory over HTTP, as agent-memory-client speaks it: sessions, and prompts that fit a window."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from context_compressor.errors import (
    ContextOverflowError,
    InvalidMessageError,
    OffloadNotFoundError,
)
from context_compressor.gateway.identity import TooLarge, may_read, read_body
from context_compressor.gateway.operations import Handler, Operation
from context_compressor.gateway.sessions import Name, NotCurrent, Record, Session, Sessions
from context_compressor.gateway.upstream import as_json

logger = logging.getLogger(__name__)

ModelT = TypeVar("ModelT", bound=BaseModel)
Dict = dict[str, Any]

WINDOWS = {
    "gpt-3.5-turbo": 16_385,
    "gpt-3.5-turbo-16k": 16_385,
    "gpt-4": 8_192,
    "gpt-4-32k": 32_768,
    "gpt-4o": 128_000,
    "gpt-4o-mini": 128_000,
    "o1": 200_000,
    "o1-mini": 128_000,
    "o3-mini": 200_000,
    "gpt-5-mini": 272_000,
    "gpt-5-nano": 272_000,
    "gpt-5.1-chat-latest": 128_000,
    "gpt-5.2-chat-latest": 128_000,
    "text-embedding-ada-002": 8_191,
    "text-embedding-3-small": 8_191,
    "text-embedding-3-large": 8_191,
}
"""Input tokens of the models that the client's type of `model_name` has, by their makers' pages; its Claude
models have `_CLAUDE`. Others are told by `context_window_max`."""
_CLAUDE = 200_000


class Where(BaseModel):
    """Whose session is meant."""

    user_id: str | None = None
    namespace: str | None = None

    @model_validator(mode="after")
    def _read_nothing(self) -> Where:
        self.user_id, self.namespace = self.user_id or None, self.namespace or None
        return self


class Reading(Where):
    """How a session is to be read."""

    model_name: str | None = Field(default=None, description="A model whose window the answer is to fit.")
    context_window_max: int | None = Field(
        default=None, ge=1, le=10**9, description="Tokens that the answer may hold; goes before `model_name`."
    )
    recent_messages_limit: int | None = Field(default=None, ge=1, description="The last so many messages.")

    @property
    def window(self) -> int | None:
        """Tokens; None: nothing was said."""
        return window_of(self.model_name, self.context_window_max)

    @model_validator(mode="after")
    def _know(self) -> Reading:
        window_of(self.model_name, self.context_window_max)
        return self


def window_of(model_name: str | None, context_window_max: int | None) -> int | None:
    """Return the tokens of a window; None: nothing was said.

    Raises:
        ValueError: the model is not known.
    """
    if context_window_max is not None or not model_name:
        return context_window_max
    known = _CLAUDE if model_name.startswith("claude-") else WINDOWS.get(model_name)
    if known is None:
        raise ValueError(f"{model_name!r} is not known; say its tokens by context_window_max")
    return known


class Listing(Where):
    """Which sessions are to be listed."""

    limit: int = Field(default=20, ge=1, le=100)
    offset: int = Field(default=0, ge=0, le=10**9)


class Message(BaseModel):
    """A message of a session."""

    role: str = Field(min_length=1)
    content: str | None = None
    id: str | None = Field(default=None, min_length=1)
    created_at: datetime | None = None
    persisted_at: datetime | None = None
    discrete_memory_extracted: Literal["t", "f"] = "f"
    tool_calls: list[Dict] | None = Field(default=None, description="As in chat completions.")
    tool_call_id: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _say_something(self) -> Message:
        if not (self.content or "").strip() and not self.tool_calls and self.tool_call_id is None:
            raise ValueError(f"message content cannot be empty (message ID: {self.id})")
        return self


class MemoryRecord(BaseModel):
    """A structured memory, kept as it comes."""

    model_config = ConfigDict(extra="allow")

    id: str = Field(min_length=1)
    text: str


class Strategy(BaseModel):
    """How long-term memories would be made of a session; kept as it comes."""

    strategy: Literal["discrete", "summary", "preferences", "custom"] = "discrete"
    config: Dict = {}


class UpdateWorkingMemory(Where):
    """All that a session is to hold."""

    messages: list[Message] = []
    memories: list[MemoryRecord] = []
    data: Dict | None = None
    context: str | None = None
    long_term_memory_strategy: Strategy = Strategy()
    ttl_seconds: int | None = Field(default=None, ge=1, le=10**9)


class AppendMessages(BaseModel):
    """Messages that are to be added to a session."""

    messages: list[Message] = Field(min_length=1)


class WorkingMemory(UpdateWorkingMemory):
    """A session."""

    session_id: str
    tokens: int
    last_accessed: datetime
    context_percentage_total_used: float | None = None
    context_percentage_until_summarization: float | None = None


class SessionList(BaseModel):
    """Ids of sessions."""

    sessions: list[str]
    total: int


class PromptSession(Reading):
    """The session of a prompt."""

    session_id: str = Field(min_length=1)


class MemoryPrompt(BaseModel):
    """What a prompt is made of."""

    query: str
    session: PromptSession | None = None
    long_term_search: Dict | bool | None = None


class PromptText(BaseModel):
    """What a message of a prompt says."""

    type: Literal["text"] = "text"
    text: str


class PromptMessage(BaseModel):
    """A message of a prompt."""

    role: str
    content: PromptText
    tool_calls: list[Dict] | None = None
    tool_call_id: str | None = None


class Prompt(BaseModel):
    """What to send to a model."""

    messages: list[PromptMessage]
    long_term_memories: None = None


class Text(BaseModel):
    """A text that left a view."""

    text: str


class Ack(BaseModel):
    """That it was done."""

    status: str


class Health(BaseModel):
    """The service's clock, in milliseconds since 1970."""

    now: int


class Fault(BaseModel):
    """Why it was not done."""

    detail: str


class Refusal(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class WorkingMemoryApi:
    """Answer what agent-memory-client asks.

    Args:
        sessions: what is kept.
        token: with which contents are read and written elsewhere than on this machine.
        most_bytes: what a request may hold.
    """

    def __init__(self, sessions: Sessions, token: str | None, most_bytes: int) -> None:
        self._sessions, self._token, self._most = sessions, token, most_bytes

    def operations(self) -> list[Operation]:
        """Return what is answered where."""
        one, wrong = "/v1/working-memory/{session_id:all}", {422: Fault}
        changed = {412: Fault, 413: Fault, 415: Fault, **wrong}

        def offered(method: str, path: str, says: str, answer: Handler, **told: Any) -> Operation:
            return Operation(method, path, says, self._guarded(answer), is_guarded=True, **told)

        return [
            Operation("GET", "/v1/health", "Tell that the service is there.", _health, answers={200: Health}),
            offered(
                "GET",
                "/v1/working-memory/",
                "List sessions.",
                self._list,
                query=Listing,
                answers={200: SessionList, **wrong},
            ),
            offered(
                "POST",
                f"{one}/messages",
                "Append messages to a session, or make it; those whose ids are known are not added again.",
                self._append,
                query=Reading,
                body=AppendMessages,
                answers={200: WorkingMemory, **changed},
            ),
            offered(
                "GET",
                one,
                "Read a session: whole, or as it fits a window.",
                self._get,
                query=Reading,
                answers={200: WorkingMemory, 404: Fault, **wrong},
            ),
            offered(
                "PUT",
                one,
                "Replace all that a session holds, or make it.",
                self._put,
                query=Reading,
                body=UpdateWorkingMemory,
                answers={200: WorkingMemory, **changed},
            ),
            offered(
                "DELETE", one, "Delete a session.", self._delete, query=Where, answers={200: Ack, **wrong}
            ),
            offered(
                "POST",
                "/v1/memory/prompt",
                "Make a prompt of a session and a query.",
                self._prompt,
                body=MemoryPrompt,
                answers={200: Prompt, 400: Fault, 413: Fault, 415: Fault, **wrong},
            ),
            offered(
                "GET",
                "/v1/memory/texts/{ref}",
                "Read a text that left a view of a session, by the 16 digits of its ref.",
                self._text,
                query=PromptSession,
                answers={200: Text, 404: Fault, **wrong},
            ),
        ]

    def no_others(self) -> list[Route]:
        """Return what answers beside the operations: none of it is the upstream's to see."""
        methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
        nothing = ("/v1/working-memory{rest:all}", "/v1/memory/{rest:all}")
        return [
            Route("/v1/working-memory", self._guarded(self._list), methods=["GET"]),
            Route("/v1/long-term-memory{rest:all}", self._guarded(_no_long_term), methods=methods),
            *(Route(path, self._guarded(_nothing), methods=methods) for path in nothing),
        ]

    def _guarded(self, answer: Handler) -> Handler:
        async def serve(request: Request) -> Response:
            if not may_read(request, self._token):
                return _fault(403, "memories are for this machine, or with the gateway's token")
            try:
                return await answer(request)
            except Refusal as refusal:
                return _fault(refusal.status, str(refusal))
            except NotCurrent as error:
                response = _fault(412, str(error))
                if error.version is not None:
                    response.headers["etag"] = f'"{error.version}"'
                return response
            except TooLarge:
                return _fault(413, f"the request holds more than {self._most:,} bytes")
            except OffloadNotFoundError as error:
                return _fault(404, str(error))
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                place = ".".join(map(str, first["loc"]))
                return _fault(422, f"{place}: {first['msg']}" if place else first["msg"])
            except (ContextOverflowError, InvalidMessageError) as error:
                return _fault(422, str(error))
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:
                logger.exception("%s %s failed", request.method, request.url.path)
                return _fault(503, f"the memory failed ({type(error).__name__}); try again")

        return serve

    async def _body(self, request: Request, kind: type[ModelT]) -> ModelT:
        # A page elsewhere cannot make a browser send this kind without being asked first whether it may.
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refusal(415, "expected a body of the type application/json")
        content = await read_body(request, self._most)
        try:
            said = json.loads(content, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise Refusal(422, f"the body is no JSON: {error}") from None
        return kind.model_validate(said)

    async def _list(self, request: Request) -> Response:
        asked = _query(request, Listing)
        names = await self._sessions.names(asked.namespace, asked.user_id)
        some = names[asked.offset : asked.offset + asked.limit]
        there = [one.session_id for one in some if await self._sessions.is_there(one)]
        return _json({"sessions": there, "total": len(names)})

    async def _get(self, request: Request) -> Response:
        asked = _query(request, Reading)
        return await self._session(_name(request, asked), asked)

    async def _session(self, name: Name, asked: Reading, *, was_written: bool = False) -> Response:
        session = None
        try:
            if asked.window is not None:
                session = await self._sessions.view(name, asked.window)
        except ContextOverflowError:  # what was written stays so, however little can be shown
            if not was_written:
                raise
        session = session or await self._sessions.read(name)
        if session is None:
            raise Refusal(404, f"Session {name.session_id} not found")
        return _answered(name, session, asked)

    async def _put(self, request: Request) -> Response:
        asked, said = _query(request, Reading), await self._body(request, UpdateWorkingMemory)
        name = _name(request, asked, said)
        record = Record(
            said.context or None,
            [one.model_dump(mode="json") for one in said.memories],
            said.data,
            said.long_term_memory_strategy.model_dump(),
            said.ttl_seconds,
        )
        await self._sessions.put(name, record, _dumped(said.messages), _condition(request))
        return await self._session(name, asked, was_written=True)

    async def _append(self, request: Request) -> Response:
        asked, said = _query(request, Reading), await self._body(request, AppendMessages)
        name = _name(request, asked)
        await self._sessions.append(name, _dumped(said.messages), _condition(request))
        return await self._session(name, asked, was_written=True)

    async def _delete(self, request: Request) -> Response:
        await self._sessions.delete(_name(request, _query(request, Where)))
        return _json({"status": "ok"})

    async def _prompt(self, request: Request) -> Response:
        said = await self._body(request, MemoryPrompt)
        if said.long_term_search:
            return await _no_long_term(request)
        if said.session is None:
            raise Refusal(400, "Either session or long_term_search must be provided")
        name = Name(said.session.session_id, said.session.namespace, said.session.user_id)
        found = await self._sessions.prompt(name, said.query, said.session.window)
        messages = [
            {
                "role": one["role"],
                "content": {"type": "text", "text": one["content"] or ""},
                **{name: one[name] for name in ("tool_calls", "tool_call_id") if name in one},
            }
            for one in found
        ]
        return _json({"messages": messages, "long_term_memories": None})

    async def _text(self, request: Request) -> Response:
        asked = _query(request, PromptSession)
        name = Name(asked.session_id, asked.namespace, asked.user_id)
        return _json({"text": await self._sessions.text(name, f"ctx://{request.path_params['ref']}")})


async def _health(_: Request) -> Response:
    return JSONResponse({"now": int(time.time() * 1000)})


async def _no_long_term(_: Request) -> Response:
    return _fault(400, "Long-term memory is disabled")


async def _nothing(request: Request) -> Response:
    return _fault(405, f"nothing is done by {request.method} here; /openapi.json says what is")


def _fault(status: int, detail: str) -> Response:
    return Response(as_json({"detail": detail}), status, media_type="application/json")


def _json(value: Any, **headers: str) -> Response:
    return Response(
        as_json(value), media_type="application/json", headers={"cache-control": "no-store", **headers}
    )


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is none of its numbers")


def _query(request: Request, kind: type[ModelT]) -> ModelT:
    return kind.model_validate(dict(request.query_params))


def _name(request: Request, *said: Where) -> Name:
    """Return the session that is meant; what is said first goes before."""
    session_id = request.path_params["session_id"]
    namespace = next((one.namespace for one in said if one.namespace), None)
    return Name(session_id, namespace, next((one.user_id for one in said if one.user_id), None))


def _condition(request: Request) -> Callable[[str | None], bool]:
    """Return whether a version of the session, None where there is none, is one that the request is for."""
    wanted, unwanted = (_tags(request.headers.get(name)) for name in ("if-match", "if-none-match"))

    def is_met(version: str | None) -> bool:
        def is_among(tags: list[str]) -> bool:
            return version is not None and ("*" in tags or version in tags)

        return (wanted is None or is_among(wanted)) and (unwanted is None or not is_among(unwanted))

    return is_met


def _tags(header: str | None) -> list[str] | None:
    if header is None:
        return None
    return [one.strip().removeprefix("W/").strip('"') for one in header.split(",")]


def _dumped(messages: list[Message]) -> list[Dict]:
    return [{**one.model_dump(mode="json", exclude_none=True), "content": one.content} for one in messages]


def _answered(name: Name, session: Session, asked: Reading) -> Response:
    record, window = session.record, asked.window
    share = None if window is None else min(100.0, 100.0 * session.tokens / window)
    written = datetime.fromtimestamp(record.written, UTC).isoformat()
    messages = session.messages[-(asked.recent_messages_limit or 0) :]
    said = {
        "messages": [{**one, "content": one["content"] or ""} for one in messages],
        "memories": record.memories,
        "data": record.data,
        "context": session.context,
        "user_id": name.user_id,
        "tokens": session.tokens,
        "session_id": name.session_id,
        "namespace": name.namespace,
        "long_term_memory_strategy": record.strategy or Strategy().model_dump(),
        "ttl_seconds": record.ttl_seconds,
        "last_accessed": written,
        "context_percentage_total_used": share,
        "context_percentage_until_summarization": share,
    }
    return _json(said, etag=f'"{record.version}"')
