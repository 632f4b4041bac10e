import gzip
import io
import json
import os
import pty
import shlex
import socket
import subprocess
import sys

import pytest

from context_compressor import (
    CompressionConfig,
    FileOffloadStore,
    TiktokenCounter,
    compress_messages,
    from_openai,
)
from context_compressor.laws.chat_rules import problems
from tests.cli.support import command, environment, read_terminal

BUDGET = 8000


@pytest.fixture
def session_file(tmp_path, recorded):
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(recorded))
    return path


def test_the_view_is_that_of_the_library(cli, session_file, recorded, tmp_path):
    ran = cli("compress", "chat.json", "--budget", BUDGET)

    config = CompressionConfig(max_total_tokens=BUDGET)
    expected = compress_messages(recorded, config=config, store=FileOffloadStore(tmp_path / "other")).messages
    assert ran.code == 0
    assert json.loads(ran.out) == expected
    assert problems(expected) == []
    assert TiktokenCounter().count_messages(from_openai(expected)) <= BUDGET


def test_every_form_comes_back_in_its_form(cli, tmp_path, recorded):
    object_session = {"id": "a/b", "messages": recorded, "model": "m"}
    (tmp_path / "object.json").write_text(json.dumps(object_session))
    (tmp_path / "sessions.jsonl").write_text(f"{json.dumps(recorded)}\n{json.dumps(object_session)}\n")
    (tmp_path / "messages.jsonl").write_text("".join(f"{json.dumps(m)}\n" for m in recorded))
    (tmp_path / "array.json").write_text(json.dumps(recorded))
    view = json.loads(cli("compress", "array.json", "--budget", BUDGET).out)
    assert 0 < len(view) < len(recorded)

    framed = json.loads(cli("compress", "object.json", "--budget", BUDGET).out)
    lines = cli("compress", "sessions.jsonl", "--budget", BUDGET).out.splitlines()
    messages = cli("compress", "messages.jsonl", "--budget", BUDGET).out.splitlines()

    assert framed == {**object_session, "messages": view}
    assert list(framed) == ["id", "messages", "model"]
    assert [json.loads(line) for line in lines] == [view, framed]
    assert [json.loads(line) for line in messages] == view


def test_a_session_that_fits_comes_back_unchanged(cli, tmp_path):
    function = '{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{ }"}}'
    text = (
        '[{"role": "user", "content": "héllo", "name": "eve"}, '
        f'{{"content": null, "role": "assistant", "x": 1, "tool_calls": [{function}]}}, '
        '{"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "ok"}]}]\n'
    )
    (tmp_path / "chat.json").write_text(text, encoding="utf-8")

    ran = cli("compress", "chat.json")

    assert ran.out == text
    assert not (tmp_path / "working_memory").exists()


def test_an_empty_session_among_others_stays_empty_and_alone_it_is_refused(cli, tmp_path):
    text = '{"messages": []}\n[{"role": "user", "content": "hi"}]\n[]\n'
    (tmp_path / "chat.jsonl").write_text(text)
    (tmp_path / "empty.jsonl").write_text('{"messages": []}\n[]\n')

    assert cli("compress", "chat.jsonl").out == text
    ran = cli("compress", "empty.jsonl")
    assert (ran.code, ran.out) == (2, "")
    assert "empty.jsonl: holds no message" in ran.err


def test_output_goes_to_the_file_and_the_table_to_stderr(cli, session_file, tmp_path):
    ran = cli("compress", "chat.json", "--budget", BUDGET, "-o", "small.json.gz")

    assert (ran.code, ran.out) == (0, "")
    assert "chat.json" in ran.err
    assert "saved" in ran.err
    view = json.loads(gzip.decompress((tmp_path / "small.json.gz").read_bytes()))
    assert view == json.loads(cli("compress", "chat.json", "--budget", BUDGET).out)


def test_stdin_gives_what_the_file_gives(cli, session_file, monkeypatch):
    data = gzip.compress(session_file.read_bytes())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    assert (
        cli("compress", "-", "--budget", BUDGET).out == cli("compress", "chat.json", "--budget", BUDGET).out
    )


