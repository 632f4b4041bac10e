"""`examine` against a scripted model behind the real SDK: it writes questions, reads views, grades."""

import asyncio
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from context_compressor.lab.measure import KINDS, is_told
from tests.cli.support import Cli, Ran
from tests.lab.measure.reports import session
from tests.lab.measure.support import says
from tests.support.model_server import ModelServer, status
from tests.support.replies import Reply, answer
from tests.support.wires import Received

WRITTEN = [
    {
        "kind": "goal",
        "question": "What is to be mended?",
        "answer": "the import",
        "keys": [["Mend the import"]],
    },
    {"kind": "artifact", "question": "A?", "answer": "a", "keys": [["src/file_0.py"], ["value_0_7"]]},
    {"kind": "artifact", "question": "B?", "answer": "b", "keys": [["src/file_1.py"], ["value_1_7"]]},
    {"kind": "value", "question": "C?", "answer": "c", "keys": [["src/file_2.py"], ["value_2_7"]]},
]


class Model:
    """Write the same probes each time, read by their keys, and grade what was read."""

    def __init__(self, **answers: str) -> None:
        self.answers = answers
        """What to say instead, in a role's first request."""
        self.asked: dict[str, list[list[dict]]] = {}

    def __call__(self, messages: list[dict]) -> str:
        system, text = messages[0]["content"], messages[1]["content"]
        roles = {"You examine": "writer", "You take over": "reader", "You grade": "grader"}
        role = next(role for beginning, role in roles.items() if system.startswith(beginning))
        self.asked.setdefault(role, []).append(messages)
        if len(self.asked[role]) == 1 and role in self.answers:
            return self.answers[role]
        if role == "writer":
            return f"Here they are:\n```json\n{json.dumps({'probes': WRITTEN})}\n```"
        if role == "reader":
            view = text.partition("The questions:")[0]
            told = [is_told(view, probe["keys"]) for probe in WRITTEN]
            given = [
                one["answer"] if told else "not in view" for one, told in zip(WRITTEN, told, strict=True)
            ]
            return json.dumps({"answers": {str(n): one for n, one in enumerate(given, start=1)}})
        given = re.findall("Given: (.*)", text)
        return json.dumps({"grades": {str(n): one != "not in view" for n, one in enumerate(given, start=1)}})


class Caller(Model):
    """Make calls for each question, one after the other, and answer from the view and what they found."""

    def __init__(self, calls: Callable[[dict], list[tuple[str, object]]]) -> None:
        super().__init__()
        self.calls = calls
        self.found: list[str] = []

    def __call__(self, messages: list[dict], received: Received) -> Reply | str:  # type: ignore[override]
        if not received.tools:
            return super().__call__(messages)
        self.asked.setdefault("caller", []).append(messages)
        self.tools = [tool["function"]["name"] for tool in received.tools]
        text = messages[1]["content"]
        probe = next(one for one in WRITTEN if text.endswith(f"The question: {one['question']}"))
        results = [message["content"] for message in messages if message["role"] == "tool"]
        if calls := self.calls(probe)[len(results) :]:
            return answer(None, calls[:1])
        self.found += results
        return answer(
            probe["answer"] if is_told("\n".join([text, *results]), probe["keys"]) else "not in view"
        )


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Where a long session and one that fits any view lie; there is a key."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-test")
    (tmp_path / "chat.json").write_text(json.dumps(session(40)))
    (tmp_path / "short.json").write_text(json.dumps([says("user", "hi"), says("assistant", "ho")]))
    return tmp_path


@pytest.fixture
def examine(cli: Cli, folder: Path) -> Callable[..., Ran]:
    """Run `examine` beside a server."""

    def run(model: object, *arguments: object) -> Ran:
        async def begin() -> Ran:
            async with ModelServer(model) as server:  # type: ignore[arg-type]
                settings = ("--model", "m", "--base-url", server.url, "--budget", 3000, "--cache", "cache")
                return await asyncio.to_thread(cli, "examine", *arguments, *settings)

        return asyncio.run(begin())

    return run


def test_views_are_examined_by_keys_and_by_a_reader(examine, folder: Path) -> None:
    """Told and graded by kind beside tokens and cost; a session of which nothing leaves is named."""
    model = Model()
    ran = examine(model, "chat.json", "short.json", "--baseline", "sliding", "--yes")

    assert ran.code == 0
    assert "not examined: short.json: " in ran.err
    assert "tokens fit --budget 3,000: nothing leaves a view" in ran.err
    assert re.search(r"question writer: 1 request, [\d,]+ tokens in, [\d,]+ out", ran.err)
    rows = {line.split()[0]: line.split() for line in ran.out.splitlines() if line.strip()}
    assert rows["sliding"][-2:] == ["0.0", "%"]
    assert rows["ours"][-2:] == rows["ours"][5:7]  # as much as keys say
    assert float(rows["ours"][-2]) >= 25
    assert [rows[kind][1] for kind in ("goal", "artifact", "value")] == ["1", "2", "1"]
    assert {role: len(asked) for role, asked in model.asked.items()} == {
        "writer": 1,
        "reader": 2,
        "grader": 2,
    }


