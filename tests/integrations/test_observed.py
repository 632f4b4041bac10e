"""Logs of requests: what is in them, who may write them, and what is read of them."""

from __future__ import annotations

import json
import logging
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from context_compressor import TiktokenCounter
from context_compressor.errors import InvalidArgumentError
from context_compressor.integrations import observed
from context_compressor.integrations.conversations import Conversations
from context_compressor.integrations.observed import Observer, as_observer, writer
from context_compressor.lab.readers import Session, read_path
from context_compressor.messages.forms import as_form

Dict = dict[str, Any]
CHAT = as_form("chat")


def conversation(turns: int, name: str = "a") -> list[Dict]:
    """Return a conversation of calls and their results, some large."""
    chance = random.Random(name)
    said: list[Dict] = [{"role": "user", "content": f"Go through the files of {name}."}]
    for turn in range(turns):
        function = {"name": "read", "arguments": json.dumps({"path": f"{name}/{turn}.txt"})}
        calls = [{"id": f"{name}-{turn}", "type": "function", "function": function}]
        text = " ".join(f"{name} has {chance.random()}" for _ in range(chance.randint(2, 60)))
        said += [
            {"role": "assistant", "content": f"File {turn} is next." * (turn % 2), "tool_calls": calls},
            {"role": "tool", "tool_call_id": f"{name}-{turn}", "content": text},
        ]
    return said


class Characters:
    """A counter that reads no vocabulary."""

    def count_text(self, text: str) -> int:
        return len(text) // 4 + 1

    def count_messages(self, messages: Any) -> int:
        return sum(self.count_text(json.dumps(one)) for one in messages)


def observe(path: Path, *lists: list[Dict], counter: Any = None, system: str = "") -> None:
    observer = as_observer(path, counter or Characters(), CHAT)
    for said in lists:
        observer.note(lambda said=said: said, lambda: system)  # type: ignore[misc]
    writer().submit(int).result()


def read(path: Path) -> list[Session]:
    problems: list[Any] = []
    sessions = list(read_path(path, problems))
    assert problems == []
    return sessions


def requests_of(said: list[Dict]) -> list[list[Dict]]:
    return [said[:n] for n in range(1, len(said) + 1, 2)]


def test_sessions_are_as_large_as_what_was_sent_message_by_message(tmp_path: Path) -> None:
    """Roles, tokens, calls and their results are the same, and so are the requests; the words are others."""
    counter, said = TiktokenCounter(), conversation(12)
    path = tmp_path / "log.jsonl"
    observe(path, *requests_of(said), counter=counter, system="Be brief. The time is 12:00.")

    (session,) = read(path)
    instruction, *made = session.messages
    assert instruction["role"] == "system"
    assert [one["role"] for one in made] == [one["role"] for one in said]
    sizes = [
        (counter.count_messages([one]), counter.count_messages([own]))
        for own, one in zip(said, made, strict=True)
    ]
    assert all(abs(size - own) <= 2 for size, own in sizes)
    assert sum(size for size, _ in sizes) == pytest.approx(sum(own for _, own in sizes), rel=0.01)
    calls = [call["id"] for one in made for call in one.get("tool_calls", ())]
    assert calls == [one["tool_call_id"] for one in made if one["role"] == "tool"]
    assert session.turns == tuple(range(2, len(said) + 2, 2))
    assert not {"files", "txt", "a-1", "brief"} & {*path.read_text().split('"')}
    assert path.stat().st_mode & 0o777 == 0o600
    assert read(path) == read(path)


def test_tools_count_with_the_instructions(tmp_path: Path) -> None:
    path, tools = tmp_path / "log.jsonl", [{"type": "function", "function": {"name": "read" * 100}}]
    observer = as_observer(path, Characters(), CHAT)
    observer.note(lambda: conversation(2), lambda: "", lambda: tools)
    writer().submit(int).result()
    (session,) = read(path)
    assert len(json.dumps(tools)) // 4 <= Characters().count_messages(session.messages[:1])


def test_lists_are_joined_whoever_wrote_them(tmp_path: Path) -> None:
    """By processes in turn, instructions changing, and what is sent again once; branches apart."""
    path, said, other = tmp_path / "log.jsonl", conversation(6), conversation(4, "b")
    asked = requests_of(said)
    for number, request in enumerate(asked):  # each by an observer that knows nothing
        observe(path, request, request, system=f"The time is {number}.")
    branch = [*said[:5], {"role": "assistant", "content": "Hm."}, {"role": "user", "content": "No, stop."}]
    observe(path, *requests_of(other), branch)

    first, *rest = read(path)
    assert first.turns is not None
    assert len(first.turns) == len(asked)
    assert sorted(len(one.turns or ()) for one in rest) == [1, len(requests_of(other))]


