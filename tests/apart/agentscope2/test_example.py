"""The example, as its users run it, and the page about this."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import re
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from agentscope.agent import Agent

from tests.apart.agentscope2.support import ask, model_of
from tests.support.markdown import blocks
from tests.support.model_server import ModelServer, answer
from tests.support.replies import Reply
from tests.support.task import WINDOW
from tests.support.wires import Received

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "agentscope2_agent.py"
PAGE = (ROOT / "docs" / "agentscope2.md").read_text(encoding="utf-8")
FOLDER = Path(sysconfig.get_path("stdlib"), "asyncio")
FILES = sorted(str(path) for path in FOLDER.glob("*.py"))
TURNS = 40


class Script:
    """A model that reads file after file, and then what left its view."""

    def __init__(self) -> None:
        self.turn = 0
        self.found = ""

    def __call__(self, messages: list[dict[str, Any]], received: Received) -> Reply:
        if not received.tools:
            return answer("## Goal\n- Find out how callbacks are scheduled.")
        self.turn += 1
        if self.turn == 1:
            return answer(tool_calls=[("Glob", {"pattern": "*.py", "path": str(FOLDER)})])
        if self.turn < TURNS - 1:
            return answer("Next.", [("Read", {"file_path": FILES[self.turn % len(FILES)], "limit": 600})])
        if self.turn == TURNS - 1:
            return answer(tool_calls=[("grep_offloaded", {"pattern": "def call_soon_threadsafe"})])
        self.found = json.dumps(messages[-1])
        return answer("Callbacks wait in a queue.")


async def run(server: ModelServer) -> tuple[str, str]:
    environment = {**os.environ, "OPENAI_API_KEY": "test", "OPENAI_BASE_URL": server.url}
    options = [str(EXAMPLE), str(FOLDER), "How are callbacks scheduled?"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, *options, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe
    )
    printed, errors = await process.communicate()
    return printed.decode().strip(), errors.decode()


async def test_the_example_runs_in_the_window() -> None:
    script = Script()
    async with ModelServer(script, window_tokens=WINDOW) as server:
        printed, errors = await run(server)
        assert (printed, server.refusals) == ("Callbacks wait in a queue.", []), errors
    assert "def call_soon_threadsafe" in script.found


async def test_the_code_of_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ModelServer(lambda messages: answer("Good.")) as server, model_of(server) as model:
        names: dict[str, Any] = {"model": model, "toolkit": None}
        for block in blocks("python", PAGE):
            result = eval(compile(block, "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
            if inspect.isawaitable(result):
                await result
        assert isinstance(names["agent"], Agent)
        assert await ask(names["agent"], "Hello?") == "Good."
        assert names["stats"].view_tokens > 0
    assert re.search(r"^```python\n.*Compression", PAGE, re.DOTALL | re.MULTILINE)
