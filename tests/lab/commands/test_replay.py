import gzip
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from context_compressor import TiktokenCounter
from context_compressor.integrations.observed import Observer, writer
from context_compressor.lab.commands import replay_parallel
from context_compressor.lab.measure import watch
from context_compressor.messages.anthropic import to_anthropic
from context_compressor.messages.chat import from_openai
from context_compressor.messages.forms import as_form
from tests.cli.support import environment, run_process, start_process
from tests.lab.measure.reports import session
from tests.lab.measure.support import says


@pytest.fixture(scope="module")
def messages() -> list[dict]:
    return session(30)


@pytest.fixture
def folder(tmp_path, messages):
    """A directory with a session in a file, two in a gzipped one below, and a file that is no session."""
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "one.json").write_text(json.dumps(messages))
    lines = [json.dumps({"id": name, "messages": session(count)}) for name, count in (("b", 12), ("c", 8))]
    (tmp_path / "in" / "deep" / "two.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    (tmp_path / "in" / "notes.txt").write_text("no session")
    return tmp_path / "in"


def test_table_of_a_file(cli, tmp_path, messages):
    (tmp_path / "chat.json").write_text(json.dumps(messages))

    ran = cli("replay", "chat.json", "--budget", 3000, "--baseline", "sliding")

    assert (ran.code, ran.err) == (0, "")
    assert "Budget 3,000 tokens: 1 session, 31 turns" in ran.out
    assert [line.split()[0] for line in ran.out.splitlines()[4:7]] == ["raw", "ours", "sliding"]
    assert "own model written 1,200 tokens" in " ".join(ran.out.split())


def test_what_is_written_at_an_event_can_be_said(cli, tmp_path, messages):
    """The cost in place grows by five for each token and event; all else stays."""
    (tmp_path / "chat.json").write_text(json.dumps(messages))
    told = [
        json.loads(cli("replay", "chat.json", "--budget", 3000, "--json", "--edit-tokens", n).out)
        for n in (800, 1600)
    ]
    assert [one["edit_tokens"] for one in told] == [800, 1600]
    costs = [one["totals"][1]["cost"] for one in told]
    turns = told[0]["sessions"][0]["runs"][1]["turns"]
    events = sum(turn["in_place_output_tokens"] == 800 for turn in turns)
    assert costs[1]["in_place"] - costs[0]["in_place"] == pytest.approx(5 * 800 * events)
    assert events > 0
    assert costs[0]["as_if_model"] == costs[1]["as_if_model"]
    assert cli("replay", "chat.json", "--edit-tokens", 0).code == 2


@pytest.fixture(scope="module")
def observed(tmp_path_factory) -> Path:
    """A folder with three sessions, and a log of the requests in which they were sent."""
    folder = tmp_path_factory.mktemp("observed")
    observer = Observer(folder / "log.jsonl", TiktokenCounter(), as_form("chat"))
    sessions = [session(turns, name) for turns, name in ((14, "a"), (9, "b"), (11, "c"))]
    (folder / "whole.jsonl").write_text("\n".join(json.dumps({"messages": one}) for one in sessions))
    for messages in sessions:
        for place in (n for n, one in enumerate(messages) if one["role"] == "assistant"):
            observer.note(lambda sent=messages[:place]: sent)
    writer().submit(int).result()
    return folder


def test_a_log_of_sizes_tells_what_the_sessions_would_and_which_budget_to_take(cli, observed):
    """Turns and history are the same; views and costs are near; the interval is over sessions, by a seed."""
    options = ("--budget", 2000, "--budget", 3500, "--jobs", 1, "--json")
    by_log, whole = (
        json.loads(cli("replay", observed / name, *options).out) for name in ("log.jsonl", "whole.jsonl")
    )
    for of_log, of_words in zip(by_log["totals"], whole["totals"], strict=True):
        assert of_log["turns"] == of_words["turns"]
        assert of_log["raw_tokens"] == pytest.approx(of_words["raw_tokens"], rel=0.005)
        assert of_log["saved"] == pytest.approx(of_words["saved"], abs=0.03)
        ratios = (one["cost"]["in_place_ratio"] for one in (of_log, of_words))
        assert next(ratios) == pytest.approx(next(ratios), rel=0.1)
    advice = by_log["advice"]
    assert advice["sessions"] == 3
    assert all(one["low"] < one["cost"] < one["high"] for one in advice["choices"])
    chosen = next(one for one in advice["choices"] if one["budget"] == advice["budget"])
    assert whole["advice"]["budget"] == chosen["budget"]


def test_of_one_session_no_interval_is_told(cli, tmp_path, messages):
    (tmp_path / "chat.json").write_text(json.dumps(messages))
    ran = cli("replay", "chat.json", "--budget", 3000, "--budget", 5000)
    out = " ".join(ran.out.split())
    assert "Take max_total_tokens=" in out
    assert "of one session no interval can be told" in out


@pytest.mark.parametrize(
    ("budgets", "turns", "says"),
    [
        ((3_000, 60_000), (30,), "Take max_total_tokens=3000: in place, 0."),
        ((60_000, 90_000), (30,), "These sessions gain nothing at any of these budgets that fits"),
        ((3_000, 5_000), (30, 2), "These sessions do not show that any of these budgets is cheaper"),
    ],
)
def test_no_budget_is_recommended_at_which_nothing_is_gained(cli, tmp_path, budgets, turns, says):
    """One at which nothing leaves is passed over; that none gains, or is shown to, is said first."""
    (tmp_path / "in.jsonl").write_text("\n".join(json.dumps({"messages": session(n)}) for n in turns))
    options = [part for budget in budgets for part in ("--budget", budget)]
    ran = cli("replay", "in.jsonl", *options, "--jobs", 1)
    assert says in " ".join(ran.out.split())


@pytest.mark.parametrize(
    ("provider", "option", "fresh"),
    [
        ("openai", None, 1.0),
        ("openai", "--cache-writes", 1.25),
        ("anthropic", None, 1.25),
        ("anthropic", "--no-cache-writes", 1.0),
    ],
)
def test_what_is_written_to_the_cache_costs_what_the_provider_bills(
    cli, tmp_path, messages, provider, option, fresh
):
    """Costs and the foot follow; the foot says what the history costs, and whose instructions are missing."""
    if provider == "anthropic":
        messages = to_anthropic(from_openai(messages[1:]))
    (tmp_path / "chat.json").write_text(json.dumps(messages))
    options = ("replay", "chat.json", "--budget", 3000, "--jobs", 1, *([option] if option else []))
    out = " ".join(cli(*options).out.split())
    told = json.loads(cli(*options, "--json").out)
    raw, ours = told["totals"]
    assert told["sessions"][0]["runs"][1]["prices"]["fresh"] == fresh
    assert (ours["cost"] == ours["cost_with_cache_writes"]) is (fresh == 1.25)
    assert f"is the price of {raw['cost']['raw']:,.0f} input tokens" in out
    assert ("counts 1.25, as Anthropic" in out) is (fresh == 1.25)
    assert ("No system prompt is in 1 session" in out) is (provider == "anthropic")


def test_a_log_of_sizes_is_no_transcript_to_compress_or_examine(cli, observed, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    for command in (("compress",), ("examine", "--model", "m", "--yes")):
        ran = cli(*command, observed / "log.jsonl")
        assert (ran.code, "has sizes and no words; replay reads it" in ran.err) == (2, True)


PROBE = {
    "kind": "value",
    "question": "Where is value_0_7?",
    "answer": "-",
    "keys": [["value_0_7"], ["file_0"]],
}


def test_probes_of_a_session_and_of_a_folder_are_put_to_views(cli, tmp_path, messages):
    """Those that a session brings and those of a set are counted together, by kind."""
    at = len(messages) - 1
    line = {"id": "a", "messages": messages, "probes": [{**PROBE, "at": at, "kind": "artifact"}]}
    (tmp_path / "chat.jsonl").write_text(f"{json.dumps(line)}\n{json.dumps(messages)}\n")
    (tmp_path / "sets").mkdir()
    for name, number, recording in (("x", 1, "chat.jsonl"), ("y", 0, "other.jsonl")):
        one = {"recording": recording, "line": number, "cut": at, "probes": [PROBE]}
        (tmp_path / "sets" / f"{name}.json").write_text(json.dumps(one))

    ran = cli(
        "replay", "chat.jsonl", "--budget", 3000, "--baseline", "sliding", "--probes", "sets", "--jobs", 1
    )
    told = json.loads(cli("replay", "chat.jsonl", "--probes", "sets", "--json", "--jobs", 1).out)

    assert ran.code == 0
    assert "skipped: sets/y.json: is of line 0 of other.jsonl (from 0), which was not read" in ran.err
    rows = [line.split() for line in ran.out.splitlines()]
    assert next(row for row in rows if row[:1] == ["all"])[1:4:2] == ["2", "%"]
    assert next(row[1:3] for row in rows if row[:1] == ["artifact"]) == ["1", "100.0"]
    assert next(row for row in rows if row[:1] == ["value"])[-2:] == ["0.0", "%"]
    assert "writes some" not in ran.out
    assert [one["told"]["probes"] for one in told["totals"]] == [2, 2]
    assert all(0 < one["fill"] <= 1 for one in told["totals"] if one["fill"] is not None)
    assert [one["probes"] for one in told["sessions"]] == [1, 1]
    assert told["sessions"][0]["runs"][0]["asked"][0]["told"] is True


def test_without_probes_replay_says_how_to_make_some(cli, tmp_path, messages):
    (tmp_path / "chat.json").write_text(json.dumps(messages))
    ran = cli("replay", "chat.json", "--budget", 3000)
    assert "no session has questions (probes)." in ran.out
    assert "Told" not in ran.out


@pytest.mark.parametrize(
    ("probes", "message"),
    [
        ([{**PROBE, "at": 3, "keys": []}], "chat.json: probes[0].keys: "),
        ([{**PROBE, "at": 3_000}], "chat.json: probes[0].at: 3000 is more than"),
        ({}, "chat.json: probes: "),
    ],
)
def test_malformed_probes_are_refused(cli, tmp_path, messages, probes, message):
    """Naming file and field, before anything is replayed."""
    (tmp_path / "chat.json").write_text(json.dumps({"messages": messages, "probes": probes}))
    ran = cli("replay", "chat.json")
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_malformed_sets_are_refused(cli, tmp_path, messages):
    (tmp_path / "chat.json").write_text(json.dumps(messages))
    (tmp_path / "sets").mkdir()
    assert "--probes sets: holds no probes" in cli("replay", "chat.json", "--probes", "sets").err
    (tmp_path / "sets" / "x.json").write_text(
        json.dumps({"recording": "chat.json", "cut": 3, "probes": [{}]})
    )
    assert "--probes sets/x.json: probes[0].kind: " in cli("replay", "chat.json", "--probes", "sets").err
    (tmp_path / "sets" / "x.json").write_text(json.dumps({"recording": "a", "cut": 3, "probes": []}))
    assert "none of 1 probe sets is of a session" in cli("replay", "chat.json", "--probes", "sets").err


def test_directory_is_walked_in_processes_and_told_as_json(cli, folder):
    """Two processes find what one finds; what is no session is named, and is no failure."""
    told = []
    for jobs in (2, 1):
        ran = cli("replay", folder, "--budget", 3000, "--budget", 6000, "--jobs", jobs, "--json")
        assert ran.code == 0
        assert "notes.txt" in ran.err
        told.append(json.loads(ran.out))

    assert [one["name"] for one in told[0]["sessions"]] == ["one.json", "b", "c"]
    assert [(one["budget"], one["system"]) for one in told[0]["totals"]] == [
        (budget, system) for budget in (3000, 6000) for system in ("raw", "ours")
    ]
    ours = [one["sessions"][0]["runs"][1] for one in told]
    assert ours[0]["events"][0]["turn"] > 1
    assert ours[0]["stand_ins"][0]["refs"][0].startswith("ctx://")
    views = [[turn["view_tokens"] for turn in run["turns"]] for run in ours]
    assert views[0] == views[1]


def test_report_and_pictures(cli, folder):
    pytest.importorskip("matplotlib", reason="needs the extra `report`")

    ran = cli("replay", folder, "--report", "out.html", "--png", "pictures/all", "--quiet", "--jobs", 1)

    assert (ran.code, ran.out) == (0, "")
    page = (folder.parent / "out.html").read_text(encoding="utf-8")
    assert page.count('<details class="session"') == 3
    assert "notes.txt" in page
    assert sorted(path.name for path in (folder.parent / "pictures" / "all").iterdir()) == [
        "01-one.json-cost-16000.png",
        "01-one.json-tokens-16000.png",
        "02-b-cost-16000.png",
        "02-b-tokens-16000.png",
        "03-c-cost-16000.png",
        "03-c-tokens-16000.png",
        "systems-16000.png",
    ]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_what_was_found_is_told_although_the_report_cannot_be_written(cli, folder):
    pytest.importorskip("matplotlib", reason="needs the extra `report`")

    ran = cli("replay", folder / "one.json", "--report", "/dev/full")

    assert ran.code == 2
    assert "--report /dev/full: cannot be written: No space left on device" in ran.err
    assert "Budget 16,000 tokens: 1 session" in ran.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: there is no such file or directory"),
        (
            ["-"],
            "-: there is no such file or directory; stdin is not read, save what comes there to a file",
        ),
        (["in/notes.txt"], "in/notes.txt, line 1, column 1: invalid JSON: Expecting value"),
        (["in", "--baseline", "best"], "--baseline best: there is no such baseline; known: raw, sliding"),
        (["in", "--baseline", "ours"], "--baseline ours: there is no such baseline; known: raw, sliding"),
        (["in", "--budget", "0"], "max_total_tokens"),
        (["in", "--report", "in"], "--report in: is a directory"),
        (["in", "--report", "no/out.html"], "--report no/out.html: there is no directory no"),
        (["in", "--png", "in/one.json"], "--png in/one.json: is not a directory"),
        (["in", "--jobs", "0"], "Invalid value for '--jobs'"),
        ([], "PATH..."),
    ],
)
def test_what_cannot_be_done(cli, folder, arguments, message):
    ran = cli("replay", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


@pytest.mark.parametrize(("option", "missing"), [("--report", "jinja2"), ("--png", "matplotlib")])
def test_without_the_extra(cli, folder, monkeypatch, option, missing):
    """Nothing is replayed before the user learns what to install."""
    for name in [name for name in sys.modules if name.startswith("context_compressor.lab.measure.")]:
        if not name.endswith(".results"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)

    ran = cli("replay", folder, option, "out")

    assert (ran.code, ran.out) == (2, "")
    assert f"{option} needs the extra report: pip install 'agent-context-compressor[report]'" in ran.err
    assert missing in ran.err


def test_sessions_that_fail_are_named_and_the_rest_goes_on(cli, tmp_path, messages, monkeypatch):
    lines = [
        {"id": "good", "messages": messages},
        {"id": "bad", "messages": [says("user", "hi"), says("assistant", "ho")]},
        {"id": "mute", "messages": [says("user", "hi")]},
        {"id": "malformed", "messages": [says("user", "hi"), {"role": "tool"}, says("assistant", "ho")]},
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)))

    def fail(recording, system, **more):
        if recording.name.startswith("bad"):
            raise ZeroDivisionError("by \x1b[31mzero")
        return watch(recording, system, **more)

    monkeypatch.setattr(replay_parallel, "watch", fail)

    ran = cli("replay", "in.jsonl", tmp_path / "in.jsonl", "--json", "--jobs", 1)

    assert ran.code == 1
    told = json.loads(ran.out)
    assert [one["name"] for one in told["sessions"]] == ["good", f"good ({tmp_path}/in.jsonl, line 1)"]
    assert {one["name"].split(" ")[0] for one in told["failed"]} == {"bad"}
    assert "failed: bad: ZeroDivisionError: by \\x1b[31mzero" in ran.err
    assert "skipped: mute: has no assistant message" in ran.err
    assert "skipped: in.jsonl, line 4: " in ran.err


