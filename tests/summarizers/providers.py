"""The summarisers that ask a provider's model, each with what a test has to know of its wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from context_compressor.summarizers.dashscope import DashScopeSummarizer
from context_compressor.summarizers.openai import OpenAISummarizer
from tests.summarizers.support import request, user
from tests.support.model_server import ModelServer, Received

KEY = "secret-value-of-the-key"
GOOD = "## Goal\n- fix parse_date in src/utils/dates.py"
ASKED = request(user("Please fix parse_date in src/utils/dates.py."), max_tokens=100)


class Pauses:
    """Stands in for `asyncio.sleep`: notes the pauses and takes none."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@dataclass(frozen=True)
class Provider:
    """One of them."""

    name: str
    kind: Callable[..., Any]
    sdk: str
    default_model: str
    key_variable: str
    path: str
    url: Callable[[ModelServer], str]
    messages: Callable[[Received], Any]
    parameters: Callable[[Received], dict[str, Any]]

    def __str__(self) -> str:
        return self.name

    def make(self, server: ModelServer, **kw: Any) -> Any:
        made = self.kind("scripted", **{"base_url": self.url(server), "api_key": KEY, **kw})
        made._sleep = Pauses()
        return made


PROVIDERS = (
    Provider(
        name="openai",
        kind=OpenAISummarizer,
        sdk="openai",
        default_model="gpt-4o-mini",
        key_variable="OPENAI_API_KEY",
        path="/v1/chat/completions",
        url=lambda server: server.url,
        messages=lambda received: received.json["messages"],
        parameters=lambda received: received.json,
    ),
    Provider(
        name="dashscope",
        kind=DashScopeSummarizer,
        sdk="dashscope",
        default_model="qwen-plus",
        key_variable="DASHSCOPE_API_KEY",
        path="/api/v1/services/aigc/text-generation/generation",
        url=lambda server: server.dashscope_url,
        messages=lambda received: received.json["input"]["messages"],
        parameters=lambda received: received.json["parameters"],
    ),
)
