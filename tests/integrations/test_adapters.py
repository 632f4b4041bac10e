"""Every adapter that can be installed beside the others, as agents use it; `tests/apart` has the rest."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from agents import OpenAIChatCompletionsModel
from pydantic_ai.models.openai import OpenAIResponsesModel

from context_compressor.errors import InvalidArgumentError
from context_compressor.integrations import langchain, litellm, openai_agents, pydantic_ai
from tests.integrations.drivers import AgentScope, LangChain, LiteLLM, OpenAIAgents, PydanticAI, forget
from tests.support.behaviours import *  # noqa: F403  # the tests
from tests.support.behaviours import Rig

# What LiteLLM imports late warns of LiteLLM's own types.
pytestmark = pytest.mark.filterwarnings("ignore:Items? .* using the `ReadOnly` qualifier:UserWarning")

RIGS: list[Any] = [LangChain, PydanticAI, OpenAIAgents, LiteLLM, AgentScope]
RICH = [partial(LangChain, "responses/v1"), *RIGS[1:]]
"""With thoughts, where messages hold any."""
FURTHER = [LangChain, partial(LangChain, "v1"), partial(PydanticAI, OpenAIResponsesModel)]
FURTHER += [partial(OpenAIAgents, OpenAIChatCompletionsModel)]


@pytest.fixture(autouse=True)
async def callbacks() -> AsyncIterator[None]:
    """Leave no callbacks of LiteLLM's behind."""
    yield
    await forget()


@pytest.fixture(params=RIGS, ids=lambda one: one.__name__)
def rig(request: pytest.FixtureRequest) -> Rig:
    made: Rig = request.param()
    return made


@pytest.fixture(
    params=[*RICH, *(pytest.param(one, marks=pytest.mark.variants(0)) for one in FURTHER)],
    ids=lambda one: getattr(one, "__name__", None) or f"{one.func.__name__}, {one.args[0]}",
)
def rich_rig(request: pytest.FixtureRequest) -> Rig:
    made: Rig = request.param()
    return made


@pytest.mark.parametrize(
    ("adapter", "options", "text"),
    [
        (langchain, {"summarizer": "nobody:nothing"}, "summarizer: no model 'nobody:nothing'"),
        (pydantic_ai, {"summarizer": "no-such:model"}, "summarizer: Unknown model"),
        (openai_agents, {"summarizer": "gpt-5"}, "summarizer: no model 'gpt-5'"),
        (litellm, {"summarizer": {"api_base": "x"}}, "summarizer: a dict of arguments"),
        (pydantic_ai, {"key": "one"}, "key: expected a function of the RunContext, got str; to name one"),
        (openai_agents, {"key": "one"}, "key: expected a function of CallModelData, got 'one'"),
        (litellm, {"key": "one"}, "key: expected a function of keyword arguments, got 'one'"),
        (litellm, {"tools": True}, "tools: LiteLLM runs no tools"),
    ],
)
def test_what_one_adapter_refuses_is_named(adapter: Any, options: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(text)):
        adapter.Compression(**options)


def test_without_a_framework_its_extra_is_named() -> None:
    extras = {"langchain": "langchain", "pydantic_ai": "pydantic-ai", "litellm": "litellm"}
    extras |= {"openai_agents": "openai-agents", "agentscope.memory": "agentscope", "anthropic": "anthropic"}
    code = """
import importlib, sys
sys.modules |= dict.fromkeys(("langchain", "pydantic_ai", "litellm", "agents", "agentscope", "anthropic"))
for name in sys.argv[1:]:
    try:
        importlib.import_module("context_compressor.integrations." + name)
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code, *extras], capture_output=True, text=True, check=True)
    told = done.stdout.splitlines()
    for line, extra in zip(told, extras.values(), strict=True):
        assert f"pip install 'agent-context-compressor[{extra}]'" in line
