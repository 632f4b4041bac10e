"""The clients: what each is installed from, what it is set to, and how it is started."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.clients.task import GO_ON, REQUEST

FOLDER = Path(__file__).resolve().parent
INSTALLED = FOLDER.parents[1] / "build" / "clients"
NPM = INSTALLED / "npm"
AGENTS = FOLDER / "agents"
WINDOW = 32_000
THEIR_LIMIT = 64_000
"""Tokens from which clients would compress by themselves: by the usage that they are told, they never do."""
KEY = "sk-of-the-caller"


@dataclass(frozen=True)
class Client:
    """A client of a provider's API.

    Args:
        name: how it is called here.
        command: how it is started, given its base URL; the working directory is the task's folder.
        going_on: how its last session is told to go on, where it keeps sessions.
        environment: `npm`, or the virtual environment that it needs.
        path: what its base URL has behind the host.
        settings: files of its home, given its base URL.
        upstream: what the provider's base URL has behind the host.
        window: tokens that its model takes.
    """

    name: str
    command: Callable[[str], list[str]]
    environment: str = "npm"
    path: str = "/v1"
    settings: Callable[[str], Mapping[str, str]] = field(default=lambda _: {})
    going_on: Sequence[str] = ()
    upstream: str = "/v1"
    window: int = WINDOW


def _python(name: str, script: str, api: str, environment: str = "python", **others: str) -> Client:
    python = INSTALLED / environment / "bin" / "python"

    def command(url: str) -> list[str]:
        return [str(python), str(AGENTS / f"{script}.py"), url, REQUEST, api]

    return Client(name, command, environment, **others)


def _javascript(name: str, script: str, api: str, **others: str) -> Client:
    def command(url: str) -> list[str]:
        return ["node", str(NPM / f"{script}.mjs"), url, REQUEST, api]

    return Client(name, command, **others)


def _codex(name: str) -> Client:
    def settings(url: str) -> dict[str, str]:
        config = f"""\
model = "gpt-5.5"
model_provider = "gateway"
model_auto_compact_token_limit = {THEIR_LIMIT}
approval_policy = "never"
sandbox_mode = "danger-full-access"

[model_providers.gateway]
name = "gateway"
base_url = "{url}"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
"""
        return {".codex/config.toml": config}

    run = [_bin("codex"), "exec"]
    going_on = [*run, "resume", "--last", GO_ON]
    return Client(name, lambda _: [*run, REQUEST], settings=settings, going_on=going_on)


def _opencode(name: str, package: str) -> Client:
    def settings(url: str) -> dict[str, str]:
        options = {"baseURL": url, "apiKey": "{env:OPENAI_API_KEY}"}
        limit = {"context": THEIR_LIMIT, "output": 8_000}
        models = {"a-model": {"name": "a-model", "limit": limit}}
        provider = {"npm": package, "name": "gateway", "options": options, "models": models}
        config = {"$schema": "https://opencode.ai/config.json", "provider": {"gateway": provider}}
        return {".config/opencode/opencode.json": json.dumps(config, indent=2)}

    run = [_bin("opencode"), "run", "--model", "gateway/a-model"]
    return Client(name, lambda _: [*run, REQUEST], settings=settings, going_on=[*run, "--continue", GO_ON])


def _bin(name: str) -> str:
    return str(NPM / "node_modules" / ".bin" / name)


def _claude_code(name: str) -> Client:
    def settings(url: str) -> dict[str, str]:
        variables = {"ANTHROPIC_BASE_URL": url, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        return {".claude/settings.json": json.dumps({"env": variables}, indent=2)}

    options = ["--model", "claude-sonnet-4-5", "--allowedTools", "Read,Bash"]
    run = [_bin("claude"), "-p"]
    going_on = [*run, "--continue", GO_ON, *options]
    return Client(
        name,
        lambda _: [*run, REQUEST, *options],
        path="",
        upstream="",
        settings=settings,
        going_on=going_on,
        window=2 * WINDOW,  # its instructions and tools alone take 26,000
    )


CLIENTS = {
    client.name: client
    for client in (
        _codex("codex"),
        _opencode("opencode-chat", "@ai-sdk/openai-compatible"),
        _opencode("opencode-messages", "@ai-sdk/anthropic"),
        _claude_code("claude-code"),
        _python("openai-python-chat", "openai_sdk", "chat"),
        _python("openai-python-chat-streamed", "openai_sdk", "chat-streamed"),
        _python("openai-python-responses", "openai_sdk", "responses"),
        _python("openai-python-responses-streamed", "openai_sdk", "responses-streamed"),
        _python("openai-python-dashscope", "openai_sdk", "chat-streamed", upstream="/compatible-mode/v1"),
        _python("anthropic-python", "anthropic_sdk", "messages", path="", upstream=""),
        _python("anthropic-python-streamed", "anthropic_sdk", "messages-streamed", path="", upstream=""),
        _javascript("openai-javascript-chat", "openai_sdk", "chat"),
        _javascript("openai-javascript-responses", "openai_sdk", "responses"),
        _javascript("anthropic-javascript", "anthropic_sdk", "messages", path="", upstream=""),
        _python("langchain-chat", "langchain_agent", "chat"),
        _python("langchain-responses", "langchain_agent", "responses"),
        _python("langchain-messages", "langchain_agent", "messages", path="", upstream=""),
        _python("langgraph", "langgraph_agent", "chat"),
        _python("deepagents", "deepagents_agent", "chat"),
        _python("openai-agents-chat", "openai_agents_agent", "chat"),
        _python("openai-agents-responses", "openai_agents_agent", "responses"),
        _python("pydantic-ai-chat", "pydantic_ai_agent", "chat"),
        _python("pydantic-ai-responses", "pydantic_ai_agent", "responses"),
        _python("pydantic-ai-messages", "pydantic_ai_agent", "messages", path="", upstream=""),
        _python("agentscope-1", "agentscope_agent", "chat", "agentscope"),
        _python("agentscope-2", "agentscope2_agent", "chat", "agentscope2"),
        _python("litellm-chat", "litellm_agent", "chat"),
        _python("litellm-messages", "litellm_agent", "messages", path="", upstream=""),
    )
}
