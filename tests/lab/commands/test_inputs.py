import gzip
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.cli.options import CommandError
from context_compressor.cli.output import check_output, write_output
from context_compressor.lab.commands.compress import dump, read_sessions
from context_compressor.lab.readers import Form, Reading

TEXTS = st.text(max_size=30)  # line separators and control characters included
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant"]), "content": TEXTS.map("words ".__add__)}
    ),
    min_size=1,
    max_size=4,
)
OBJECTS = st.builds(
    lambda id, messages, more: {"id": id, "messages": messages, "more": more}, TEXTS, MESSAGES, TEXTS
)
SESSIONS = st.one_of(MESSAGES, OBJECTS)


def read_text(text: str) -> Reading:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "f"
        file.write_bytes(text.encode())
        return read_sessions(str(file))


def load_all(text: str) -> list:
    return [json.loads(line) for line in text.split("\n") if line]


@given(SESSIONS, st.sampled_from([None, 2]), st.booleans())
def test_one_json_value_comes_back_as_it_was(value, indent, ascii_only):
    source = read_text(json.dumps(value, indent=indent, ensure_ascii=ascii_only))

    assert source.form is Form.ONE
    text = dump(source, [session.messages for session in source.sessions])
    assert json.loads(text) == value
    assert ("\n" in text.strip()) == (indent is not None)
    text.encode()  # always UTF-8, lone surrogates escaped


@given(st.lists(SESSIONS, min_size=2, max_size=4), st.sampled_from(["\n", "\r\n", "\n\n"]))
def test_a_session_per_line_comes_back_a_session_per_line(values, newline):
    text = newline.join(json.dumps(value, ensure_ascii=False) for value in values)
    source = read_text(text)

    assert source.form is Form.SESSION_LINES
    assert load_all(dump(source, [session.messages for session in source.sessions])) == values


@given(MESSAGES)
def test_a_message_per_line_is_one_session(messages):
    source = read_text("".join(f"{json.dumps(message)}\n" for message in messages))

    assert source.form is Form.MESSAGE_LINES
    assert [session.messages for session in source.sessions] == [messages]
    assert load_all(dump(source, [messages])) == messages


def test_output_is_the_same_file_for_the_same_text(tmp_path):
    write_output(str(tmp_path / "a.json.gz"), "text")
    write_output(str(tmp_path / "b.json.gz"), "text")

    data = (tmp_path / "a.json.gz").read_bytes()
    assert gzip.decompress(data) == b"text"
    assert data == (tmp_path / "b.json.gz").read_bytes()


def test_an_output_that_is_replaced_keeps_mode_and_link(tmp_path):
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)

    write_output(str(link), "new")

    assert link.is_symlink()
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o640
    assert {path.name for path in tmp_path.iterdir()} == {"target.json", "link.json"}


def test_an_output_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    (tmp_path / "out.json").write_text("old")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))

    with pytest.raises(CommandError, match="No space left"):
        write_output(str(tmp_path / "out.json"), "new")

    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
    assert (tmp_path / "out.json").read_text() == "old"


def test_an_output_linked_to_nowhere_is_refused_before_the_work(tmp_path):
    (tmp_path / "out.json").symlink_to(tmp_path / "gone" / "out.json")

    with pytest.raises(CommandError, match="gone is missing or read-only"):
        check_output(str(tmp_path / "out.json"))
