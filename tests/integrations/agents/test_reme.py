"""The long task with ReMe's operations behind the agent, and what a provider makes of its requests."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import PEERS
from tests.integrations.agents.depot import make_depots
from tests.integrations.agents.script import BUDGET, TURNS, WINDOW, LongTask
from tests.support.model_server import ModelServer, Received, Reply, answer
from tests.support.provider_tokens import count_request
from tests.support.rendering import faults_at, render_request

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.skipif(
    not PEERS["reme"].is_installed, reason="reme: not installed (python benchmarks/peers/make.py reme)"
)


class ReMeTask:
    """The long task's model; what asks without tools is ReMe, for a summary."""

    def __init__(self) -> None:
        self.task = LongTask()

    def __call__(self, messages: list[dict[str, Any]], received: Received) -> Reply:
        if received.tools:
            return self.task(messages)
        return answer("<state_snapshot>Logs were read one by one.</state_snapshot>")


async def run_with_reme(server: ModelServer, folder: Path, place: Path) -> str:
    """Run the agent in ReMe's environment until it ends, and return what it said last on standard error."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(place), "PYTHONUTF8": "1"}
    # Nothing was compiled when it was installed, so whoever imports it first is to keep the code.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    options = [server.dashscope_url, server.compatible_url, str(folder), str(TURNS + 5), str(BUDGET)]
    process = await asyncio.create_subprocess_exec(
        str(PEERS["reme"].python),
        str(Path(__file__).with_name("reme_agent.py")),
        *options,
        cwd=place,
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    return errors.decode()[-2_000:]


@pytest.mark.variants(0)
async def test_with_reme_behind_the_agent_a_request_has_results_without_their_call(tmp_path: Path) -> None:
    """Its window left open, the run ends there; in the window it would have been too long before."""
    folder, place = tmp_path / "depots", tmp_path / "reme"
    folder.mkdir()
    place.mkdir()
    async with ModelServer(ReMeTask()) as server:
        errors = await run_with_reme(server, make_depots(folder), place)
    assert server.refusals, errors
    refused = server.requests[-1]
    shown = render_request(refused)
    print(shown)
    orphans = [index for index in range(len(refused.messages)) if faults_at(index, refused.refused)]
    assert orphans, shown
    for index in orphans:
        called = {call["id"] for said in refused.messages for call in said.get("tool_calls") or []}
        assert refused.messages[index]["role"] == "tool", shown
        assert refused.messages[index]["tool_call_id"] not in called, shown
    too_long = [r for r in server.requests if count_request(r.messages, r.tools) > WINDOW]
    assert too_long, "every request would have fitted the window"
    print(render_request(too_long[0]))
    assert too_long[0].number < refused.number
