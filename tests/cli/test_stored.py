import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from context_compressor import FileOffloadStore
from tests.cli.support import command, environment, run_process


@pytest.fixture
async def refs(tmp_path):
    """Three texts in two namespaces, one of them in both."""
    texts = {
        "poem": "roses are red\nviolets are blue\nROSES again\nand so on\nend\n",
        "bytes": "no newline at the end \udcff\r\nsecond line",
        "shared": "stands in both\n",
    }
    for namespace, names in {"a": ("poem", "shared"), "b": ("bytes", "shared")}.items():
        store = FileOffloadStore(tmp_path / "store", namespace)
        for name in names:
            texts[name + "_ref"] = await store.write(texts[name])
    return texts


def test_read_prints_the_text_as_it_was(cli, refs):
    assert cli("read", refs["poem_ref"], "--store", "store").out == refs["poem"]
    assert (
        cli("read", refs["poem_ref"].removeprefix("ctx://").upper(), "--store", "store").out == refs["poem"]
    )


def test_read_prints_lone_surrogates_as_the_bytes_they_came_from(tmp_path, refs):
    from tests.cli.support import run_process

    ran = run_process("read", refs["bytes_ref"], "--store", "store", cwd=tmp_path)

    assert ran.stdout == refs["bytes"].encode("utf-8", "surrogatepass")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--offset", 2, "--limit", 1], "violets are blue\n"),
        (["--limit", 2], "roses are red\nviolets are blue\n"),
        (["--offset", 5], "end\n"),
        (["--offset", 4, "--limit", 99], "and so on\nend\n"),
    ],
)
def test_read_prints_the_lines_asked_for(cli, refs, options, expected):
    assert cli("read", refs["poem_ref"], "--store", "store", *options).out == expected


def test_read_looks_through_all_namespaces_or_the_one_named(cli, refs):
    assert cli("read", refs["poem_ref"], "--store", "store", "--namespace", "a").code == 0

    ran = cli("read", refs["poem_ref"], "--store", "store", "--namespace", "b")

    assert (ran.code, ran.out) == (1, "")
    assert ran.err.count("\n") == 1
    assert refs["bytes_ref"] in ran.err


def test_read_of_what_is_not_stored_says_what_is(cli, refs):
    ran = cli("read", "ctx://0000000000000000", "--store", "store")

    assert (ran.code, ran.out) == (1, "")
    assert ran.err.count("\n") == 1
    assert "stored there: ctx://" in ran.err


def test_read_beyond_the_end_says_where_it_is(cli, refs):
    ran = cli("read", refs["shared_ref"], "--store", "store", "--offset", 9)

    assert ran.code == 1
    assert "has 2 lines" in ran.err


def test_a_damaged_text_is_trouble_unless_another_namespace_has_it(cli, refs, tmp_path):
    name = refs["shared_ref"].removeprefix("ctx://") + ".txt"
    (tmp_path / "store" / "a" / name).write_text("changed")

    assert cli("read", refs["shared_ref"], "--store", "store").out == refs["shared"]
    (tmp_path / "store" / "b" / name).unlink()
    ran = cli("read", refs["shared_ref"], "--store", "store")
    assert (ran.code, ran.out) == (2, "")
    assert "was truncated or changed" in ran.err


def test_an_unknown_namespace_is_refused_with_those_there_are(cli, refs):
    ran = cli("grep", "x", "--store", "store", "--namespace", "c")

    assert ran.code == 2
    assert "there: a, b" in ran.err


def test_grep_prints_ref_line_and_text(cli, refs):
    ran = cli("grep", "^roses", "--store", "store")

    assert (ran.code, ran.out) == (0, f"{refs['poem_ref']}:1:roses are red\n")


def test_grep_ignores_case_and_shows_context(cli, refs):
    ref = refs["poem_ref"]

    ran = cli("grep", "roses", "-i", "-C", 1, "--store", "store", "--ref", ref)

    assert ran.out == (
        f"{ref}:1:roses are red\n{ref}-2-violets are blue\n{ref}:3:ROSES again\n{ref}-4-and so on\n"
    )


def test_grep_without_a_match_ends_with_1_and_says_nothing(cli, refs):
    ran = cli("grep", "nothing like it", "--store", "store")

    assert (ran.code, ran.out, ran.err) == (1, "", "")


@pytest.mark.parametrize("pattern", ["(", "((x{500}){500}){500}", "(?R)"])
def test_grep_refuses_a_pattern_that_cannot_be_used(cli, refs, pattern):
    ran = cli("grep", pattern, "--store", "store")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1


