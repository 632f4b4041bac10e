import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

_SERVER_FILES = {"web_protocol.py", "model_server.py", "replies.py", "policies.py"}


@pytest.fixture(autouse=True)
def quiet_sdk() -> None:
    """DashScope's logs a traceback for whatever it returns or raises."""
    logging.getLogger("dashscope").setLevel(logging.CRITICAL)


@pytest.fixture(autouse=True)
async def nothing_left_behind() -> AsyncIterator[None]:
    """Fail where a task of the server outlives it; those that the SDKs leave are not meant."""
    yield
    assert [task for task in asyncio.all_tasks() if _file_of(task) in _SERVER_FILES] == []


def _file_of(task: "asyncio.Task[object]") -> str:
    code = getattr(task.get_coro(), "cr_code", None)
    return Path(code.co_filename).name if code else ""