def test_the_json_report_is_on_stderr_and_on_stdout_with_an_output(cli, session_file, recorded):
    beside = cli("compress", "chat.json", "--budget", BUDGET, "--json")
    alone = cli("compress", "chat.json", "--budget", BUDGET, "--json", "-o", "small.json")

    report = json.loads(beside.err)
    assert json.loads(alone.out) == {**report, "output": "small.json"}
    assert alone.err == ""
    (session,) = report["sessions"]
    counter = TiktokenCounter()
    assert session["tokens"] == counter.count_messages(from_openai(recorded))
    # The name under which a segment speaks is counted, though chat dicts do not carry it.
    sent = counter.count_messages(from_openai(json.loads(beside.out)))
    assert sent <= session["view_tokens"] <= sent + 2 * bool(session["noted"])
    assert session["view_tokens"] <= BUDGET < session["tokens"]
    assert report["total"]["saved_tokens"] == session["tokens"] - session["view_tokens"]
    assert report["config"]["max_total_tokens"] == BUDGET
    assert session["messages"] == len(recorded)
    assert session["view_messages"] == len(json.loads(beside.out))


def test_the_report_says_which_messages_each_stand_in_covers(cli, session_file, recorded):
    report = json.loads(cli("compress", "chat.json", "--budget", BUDGET, "--json").err)
    (session,) = report["sessions"]
    segments = [s for s in session["stand_ins"] if s["kind"] == "notes"]

    covered = sum(last - first + 1 for s in segments for first, last in s["message_ranges"])
    assert covered == len(recorded) - (session["view_messages"] - len(segments))
    assert all(set(segment["refs"]) <= set(session["refs"]) for segment in segments)


def test_totals_are_sums_over_sessions(cli, tmp_path, recorded):
    short = [{"role": "user", "content": "hi"}]
    (tmp_path / "f.jsonl").write_text(f"{json.dumps(recorded)}\n\n{json.dumps(short)}\n")

    report = json.loads(cli("compress", "f.jsonl", "--budget", BUDGET, "--json").err)

    assert [session["line"] for session in report["sessions"]] == [1, 3]
    for key in (
        "tokens",
        "view_tokens",
        "saved_tokens",
        "messages",
        "view_messages",
        "offloaded",
        "noted",
    ):
        assert report["total"][key] == sum(session[key] for session in report["sessions"])


def test_quiet_still_tells_of_a_model_that_failed(cli, session_file, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = (
            f"http://127.0.0.1:{server.getsockname()[1]}"  # where nobody listens any more, once it is closed
        )

    ran = cli("compress", "chat.json", "--budget", BUDGET, "-q", "--summarizer", "openai", "--base-url", url)

    assert ran.code == 0
    assert json.loads(ran.out)
    told = "note: the summariser failed, rules wrote instead: SummarizerError: gpt-4o-mini: connection failed"
    assert ran.err.startswith(told)
    assert ran.err.count("\n") == 1


def test_options_reach_the_config(cli, session_file):
    options = [
        "--mode",
        "compact",
        "--max-tool-message-tokens",
        700,
        "--keep-recent",
        4,
        "--group-tokens",
        3000,
    ]

    report = json.loads(cli("compress", "chat.json", "--max-total-tokens", BUDGET, *options, "--json").err)

    assert report["config"] == {
        "mode": "compact",
        "max_total_tokens": BUDGET,
        "max_tool_message_tokens": 700,
        "keep_recent_count": 4,
        "group_token_threshold": 3000,
    }


def namespaces(tmp_path, store="working_memory"):
    return sorted(path.name for path in (tmp_path / store).iterdir() if not path.name.startswith("."))


def test_each_session_has_a_namespace_of_its_own(cli, tmp_path, recorded):
    sessions = [
        recorded,
        {"id": "../../etc/passwd", "messages": recorded[:-1]},
        {"id": ".", "messages": recorded[:-2]},
    ]
    (tmp_path / "my chats.jsonl").write_text("".join(f"{json.dumps(s)}\n" for s in sessions))

    report = json.loads(cli("compress", "my chats.jsonl", "--budget", BUDGET, "--json").err)

    names = [session["namespace"] for session in report["sessions"]]
    assert [name[:-9] for name in names] == ["my-chats-1", "etc-passwd", "session"]
    assert namespaces(tmp_path) == sorted(names)


def test_a_given_namespace_is_used_and_numbered_for_several(cli, session_file, tmp_path, recorded):
    (tmp_path / "two.jsonl").write_text(f"{json.dumps(recorded)}\n{json.dumps(recorded[:-1])}\n")

    cli("compress", "chat.json", "--budget", BUDGET, "--namespace", "mine")
    cli("compress", "two.jsonl", "--budget", BUDGET, "--namespace", "mine")

    assert namespaces(tmp_path) == ["mine", "mine-1", "mine-2"]


def waiting(*ids, results=()):
    """Return a session whose last calls are not all answered yet."""
    calls = [{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}} for id in ids]
    return [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        *({"role": "tool", "tool_call_id": id, "content": "done"} for id in results),
    ]


