"""How many lines of an example have to do with compression, as docs/adapters.md says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
RUN = "    result = await Runner.run(agent, task, max_turns=500"

BARE: dict[str, tuple[str, dict[str, str | None]]] = {
    "langchain_agent.py": (
        "LangChain",
        {
            "    compression = Compression(max_total_tokens=16_000)": None,
            '    agent = create_agent("openai:gpt-4o-mini", tools, middleware=[compression])': (
                '    agent = create_agent("openai:gpt-4o-mini", tools)'
            ),
        },
    ),
    "openai_agents_agent.py": (
        "OpenAI Agents",
        {
            "    c = Compression(max_total_tokens=16_000)": None,
            '    agent = Agent("Reader", model=c.model("gpt-5"), tools=[list_files, read_file, *c.tools])': (
                '    agent = Agent("Reader", model="gpt-5", tools=[list_files, read_file])'
            ),
            f"{RUN}, run_config=RunConfig(call_model_input_filter=c))": f"{RUN})",
        },
    ),
    "pydantic_ai_agent.py": (
        "pydantic-ai",
        {"    capabilities=[Compression(max_total_tokens=16_000)],": None},
    ),
    "agentscope_agent.py": (
        "AgentScope 1",
        {"        AgentScopeCompressedMemory(max_total_tokens=16_000, toolkit=toolkit),": None},
    ),
    "agentscope2_agent.py": (
        "AgentScope 2",
        {"        middlewares=[Compression(max_total_tokens=16_000)],": None},
    ),
    "openai_client.py": (
        "OpenAI, Anthropic",
        {"client = compressed(OpenAI(), max_total_tokens=16_000)": "client = OpenAI()"},
    ),
    "anthropic_client.py": (
        "OpenAI, Anthropic",
        {"client = compressed(Anthropic(), max_total_tokens=16_000)": "client = Anthropic()"},
    ),
    "dashscope_client.py": (
        "OpenAI, Anthropic",
        {"generation = compressed(Generation, max_total_tokens=16_000)": "generation = Generation"},
    ),
    "litellm_calls.py": (
        "LiteLLM",
        {"    litellm.callbacks = [Compression(max_total_tokens=16_000)]": None},
    ),
}
"""For each example, its row in the table, and what its lines are without compression; None: they go."""


@pytest.mark.parametrize("name", BARE)
def test_an_example_has_as_many_lines_of_glue_as_is_said(name: str) -> None:
    row, changed = BARE[name]
    lines = (ROOT / "examples" / name).read_text(encoding="utf-8").splitlines()
    assert len(lines) < 40
    [imported] = [line for line in lines if re.match(r"from context_compressor\S* import ", line)]
    without = {**changed, imported: None}
    assert [line for line in without if line not in lines] == []
    bare = [without.get(line, line) for line in lines]
    code = ast.parse("\n".join(line for line in bare if line is not None))
    names = {node.id for node in ast.walk(code) if isinstance(node, ast.Name)}
    left = {"Compression", "compressed", "AgentScopeCompressedMemory", "c"} & names
    assert left == set()
    [told] = re.findall(rf"^\| \[{re.escape(row)}.*\| (\d) \|$", TABLE, re.MULTILINE)
    assert int(told) == len(without)
