"""The benchmarks as programs, each in its smallest form."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


def check_results(folder: Path, name: str) -> dict:
    """Return what was written, which names the Python but neither a day nor a place."""
    data = json.loads((folder / f"{name}.json").read_text("utf-8"))
    page = (folder / f"{name}.md").read_text("utf-8")
    version = ".".join(map(str, sys.version_info[:3]))
    assert data["python"].endswith(version)
    assert f"{version}." in page
    for text in (json.dumps(data), page):
        assert str(ROOT) not in text
        assert str(folder) not in text
        assert re.search(r"\b20\d\d-\d\d-\d\d\b", text) is None
    return data


def write_session(folder: Path) -> None:
    messages: list = [{"role": "user", "content": "Deliver the parcels."}]
    for n in range(12):
        function = {"name": "track", "arguments": json.dumps({"parcel": f"PX-{n:05}"})}
        call = {"id": f"c{n}", "type": "function", "function": function}
        text = f"PX-{n + 1:05} is next on the road. " * 20
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": text},
        ]
    line = json.dumps({"id": "a", "kind": "parcels", "messages": messages})
    (folder / "parcels.jsonl").write_text(line, encoding="utf-8")


def test_scale(tmp_path: Path) -> None:
    """A row for each case, with figures that hang together."""
    done = run(
        "benchmarks/scale.py", "--sessions", "2", "--turns", "80", "--messages", "300",
        "--results", str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    side_by_side, alone = check_results(tmp_path, "scale")["cases"]
    assert (side_by_side["sessions"], side_by_side["messages_per_session"]) == (2, 162)
    assert (alone["sessions"], alone["messages_per_session"]) == (1, 300)
    assert alone["late_turn_microseconds"] > 0
    for case in (side_by_side, alone):
        assert case["events"] > 0
        assert 0 < case["longest_hold_seconds"] < case["seconds"]
        turns = case["turns_per_second"] * case["seconds"]
        assert round(turns) == case["sessions"] * case["messages_per_session"] // 2


def test_savings_results(tmp_path: Path) -> None:
    """Tables, data and a picture; without matplotlib, a sentence that says what to install."""
    write_session(tmp_path)
    out = tmp_path / "out"
    done = run(
        "benchmarks/savings.py", "--data", str(tmp_path), "--budget", "600", "1200", "--results", str(out)
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = check_results(out, "savings")
    assert {(one["budget"], one["system"]) for one in data["all"]} >= {(600, "raw"), (1200, "ours")}
    assert [one["session"] for one in data["sessions"]] == ["parcels/a"]
    page = (out / "savings.md").read_text("utf-8")
    assert page.count("## Budget") == 4
    blocked = tmp_path / "blocked"
    (blocked / "matplotlib").mkdir(parents=True)
    (blocked / "matplotlib" / "__init__.py").write_text("raise ImportError('no such thing')")
    path = [str(blocked), "benchmarks"]
    program = f"import sys; sys.path[:0] = {path!r}; import savings; sys.exit(savings.main())"
    done = run(
        "-c", program, "--data", str(tmp_path), "--budget", "600", "--results", str(tmp_path / "plain")
    )
    assert done.returncode == 0, done.stderr
    assert "context-compressor[report]" in done.stderr
    check_results(tmp_path / "plain", "savings")
    assert not (tmp_path / "plain" / "savings.png").exists()


def test_overhead_shows_where_time_and_memory_go() -> None:
    """The first entries of cProfile and of tracemalloc."""
    done = run("benchmarks/overhead.py", "--profile", "--memory", "--turns", "30", "--top", "5")
    assert done.returncode == 0, done.stderr
    assert "encode_ordinary" in done.stdout
    assert len(re.findall(r"MB +[\d,]+ objects +\S+:\d+", done.stdout)) == 5
