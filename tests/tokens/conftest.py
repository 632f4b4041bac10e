from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from context_compressor.tokens import vocabularies
from context_compressor.tokens.tiktoken import TiktokenCounter


@pytest.fixture(scope="session")
def qwen() -> TiktokenCounter:
    return TiktokenCounter()


@pytest.fixture
def unloaded() -> Iterator[None]:
    """Forget the vocabularies that were read, before and after."""
    loaders = (vocabularies._load_qwen, vocabularies._load_openai)
    for loader in loaders:
        loader.cache_clear()
    yield
    for loader in loaders:
        loader.cache_clear()


@pytest.fixture
def dashscope_with(
    unloaded: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[bytes | None], None]:
    """Put a `dashscope` package with the given vocabulary file, or none, before the installed one."""

    def install(vocabulary: bytes | None) -> None:
        resources = tmp_path / "dashscope" / "resources"
        resources.mkdir(parents=True)
        (tmp_path / "dashscope" / "__init__.py").write_text("raise RuntimeError('must not be imported')")
        if vocabulary is not None:
            (resources / "qwen.tiktoken").write_bytes(vocabulary)
        monkeypatch.delitem(sys.modules, "dashscope", raising=False)
        monkeypatch.syspath_prepend(str(tmp_path))

    return install


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make every attempt to connect fail, and give tiktoken an empty cache folder, which is returned."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("tried to reach the network")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
    return folder
