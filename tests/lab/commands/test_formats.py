"""`compress` on other formats, on directories, and on files in which something is broken."""

import gzip
import json

import pytest

from context_compressor.laws.chat_rules import problems
from tests.lab.readers.support import SAMPLES

CALL = {"id": "c", "type": "function", "function": {"name": "dig", "arguments": "{}"}}
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
    assert json.loads(forced.out) == {"messages": [{"role": "system", "content": "s"}, json.loads(HI)]}


@pytest.mark.parametrize("quiet", [False, True])
def test_lines_that_cannot_be_read_are_named_counted_and_skipped(cli, tmp_path, quiet):
    (tmp_path / "f.jsonl").write_text(f'{HI}\n{{"role": "robot"}}\n{HI}\n{{"role": "assis')

    ran = cli("compress", "f.jsonl", *(["--quiet"] if quiet else []))

    assert ran.code == 0
    assert ran.out == f"{HI}\n{HI}\n"
    assert "skipped: f.jsonl, line 2: messages[1].role: expected one of" in ran.err
    assert "skipped: f.jsonl, line 4, column 10: invalid JSON" in ran.err


def test_problems_are_summed_by_kind_and_json_has_them_all(cli, tmp_path):
    (tmp_path / "f.jsonl").write_text(f"{HI}\n" * 10 + "none\n" * 9 + '{"role": "robot"}\n')

    told = cli("compress", "f.jsonl")
    report = json.loads(cli("compress", "f.jsonl", "--json").err)

    assert told.err.count("skipped: ") == 2
    assert (
        "skipped: f.jsonl, line 11, column 1: invalid JSON: Expecting value (and 8 more like it)\n"
        in told.err
    )
    assert "skipped: f.jsonl, line 20: messages[10].role: expected one of" in told.err
    assert [problem["line"] for problem in report["problems"]] == list(range(11, 21))
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
    assert "skipped: chats: 1 file is no transcript: notes.md\n" in ran.err


def test_what_a_gzipped_file_unpacks_to_can_be_bounded(cli, tmp_path):
    (tmp_path / "f.json.gz").write_bytes(gzip.compress(f"[{HI}]".encode()))

    for command in (["compress"], ["replay"]):
        ran = cli(*command, "f.json.gz", "--max-unpacked", "20B")
        assert (ran.code, ran.out) == (2, "")
        assert "f.json.gz: unpacks to more than 20 bytes; allow more with --max-unpacked" in ran.err
    assert cli("compress", "f.json.gz", "--max-unpacked", "1KiB").code == 0
    assert "--max-unpacked much: not a size" in cli("compress", "f.json.gz", "--max-unpacked", "much").err


def test_notes_announce_only_what_was_done(cli, tmp_path):
    old = [
        {"role": "user", "content": "how deep?"},
        {"role": "assistant", "content": "", "function_call": {"name": "sound", "arguments": "{}"}},
        {"role": "function", "name": "sound", "content": "40 m"},
    ]
    lost = [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "user", "content": "well?"},
    ]
    (tmp_path / "old.json").write_text(json.dumps(old))
    (tmp_path / "lost.json").write_text(json.dumps([*old, *lost]))

    ran = cli("compress", "old.json")
    assert json.loads(ran.out) == old
    assert "note: " not in ran.err
    notes = [line for line in cli("compress", "lost.json").err.splitlines() if line.startswith("note: ")]
    (note,) = notes
    assert note.startswith("note: lost.json: message 3: repaired in the view: a call without result")


def test_a_file_of_which_most_is_foreign_is_refused_and_nothing_is_written(cli, tmp_path):
    (tmp_path / "log.jsonl").write_text(f"{HI}\n" + '{"level": "info"}\n' * 3)

    ran = cli("compress", "log.jsonl", "-o", "out.json")

    assert ran.code == 2
    assert "log.jsonl, line 2: most of it cannot be read as OpenAI chat: 3 of 4 records" in ran.err
    assert not (tmp_path / "out.json").exists()
    assert cli("replay", "log.jsonl").code == 2
