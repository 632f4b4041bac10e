"""The benchmark over recorded sessions, on a folder of two."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.programs import Program
from tests.lab.measure.support import call, result, says

ROOT = Path(__file__).parents[2]


def write_sessions(folder: Path) -> None:
    def session(turns: int) -> list:
        messages = [says("user", "Deliver the parcels.")]
        for n in range(turns):
            messages += [
                call(f"c{n}", "track", f'{{"parcel": "PX-{n:05}"}}'),
                result(f"c{n}", f"PX-{n + 1:05} next"),
            ]
        return messages

    lines = [json.dumps({"id": name, "messages": session(turns)}) for name, turns in (("a", 9), ("b/1", 3))]
    with gzip.open(folder / "parcels.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(lines))
    (folder / "shapes.jsonl").write_text(lines[0], encoding="utf-8")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "benchmarks/savings.py", *arguments],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
    )


def test_tables_and_json(tmp_path: Path) -> None:
    """A table for each budget with a row for each system, and the same as JSON; odd shapes are left out."""
    write_sessions(tmp_path)
    out = tmp_path / "out.json"
    done = run(
        "--data", str(tmp_path), "--budget", "300", "2000", "--json", str(out), "--turns", "--jobs", "2"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("2 sessions below · 12 turns") == 2
    rows = [line.split()[0] for line in done.stdout.splitlines() if line and "%" in line and "·" not in line]
    assert rows == ["raw", "sliding", "masking", "ours"] * 2
    told = json.loads(out.read_text())
    assert [group["totals"]["turns"] for group in told["groups"]] == [12] * 8
    assert {session["session"] for session in told["sessions"]} == {"parcels/a", "parcels/b/1"}
    assert sum(len(session["turns"]) for session in told["sessions"]) == 12 * 8


def test_what_is_told_stands_by_kind_where_there_are_probes(tmp_path: Path, program: Program) -> None:
    """Of the sessions' own and of sets beside them; without any there is no such column."""
    write_sessions(tmp_path)
    assert "told" not in program("savings", "--data", str(tmp_path), "--system", "raw").out
    sets = tmp_path / "sets"
    sets.mkdir()
    probe = {"kind": "value", "question": "Which is next?", "answer": "-", "keys": [["PX-00001"], ["next"]]}
    one = {"recording": "parcels.jsonl.gz", "line": 0, "cut": 17, "probes": [probe]}
    (sets / "a.json").write_text(json.dumps(one))
    out = tmp_path / "out"
    done = program(
        "savings", "--data", str(tmp_path), "--probes", str(sets), "--budget", "300",
        "--system", "raw", "sliding",
        "--results", str(out), "--json", str(tmp_path / "out.json"),
    )  # fmt: skip
    assert done.code == 0, done.err
    rows = [line.split() for line in done.out.splitlines()]
    assert ["raw", "100.0", "%", "(21-100)", "100", "%"] in rows
    assert ["sliding", "0.0", "%", "(0-79)", "0", "%"] in rows
    page = (out / "savings.md").read_text("utf-8")
    assert "told per 1,000 tokens" in page
    assert "| system | all (1) | value (1) |" in page
    told = json.loads((tmp_path / "out.json").read_text())
    assert [one["totals"]["told"]["told"] for one in told["groups"]] == [1, 0]
    (sets / "a.json").write_text(json.dumps({**one, "cut": 999}))
    done = program("savings", "--data", str(tmp_path), "--probes", str(sets))
    assert done.code == 2
    assert "a.json: probes[0].at: 999 is more than" in done.err


def test_sessions_and_systems_can_be_chosen(tmp_path: Path, program: Program) -> None:
    """By pattern, by tokens, by name; where nothing matches, the program says so and fails."""
    write_sessions(tmp_path)
    done = program("savings", "--data", str(tmp_path), "--sessions", "*/b/*", "--system", "ours", "--files")
    assert done.code == 0, done.err
    assert "1 sessions below · 3 turns" in done.out
    assert "sliding" not in done.out
    ended = run("--data", str(tmp_path), "--min-tokens", "100000")
    assert ended.returncode == 1
    assert "No sessions" in ended.stderr
