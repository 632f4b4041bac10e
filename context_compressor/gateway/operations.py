"""What is served, said once for routes and for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pydantic import BaseModel
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

Handler = Callable[[Request], Awaitable[Response]]
Dict = dict[str, Any]
_REFS = "#/components/schemas/{model}"


class _All(Convertor[str]):
    """The rest of a path, whatever is in it: `path` stops at a line break."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("all", _All())


@dataclass(frozen=True)
class Operation:
    """Something that a client can ask for.

    Args:
        method: of HTTP.
        path: with parameters as Starlette has them.
        says: one line on what it does.
        serve: answers it.
        query: of its query; None: it takes none.
        body: of its body, JSON: a model, or words on it; None: it takes none.
        answers: by status, of what kind each is: a model, or a media type.
        is_guarded: whether it is for this machine, and for whoever has the token.
    """

    method: str
    path: str
    says: str
    serve: Handler
    query: type[BaseModel] | None = None
    body: type[BaseModel] | str | None = None
    answers: Mapping[int, type[BaseModel] | str] = field(default_factory=dict)
    is_guarded: bool = False


def routes_of(operations: Iterable[Operation]) -> list[Route]:
    """Return the routes of operations, in their order."""
    return [Route(one.path, one.serve, methods=[one.method]) for one in operations]


def document(operations: Iterable[Operation]) -> Dict:
    """Return the OpenAPI document of operations."""
    schemas: Dict = {}
    paths: Dict = {}
    for one in operations:
        paths.setdefault(_plain(one.path), {})[one.method.lower()] = _told(one, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "context_compressor gateway", "version": _version()},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _version() -> str:
    try:
        return version("agent-context-compressor")
    except PackageNotFoundError:
        return "0"


def _plain(path: str) -> str:
    """Return a path as OpenAPI has it: without the kinds of its parameters."""
    return "/".join(
        f"{part.partition(':')[0]}}}" if part.startswith("{") and ":" in part else part
        for part in path.split("/")
    )


def _told(one: Operation, schemas: Dict) -> Dict:
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": kind, "minLength": 1} if kind == "string" else {"type": kind},
        }
        for name, kind in _in_path(one.path)
    ]
    if one.query is not None:
        said = one.query.model_json_schema(ref_template=_REFS)
        schemas.update(said.pop("$defs", {}))
        required = said.get("required", ())
        parameters += [
            {"name": name, "in": "query", "required": name in required, "schema": schema}
            for name, schema in said["properties"].items()
        ]
    answers = dict(one.answers) or {200: "application/json"}
    told: Dict = {
        "summary": one.says,
        "operationId": f"{one.method.lower()} {_plain(one.path)}",
        "responses": {str(status): _answer(kind, schemas) for status, kind in answers.items()},
    }
    if parameters:
        told["parameters"] = parameters
    if one.body is not None:
        told["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _schema(one.body, schemas)}},
        }
    if one.is_guarded:
        told["security"] = [{}, {"token": []}]
        told["responses"].setdefault(
            "403", _answer("application/json", schemas, "neither this machine nor the token")
        )
    return told


def _in_path(path: str) -> list[tuple[str, str]]:
    found = [part[1:-1].partition(":") for part in path.split("/") if part.startswith("{")]
    return [(name, "integer" if kind == "int" else "string") for name, _, kind in found]


def _answer(kind: Any, schemas: Dict, says: str = "") -> Dict:
    if isinstance(kind, str):
        return {"description": says or kind, "content": {kind: {}}}
    return {
        "description": says or kind.__doc__.partition("\n")[0],
        "content": {"application/json": {"schema": _schema(kind, schemas)}},
    }


def _schema(kind: Any, schemas: Dict) -> Dict:
    if isinstance(kind, str):
        return {"type": "object", "description": kind}
    said = kind.model_json_schema(ref_template=_REFS)
    schemas.update(said.pop("$defs", {}))
    schemas[kind.__name__] = said
    return {"$ref": _REFS.format(model=kind.__name__)}
