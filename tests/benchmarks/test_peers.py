"""The peers themselves, those that are installed: `make peers`."""

import json

import pytest

from benchmarks.peers import PEERS, leave_out_missing, make_peer
from benchmarks.peers import make as making
from context_compressor.lab.measure import Recording, replay
from tests.benchmarks.peers import session

SUMMARISING = [name for name in PEERS if name != "langchain-clear"]
STORING = ["reme", "deepagents"]


def installed(names) -> list:
    return [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                not PEERS[name].is_installed, reason=f"{name}: not installed (make peers)"
            ),
        )
        for name in names
    ]


@pytest.mark.parametrize("name", installed(PEERS))
async def test_within_the_budget_a_peer_sends_the_history(name: str) -> None:
    """As it was recorded, to the byte: what a peer leaves alone is not charged to its wire format."""
    history = session()
    system = make_peer(name, 10**6)
    try:
        given = 0
        for end in (2, 4, 7, 8, len(history)):
            view = await system.send(history[:end], history[given:end])
            assert json.dumps(view) == json.dumps(history[:end])
            given = end
    finally:
        await system.aclose()


@pytest.mark.parametrize("name", installed(PEERS))
async def test_beyond_the_budget_a_peer_compresses(name: str) -> None:
    """Its newest message stays; those that summarise have the run do it."""
    recording = Recording(session(turns=60))
    # Below that, clearing old results is not enough for the peer that clears first.
    budget = 3_000 if name == "pydantic-ai-harness" else 6_000
    done = await replay(recording, make_peer(name, budget, recording.counter), budget=budget)
    totals = done.totals()
    assert not [problem for turn in done.turns for problem in turn.problems if "raised" in problem]
    assert totals.saved > 0.2
    assert (totals.cost.as_if_model > totals.cost.spent) == (name in SUMMARISING)
    assert bool(totals.stored_texts) == (name in STORING)


def test_a_peer_that_is_not_installed_is_left_out(capsys: pytest.CaptureFixture, monkeypatch) -> None:
    """The run says so and goes on."""
    monkeypatch.setattr("benchmarks.peers.ENVIRONMENTS", making.ENVIRONMENTS / "nowhere")
    assert leave_out_missing(["raw", "reme", "ours"]) == ["raw", "ours"]
    assert "reme is left out" in capsys.readouterr().err


def test_every_environment_has_requirements_and_every_adapter_is_there() -> None:
    """What `make peers` installs is what adapters are run with."""
    for peer in PEERS.values():
        assert making.files_of(peer.environment)
        assert (making.FOLDER / peer.adapter).is_file()
