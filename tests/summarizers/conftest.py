"""What the tests of every summariser that asks a provider's model begin with."""

from collections.abc import AsyncIterator

import pytest

from tests.summarizers.providers import PROVIDERS
from tests.support.model_server import ModelServer


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Nothing is said of keys, servers and proxies."""
    proxies = ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
    for name in (*proxies, "OPENAI_BASE_URL", *(provider.key_variable for provider in PROVIDERS)):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running