def test_no_role_sees_more_than_it_should(examine) -> None:
    """The writer the transcript; the reader view and questions, no answers; the grader neither of both."""
    model = Model()
    examine(model, "chat.json", "--yes", "--quiet")

    writer, reader, grader = (model.asked[role][0][1]["content"] for role in ("writer", "reader", "grader"))
    assert "value_9_7" in writer
    assert all(kind in model.asked["writer"][0][0]["content"] for kind in KINDS)
    assert "The culprit is" not in writer  # the answer that is asked for at the cut
    assert "1. What is to be mended?" in reader
    assert "the import" not in reader.partition("The questions:")[2]
    assert "Right: the import" in grader
    assert "src/file_3.py" not in grader


def test_the_same_is_asked_once(cli, folder: Path) -> None:
    """A second run takes every answer from the folder; another budget has other views, the same questions."""
    model = Caller(lambda _probe: [("search_history", {"query": "value_1_7"})])

    async def run() -> list[int]:
        async with ModelServer(model) as server:
            done = []
            for budget in (3000, 3000, 4000):
                arguments = ("--model", "m", "--base-url", server.url, "--budget", budget, "--yes", "--quiet")
                ran = await asyncio.to_thread(cli, "examine", "chat.json", "--with-tools", *arguments)
                assert ran.code == 0
                done.append(len(server.requests))
            return done

    first, again, _ = asyncio.run(run())
    assert first == again >= 3 + 4 * 2  # with tools, of each question the call and the answer
    assert [len(model.asked[role]) for role in ("writer", "reader")] == [1, 2]


def test_probes_are_written_for_replay(examine, cli, folder: Path) -> None:
    """As a recording that has them; those that a session brings stay."""
    own = {"at": 3, "kind": "order", "question": "?", "answer": "-", "keys": [["file"]]}
    (folder / "own.json").write_text(json.dumps({"id": "own", "messages": session(30), "probes": [own]}))
    ran = examine(Model(), "own.json", "--yes", "--probes", "with.jsonl", "--json")

    (line,) = map(json.loads, (folder / "with.jsonl").read_text().splitlines())
    assert [probe["question"] for probe in line["probes"]] == ["?", *(one["question"] for one in WRITTEN)]
    assert {probe["at"] for probe in line["probes"][1:]} == {62}
    told = json.loads(cli("replay", "with.jsonl", "--budget", 3000, "--json", "--jobs", 1).out)
    assert [one["told"]["probes"] for one in told["totals"]] == [5, 5]
    examined = json.loads(ran.out)
    assert examined["totals"][0]["system"] == "ours"
    assert len(examined["sessions"][0]["answers"]["ours"]) == len(WRITTEN)
    assert (examined["requests"], examined["input_tokens"] > 0) == (3, True)


@pytest.mark.parametrize(
    ("role", "malformed", "complaint"),
    [
        ("writer", "I cannot.", "it holds no JSON object"),
        ("writer", '{"probes": [{"kind": "name"}]}', "probes[0].kind"),
        ("writer", json.dumps({"probes": [{**WRITTEN[0], "keys": [["nowhere"]]}] * 4}), "no passage of the"),
        ("reader", '{"answers": {"1": "a"}}', "answers.2: is missing"),
        ("reader", '{"answers": ["a"]}', "an object by the numbers"),
        ("grader", '{"grades": {"1": 7, "2": 0, "3": 0, "4": 0}}', "a grade is 0, 0.5 or 1, not 7"),
        ("grader", '{"grades": {"1": 0,}}', "its JSON cannot be read"),
    ],
)
def test_what_cannot_be_used_is_asked_for_once_more(
    examine, role: str, malformed: str, complaint: str
) -> None:
    """Told what was wrong, the model mends it."""
    model = Model(**{role: malformed})
    ran = examine(model, "chat.json", "--yes", "--quiet")

    assert ran.code == 0
    first, second = model.asked[role]
    assert second[: len(first)] == first
    assert second[-2]["content"] == malformed
    assert complaint in second[-1]["content"]


def test_a_session_whose_answers_stay_malformed_is_not_examined(examine, folder: Path) -> None:
    """It is named, with why; where it was the only one the exit code is 1, and nothing is written."""
    ran = examine(lambda _messages: "no", "chat.json", "--yes")
    assert (ran.code, ran.out) == (1, "")
    assert (
        "not examined: chat.json: what the question writer answered cannot be used: it holds no JSON"
        in ran.err
    )
    assert not (folder / "cache" / "probes.jsonl").exists()


def test_a_server_that_refuses_is_named_without_the_key(examine) -> None:
    model = lambda _messages: status(401, "wrong key: sk-of-a-test")  # noqa: E731
    ran = examine(model, "chat.json", "--yes")
    assert ran.code == 1
    assert "the question writer could not be asked: AuthenticationError" in ran.err
    assert "sk-of-a-test" not in ran.err