def test_a_session_of_which_no_turn_fits_has_failed(cli, tmp_path, messages):
    (tmp_path / "chat.json").write_text(json.dumps(messages))

    alone = cli("replay", "chat.json", "--budget", 3)
    both = cli("replay", "chat.json", "--budget", 3, "--budget", 16_000)

    why = "chat.json: no turn fits 3 tokens: ContextOverflowError: "
    assert (alone.code, alone.out) == (1, "")
    assert f"failed: {why}" in alone.err
    assert "raise --budget" in alone.err
    assert both.code == 1
    assert f"failed: {why}" in both.err
    # What our memory could not send is no request, so none is the largest.
    peaks = [line.split()[3] for line in both.out.splitlines() if line.startswith(" ours")]
    assert peaks[0] == "-" != peaks[1]


def test_interrupting_keeps_what_is_done(cli, folder, monkeypatch):
    """Two of three sessions are done when Ctrl-C comes: the report has these, and says so."""
    pytest.importorskip("matplotlib", reason="needs the extra `report`")
    replay, begun = replay_parallel.replay_session, []

    def interrupted(task, on_turn):
        begun.append(task.name)
        if len(begun) == 3:
            raise KeyboardInterrupt
        return replay(task, on_turn)

    monkeypatch.setattr(replay_parallel, "replay_session", interrupted)

    ran = cli("replay", folder, "--report", "out.html", "--json", "--jobs", 1)

    assert ran.code == 130
    assert "interrupted: 2 of 3 sessions are done" in ran.err
    assert json.loads(ran.out)["interrupted"] is True
    page = (folder.parent / "out.html").read_text(encoding="utf-8")
    assert "Interrupted: 2 of 3 sessions are in this report." in page


