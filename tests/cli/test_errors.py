import gzip

import pytest

USER = b'{"role": "user", "content": "hi"}'

BAD_FILES = {
    "empty": (b"", ["f.json: is empty"]),
    "blank": (b" \n\n ", ["f.json: is empty"]),
    "scalar": (b"42", ["f.json: expected", "got int"]),
    "null": (b"null", ["f.json: expected", "got null"]),
    "broken": (b'[\n  {"role": "user",\n   "content" "hi"}\n]', ["f.json, line 3, column 14: invalid JSON"]),
    "cut off": (b'[{"role": "user", "con', ["f.json, line 1, column 19: invalid JSON"]),
    "broken JSONL": (b'{"messages": []}\n{"messages": [}\n', ["f.json, line 2, column 15: invalid JSON"]),
    "nested too deep": (b"[" * 200_000, ["f.json: invalid JSON: nested too deep"]),
    "endless number": (
        b"[\n" + b"1" * 5000 + b"]",
        ["f.json: holds an integer of more than 4,300 digits; make it a string"],
    ),
    "endless number in a line": (
        b'{"role": "user"}\n{"n": ' + b"1" * 5000 + b"}\n",
        ["f.json, line 2: holds an integer of more than 4,300 digits; make it a string", "and 1 more"],
    ),
    "no messages": (b'{"id": 1, "turns": []}', ["f.json: messages:", "missing", "id, turns"]),
    "messages no list": (b'{"messages": {}}', ["f.json: messages: expected a list", "got dict"]),
    "scalar in JSONL": (b'{"messages": []}\n\n7\n', ["f.json, line 3: expected", "got int"]),
    "wrong role": (
        b'[{"role": "robot", "content": ""}]',
        ["f.json, line 1: messages[0].role: expected one of", "'robot'"],
    ),
    "no role": (b"[%b, {}]" % USER, ["f.json, line 1: messages[1].role:", "missing"]),
    "no dict": (b'[%b, "hi"]' % USER, ["f.json, line 1: messages[1]: expected a chat dict, got str"]),
    "wrong field": (
        b'[{"role": "tool", "tool_call_id": 5, "content": "x"}]',
        ["f.json, line 1: messages[0].tool_call_id: expected a string, got int"],
    ),
    "wrong field in a list of lines": (
        b'[\n  %b,\n\n  {\n    "role": "user"\n  },\n  %b\n]' % (USER, USER),
        ["f.json, line 4: messages[1].content: expected a string", "missing"],
    ),
    "wrong field behind other keys": (
        b'{\n "id": {"messages": [1, "]"]},\n "messages" :\n [ %b,\n {"role": "robot"}]}' % USER,
        ["f.json, line 5: messages[1].role: expected one of", "'robot'"],
    ),
    "wrong field in a single message": (
        b'\n{"role": "user",\n "content": 5}',
        ["f.json, line 2: messages[0].content: expected a string", "got int"],
    ),
    "messages twice, the last of which count": (
        b'{"messages": [],\n "messages": [%b,\n {"role": "robot"}], "id": 1}' % USER,
        ["f.json, line 3: messages[1].role: expected one of", "'robot'"],
    ),
    "every session of JSONL": (
        b'{"messages": [%b, {"role": "user"}]}\n[%b]\n' % (USER, b'{"role": "robot"}'),
        ["f.json, line 1: messages[1].content:", "and 1 more"],
    ),
    "every message of JSONL": (
        b'{"role": "robot"}\n\n{"role": "user"}\n',
        ["f.json, line 1: messages[0].role:", "and 1 more"],
    ),
    "lines of something else": (
        b'{"id": 1, "conversation": []}\n{"id": 2, "conversation": []}\n',
        [
            "f.json: its lines are no messages or sessions",
            "(keys found: id, conversation)",
            'a session is {"messages": [...]}',
        ],
    ),
    "binary": (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", ["f.json: is a binary file"]),
    "gzipped binary": (gzip.compress(b"ustar\x00\x00"), ["f.json: is a binary file"]),
    "UTF-16": ("[]".encode("utf-16"), ["f.json: is UTF-16 text; save the file as UTF-8"]),
    "UTF-32": ("[]".encode("utf-32"), ["f.json: is UTF-32 text; save the file as UTF-8"]),
    "zstd": (b"\x28\xb5\x2f\xfd\x04\x00", ["f.json: is compressed with zstd; unpack it first"]),
    "not UTF-8": (b'[\n{"role": "user",\n"content": "\xff"}]', ["f.json, line 3: byte 0xff is not UTF-8"]),
    "cut off gzip": (gzip.compress(USER * 50)[:-12], ["f.json: the gzip data is damaged"]),
    "changed gzip": (gzip.compress(USER * 50)[:20] + b"\x00" * 20, ["f.json: the gzip data is damaged"]),
}

BAD_OPTIONS = {
    "mode": (["--mode", "shrink"], ["--mode", "'shrink'", "'compact'"]),
    "budget of nothing": (["--budget", "0"], ["--budget", "max_total_tokens", "greater than 0", "got 0"]),
    "budget beyond all numbers": (["--budget", "9" * 400], ["--budget (max_total_tokens): ", "less than"]),
    "budget in words": (["--max-total-tokens", "many"], ["--max-total-tokens", "valid integer"]),
    "tool tokens": (
        ["--budget", "4000", "--max-tool-message-tokens", "5000"],
        ["--max-tool-message-tokens (5000) must be below --budget (4000); lower it, or raise --budget"],
    ),
    "recent": (["--keep-recent", "-1"], ["--keep-recent (keep_recent_count)", "got -1"]),
    "group": (["--group-tokens", "-1"], ["--group-tokens (group_token_threshold)", "got -1"]),
    "model": (["--model", "gpt-x"], ["--model needs --summarizer openai"]),
    "base url": (["--base-url", "http://x"], ["--base-url needs --summarizer openai"]),
    "key": (["--summarizer", "openai"], ["OPENAI_API_KEY", "--summarizer extractive"]),
    "dashscope key": (["--summarizer", "dashscope"], ["DASHSCOPE_API_KEY", "--summarizer extractive"]),
    "summarizer": (["--summarizer", "magic"], ["--summarizer", "'magic'"]),
    "namespace": (["--namespace", "../up"], ["--namespace: '../up' cannot name a directory"]),
    "output directory": (["-o", "."], ["--output .: is a directory"]),
    "output nowhere": (["-o", "no/where.json"], ["--output no/where.json: there is no directory no"]),
    "unknown": (["--shrink"], ["--shrink", "compress --help"]),
}

BAD_SERVERS = {
    "no address": (["--base-url", "localhost"], ["--base-url: expected an address", "got 'localhost'"]),
    "no model": (["--model", ""], ["--model: expected the name of a model, got ''"]),
}


def assert_refused(ran, code: int, parts: list[str]) -> None:
    assert ran.code == code, ran
    assert ran.out == ""
    assert ran.err.startswith("context-compressor: ")
    assert ran.err.count("\n") == 1
    assert ran.err.endswith("\n")
    for part in parts:
        assert part in ran.err


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_input_is_refused_with_file_line_and_field(cli, tmp_path, case):
    data, parts = BAD_FILES[case]
    (tmp_path / "f.json").write_bytes(data)

    assert_refused(cli("compress", "f.json", "-o", "out.json"), 2, parts)
    assert [path.name for path in tmp_path.iterdir()] == ["f.json"]


@pytest.mark.parametrize("summarizer", ["openai", "dashscope"])
@pytest.mark.parametrize("case", BAD_SERVERS)
def test_a_model_that_nobody_can_ask_is_refused(cli, monkeypatch, case, summarizer):
    monkeypatch.setenv(f"{summarizer.upper()}_API_KEY", "none")
    options, parts = BAD_SERVERS[case]

    assert_refused(cli("compress", "f.json", "--summarizer", summarizer, *options), 2, parts)


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_a_wrong_option_is_refused_by_name(cli, tmp_path, case):
    options, parts = BAD_OPTIONS[case]
    (tmp_path / "f.json").write_bytes(b"[%b]" % USER)

    assert_refused(cli("compress", "f.json", *options), 2, parts)
    assert [path.name for path in tmp_path.iterdir()] == ["f.json"]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["compress", ""], "FILE"),
        (["compress", "f.json", "--store", ""], "--store"),
        (["compress", "f.json", "-o", ""], "--output"),
        (["read", "0123456789abcdef", "--store", ""], "--store"),
        (["grep", "x", "--store", ""], "--store"),
        (["gc", ""], "DIR"),
        (["replay", "f.json", ""], "PATH"),
        (["replay", "f.json", "--report", ""], "--report"),
        (["replay", "f.json", "--png", ""], "--png"),
        (["demo", "--store", ""], "--store"),
    ],
)
def test_an_empty_path_is_not_the_current_directory(cli, tmp_path, arguments, what):
    (tmp_path / "f.json").write_bytes(b"[%b]" % USER)

    assert_refused(cli(*arguments), 2, [f"{what} is empty; name a file or directory"])
    assert [path.name for path in tmp_path.iterdir()] == ["f.json"]