def test_nothing_is_asked_before_somebody_agrees(examine, folder: Path, monkeypatch) -> None:
    """Costs are told first; without a terminal `--yes` is needed, in one the answer is."""
    model = Model()
    ran = examine(model, "chat.json")
    assert (ran.code, ran.out, model.asked) == (2, "", {})
    assert "Examining 1 session with m takes about, at most:" in ran.err
    assert "say --yes to go on" in ran.err

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for said, code in (("n\n", 1), ("", 1), ("y\n", 0)):
        monkeypatch.setattr("sys.stdin", Terminal(said))
        ran = examine(model, "chat.json")
        assert ran.code == code
        assert "Go on? [y/N]" in ran.err
        assert bool(model.asked) == (code == 0)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere"], 2, "nowhere: there is no such file"),
        (["chat.json", "--baseline", "best"], 2, "--baseline best: there is no such baseline"),
        (["chat.json", "--budget", "0"], 2, "max_total_tokens"),
        (["chat.json", "--calls", "3"], 2, "--calls needs --with-tools"),
        (["chat.json", "--with-tools", "--calls", "0"], 2, "--calls"),
        (["chat.json", "--base-url", "nowhere"], 2, "--base-url"),
        (["chat.json", "--cache", "chat.json"], 2, "--cache chat.json: is not a directory"),
        (["chat.json", "--probes", "no/such/file"], 2, "--probes no/such/file"),
        (["chat.json", "--window", "10"], 1, "has no turn within --window 10 tokens"),
        (["short.json"], 1, "no session can be examined"),
    ],
)
def test_what_cannot_be_done(cli, folder: Path, arguments: list[str], code: int, message: str) -> None:
    ran = cli("examine", "--model", "m", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err


def test_a_key_is_needed(cli, folder: Path, monkeypatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    ran = cli("examine", "chat.json", "--model", "m")
    assert (ran.code, "set OPENAI_API_KEY" in ran.err) == (2, True)


def test_the_longest_can_be_chosen_and_the_writers_window_set(examine, folder: Path) -> None:
    """What comes behind the window is not examined: the cut is the last turn that fits."""
    (folder / "longer.json").write_text(json.dumps(session(50)))
    model = Model()
    ran = examine(model, "chat.json", "longer.json", "--limit", 1, "--window", 5000, "--yes", "--json")

    told = json.loads(ran.out)
    assert [one["name"] for one in told["sessions"]] == ["chat.json"]  # up to their cuts they are the same
    at = told["sessions"][0]["answers"]["ours"][0]["at"]
    assert session(40)[at]["role"] == "assistant"
    assert 5 < at < 40
    assert "src/file_39.py" not in model.asked["writer"][0][1]["content"]


def test_a_reader_with_tools_finds_what_left_the_view(examine, folder: Path) -> None:
    """Each question by itself, graded beside the view alone, with its calls and what they answered."""
    model = Caller(lambda probe: [("grep_offloaded", {"pattern": f"{probe['keys'][0][0]}.*_7 "})])
    ran = examine(model, "chat.json", "--with-tools", "--yes")

    assert ran.code == 0, ran.err
    assert model.tools == ["read_offloaded", "grep_offloaded", "search_history"]
    assert re.search(r"reader with tools: 96 requests, [\d,]+ tokens in, [\d,]+ out", ran.err)
    assert re.search(r"together 100 requests, [\d,]+ tokens in", ran.err)
    assert re.search(r"together 36 requests, .* where a question takes one call", ran.err)
    rows = {line.split()[0]: line.split() for line in ran.out.splitlines() if line.strip()}
    assert float(rows["ours"][-4]) < 100
    assert rows["ours"][-2:] == ["-", "-"]
    assert rows["ours+tools"][-4:-1] == ["100.0", "%", "1.00"]
    assert rows["A?"][1:4] == ["no", "right", "1"]
    assert int(rows["A?"][4]) > 20


def test_whatever_a_reader_calls_it_is_answered(examine) -> None:
    """Nothing that it calls changes the memory, or ends the examination; what broke off goes back whole."""
    calls: list[tuple[str, object]] = [
        ("compress_context", {}),
        ("search_history", '{"query": '),
        ("read_offloaded", {"ref": "ctx://0000000000000000"}),
    ]
    model = Caller(lambda _probe: calls)
    assert examine(model, "chat.json", "--with-tools", "--yes", "-q").code == 0
    first, second, third = model.found[:3]
    assert "There is no such tool; use read_offloaded" in first
    assert "arguments" in second
    assert "0000000000000000" in third


def test_calls_of_a_question_are_bounded(examine) -> None:
    """Beyond the bound a reader is told to answer; who calls on is asked once more, and then left."""
    model = Caller(lambda _probe: [("search_history", {"query": "value"})] * 9)
    told = json.loads(examine(model, "chat.json", "--with-tools", "--calls", 2, "--yes", "--json").out)

    assert [one["calls"] for one in told["sessions"][0]["answers"]["ours+tools"]] == [2] * 4
    assert [(one["system"], one["calls"]) for one in told["totals"]] == [("ours", 0), ("ours+tools", 2)]
    assert told["totals"][0]["tool_tokens"] == 0 < told["totals"][1]["tool_tokens"]
    assert len(model.asked["caller"]) == 4 * 4
    assert model.asked["caller"][3][-1]["content"].startswith("No calls are left")
