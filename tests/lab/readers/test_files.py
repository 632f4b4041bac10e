"""Files, directories and what is damaged in them, whatever the format."""

import errno
import gzip
import io
import json
import os
import threading
import tracemalloc

import pytest

from context_compressor import CompressedMemory, FileOffloadStore
from context_compressor.lab.readers import Format, Problem, UnreadableError, read_all, read_path, read_stream
from tests.lab.readers.support import SAMPLES, read_lines, read_sample, read_text, read_value

HI = '{"role": "user", "content": "hi"}'
HI_DICT = json.loads(HI)


def shown(reading) -> list[str]:
    return [str(problem) for problem in reading.problems]


def test_a_torn_last_line_is_named_and_the_rest_is_read():
    reading = read_text(f'{HI}\n{HI}\n{{"role": "assistant", "cont')

    assert reading.sessions[0].messages == [HI_DICT, HI_DICT]
    assert shown(reading) == ["f, line 3, column 23: invalid JSON: Unterminated string"]


def test_a_bare_tab_in_a_string_is_named_with_its_place():
    reading = read_text(f'{HI}\n{{"role": "user", "content": "a\tb"}}\n')

    assert shown(reading) == ["f, line 2, column 31: invalid JSON: Invalid control character"]


def test_a_torn_first_line_is_named_and_the_rest_is_read():
    reading = read_text(f'tent": "x"}}\n{HI}\n')

    assert reading.sessions[0].messages == [HI_DICT]
    assert reading.problems[0].line == 1


def test_lines_that_are_no_utf_8_are_named(tmp_path):
    path = tmp_path / "f.jsonl"
    path.write_bytes(f"{HI}\n".encode() + b'{"role": "user", "content": "\xff"}\n' + f"{HI}\n".encode())

    reading = read_all(path, str(path))

    assert len(reading.sessions[0].messages) == 2
    assert shown(reading) == [f"{path}, line 2: byte 0xff is not UTF-8; save the file as UTF-8"]


@pytest.mark.parametrize("count", [1, 2])
def test_lines_before_a_failure_of_the_disk_are_read(count):
    class Failing(io.BytesIO):
        def readline(self, size=-1):
            return super().readline(size) or self.fail()

        def fail(self):
            raise OSError(errno.EIO, "Input/output error")

    reading = read_all(Failing(f"{HI}\n".encode() * count), "f")

    assert reading.sessions[0].messages == [HI_DICT] * count
    assert shown(reading) == [
        f"f, line {count + 1}: cannot be read: Input/output error; what follows is lost"
    ]


def test_lines_before_the_damage_of_a_gzip_file_are_read(tmp_path):
    path = tmp_path / "f.jsonl.gz"
    lines = "".join(f'{{"role": "user", "content": "{os.urandom(40).hex()}"}}\n' for _ in range(2000))
    path.write_bytes(gzip.compress(lines.encode())[:-5000])

    reading = read_all(path, str(path))

    (session,) = reading.sessions
    assert 0 < len(session.messages) < 2000
    (problem,) = reading.problems
    assert problem.line == len(session.messages) + 1
    assert "the gzip data is damaged" in problem.why
    assert "what follows is lost" in problem.why


@pytest.mark.parametrize("data", [b"\x1f\x8b", b"\x1f\x8bnot gzip", gzip.compress(HI.encode(), mtime=0)[:9]])
def test_a_gzip_file_that_is_damaged_from_its_start_is_not_empty(data):
    with pytest.raises(UnreadableError, match="f: the gzip data is damaged"):
        read_all(io.BytesIO(data), "f")


def test_messages_that_are_none_are_named_with_their_line_and_place():
    reading = read_text(f'{HI}\n{{"role": "robot"}}\n\n{HI}\n')

    assert [session.message_lines for session in reading.sessions] == [(1, 4)]
    (problem,) = reading.problems
    assert str(problem).startswith("f, line 2: messages[1].role: expected one of")


def test_a_session_of_jsonl_that_is_none_is_named_and_the_others_are_read():
    reading = read_lines([[HI_DICT], [HI_DICT, {"role": "user"}], {"messages": [HI_DICT]}])

    assert [session.line for session in reading.sessions] == [1, 3]
    (problem,) = reading.problems
    assert str(problem).startswith("f, line 2: messages[1].content:")


def test_messages_of_other_formats_that_are_none_are_named_by_their_place():
    request = {"system": "s", "messages": [{"role": "user", "content": "hi"}, {"role": "robot"}]}

    reading = read_value(request)

    assert shown(reading) == ["f: messages[1].role: expected user, assistant or system, got 'robot'"]
    assert len(reading.sessions[0].messages) == 2


@pytest.mark.parametrize("format", list(Format))
def test_a_forced_format_refuses_what_is_of_another(format):
    value = {"some": "thing"}

    with pytest.raises(UnreadableError, match=r"^f: "):
        read_value(value, format)


def test_a_forced_format_wins_over_what_the_content_looks_like():
    messages = [{"role": "user", "content": [{"type": "document", "source": {"type": "url", "url": "u"}}]}]

    assert read_value(messages).formats == (Format.ANTHROPIC,)
    (session,) = read_value(messages, Format.OPENAI).sessions
    assert session.messages == messages


def test_a_session_without_messages_says_so():
    with pytest.raises(UnreadableError, match=r"f: holds no message \(read as: Claude Code session\)"):
        read_lines([{"type": "summary", "summary": "s", "leafUuid": "u"}])


