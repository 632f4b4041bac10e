"""The example agents, as their users run them, against a server that refuses what providers refuse.

A task of 32 turns with real tools, whose raw history passes 100,000 tokens; the model's window is 32,000, the
budget 16,000.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import runpy
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError

from context_compressor import TiktokenCounter
from tests.support.behaviours import IN_PLACE
from tests.support.model_server import ModelServer, answer
from tests.support.wires import Received

ROOT = Path(__file__).parents[2]


def example(name: str) -> Any:
    """Return a module of the examples' folder, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FILES_TOOLS = example("files_tools")
SCHEMAS, FileTools = FILES_TOOLS.SCHEMAS, FILES_TOOLS.FileTools
FOLDER = Path(sysconfig.get_path("stdlib"), "asyncio")
TURNS = 32
ENOUGH_TURNS = ["--max-turns", str(TURNS + 5)]
WINDOW = 32_000
APART = "You write the notes of an AI agent"
TASK = "Find out how asyncio's event loop schedules callbacks."


class Script:
    """A model that reads file after file, then looks up again what it no longer sees, then answers.

    It calls what it is offered: examples name their tools as their frameworks do.
    """

    def __init__(self) -> None:
        self.files = sorted(FOLDER.glob("*.py"))
        self.turn = 0
        self.found: str | None = None

    def __call__(self, messages: list[dict[str, Any]], received: Received) -> Any:
        if IN_PLACE in json.dumps(messages[-1]) or APART in json.dumps(received.json):
            return answer(
                "## Goal\n- Find out how asyncio's loop schedules callbacks.\n## Done\n- Files were read."
            )
        tools = [one.get("function") or one for one in received.tools]
        offered = {one["name"]: json.dumps(one) for one in tools}
        self.turn += 1
        if self.turn == 1 and "list_files" in offered:
            pattern = {"pattern": "*.py"} if "pattern" in offered["list_files"] else {}
            return answer(tool_calls=[("list_files", pattern)])
        if self.turn < TURNS - 2:
            path, reads = self.files[self.turn % len(self.files)], "read_file" in offered
            calls = [("read_file", {"path": path.name})] if reads else []
            if not reads:
                calls.append(("view_text_file", {"file_path": str(path)}))
            if self.turn % 5 == 0 and "search_files" in offered:
                calls.append(("search_files", {"pattern": "call_soon"}))
            return answer(f"Step {self.turn}: {path.name} comes next.", tool_calls=calls)
        if self.turn == TURNS - 2 and "grep_offloaded" in offered:
            self.found = ""
            return answer(tool_calls=[("grep_offloaded", {"pattern": "def call_soon_threadsafe"})])
        if self.found is not None:
            self.found = json.dumps(messages[-1])
        return answer("Callbacks wait in a queue that each iteration of the loop empties.")


async def run_example(name: str, server: ModelServer, *options: str) -> tuple[int, str, str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OPENAI_API_KEY": "test",
        "OPENAI_BASE_URL": server.url,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "ANTHROPIC_API_KEY": "test",
        "ANTHROPIC_BASE_URL": server.anthropic_url,
        "DASHSCOPE_API_KEY": "test",
        "DASHSCOPE_HTTP_BASE_URL": server.dashscope_url,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "examples" / name),
        str(FOLDER),
        TASK,
        *options,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode(), errors.decode()


AGENTS = {
    "openai_agent.py": [*ENOUGH_TURNS, "--stream"],
    "dashscope_agent.py": ENOUGH_TURNS,
    "openai_client.py": [],
    "dashscope_client.py": [],
    "anthropic_client.py": [],
    "langchain_agent.py": [],
    "pydantic_ai_agent.py": [],
    "openai_agents_agent.py": [],
    "litellm_calls.py": [],
    "agentscope_agent.py": [],
}
"""Examples that need a model, and options of theirs."""


@pytest.mark.variants(3)
@pytest.mark.parametrize("name", AGENTS)
async def test_an_agent_is_never_refused(name: str) -> None:
    """And reads back what had left its view, where the framework runs tools of ours."""
    script = Script()
    async with ModelServer(policy=script, window_tokens=WINDOW, enforce=True) as server:
        code, output, errors = await run_example(name, server, *AGENTS[name])
        assert (code, server.refusals) == (0, []), errors
        assert output.rstrip().endswith("Callbacks wait in a queue that each iteration of the loop empties.")
        assert "by the memory, not by the user" in json.dumps(server.requests[-1].json)
    assert script.turn >= TURNS - 2
    if name != "litellm_calls.py":  # which runs no tools
        assert "def call_soon_threadsafe" in str(script.found)
    assert "Unclosed" not in errors
    for tokens in re.findall(r"history ([\d,]+)", errors):
        assert int(tokens.replace(",", "")) > 100_000