def test_a_closed_stdin_is_one_line(cli, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)

    assert_refused(cli("compress", "-"), 2, ["stdin is closed; name a file"])


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["compress", "none.json"], ["none.json: there is no such file"]),
        (["compress", "."], [".: is a directory in which no session was found", "a.txt"]),
        (["compress", "nul\0byte"], ["nul\\x00byte: cannot be read"]),
        (["compress"], ["FILE", "compress --help"]),
        (["shrink"], ["shrink"]),
        (["read", "12"], ["'12' is not a ref"]),
        (["read", "ctx://0123456789abcdef", "--offset", "0"], ["--offset"]),
        (["read", "ctx://0123456789abcdef"], ["--store working_memory: does not exist"]),
        (["grep", "x", "--store", "none"], ["--store none: does not exist"]),
        (["compress", "f.json", "--store", "a.txt"], ["--store a.txt: is not a directory"]),
        (["demo", "--store", "a.txt"], ["--store a.txt: is not a directory"]),
        (["demo", "--summarizer", "openai"], ["OPENAI_API_KEY"]),
        (["demo", "--budget", "100"], ["--budget"]),
        (["demo", "--turns", "0"], ["--turns"]),
        (["demo", "--keep-recent", "-2"], ["--keep-recent"]),
    ],
)
def test_what_cannot_be_done_ends_with_2_and_one_line(cli, tmp_path, arguments, parts):
    (tmp_path / "a.txt").touch()
    assert_refused(cli(*arguments), 2, parts)