@pytest.fixture
def mixed(tmp_path):
    """Sessions of several formats among other things."""
    root = tmp_path / "mixed"
    (root / "b" / ".hidden").mkdir(parents=True)
    (root / "b" / ".hidden" / "chat.json").write_text(f"[{HI}]")
    (root / "b" / "chat.json.gz").write_bytes(gzip.compress(f"[{HI}]".encode()))
    (root / "b" / "state.json").write_bytes((SAMPLES / "agentscope1_session.json").read_bytes())
    (root / "a.jsonl").write_text(f'[{HI}]\n{{"messages": [{HI}], "id": "mine"}}\n[{{"ro')
    (root / "notes.md").write_text("# Notes\n")
    (root / "package.json").write_text('{"name": "x", "version": "1"}')
    (root / "picture.png").write_bytes(b"\x89PNG\x00\x00")
    (root / "zero").write_bytes(b"")
    (root / "loop").symlink_to(root, target_is_directory=True)
    (root / "gone").symlink_to(root / "nowhere")
    return root


def test_a_directory_gives_its_sessions_and_names_what_is_none(mixed):
    reading = read_all(mixed, str(mixed))

    assert [session.id for session in reading.sessions] == ["a.jsonl:1", "mine", "b/chat.json.gz", "agent"]
    assert reading.formats == (Format.OPENAI, Format.AGENTSCOPE)
    problems = {os.path.relpath(problem.file, mixed): problem for problem in reading.problems}
    assert problems.keys() == {"a.jsonl", "."}
    assert problems["a.jsonl"].line == 3
    assert problems["."].why == "4 files are no transcripts, like notes.md"


async def test_what_a_store_keeps_beside_sessions_is_no_session(tmp_path):
    (tmp_path / "chat.json").write_text(f"[{HI}]")
    memory = CompressedMemory(store=FileOffloadStore(tmp_path / "working_memory", "chat"))
    await memory.store.write(f"[{HI}, {HI}]")
    await memory.store.write("the log of a build")
    await memory.sync([HI_DICT])
    assert await memory.search_history("hi")
    assert len(list((tmp_path / "working_memory" / "chat").iterdir())) == 3

    reading = read_all(tmp_path, str(tmp_path))

    assert [session.id for session in reading.sessions] == ["chat.json"]
    assert shown(reading) == []


def test_a_directory_is_read_in_the_same_order_always(mixed):
    first = [(session.source, session.line) for session in read_all(mixed, str(mixed)).sessions]

    assert first == [(session.source, session.line) for session in read_all(mixed, str(mixed)).sessions]
    assert first == sorted(first, key=lambda place: (place[0].count("/"), place))


def test_files_with_an_event_each_are_a_session(tmp_path):
    lines = (SAMPLES / "openhands_sdk.jsonl").read_text("utf-8").splitlines()
    events = tmp_path / "talk" / "events"
    events.mkdir(parents=True)
    for number, line in enumerate(lines):
        value = json.dumps(json.loads(line), indent=2)
        (events / f"event-{number:05d}-00ff-{number}.json").write_text(value, "utf-8")
    (tmp_path / "talk" / "base_state.json").write_text("{}", "utf-8")
    whole = read_sample("openhands_sdk.jsonl").sessions[0]

    for directory, id in ((tmp_path, "talk/events"), (events, "events")):
        reading = read_all(directory, "d")
        (session,) = reading.sessions
        assert (session.id, session.messages) == (id, whole.messages)
        assert len(reading.problems) == (directory == tmp_path)


def test_a_directory_without_a_session_says_so(tmp_path):
    with pytest.raises(UnreadableError, match=r"is a directory in which no session was found$"):
        read_all(tmp_path, str(tmp_path))
    (tmp_path / "notes.md").write_text("# Notes")
    (tmp_path / "more.md").write_text("# More")
    with pytest.raises(
        UnreadableError, match=r"no session was found; .*: 2 files are no transcripts, like more.md"
    ):
        read_all(tmp_path, str(tmp_path))


def test_a_pipe_is_read(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=(f"{HI}\n{HI}\n",))
    writer.start()

    assert len(read_all(path, str(path)).sessions[0].messages) == 2
    writer.join()


def test_a_file_is_unpacked_and_read_line_by_line(tmp_path):
    """Sessions are handed out as they are read: what is held at once is one, not the file."""
    path = tmp_path / "many.jsonl.gz"
    session = json.dumps([{"role": "user", "content": "x" * 100_000}])
    with gzip.open(path, "wt", compresslevel=1) as stream:
        for _ in range(300):
            stream.write(f"{session}\n")
    problems: list[Problem] = []

    tracemalloc.start()
    count = sum(len(session.messages) for session in read_path(path, problems))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert count == 300
    assert peak < 15_000_000  # of 30 MB; the first 50 lines are held to find the format out


def test_what_a_file_unpacks_to_is_bounded(tmp_path):
    """Its size on the disk says nothing: what is unpacked is counted as it is read."""
    path = tmp_path / "small.json.gz"
    with gzip.open(path, "wb") as stream:
        stream.write(b'[{"role": "user", "content": "')
        for _ in range(64):
            stream.write(b"a" * 2**20)
        stream.write(b'"}]')

    tracemalloc.start()
    with pytest.raises(
        UnreadableError, match="unpacks to more than 4,194,304 bytes; allow more with --max-unpacked"
    ):
        read_all(path, "small", max_unpacked=4 * 2**20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 16 * 2**20
    assert len(read_all(path, "small").sessions[0].messages) == 1


def test_a_stream_is_read_under_a_given_name():
    problems: list[Problem] = []

    (session,) = read_stream(io.BytesIO(f"{HI}\nnone\n".encode()), "here", problems)

    assert session.source == "here"
    assert problems == [Problem("here", 2, "invalid JSON: Expecting value", 1)]