class DeadlyOnce(dict):
    """A message that kills the first process that reads it, while another one reads a `Deadly`."""

    def __reduce__(self):
        return _die_once, (self["mark"],)


class Deadly(dict):
    """A message that kills every process that reads it, the first of them not before `DeadlyOnce` does."""

    def __reduce__(self):
        return _die, (self["mark"],)


def _pipe(mark: str) -> Path:
    return Path(f"{mark}.pipe")


def _die_once(mark: str) -> dict:
    if not Path(mark).exists():
        with _pipe(mark).open("wb"):  # waits until the other one reads
            Path(mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return says("user", "go on")


def _die(mark: str) -> None:
    if not Path(mark).exists():
        _pipe(mark).read_bytes()  # ends with the process that writes
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed_costs_no_other_session(tmp_path):
    """What was running then is replayed again, each alone; only what ends its process twice is skipped."""
    mark = {"mark": str(tmp_path / "mark")}
    os.mkfifo(_pipe(mark["mark"]))
    lists = {"once": [*session(9), DeadlyOnce(mark)], "always": [*session(6), Deadly(mark)]}
    lists |= {f"good {number}": session(number) for number in range(3, 6)}
    tasks = [
        replay_parallel.Task(name, name, messages, ("raw", "ours"), (3_000,))
        for name, messages in lists.items()
    ]
    replays, turns = replay_parallel.Replays(tasks, 2), []

    replays.run(turns.append)

    skipped = [outcome for outcome in replays.outcomes if isinstance(outcome, replay_parallel.Skipped)]
    assert [(one.name, one.is_failure) for one in skipped] == [("always", True)]
    assert "a process ended before it was done" in skipped[0].why
    done = {outcome.name for outcome in replays.outcomes} - {"always"}
    assert done == lists.keys() - {"always"}
    assert len(replays.outcomes) == len(lists)
    assert turns == sorted(turns)


class Deaf(dict):
    """A message whose reader writes to a file whether its process holds Ctrl-C back."""

    def __reduce__(self):
        return _tell_mask, (self["mark"],)


def _tell_mask(mark: str) -> dict:
    Path(mark).write_text(str(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())))
    return says("user", "go on")


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no signal masks here")
def test_processes_hold_ctrl_c_back_from_their_first_instruction(tmp_path):
    """While they import, before they could say so themselves; else each prints where it was."""
    marks = [tmp_path / "a", tmp_path / "b"]
    tasks = [
        replay_parallel.Task(mark.name, "", [*session(3), Deaf(mark=str(mark))], ("raw", "ours"), (3_000,))
        for mark in marks
    ]

    replay_parallel.Replays(tasks, 2).run(lambda _: None)

    assert [mark.read_text() for mark in marks] == ["True", "True"]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no terminals here")
