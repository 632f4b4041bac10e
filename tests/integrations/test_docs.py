"""What the guide says is so: its code runs, its links lead somewhere, and its one import is enough."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest
from agentscope.agent import ReActAgent
from agentscope.formatter import OpenAIChatFormatter
from agentscope.memory import InMemoryMemory
from agentscope.message import Msg

from context_compressor import CompressionConfig, from_openai
from context_compressor.integrations.agentscope import AgentScopeCompressedMemory
from context_compressor.laws.chat_rules import problems
from tests.integrations.messages import user
from tests.support.markdown import blocks

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "migrating-from-reme.md").read_text(encoding="utf-8")


async def test_its_code_runs_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And prints what stands there."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"old": InMemoryMemory()}
    for block in blocks("python", GUIDE):
        result = eval(compile(block, "guide", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.isawaitable(result):
            await result
    factor, trial = capsys.readouterr().out.split("\n", 1)
    assert f"  # {float(factor):.2f}" in GUIDE
    assert trial in blocks("text", GUIDE)
    agent = names["agent"]
    assert isinstance(agent, ReActAgent)
    assert agent.memory is names["memory"]
    assert len(agent.toolkit.get_json_schemas()) == 5
    assert await names["durable"].get_memory() == []
    await names["durable"].compressed.base.wrapped.close()
    await names["engine"].dispose()


def test_the_one_import_gives_a_class_with_the_arguments_of_reme() -> None:
    [diff] = blocks("diff", GUIDE)
    [line] = [line[1:] for line in diff.splitlines() if line.startswith("+")]
    names: dict[str, Any] = {}
    exec(line, names)
    parameters = list(inspect.signature(names["ReMeShortTermMemory"]).parameters)
    assert parameters[:9] == [
        "model",
        "reme_config_path",
        "working_summary_mode",
        "compact_ratio_threshold",
        "max_total_tokens",
        "max_tool_message_tokens",
        "group_token_threshold",
        "keep_recent_count",
        "store_dir",
    ]


async def test_chat_dicts_come_in_by_from_openai() -> None:
    dicts: list[dict[str, Any]] = [
        {"role": "user", "content": "Search."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"index": 0, "id": "c", "type": "function", "function": {"name": "search", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "found"},
    ]
    memory = AgentScopeCompressedMemory(base=InMemoryMemory())
    await memory.add(from_openai(dicts), allow_duplicates=True)
    sent = await OpenAIChatFormatter().format(await memory.get_memory())
    assert problems(sent) == []
    assert [msg["role"] for msg in sent] == ["user", "assistant", "tool"]
    assert all(type(msg) is Msg for msg in await memory.get_history())


async def test_it_is_entered_and_left_by_hand_as_remes_was() -> None:
    memory = AgentScopeCompressedMemory()
    await memory.__aenter__()
    await memory.add(user("hi"))
    await memory.__aexit__()
    assert await memory.size() == 1


def test_the_defaults_it_names_are_ours() -> None:
    config = CompressionConfig()
    assert f"{config.preview_tokens} tokens (`preview_tokens`)" in GUIDE
    assert f"max_total_tokens={config.max_total_tokens:_}" in GUIDE
    assert f"keep_recent_count={config.keep_recent_count}" in GUIDE


def test_it_is_shipped_and_linked() -> None:
    assert "docs/migrating-from-reme.md" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert '"docs"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