ENDLESS = r"(a|aa)+(?<!b)$"


async def test_grep_gives_up_on_a_pattern_that_never_ends(cli, tmp_path, monkeypatch):
    await FileOffloadStore(tmp_path / "store").write("a" * 60 + "b")
    monkeypatch.setattr("context_compressor.cli.stored.GREP_SECONDS", 0.05)

    # In a thread: the test has an event loop, and the command starts its own.
    ran = await asyncio.to_thread(cli, "grep", ENDLESS, "--store", "store")

    assert ran.code == 2
    assert "the search was stopped" in ran.err


async def test_grep_has_one_limit_for_all_texts_and_names_those_it_did_not_search(cli, tmp_path, monkeypatch):
    store = FileOffloadStore(tmp_path / "store")
    refs = [await store.write("a" * 60 + "b" * count) for count in (1, 2, 3)]
    monkeypatch.setattr("context_compressor.cli.stored.GREP_SECONDS", 0.05)

    ran = await asyncio.to_thread(cli, "grep", ENDLESS, "--store", "store")

    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "stopped after 0.05 s, so 3 texts were not searched to the end: ctx://" in ran.err
    assert all(ref in ran.err for ref in refs)


def test_grep_searches_on_and_counts_the_texts_that_cannot_be_read(cli, refs, tmp_path):
    for store, name in (("a", refs["poem_ref"]), ("b", refs["bytes_ref"])):
        (tmp_path / "store" / store / f"{name.removeprefix('ctx://')}.txt").write_text("changed")

    ran = cli("grep", "both", "--store", "store")

    assert (ran.code, ran.out) == (2, f"{refs['shared_ref']}:1:stands in both\n")
    assert ran.err.count("\n") == 1
    assert "was truncated or changed" in ran.err
    assert "(and 1 more that cannot be read)" in ran.err


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGINT between processes here")
def test_ctrl_c_ends_a_search_that_never_ends(tmp_path):
    store = FileOffloadStore(tmp_path / "store")
    for text in ("found me", "a" * 60 + "b"):
        asyncio.run(store.write(text))
    code = (
        "import sys\n"
        "from context_compressor.cli import app, stored\n"
        "stored.GREP_SECONDS = 1e6\n"
        "sys.exit(app.run(sys.argv[1:]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "grep", f"found|{ENDLESS}", "--store", "store"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert process.stdout.readline().endswith(b":1:found me\n")  # the other text is searched next
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)  # else it would go on for days
    finally:
        process.kill()
        process.communicate()

    assert (process.returncode, err) == (130, b"context-compressor: interrupted\n")


def test_what_left_the_view_is_found_and_read_again(cli, tmp_path, recorded):
    (tmp_path / "chat.json").write_text(json.dumps(recorded))
    cli("compress", "chat.json", "--budget", 8000, "-o", "small.json")
    listings = [m["content"] for m in recorded if m["role"] == "tool" and m["content"][0].isdigit()]
    original = next(text for text in listings if "def call_soon(" in text)
    line = next(line for line in original.split("\n") if "def call_soon(" in line)

    found = cli("grep", r"^\d+\t.*def call_soon\(").out.splitlines()

    ref, number, text = found[0].removeprefix("ctx://").split(":", 2)
    assert text == line
    read = cli("read", ref, "--offset", number, "--limit", 20).out
    assert read in original + "\n"
    assert read.count("\n") == 20


@pytest.mark.parametrize("command_line", [("read", "REF"), ("grep", "evil")])
def test_a_terminal_is_not_told_what_to_do(tmp_path, command_line):
    """A text may write to the clipboard, or over what stands above it; a pipe gets it as it was."""
    text = "evil \x1b]52;c;cm0gLXJm\x07 name\u202etxt.exe 你好\u3000é\n"
    ref = asyncio.run(FileOffloadStore(tmp_path / "store").write(text))
    told = [ref if word == "REF" else word for word in command_line]
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        command(*told, "--store", "store"), cwd=tmp_path, env=environment(), stdout=follower
    )
    os.close(follower)
    shown = b""
    with suppress(OSError):  # Linux says so when the other end is closed
        while chunk := os.read(leader, 65536):
            shown += chunk
    os.close(leader)

    assert process.wait() == 0
    assert r"evil \x1b]52;c;cm0gLXJm\x07 name\u202etxt.exe 你好　é" in shown.decode()
    assert b"\x1b" not in shown
    assert text.encode() in run_process(*told, "--store", "store", cwd=tmp_path).stdout