def test_ctrl_c_while_replaying(tmp_path):
    """In a terminal the bar tells turns and time left; Ctrl-C ends all processes within a turn or so."""
    lines = [json.dumps({"id": name, "messages": session(600)}) for name in ("a", "b", "c")]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    ours, theirs = os.openpty()
    process = start_process(
        "replay", "in.jsonl", "--jobs", 2, cwd=tmp_path, env=environment(TERM="xterm"), stderr=theirs
    )
    os.close(theirs)
    seen = b""
    while not re.search(rb"[1-9]\d*/3606", seen):  # turns that are done, of all
        seen += os.read(ours, 65536)

    process.send_signal(signal.SIGINT)
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:  # the last who had the terminal has closed it: no process is left
            break
        if not more:
            break
        seen += more
    out, _ = process.communicate()

    assert process.returncode == 130
    assert re.search(rb"interrupted: \d of 3 sessions are done", seen)
    assert b"0 of 3" not in seen or out == b""
    os.close(ours)


def test_what_memories_log_does_not_run_into_the_table(tmp_path):
    """A call without an answer is repaired at every replay; the log says so, the terminal does not."""
    broken = [message for message in session(6) if message.get("tool_call_id") != "c2"]
    (tmp_path / "chat.json").write_text(json.dumps(broken))

    done = run_process("replay", "chat.json", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, b"")


def test_names_of_sessions_never_become_paths(cli, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra `report`")
    name = "../../\u202eevil\x1b[31m"
    (tmp_path / "chat.json").write_text(json.dumps({"id": name, "messages": session(3)}))

    ran = cli("replay", "chat.json", "--png", "pictures", "-q")

    assert ran.code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"chat.json", "pictures"}
    assert len(list((tmp_path / "pictures").iterdir())) == 3


def test_nothing_that_could_be_replayed(cli, tmp_path):
    (tmp_path / "chat.json").write_text(json.dumps([says("user", "hi")]))
    ran = cli("replay", "chat.json")
    assert ran.code == 2
    assert "no session could be replayed; chat.json: has no assistant message" in ran.err
