"""The clients: what each is installed from, what it is set to, and how it is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.clients.task import REQUEST

FOLDER = Path(__file__).resolve().parent
INSTALLED = FOLDER.parents[1] / "build" / "clients"
NPM = INSTALLED / "npm"
AGENTS = FOLDER / "agents"
KEY = "sk-of-the-caller"


@dataclass(frozen=True)
class Client:
    """A client of a provider's API.

    Args:
        name: how it is called here.
        command: how it is started, given its base URL; the working directory is the task's folder.
        environment: `npm`, or the virtual environment that it needs.
        path: what its base URL has behind the host.
        settings: files of its home, given its base URL.
        upstream: what the provider's base URL has behind the host.
        variables: of its environment.
    """

    name: str
    command: Callable[[str], list[str]]
    environment: str = "npm"
    path: str = "/v1"
    settings: Callable[[str], Mapping[str, str]] = field(default=lambda _: {})
    upstream: str = "/v1"
    variables: Mapping[str, str] = field(default_factory=dict)


def _python(name: str, script: str, api: str, environment: str = "python", **others: str) -> Client:
    python = INSTALLED / environment / "bin" / "python"

    def command(url: str) -> list[str]:
        return [str(python), str(AGENTS / f"{script}.py"), url, REQUEST, api]

    return Client(name, command, environment, **others)


CLIENTS = {
    client.name: client
    for client in (
        _python("openai-python-chat", "openai_sdk", "chat"),
        _python("openai-python-chat-streamed", "openai_sdk", "chat-streamed"),
        _python("openai-python-responses", "openai_sdk", "responses"),
        _python("openai-python-responses-streamed", "openai_sdk", "responses-streamed"),
        _python("openai-python-dashscope", "openai_sdk", "chat-streamed", upstream="/compatible-mode/v1"),
        _python("anthropic-python", "anthropic_sdk", "messages", path="", upstream=""),
        _python("anthropic-python-streamed", "anthropic_sdk", "messages-streamed", path="", upstream=""),
    )
}
