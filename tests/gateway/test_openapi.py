"""What the service says of itself in its OpenAPI document is so, whatever it is asked (Schemathesis)."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

pytest.importorskip("schemathesis", reason="Schemathesis is not installed")

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from context_compressor.gateway.app import APIS
from tests.gateway.served import serving
from tests.support.model_server import ModelServer

EXAMPLES = int(os.environ.get("OPENAPI_EXAMPLES", "3"))
"""Requests for each operation; `make openapi` sends two hundred."""
WELL = ["not_a_server_error"]
AS_SAID = [*WELL, "status_code_conformance", "content_type_conformance", "response_schema_conformance"]


async def test_no_request_fails_the_service() -> None:
    """Nothing is answered by a 5xx; what is the service's own is answered as its document says."""
    async with ModelServer(lambda _: "Well.") as server, serving(server) as served:
        await asyncio.to_thread(explore, served.address.root)


def explore(root: str) -> None:
    load_all_checks()
    schema = schemathesis.openapi.from_url(f"{root}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    proxied = {api.path for api in APIS}
    assert proxied | {"/metrics", "/v1/working-memory/{session_id}/messages"} <= {o.path for o in operations}
    for operation in operations:
        ask(root, operation, WELL if operation.path in proxied else AS_SAID)


def ask(root: str, operation: Any, names: list[str]) -> None:
    # Half of what is asked of sessions is of one, so that there is something in it.
    of_one = {"path_parameters": {"session_id": "s"}} if "{session_id}" in operation.path else {}
    kinds = [operation.as_strategy(), operation.as_strategy(**of_one)]
    if operation.body or operation.query:
        kinds.append(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    wanted = CHECKS.get_by_names(names)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=st.one_of(kinds))
    def send(case: Any) -> None:
        case.validate_response(case.call(base_url=root), checks=wanted)

    send()
