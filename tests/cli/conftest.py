import pytest

from context_compressor.lab.commands.demo_agent import ScriptedSession
from tests.cli.support import Cli


@pytest.fixture
def cli(capsys, tmp_path, monkeypatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return Cli(capsys)


@pytest.fixture(scope="session")
def recorded() -> list[dict]:
    """A session of 14 turns, some 20,000 tokens."""
    return [message for step in ScriptedSession(14).steps() for message in step.messages]
