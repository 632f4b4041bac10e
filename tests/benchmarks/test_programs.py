"""The benchmarks as programs, each in its smallest form."""

import gzip
import importlib
import json
import os
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.sessions.catalogue import SAMPLES
from context_compressor.lab.measure import RequestChecker
from tests.benchmarks.programs import Program

pytestmark = pytest.mark.variants(0)

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


def write_samples(folder: Path, *ids: str) -> None:
    for sample in SAMPLES:
        if sample.id in ids:
            messages, probes = sample.record()
            line = json.dumps({"id": sample.id, "messages": messages, "probes": probes})
            (folder / f"{sample.id}.jsonl").write_text(line, encoding="utf-8")


def read_tables(printed: str) -> list[list[str]]:
    """Return the cells of every printed row, headers included."""
    lines = [line for line in printed.splitlines() if line.startswith("| ") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.variants(0)
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
    assert "pip install 'agent-context-compressor[report]'" in done.stderr
    check_results(tmp_path / "plain", "savings")
    assert not (tmp_path / "plain" / "savings.png").exists()


def test_previews(tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row for each kind of text, of recordings and of texts made there."""
    lines = "".join(f"{n}: the parcel of bay {n} waits for its van\n" for n in range(400))
    messages = [
        {"role": "user", "content": "Where do parcels go?"},
        {"role": "tool", "tool_call_id": "b", "content": lines},
        {"role": "assistant", "content": "I see: the parcel of bay 2 waits for its van."},
    ]
    with gzip.open(tmp_path / "parcels.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(json.dumps({"id": "a", "messages": messages}))
    done = run("benchmarks/previews.py", "--data", str(tmp_path), "--tokens", "200")
    assert done.returncode == 0, done.stderr
    assert "| text | 1 | 1 | 1.000 | 1.000 |" in done.stdout
    (tmp_path / "parcels.jsonl.gz").unlink()
    assert program("previews", "--data", str(tmp_path)).code == 2
    made = importlib.import_module("previews").made
    monkeypatch.setattr("previews.made", lambda rng: islice(made(rng), 50))  # of 200: ten of each kind
    printed = program("previews").out
    kinds = {line.split("|")[1].strip() for line in printed.splitlines()}
    assert kinds >= {"JSON", "HTML", "text", "text with errors", "all"}


@pytest.mark.variants(0)
def test_background(tmp_path: Path) -> None:
    """Calls and waits hang together, and too many waits are a failure."""
    write_session(tmp_path)
    out = tmp_path / "out"
    done = run(
        "benchmarks/background.py", "--data", str(tmp_path), "--min-tokens", "0", "--budget", "1500",
        "--call-seconds", "0.05", "--turn-seconds", "0.02", "--results", str(out),
    )  # fmt: skip
    data = check_results(out, "background")
    replays = {(one["way"], one["group"]): one for one in data["replays"]}
    prepared, in_line = replays["in background", "all"], replays["in line", "all"]
    assert prepared["calls"] == in_line["calls"] == 12
    assert in_line["waited"] == in_line["requests"] > 0
    assert in_line["longest_wait_seconds"] >= 0.05
    assert prepared["requests"] > 0
    assert done.returncode == (prepared["waited"] > 0.05 * 12), done.stderr


def test_overhead_shows_where_time_and_memory_go() -> None:
    """The first entries of cProfile and of tracemalloc."""
    done = run("benchmarks/overhead.py", "--profile", "--memory", "--turns", "30", "--top", "5")
    assert done.returncode == 0, done.stderr
    assert "encode_ordinary" in done.stdout
    assert len(re.findall(r"MB +[\d,]+ objects +\S+:\d+", done.stdout)) == 5


def test_growth(tmp_path: Path, program: Program) -> None:
    """A row for each size, that of a shorter session the same where it is the only one."""
    write_samples(tmp_path, "mending-1", "support-1")

    def measure(*sizes: str) -> tuple[list[list[str]], list[dict]]:
        done = program(
            "growth", "--data", str(tmp_path), "--budget", "2000", "--sizes", *sizes,
            "--orders", "2", "--every", "1000", "--results", str(tmp_path / "out"),
        )  # fmt: skip
        assert done.code == 0, done.err
        return read_tables(done.out), check_results(tmp_path / "out", "growth")["sizes"]

    (header, *rows), told = measure("12000", "6000")
    assert header[:4] == ["tokens", "turns", "events", "read for notes"]
    assert [row[0] for row in rows] == [f"{figures['tokens']:,}" for figures in told]
    short, long = told
    assert 5_000 < short["tokens"] <= 6_000
    assert 11_000 < long["tokens"] <= 12_000
    for name in ("turns", "events", "summary_input_tokens"):
        assert 0 < short[name] < long[name]
    assert long["view_tokens"] <= 2_000
    assert 0 < long["told"]["all"] <= 1
    assert long["facts"]["all"] == long["facts"]["below 50,000"] > short["facts"]["all"] > 0
    assert long["told"]["further"] is None
    (alone,) = measure("6000")[1]
    assert {**alone, "milliseconds_per_turn": 0} == {**short, "milliseconds_per_turn": 0}
    done = run("benchmarks/growth.py", "--data", str(tmp_path / "none"))  # the code is that of the process
    assert done.returncode == 1
    assert "No sessions" in done.stderr


def test_growth_cuts_between_exchanges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a session is cut, and a fact is planted, every call in it has its results right behind it."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import growth

    messages = next(sample for sample in SAMPLES if sample.id == "mending-1").record().messages
    for size in range(1_000, 9_000, 500):
        cut, planted = growth.join_sessions([messages, messages], size, 700)
        assert [cut.messages[at]["content"] for at, _ in planted] == [fact.text for _, fact in planted]
        assert 0 <= cut.total_tokens // 700 - len(planted) <= 3  # none between calls and their results
        assert cut.total_tokens <= size
        calls = [call["id"] for message in cut.messages for call in message.get("tool_calls") or ()]
        assert calls == [message["tool_call_id"] for message in cut.messages if message["role"] == "tool"]
        assert RequestChecker().check(cut.messages) == []


@pytest.mark.variants(0)
def test_retention(tmp_path: Path) -> None:
    """Sessions that begin, go on, delete, end and crash: within the quota, and nothing in use removed."""
    done = run(
        "benchmarks/retention.py", "--sessions", "100", "--days", "8", "--max-bytes", "300000",
        "--max-age-days", "2", "--open", "10", "--results", str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    days = check_results(tmp_path, "retention")["days"]
    assert sum(day["begun"] for day in days) == 100
    assert all(day["peak_bytes"] <= 300_000 for day in days)
    assert all(day["faults"] == [] for day in days)
    for what in ("removed", "crashed", "resumed", "resumed_without_texts", "refs"):
        assert sum(day[what] for day in days) > 0


def test_search(tmp_path: Path) -> None:
    write_samples(tmp_path, "chinese-1", "support-1")
    out = tmp_path / "out"
    done = run("benchmarks/search.py", "--data", str(tmp_path), "--tokens", "5000", "--results", str(out))
    assert done.returncode == 0, done.stderr
    data = check_results(out, "search")
    assert data["ranks"]["names"]["mrr_ours"] > 0.5
    assert data["ranks"]["Chinese"]["mrr_ours"] > data["ranks"]["Chinese"]["mrr_bm25"]
    assert data["evidence"] == {}
    assert "Evidence" not in done.stdout
    assert run("benchmarks/search.py", "--data", str(out)).returncode == 1
