"""The benchmarks as programs, each in its smallest form."""

import asyncio
import gzip
import json
import re
import sys
from pathlib import Path

import pytest

from benchmarks.sessions.catalogue import SAMPLES
from tests.benchmarks.programs import Program, Ran
from tests.lab.commands.test_examine import Caller
from tests.lab.measure.reports import session
from tests.support.model_server import ModelServer

ROOT = Path(__file__).parents[2]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with a small session of parcels, and two of the samples."""
    folder = tmp_path / "data"
    folder.mkdir()
    messages: list = [{"role": "user", "content": "Deliver the parcels."}]
    for n in range(12):
        function = {"name": "track", "arguments": json.dumps({"parcel": f"PX-{n:05}"})}
        call = {"id": f"c{n}", "type": "function", "function": function}
        text = f"PX-{n + 1:05} is next on the road. " * 20
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": text},
        ]
    bays = "".join(f"{n}: the parcel of bay {n} waits for its van\n" for n in range(400))
    messages[-1]["content"] = bays
    messages.append({"role": "assistant", "content": "I see: the parcel of bay 2 waits for its van."})
    lines = [{"id": "a", "messages": messages, "probes": []}]
    for sample in SAMPLES:
        if sample.id in ("chinese-1", "support-1"):
            said, probes = sample.record()
            lines.append({"id": sample.id, "messages": said, "probes": probes})
    for line in lines:
        (folder / f"{line['id']}.jsonl.gz").write_bytes(gzip.compress(json.dumps(line).encode()))
    return folder


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("transcripts --count 39 --seed 3", "39 damaged transcripts, 0 read wrongly"),
        ("savings --data {data} --budget 600 --results {out}", "ours"),
        ("scale --sessions 2 --turns 80 --messages 300 --results {out}", "turns/s"),
        ("overhead --profile --memory --turns 30 --top 5", "Ordered by: internal time"),
        ("previews --data {data} --tokens 200", "text | 1 | 1 | 1.000"),
        (
            "growth --data {data} --budget 2000 --sizes 6000 --orders 2 --every 1000 --results {out}",
            "read for",
        ),
        ("retention --sessions 60 --days 4 --max-bytes 300000 --open 10 --results {out}", "day"),
        ("search --data {data} --tokens 5000 --results {out}", "Chinese"),
    ],
)
def test_a_program_tells_and_writes_its_results(
    program: Program, data: Path, tmp_path: Path, line: str, told: str
) -> None:
    """They name the Python, but neither a day nor a place."""
    name, *arguments = line.format(data=data, out=tmp_path / "out").split()

    ran = program(name, *arguments)

    assert ran.code in (0, None), ran.err
    assert told in ran.out
    for file in (tmp_path / "out").glob(f"{name}.[jm][sd]*"):
        text = file.read_text("utf-8")
        assert ".".join(map(str, sys.version_info[:3])) in text
        assert str(ROOT) not in text
        assert str(tmp_path) not in text
        assert re.search(r"\b20\d\d-\d\d-\d\d\b", text) is None


def test_a_model_reads_and_grades_views_of_several_systems(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By questions that it wrote; a second run asks nothing again."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    line = json.dumps({"id": "long", "messages": session(40)})
    (tmp_path / "data.jsonl").write_text(line + "\n")

    async def run() -> tuple[Ran, int]:
        async with ModelServer(Caller(lambda _: [])) as server:
            line = (
                f"--data {tmp_path} --model m --base-url {server.url} --budget 3000 --cache {tmp_path}/cache"
            )
            line += f" --system sliding ours ours+tools --results {tmp_path}/out"
            done = await asyncio.to_thread(program, "examination", *line.split())
            asked = len(server.requests)
            again = await asyncio.to_thread(program, "examination", *line.split())
            assert (again.out, len(server.requests)) == (done.out, asked)
            return done, asked

    done, asked = asyncio.run(run())
    assert (done.code, done.err) == (0, "")
    assert asked <= 1 + 2 * 2 + 4 + 1  # the writer; a reader and a grader; a question each, and its grader
    rows = {row.split()[0]: row.split()[1] for row in done.out.splitlines()[1:]}
    assert float(rows["ours"]) >= float(rows["sliding"])
    assert "| ours+tools |" in (tmp_path / "out" / "examination.md").read_text(encoding="utf-8")
