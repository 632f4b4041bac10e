"""`compress` on other formats, on directories, and on files in which something is broken."""

import json

import pytest

from tests.readers.support import SAMPLES
from tests.support.validity import problems

HI = '{"role": "user", "content": "hi"}'


def test_another_format_comes_back_as_openai_chat_json_and_says_so(cli):
    ran = cli("compress", SAMPLES / "langchain_messages_to_dict.json")

    assert ran.code == 0
    view = json.loads(ran.out)
    assert problems(view) == []
    assert view[0] == {"role": "system", "content": "Be brief."}
    assert "read as LangChain messages; written as OpenAI chat JSON\n" in ran.err


def test_several_sessions_of_another_format_come_back_a_line_each(cli, tmp_path):
    lines = [
        {"type": "user", "uuid": "1", "sessionId": "s", "message": {"role": "user", "content": "hi"}},
        {"type": "user", "uuid": "2", "sessionId": "s", "isSidechain": True, "agentId": "x",
         "message": {"role": "user", "content": "task"}},
    ]  # fmt: skip
    (tmp_path / "s.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    ran = cli("compress", "s.jsonl")

    assert [json.loads(line) for line in ran.out.splitlines()] == [
        {"id": "s", "messages": [{"role": "user", "content": "hi"}]},
        {"id": "s/agent-x", "messages": [{"role": "user", "content": "task"}]},
    ]
    assert "read as Claude Code session; written as OpenAI chat JSON, a session per line" in ran.err


def test_a_format_can_be_forced(cli, tmp_path):
    (tmp_path / "f.json").write_text(f'{{"system": "s", "messages": [{HI}]}}')

    found = cli("compress", "f.json")
    forced = cli("compress", "f.json", "--format", "openai")

    assert json.loads(found.out)[0] == {"role": "system", "content": "s"}
    assert json.loads(forced.out) == {"system": "s", "messages": [json.loads(HI)]}


@pytest.mark.parametrize("quiet", [False, True])
def test_lines_that_cannot_be_read_are_named_counted_and_skipped(cli, tmp_path, quiet):
    (tmp_path / "f.jsonl").write_text(f'{HI}\n{{"role": "robot"}}\n{HI}\n{{"role": "assis')

    ran = cli("compress", "f.jsonl", *(["--quiet"] if quiet else []))

    assert ran.code == 0
    assert ran.out == f"{HI}\n{HI}\n"
    assert "skipped: f.jsonl, line 2: messages[1].role: expected one of" in ran.err
    assert "skipped: f.jsonl, line 4, column 10: invalid JSON" in ran.err
    assert "f.jsonl: 2 unreadable items skipped\n" in ran.err


def test_many_problems_are_counted_and_json_has_them_all(cli, tmp_path):
    (tmp_path / "f.jsonl").write_text(f"{HI}\n" + "none\n" * 9)

    told = cli("compress", "f.jsonl")
    report = json.loads(cli("compress", "f.jsonl", "--json").err)

    assert told.err.count("skipped: ") == 5
    assert "9 unreadable items skipped; the first 5 are named" in told.err
    assert [problem["line"] for problem in report["problems"]] == list(range(2, 11))
    assert report["formats"] == ["openai"]


def test_a_directory_comes_back_a_session_per_line(cli, tmp_path):
    chats = tmp_path / "chats"
    (chats / "deep").mkdir(parents=True)
    (chats / "a.json").write_text(f'{{"id": "mine", "messages": [{HI}], "model": "m"}}')
    (chats / "deep" / "b.jsonl").write_text(f"{HI}\n{HI}\n")
    (chats / "deep" / "notes.md").write_text("# Notes")

    ran = cli("compress", "chats", "-o", "out.jsonl")

    hi = json.loads(HI)
    assert ran.code == 0
    assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()] == [
        {"id": "mine", "messages": [hi], "model": "m"},
        {"id": "deep/b.jsonl", "messages": [hi, hi]},
    ]
    assert "skipped: chats/deep/notes.md, line 1, column 1: invalid JSON" in ran.err
    assert "chats: 1 unreadable item skipped\n" in ran.err


def test_what_a_reader_left_out_is_noted(cli):
    ran = cli("compress", SAMPLES / "agentscope1_session.json")

    assert "the summary is left out" in ran.err