@pytest.mark.variants(2)
@pytest.mark.parametrize("options", [[], ["--stream"]], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", ["openai_agent.py", "dashscope_agent.py"])
async def test_what_a_model_wrote_goes_back_with_its_calls(name: str, options: list[str]) -> None:
    """DeepSeek and Kimi refuse a request without what they reasoned, Gemini 3 one without its signature."""
    signed = {"google": {"thought_signature": "c2lnbmF0dXJl"}}
    async with ModelServer() as server:
        listing = ("list_files", {"pattern": "*.py"})
        server.script(
            answer(tool_calls=[listing], reasoning="What is there?", extra_content=signed),
            answer("Callbacks wait in a queue."),
        )
        code, output, errors = await run_example(name, server, *options)
        assert (code, output.strip()) == (0, "Callbacks wait in a queue."), errors
        last = server.requests[-1]
        [asked] = [m for m in last.messages if m["role"] == "assistant"]
        assert asked["reasoning_content"] == "What is there?"
        if name == "openai_agent.py":
            assert [call.get("extra_content") for call in asked["tool_calls"]] == [signed]
        if options and name == "openai_agent.py":
            # Else it says nothing of what it cost, and the memory would not learn what the schemas take.
            assert last.json["stream_options"] == {"include_usage": True}
        if options and name == "dashscope_agent.py":
            # Some models write pieces and nothing else; the SDK joins them.
            assert last.json["parameters"]["incremental_output"] is True


async def run_raw(client: AsyncOpenAI, messages: list[dict[str, Any]]) -> None:
    """Run the task with nothing around the list of messages."""
    tools = FileTools(FOLDER)
    for _ in range(TURNS):
        reply = await client.chat.completions.create(model="scripted", messages=messages, tools=SCHEMAS)
        said = reply.choices[0].message.model_dump(exclude_none=True)
        messages.append({"role": "assistant", "content": None, **said})
        for call in said["tool_calls"]:
            function = call["function"]
            result = tools.call(function["name"], json.loads(function["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


@pytest.mark.parametrize("wire", ["url", "compatible_url"])
async def test_the_same_run_without_the_wrapper_is_refused(wire: str) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": TASK}]
    async with ModelServer(policy=Script(), window_tokens=WINDOW, enforce=True) as server:
        async with AsyncOpenAI(base_url=getattr(server, wire), api_key="test", max_retries=0) as client:
            with pytest.raises(BadRequestError, match=r"maximum context length|input length"):
                await run_raw(client, messages)
        assert len(server.refusals) == 1
    assert TiktokenCounter().count_messages(messages) > WINDOW * 0.95


@pytest.fixture
def tools(tmp_path: Path) -> Any:
    """Tools over a folder, beside which stands a secret to which two links in it lead."""
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "note.txt").write_text("a note")
    (folder / "deep" / "page.txt").write_text("a page")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "up").symlink_to(tmp_path)
    return FileTools(folder)


def test_the_tools_stay_in_their_folder(tools: Any) -> None:
    assert tools.call("list_files", {"pattern": "*"}) == "deep/page.txt\nnote.txt"
    assert tools.call("list_files", {"pattern": "up/*"}) == ""
    assert tools.call("search_files", {"pattern": "secret|note"}) == "note.txt:1:a note"
    assert "is outside of the folder" in tools.call("read_file", {"path": "link.txt"})
    assert "is outside of the folder" in tools.call("read_file", {"path": "up/secret.txt"})


@pytest.mark.parametrize("pattern", ["../*", "deep/../../*", "/etc/*"])
def test_a_pattern_that_leads_out_of_the_folder_is_answered(tools: Any, pattern: str) -> None:
    assert "leads out of the folder; name files in it" in tools.call("list_files", {"pattern": pattern})


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("list_files", {"pattern": "/"}),
        ("list_files", {"pattern": 5}),
        ("list_files", []),
        ("read_file", {"path": "no\0name"}),
        ("search_files", {"pattern": "a{99999999999999999999}"}),
        ("search_files", {}),
    ],
)
def test_whatever_a_model_asks_for_is_answered(tools: Any, name: str, arguments: Any) -> None:
    assert "Error: " in tools.call(name, arguments)


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes on Linux")
def test_names_that_cannot_be_printed_are_escaped(tools: Any) -> None:
    for name in (b"caf\xe9.txt", b"two\nlines.txt"):
        Path(os.fsdecode(os.fsencode(tools.folder) + b"/" + name)).write_text("coffee")

    assert tools.call("list_files", {"pattern": "*s.txt"}) == "two\\nlines.txt"
    found = tools.call("search_files", {"pattern": "coffee"})
    assert found == "caf\\udce9.txt:1:coffee\ntwo\\nlines.txt:1:coffee"
    found.encode()  # a request is UTF-8


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai_agent.py", "OPENAI_API_KEY"),
        ("dashscope_agent.py", "DASHSCOPE_API_KEY"),
        ("langchain_agent.py", "OPENAI_API_KEY"),
    ],
)
def test_without_a_key_they_say_which(
    name: str, variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(variable, raising=False)
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.setattr(sys, "argv", [name, ".", "task"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    assert ended.value.code == 2
    assert variable in capsys.readouterr().err
