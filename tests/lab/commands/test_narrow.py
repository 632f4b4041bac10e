"""Terminals too narrow for a table: it may look different, but no name, ref or number is cut."""

import json

import pytest

from tests.cli.support import environment, run_process
from tests.lab.measure.support import says
from tests.offload.directories import DAY, put

ID = "3f0c5a54-9f5d-4b2c-8d2e-0123456789ab"


@pytest.fixture(params=[40, 80])
def columns(request, cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(request.param))
    return request.param


def shows(table: str, name: str) -> bool:
    """Tell whether a table shows a name: at one go, or in pieces below each other in its first column."""
    return name in table or name in "".join(line.split()[0] for line in table.splitlines() if line.strip())


def test_refs_names_and_numbers_of_compress(cli, columns, tmp_path, recorded):
    (tmp_path / "chat.json").write_text(json.dumps({"id": ID, "messages": recorded}))
    session = json.loads(cli("compress", "chat.json", "--budget", 8000, "--json").err)["sessions"][0]

    printed = cli("compress", "chat.json", "--budget", 8000, "-o", "small.json").err

    table, _, _ = printed.partition("Full texts")
    assert "…" not in table
    assert shows(table, ID)
    for ref in session["refs"]:
        assert ref in table
    for number in (session["tokens"], session["view_tokens"]):
        assert f"{number:,}" in table
    assert columns < 80 or max(map(len, table.splitlines())) <= columns


async def test_names_and_numbers_of_gc(cli, columns, tmp_path):
    await put(tmp_path / "store", f"{ID}-and-more", age_seconds=40 * DAY)

    table, _, rest = cli("gc", "store", "--max-age", "30d", "--dry-run").out.partition("store: ")

    assert "…" not in table
    assert shows(table, f"{ID}-and-more")
    for part in ("1,000", "40.0 d"):
        assert part in table
    assert "1 namespace, 1,000 bytes" in rest
    assert columns < 80 or max(map(len, table.splitlines())) <= columns


def test_numbers_of_replay(cli, columns, tmp_path):
    (tmp_path / "chat.json").write_text(json.dumps([says("user", "hi " * 5000), says("assistant", "ho")]))

    printed = cli("replay", "chat.json", "--budget", 123_456).out

    assert "…" not in printed
    assert "Budget 123,456 tokens" in " ".join(printed.split())
    for part in ("raw", "ours", "refused", "0.0 %", "5.0k", "1.00"):
        assert part in printed


def test_a_width_of_0_is_none(tmp_path):
    (tmp_path / "store").mkdir()

    ran = run_process("gc", "store", cwd=tmp_path, env=environment(COLUMNS="0"))

    assert (ran.returncode, ran.stderr) == (0, b"")
    assert len(ran.stdout) > 40
