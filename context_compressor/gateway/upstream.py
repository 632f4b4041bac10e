"""What stands behind a gateway: how requests reach it, and how its answers and refusals come back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from functools import partial, reduce
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from context_compressor.errors import InvalidArgumentError, shown_url

Dict = dict[str, Any]
Headers = list[tuple[str, str]]

_HOP_BY_HOP = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
    )
)
"""Headers of one connection (RFC 9110, 7.6.1)."""
KEY_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
"""Headers with the caller's key."""
_LEAST_KEY = 8
"""Characters. What is shorter is none, and may stand in any text."""
_ANY = "latin-1"
"""Reads and writes any bytes of a header as they are."""
_OF_BODY = frozenset(("content-length", "content-encoding", "accept-encoding", "content-type"))
"""Headers of a body that is written anew."""


def passed_on(headers: Iterable[tuple[str, str]], *less: str) -> Headers:
    """Return the headers that go on to the other side, in their order.

    Args:
        headers: as they came.
        less: further names, in lower case, that do not.
    """
    kept = [(name.lower(), value) for name, value in headers]
    named = {
        part.strip().lower() for name, value in kept if name == "connection" for part in value.split(",")
    }
    gone = {*_HOP_BY_HOP, *named, "host", *less}
    if any(name == "transfer-encoding" for name, _ in kept):
        gone.add("content-length")  # does not hold beside it (RFC 9112, 6.3)
    return [(name, value) for name, value in kept if name not in gone]


def keys_in(headers: Iterable[tuple[str, str]]) -> list[str]:
    """Return the callers' keys in headers, bare."""
    found = (value.rpartition(" ")[2] for name, value in headers if name.lower() in KEY_HEADERS)
    return [key for key in found if len(key) >= _LEAST_KEY]