def test_what_stands_at_the_end_of_one_request_alone_begins_no_other_list(tmp_path: Path) -> None:
    """Programs put reminders there, which the next request does not have."""
    path = tmp_path / "log.jsonl"
    asked = requests_of(conversation(6))
    observe(path, *([*one, {"role": "user", "content": f"Reminder {len(one)}."}] for one in asked))
    (session,) = read(path)
    assert len(session.turns or ()) == len(asked)


ROW: Dict = {"id": "b", "role": "user", "tokens": 9}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ({"observed": 2}, "of version 2"),
        ({"observed": 1, "follows": "zz", "new": [], "instructions": 0}, "does not have"),
        ({"observed": 1, "follows": "", "new": [], "instructions": 0}, "holds no message"),
        ({"observed": 1, "follows": "", "new": {}, "instructions": 0}, "expected follows, new"),
        *(
            ({"observed": 1, "follows": "", "new": [ROW, {**ROW, **wrong}], "instructions": 0}, "no message")
            for wrong in (
                {},  # an id twice: it would follow itself
                {"id": "c", "tokens": 10**12},
                {"id": "c", "tokens": True},
                {"id": "c", "role": "x"},
                {"id": "c", "calls": {"x": "y"}},
            )
        ),
        (5, "is no line of a log"),
        (b'{"observed": 1, "new": [{"', "JSON"),
    ],
    ids=str,
)
def test_damaged_lines_are_named_and_the_rest_is_read(tmp_path: Path, line: Any, why: str) -> None:
    path = tmp_path / "log.jsonl"
    observe(path, *requests_of(conversation(3)))
    with path.open("ab") as log:
        log.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
    problems: list[Any] = []
    (session,) = read_path(path, problems)
    assert len(session.turns or ()) == 4
    assert [(one.line, why in one.why) for one in problems] == [(6, True)]


def test_several_processes_write_whole_lines(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from tests.integrations.test_observed import conversation, observe, requests_of
observe(Path(sys.argv[1]), *requests_of(conversation(60, sys.argv[2])))
"""
    path = tmp_path / "log.jsonl"
    started = [subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in "ab"]
    assert [one.wait() for one in started] == [0, 0]
    assert sorted(len(one.turns or ()) for one in read(path)) == [61, 61]


def test_what_cannot_be_written_harms_no_request_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = requests_of(conversation(3))
    (tmp_path / "file").touch()
    (tmp_path / "other.jsonl").write_text("mine\n")
    monkeypatch.setattr(observed, "MAX_BYTES", 10)
    with caplog.at_level(logging.WARNING):
        observe(tmp_path / "file" / "log.jsonl", *said)
        observe(tmp_path / "full.jsonl", *said)
        observe(tmp_path / "unread.jsonl", [{"role": 5}], [{"content": "x"}])
        observe(tmp_path / "other.jsonl", *said)
    assert [one.message.partition(": ")[0] for one in caplog.records] == [
        str(tmp_path / "file" / "log.jsonl"),
        str(tmp_path / "full.jsonl"),
        str(tmp_path / "unread.jsonl"),
        str(tmp_path / "other.jsonl"),
    ]
    assert (tmp_path / "other.jsonl").read_text() == "mine\n"
    assert len((tmp_path / "full.jsonl").read_text().splitlines()) == 1


def test_where_a_log_was_taken_away_a_new_one_begins(tmp_path: Path) -> None:
    path, said = tmp_path / "log.jsonl", requests_of(conversation(3))
    observer = Observer(path, Characters(), CHAT)
    for request in said[:2]:
        observer.note(lambda request=request: request)  # type: ignore[misc]
    writer().submit(path.rename, tmp_path / "log.1.jsonl").result()
    for request in said[2:]:
        observer.note(lambda request=request: request)  # type: ignore[misc]
    writer().submit(int).result()
    assert [len(read(one)[0].turns or ()) for one in (tmp_path / "log.1.jsonl", path)] == [2, 2]


@pytest.mark.parametrize("observe", [1, "", b"x", ["x"]])
def test_what_is_no_path_is_named(observe: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="observe: expected True, False or the path"):
        Conversations(observe=observe)
