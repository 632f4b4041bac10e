"""Sessions to report on, small ones and hostile ones."""

import asyncio
from collections.abc import Sequence

from context_compressor.lab.measure import SYSTEMS, Chat, Probe, Recording, watch
from context_compressor.lab.measure.results import ReportData, SessionRun
from tests.lab.measure.support import call, result, says

HOSTILE = (
    "</pre></style></script><script>document.title = 'owned'; console.error('owned')</script>"
    "<img src=http://127.0.0.1:9/x onerror=alert(1)> {{ 7 * 7 }} {% endraw %} ]]> <!-- "
    "\x1b[31mred\x1b[0m \x00null \u202egnp.exe\u2066 \ud800 \x9b2J \u200f & &amp; '\" "
)


def session(turns: int, text: str = "", tool: str = "read_file") -> list[Chat]:
    """Return an agent that reads files of some thousand words, and names in the end what it read first."""
    messages = [says("system", f"Be brief. {text}"), says("user", f"Mend the import. {text}")]
    for turn in range(turns):
        words = " ".join(f"value_{turn}_{number}" for number in range(60 * (1 + turn % 5)))
        messages += [
            call(f"c{turn}", tool, f'{{"path": "src/file_{turn}.py"}}'),
            result(f"c{turn}", f"file src/file_{turn}.py holds {words}\n{text}"),
        ]
    return [*messages, says("assistant", "The culprit is value_0_7 in the first file, and value_1_100.")]


def make_probes(at: int, text: str = "") -> list[Probe]:
    """Return a probe that every view tells, and one that only the history does."""
    text = text.replace("\ud800", "")  # half a pair is no text that a probe may have
    return [
        Probe.model_validate({"at": at, "question": f"{question} {text}", "answer": f"{keys} {text}", **keys})
        for question, keys in (
            ("What is to be mended?", {"kind": "goal", "keys": [["import"]]}),
            ("Where is value_0_7?", {"kind": "value", "keys": [["src/file_0.py"], ["value_0_7"]]}),
        )
    ]


def run_session(
    messages: Sequence[Chat],
    name: str = "a session",
    *,
    budgets: Sequence[int] = (3_000,),
    systems: Sequence[str] = ("raw", "ours", "sliding"),
    probes: Sequence[Probe] = (),
) -> SessionRun:
    recording = Recording(messages, name=name, probes=probes)
    runs = [
        asyncio.run(watch(recording, SYSTEMS[system](budget, recording.counter), budget=budget))
        for budget in budgets
        for system in systems
    ]
    return SessionRun(
        name, f"{name}.jsonl", len(recording.messages), recording.total_tokens, tuple(runs), tuple(probes)
    )


def report_on(*sessions: SessionRun, **more: object) -> ReportData:
    replays = [run.replay for run in sessions[0].runs]
    settings: dict = {
        "budgets": tuple(dict.fromkeys(replay.budget for replay in replays)),
        "systems": tuple(dict.fromkeys(replay.system for replay in replays)),
        "asked_sessions": len(sessions),
        **more,
    }
    return ReportData(sessions=sessions, **settings)