def as_json(value: Any, *, is_strict: bool = False) -> bytes:
    """Return JSON as it is sent; half a surrogate pair goes as it came, as an escape.

    Raises:
        ValueError: it is to be strict, and holds a number that JSON has not.
    """
    write = partial(json.dumps, separators=(",", ":"), allow_nan=not is_strict)
    try:
        return write(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return write(value).encode()


class Refused(Exception):
    """An answer of the upstream's that is no reply, or an error within its stream.

    It has the fields by which errors of the providers' SDKs are read (`is_overflow`, `limit_in`). What is
    logged and kept of it is its text, where keys that the upstream quotes are left out; the caller gets the
    body as it came.

    Attributes:
        status_code: of HTTP; 200 for an error within a stream.
        content: the body, or the stream's event, as it came.
        body: what it says of the error, where it is JSON.
    """

    def __init__(
        self, status_code: int, content: bytes, headers: Headers, *, keys: Iterable[str] = ()
    ) -> None:
        said: Any = None
        with suppress(ValueError):
            said = json.loads(content)
        inner = said.get("error", said) if isinstance(said, dict) else said
        self.status_code, self.content, self.headers = status_code, content, headers
        self.body = inner
        fields = inner if isinstance(inner, dict) else {}
        self.code, self.param = fields.get("code"), fields.get("param")
        message = str(fields.get("message") or inner or content[:2_000].decode(errors="replace"))
        self.message = reduce(lambda text, key: text.replace(key, "[key]"), keys, message)
        super().__init__(f"HTTP {status_code}: {self.message}")


class Unreachable(Exception):
    """The upstream did not answer, or nothing that can be read.

    Attributes:
        status_code: what the gateway answers: 504 where it took too long, else 502.
    """

    def __init__(self, message: str, status_code: int = 502) -> None:
        self.status_code = status_code
        super().__init__(message)

    @classmethod
    def by(cls, error: httpx.HTTPError) -> Self:
        """Return what an error of the network's comes to."""
        if isinstance(error, httpx.TimeoutException):
            return cls(f"the upstream did not answer in time: {error!r}", 504)
        if isinstance(error, httpx.DecodingError):
            return cls(f"the upstream's answer cannot be read: {error!r}")
        return cls(f"the upstream cannot be reached: {error!r}")


class Whole(Exception):
    """A whole answer to a request that asked for a stream: some servers know no streams.

    Attributes:
        reply: the answer.
        headers: with it.
    """

    def __init__(self, reply: Dict, headers: Headers) -> None:
        self.reply, self.headers = reply, headers
        super().__init__("the upstream answered in one piece")


class EventStream:
    """The events of a streamed answer (server-sent events), each as what its data says.

    Attributes:
        headers: of the answer.
        is_ended: whether a last line said so, as it does for chat completions.
    """

    def __init__(self, response: httpx.Response, keys: Iterable[str] = ()) -> None:
        self._response, self._keys = response, keys
        self.is_ended = False
        self.headers = passed_on(response.headers.multi_items(), *_OF_BODY)
        self._events = self._read()

    async def _read(self) -> AsyncIterator[Dict]:
        data: list[str] = []
        is_empty = True
        try:
            async for line in self._lines():
                if line.startswith("data:"):
                    data.append(line[5:].removeprefix(" "))
                elif not line and data:
                    text, data, is_empty = "\n".join(data), [], False
                    if text == "[DONE]":
                        self.is_ended = True
                        continue
                    said = _event(text)
                    if said.get("type") == "error" or (said.get("error") and "type" not in said):
                        raise Refused(200, text.encode(), [], keys=self._keys)
                    yield said
        except httpx.HTTPError as error:
            raise Unreachable.by(error) from error
        if is_empty:
            raise Unreachable(f"the upstream's answer is no stream of events ({_kind(self._response)})")

    async def _lines(self) -> AsyncIterator[str]:
        """Yield lines, and an empty one at the end. They end as lines of bytes do: JSON may hold U+2028."""
        rest = b""
        async for piece in self._response.aiter_bytes():
            lines = (rest + piece).splitlines(keepends=True)
            rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
            for line in lines:
                yield line.rstrip(b"\r\n").decode(errors="replace")
        for line in (*rest.splitlines(), b""):
            yield line.decode(errors="replace")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Dict:
        return await anext(self._events)

    async def close(self) -> None:
        """End the request."""
        await self._response.aclose()


def _event(text: str) -> Dict:
    try:
        said = json.loads(text)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise Unreachable("the upstream streamed what is no JSON object")
    return said


def _kind(response: httpx.Response) -> str:
    """Return what an answer says that it is."""
    said = response.headers
    told = [f"{name}: {said[name]}" for name in ("content-type", "content-encoding") if name in said]
    return ", ".join(told) or "no content-type"


async def _body_of(response: httpx.Response) -> bytes:
    """Return a whole body, and end the request.

    Raises:
        Unreachable: it did not come whole, or cannot be read.
    """
    try:
        return await response.aread()
    except httpx.HTTPError as error:
        raise Unreachable.by(error) from error
    finally:
        await response.aclose()


async def _whole(response: httpx.Response) -> tuple[Dict, Headers]:
    content = await _body_of(response)
    try:
        said = json.loads(content)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise Unreachable(f"the upstream's answer is no JSON object ({_kind(response)})")
    return said, passed_on(response.headers.multi_items(), *_OF_BODY)


class Upstream:
    """A provider's API, or what speaks like one, by its base URL.

    Args:
        url: as a client would be given it: "https://api.openai.com/v1", "https://api.anthropic.com".
        connect_seconds: for how long a connection may take.
        read_seconds: for how long it may say nothing.
        most: connections at a time.
        transport: in place of the network, for tests.

    Raises:
        InvalidArgumentError: the URL is none of HTTP.
    """

    def __init__(
        self,
        url: str,
        *,
        connect_seconds: float = 10.0,
        read_seconds: float = 600.0,
        most: int = 1_000,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise InvalidArgumentError(
                f"upstream: expected a base URL such as 'https://api.openai.com/v1', got {shown_url(url)!r}"
            )
        self.url = url.rstrip("/")
        self._has_path = bool(parts.path.strip("/"))
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(read_seconds, connect=connect_seconds),
            limits=httpx.Limits(max_connections=most, max_keepalive_connections=most),
            transport=transport,
            follow_redirects=False,
            # A caller keeps his cookies himself: none of his may go along with another's request.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        )

    def url_of(self, path: str) -> str:
        """Return where a path of the gateway's is: what stands behind its /v1, where the URL has a path."""
        return self.url + (path.removeprefix("/v1") if self._has_path else path)

    async def open(
        self, method: str, path: str, query: str, headers: Headers, content: Any
    ) -> httpx.Response:
        """Send a request on, and return the answer, whose body is still to be read.

        Raises:
            Unreachable: there is none.
        """
        url = self.url_of(path) + (f"?{query}" if query else "")
        given = httpx.Headers(headers, encoding=_ANY)
        request = self._client.build_request(method, url, headers=given, content=content)
        for name in {"accept", "accept-encoding", "user-agent"} - given.keys():
            del request.headers[name]  # whoever asks without them gets what is meant for him
        try:
            answer = await self._client.send(request, stream=True)
        except httpx.HTTPError as error:
            raise Unreachable.by(error) from error
        answer.headers.encoding = _ANY
        return answer

    async def ask(
        self, path: str, query: str, headers: Headers, body: Mapping[str, Any]
    ) -> tuple[Dict, Headers]:
        """Send a request, and return what it was answered, with the headers.

        Raises:
            Refused: it was answered with an error.
            Unreachable: it was not answered with JSON.
        """
        return await _whole(await self._post(path, query, headers, body))

    async def stream(self, path: str, query: str, headers: Headers, body: Mapping[str, Any]) -> EventStream:
        """Send a request whose answer is streamed.

        Raises:
            Refused: it was answered with an error.
            Unreachable: it was not answered.
            Whole: it was not streamed.
        """
        response = await self._post(path, query, headers, body)
        if response.headers.get("content-type", "").startswith("application/json"):
            raise Whole(*await _whole(response))
        return EventStream(response, keys_in(headers))

    async def _post(self, path: str, query: str, headers: Headers, body: Mapping[str, Any]) -> httpx.Response:
        sent = [
            *((name, value) for name, value in headers if name not in _OF_BODY),
            ("content-type", "application/json"),
            ("accept-encoding", self._client.headers["accept-encoding"]),
        ]
        content = as_json(body, is_strict=True)
        response = await self.open("POST", path, query, sent, content)
        if response.is_success:
            return response
        refused = await _body_of(response)
        came = passed_on(response.headers.multi_items(), *_OF_BODY)
        raise Refused(response.status_code, refused, came, keys=keys_in(headers))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()