def test_a_session_that_cannot_fit_ends_with_1_and_says_what_is_too_large(cli, tmp_path):
    (tmp_path / "f.jsonl").write_text(
        '[{"role": "user", "content": "hi"}]\n'
        '[{"role": "system", "content": "%s"}, {"role": "user", "content": "hi"}]\n' % ("word " * 500)
    )

    ran = cli("compress", "f.jsonl", "--budget", "300", "-o", "out.json")

    assert_refused(ran, 1, ["f.jsonl, line 2:", "the budget is 300", "messages[0] (", "--budget"])
    assert not (tmp_path / "out.json").exists()


def test_a_store_that_cannot_be_written_is_trouble_since_texts_would_be_lost(cli, tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "chat").write_text("a file, not a directory")
    (tmp_path / "f.json").write_text('[{"role": "user", "content": "%s"}]' % ("word " * 500))

    where = ["--store", "store", "--namespace", "chat"]
    ran = cli("compress", "f.json", "--budget", "300", *where, "-o", "out.json")

    assert_refused(ran, 2, ["--store store: Offload"])
    assert not (tmp_path / "out.json").exists()


def test_version_and_help(cli):
    assert cli("--version").out.startswith("context-compressor ")
    assert cli().out == cli("--help").out == cli("-h").out
    for command in ("compress", "read", "grep", "demo"):
        assert command in cli("--help").out
        ran = cli(command, "--help")
        assert (ran.code, ran.err) == (0, "")
        assert "Usage: context-compressor" in ran.out