@pytest.mark.parametrize(
    ("messages", "note"),
    [
        (waiting("a"), "1 call at the end that waits for a result answered by a placeholder"),
        (
            waiting("a", "b", "c", results="a"),
            "2 calls at the end that wait for a result answered by a placeholder",
        ),
    ],
)
def test_calls_that_wait_for_results_are_kept_and_answered(cli, tmp_path, messages, note):
    (tmp_path / "chat.json").write_text(json.dumps(messages))

    ran = cli("compress", "chat.json", "-q", "-o", "small.json", "--json")

    written = json.loads((tmp_path / "small.json").read_text("utf-8"))
    assert written[: len(messages)] == messages
    assert problems(written) == []
    (session,) = json.loads(ran.out)["sessions"]
    assert session["notes"][0].startswith(note)
    assert session["saved_tokens"] == 0


def test_calls_that_wait_for_results_are_within_the_budget(cli, tmp_path, recorded):
    tail = waiting("waits")[1:]
    (tmp_path / "chat.json").write_text(json.dumps([*recorded, *tail]))

    ran = cli("compress", "chat.json", "--budget", BUDGET, "--json")

    written = json.loads(ran.out)
    assert written[-2:-1] == tail
    assert problems(written) == []
    assert TiktokenCounter().count_messages(written) <= BUDGET


@pytest.mark.parametrize("store", ["my  store", "it's"])
def test_the_command_it_prints_can_be_copied(cli, session_file, tmp_path, store):
    ran = cli("compress", "chat.json", "--budget", BUDGET, "--store", store, "-o", "small.json")

    printed = next(line for line in ran.err.splitlines() if line.startswith("Read one: "))
    program, *arguments = shlex.split(printed.removeprefix("Read one: "))
    assert program == "context-compressor"
    assert cli(*arguments).code == 0


def test_repairs_are_named(cli, tmp_path):
    messages = [{"role": "user", "content": "go"}, {"role": "tool", "tool_call_id": "x", "content": "late"}]
    (tmp_path / "chat.json").write_text(json.dumps(messages))

    ran = cli("compress", "chat.json")

    assert problems(json.loads(ran.out)) == []
    assert "note: chat.json: message 1: repaired in the view" in ran.err


def test_a_terminal_shows_progress_and_gets_its_cursor_back(tmp_path, session_file):
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        command("compress", "chat.json", "--budget", BUDGET),
        cwd=tmp_path,
        env=environment(TERM="xterm"),
        stdout=subprocess.DEVNULL,
        stderr=follower,
    )
    os.close(follower)
    shown = b""
    while chunk := read_terminal(leader):
        shown += chunk
    os.close(leader)

    assert process.wait() == 0
    assert b"compressing" in shown
    assert shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l")


def test_thoughts_alone_are_stored_before_they_leave_and_told(cli, tmp_path):
    alone = {"role": "assistant", "content": None, "reasoning_content": "Port 8080 stands in app.yaml."}
    messages = [{"role": "user", "content": "Which port?"}, alone, {"role": "assistant", "content": "8080."}]
    (tmp_path / "chat.json").write_text(json.dumps(messages))

    (session,) = json.loads(cli("compress", "chat.json", "--json").err)["sessions"]

    assert session["view_messages"] == 2
    assert session["notes"] == [
        "left out: replies of thoughts alone (1), which no provider takes; they are stored"
    ]
    (ref,) = session["refs"]
    assert cli("read", ref).out == "Port 8080 stands in app.yaml."

    (tmp_path / "alone.json").write_text(json.dumps([alone]))
    ran = cli("compress", "alone.json")
    assert (ran.code, ran.out) == (2, "")
    assert "alone.json: none of its 1 messages can be sent: thoughts alone" in ran.err
