"""`examples/reme_sessions.py`, over `reme`: what `reme_files.py` had ReMe 0.2.0.6 write."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from agentscope.formatter import DashScopeChatFormatter

from benchmarks.peers import PEERS
from context_compressor.integrations.agentscope import AgentScopeCompressedMemory
from context_compressor.laws.chat_rules import problems
from tests.examples.test_examples import ROOT, example

REME_SESSIONS = example("reme_sessions")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return shutil.copytree(Path(__file__).with_name("reme"), tmp_path / "saved")


@pytest.fixture
def written_anew(tmp_path: Path) -> Path:
    if not PEERS["reme"].is_installed:
        pytest.skip("reme: not installed (python benchmarks/peers/make.py reme)")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "PYTHONUTF8": "1"}
    command = [PEERS["reme"].python, ROOT / "tests" / "integrations" / "agents" / "reme_files.py", tmp_path]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr[-2_000:]
    return tmp_path


def put_back(folder: Path, monkeypatch: pytest.MonkeyPatch, *, alone: bool = False) -> tuple[int, Any]:
    """Run the example on a folder or a file; return its exit code, and the memory's state that it wrote."""
    old, new = folder / "session.json", folder / "new" / "whole" / "session.json"
    paths = [*((old, new) if alone else (old.parent, new.parent)), folder / "files"]
    monkeypatch.setattr("sys.argv", ["reme_sessions.py", *map(str, paths)])
    before = old.read_bytes()
    code = REME_SESSIONS.main()
    assert old.read_bytes() == before
    with pytest.raises(SystemExit):  # never written over
        REME_SESSIONS.main()
    return code, json.loads(new.read_text(encoding="utf-8"))["agent"]["memory"]


@pytest.mark.parametrize("form", ["pairs", "messages alone"])
@pytest.mark.parametrize("where", ["saved", pytest.param("written_anew", marks=pytest.mark.variants(0))])
async def test_a_session_that_reme_saved_is_whole_again(
    where: str, form: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message once, in its place, though files name files, and a call and its result lie in two."""
    folder = request.getfixturevalue(where)
    if form == "messages alone":  # as AgentScope saved them before messages had marks
        path = folder / "session.json"
        session = json.loads(path.read_text(encoding="utf-8"))
        session["agent"]["memory"]["content"] = [one for one, _ in session["agent"]["memory"]["content"]]
        path.write_text(json.dumps(session), encoding="utf-8")
    code, state = put_back(folder, monkeypatch, alone=form == "pairs")
    assert code == 0
    memory = AgentScopeCompressedMemory()
    memory.load_state_dict(state)
    sent = await DashScopeChatFormatter().format(await memory.get_history())
    assert problems(sent) == []
    assert [one["role"] for one in sent] == ["user", "assistant", "tool", "assistant"] * 9
    for host in range(9):
        asked, called, found, told = sent[4 * host : 4 * host + 4]
        assert asked["content"] == f"Look at host {host}."
        [call] = called["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"host": host}
        lines = [f"02:{minute:02} host-{host} order {host * 100 + minute}" for minute in range(12)]
        assert found["content"] == "\n".join(lines)
        assert told["content"] == f"Host {host} is well."


def test_a_file_that_is_gone_is_named_and_its_place_stays(
    saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (saved / "files" / "call_7.txt").unlink()
    (saved / "files" / "chat-6_1.json").unlink()
    code, state = put_back(saved, monkeypatch)
    old = json.loads((saved / "session.json").read_text(encoding="utf-8"))["agent"]["memory"]["content"]
    assert code == 1
    new = saved / "new" / "whole" / "session.json"
    assert capsys.readouterr().err.splitlines()[:2] == [
        f"{new}: missing files/call_7.txt", f"{new}: missing files/chat-6_1.json"
    ]  # fmt: skip
    changed = [at for at, (one, now) in enumerate(zip(old, state["content"], strict=True)) if one != now]
    assert len(changed) == 1  # what is there is put back
