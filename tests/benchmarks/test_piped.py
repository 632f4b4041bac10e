"""The system in a process of its own, with adapters of a few lines."""

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from benchmarks.peers import piped as piped_module
from benchmarks.peers.piped import PipedError, PipedSystem
from benchmarks.peers.reading import PipedReading
from context_compressor.lab.measure import Recording, replay
from context_compressor.lab.measure.systems import Reading
from tests.benchmarks import peers
from tests.benchmarks.peers import session
from tests.lab.measure.support import says

Piped = Callable[..., AbstractAsyncContextManager[PipedSystem]]
RAW = "def answer(self, new): return list(self.seen)"


@pytest.fixture(params=[False, True], ids=["spawned", "forked"])
def piped(request: pytest.FixtureRequest) -> Piped:
    """All holds for a process of the session's own, and for a fork."""
    return partial(peers.piped, forks=request.param)


async def test_raw_through_the_pipe_is_the_history(piped: Piped, tmp_path: Path) -> None:
    """Turn by turn, equal also as JSON text; what stays at the front of a view is not sent again."""
    history = session(turns=8)
    async with piped(tmp_path, RAW) as system:
        before: list = []
        for end in (1, 5, len(history)):
            view = await system.send(history[:end], history[len(before) : end])
            assert json.dumps(view) == json.dumps(history[:end])
            assert all(old is new for old, new in zip(before, view, strict=False))
            before = view
        assert await system.convert(history) == history


async def test_the_run_counts(piped: Piped, tmp_path: Path) -> None:
    """By its own counter, and a message once."""
    body = """
    def answer(self, new):
        count = lambda: self.parent.count(self.seen, str, dict)
        return [{"role": "user", "content": f"{count()} {count()} of {self.budget}"}]
    """
    async with piped(tmp_path, body, budget=77) as system:
        counted: list = []
        count = system._counter.count
        system._counter.count = lambda message: counted.append(message) or count(message)  # type: ignore
        history = [says("user", "one two"), says("user", "three")]
        assert (await system.send(history, history))[0]["content"] == "5 5 of 77"
        assert counted == history


SUMMARY = """
def answer(self, new):
    prompt = "Summarise: " + " ".join(text_of(m) for m in self.seen)
    self.seen = [{"role": "user", "content": "SUMMARY " + self.parent.summarize([prompt], self.seen)}]
    return self.seen
"""


async def test_the_run_summarises_and_counts_what_a_model_would_have_read(
    piped: Piped, tmp_path: Path
) -> None:
    """A summary may cost a third of what it replaces; nothing is paid for it."""
    history = session(turns=10)
    async with piped(tmp_path, SUMMARY, budget=4_000) as system:
        view = await system.send(history, history)
        assert "PX-" in view[0]["content"]
        spent = system.spending()
        words = sum(system._counter.counter.count_text(message["content"] or "") for message in history)
        assert spent.input_tokens == words + 1
        assert 0 < spent.output_tokens <= max(300, words // 3)
        assert (spent.paid_input_tokens, spent.paid_output_tokens) == (0, 0)
        assert spent.seconds > 0


async def test_what_a_peer_raises_reaches_the_run_and_the_peer_goes_on(piped: Piped, tmp_path: Path) -> None:
    """The next turn may succeed."""
    body = """
    def answer(self, new):
        if len(self.seen) == 1:
            raise ValueError("too short")
        return list(self.seen)
    """
    history = [says("user", "a"), says("user", "b")]
    async with piped(tmp_path, body) as system:
        with pytest.raises(PipedError, match="ValueError: too short"):
            await system.send(history[:1], history[:1])
        assert await system.send(history, history[1:]) == history


@pytest.mark.parametrize(
    "body", ["def answer(self, new): raise SystemExit('no library')", "this is no python"]
)
async def test_a_process_that_ends_is_an_error_that_says_why(piped: Piped, tmp_path: Path, body: str) -> None:
    """With the last words of its standard error; whether at work or at the start."""
    async with piped(tmp_path, body) as system:
        with pytest.raises(PipedError, match=r"no library|SyntaxError"):
            await system.send([says("user", "a")], [says("user", "a")])


async def test_a_process_that_hangs_is_given_up(
    piped: Piped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And ended."""
    async with piped(tmp_path, "def answer(self, new): import threading; threading.Event().wait()") as system:
        await system.convert([])
        monkeypatch.setattr(piped_module, "ANSWER_SECONDS", 0.05)
        with pytest.raises(PipedError, match="did not answer within"):
            await system.send([says("user", "a")], [says("user", "a")])


async def test_a_replay_runs_a_piped_system(piped: Piped, tmp_path: Path) -> None:
    """Its time is the peer's own, and its summaries cost what a model's would."""
    recording = Recording(session(turns=12))
    async with piped(tmp_path, SUMMARY, budget=4_000) as system:
        totals = (await replay(recording, system, budget=4_000)).totals()
    assert totals.invalid == 0
    assert totals.cost.spent == totals.cost.view < totals.cost.as_if_model


async def test_a_reader_calls_the_tools_that_a_peer_gives_its_agent() -> None:
    """They read what it has put elsewhere, as the examination offers them; a wrong call is told so."""
    system = PipedReading("deepagents", ["never started"], 100).with_tools("read_file", "grep")
    system._stored = {"/results/1": "one\ntwo\nthree", "/notes": "two again"}
    assert isinstance(system, Reading)
    assert system.name == "deepagents+tools"
    assert [schema["function"]["name"] for schema in system.schemas] == ["read_file", "grep"]
    calls = [
        ("read_file", {"file_path": "/results/1", "offset": 1, "limit": 1}, "2\ttwo"),
        ("grep", {"pattern": "two"}, "/results/1:2:two\n/notes:1:two again"),
        ("grep", {"pattern": "two", "path": "/notes"}, "/notes:1:two again"),
        ("read_file", {"file_path": "/gone"}, "Error: KeyError: '/gone'"),
        ("read_file", [], "Error: "),
    ]
    for name, given, answer in calls:
        assert (await system.call(name, json.dumps(given))).startswith(answer)
    await system.aclose()
