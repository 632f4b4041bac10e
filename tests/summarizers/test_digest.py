import json

import pytest

from context_compressor.messages.msg import Msg
from context_compressor.offload.stubs import media_stub
from context_compressor.summarizers.extracts.digest import digest_messages
from context_compressor.summarizers.extracts.titles import describe_arguments, telling_arguments
from tests.summarizers.support import assistant, call, result, segment, user
from tests.support.media import png_url


@pytest.mark.parametrize(
    ("arguments", "described"),
    [
        ({}, ""),
        ({"path": "src/a.py"}, "src/a.py"),
        ({"limit": 20, "path": "src/a.py"}, "src/a.py limit=20"),
        ({"command": "cd /repo && pytest -q\necho done"}, "pytest -q"),
        ({"order_id": "#W1", "reason": "", "items": []}, "order_id=#W1"),
        ({"filter": {"city": "北京"}}, 'filter={"city": "北京"}'),
        ({"command": 'python -c "\nimport os\nprint(os.sep)\n"'}, 'python -c " print(os.sep)'),
        ({"command": "python3 - <<'EOF'\nimport re\nfix(1)\nEOF"}, "python3 - <<'EOF' fix(1)"),
        ({"command": "cat > a.py <<'EOF'\nimport re\nfix(1)\nEOF"}, "cat > a.py <<'EOF'"),
        ({"command": "#!/bin/sh\nset -e\nmake all"}, "make all"),
        ({"command": ["bash", "-lc", "ls src"]}, "ls src"),
        ({"command": ["python", "-c", "main()", "a.json"]}, "python -c main() a.json"),
        ({"code": "import pandas as pd\nfrom a import b\n\n# drop tests\nb()"}, "# drop tests"),
        ({"code": "import os"}, "import os"),
        ({"query": "<ask>\nservers for PDF\n</ask>"}, "servers for PDF"),
        ({"path": "a.ts", "content": "/**\n * Opens doors.\n */"}, "a.ts content=* Opens doors."),
        ({"path": "a.py", "old": "def f():\n  a", "new": "def f():\n  b"}, "a.py old=def f():"),
        ({"path": "a.py", "text": "[Offloaded argument ctx://0123456789abcdef: 9 lines]\nx"}, "a.py"),
        (
            {"input": "*** Begin Patch\n*** Update File: src/a.py\n@@ def f\n-x\n+y\n*** End Patch"},
            "input=*** Update File: src/a.py",
        ),
        (
            {"patch": "*** Begin Patch\n*** Update File: services/billing/src/invoices/model.py"},
            "patch=*** Update File: services/billing/src/invoices/model.py",
        ),
        ({"server": "s", "tool": "t", "params": {"path": "a.py", "n": 1}}, "a.py server=s tool=t"),
    ],
)
def test_arguments_are_described_by_what_tells_most(arguments: dict, described: str):
    assert describe_arguments(telling_arguments(arguments)) == described


def test_results_are_matched_to_their_calls():
    digest = digest_messages(
        [
            call("read", "a", path="x.py"),
            call("grep", "b", pattern="f"),
            result("b", "x.py:3"),
            result("a", "text"),
        ],
        None,
    )
    assert [(c.name, c.outcome) for c in digest.calls] == [("read", "text"), ("grep", "x.py:3")]


def test_a_result_without_its_call_is_named_by_its_tool():
    [read] = digest_messages([result("gone", "text", "read")], None).calls
    assert (read.name, read.outcome) == ("read", "text")


def test_instructions_speak_as_the_user_and_reasoning_not_at_all():
    thinking = Msg("assistant", [{"type": "thinking", "thinking": "secret"}], "assistant")
    digest = digest_messages([Msg("system", "Be brief.", "system"), thinking, assistant("Hello.")], None)
    assert [said.text for said in digest.requests] == ["Be brief."]
    assert [said.text for said in digest.replies] == ["Hello."]


def test_what_was_spoken_is_read_as_what_was_written():
    spoken = {"type": "audio", "audio": {"id": "audio_1"}, "text": "The code is 1058."}
    digest = digest_messages([Msg("assistant", [spoken], "assistant")], None)
    assert [said.text for said in digest.replies] == ["The code is 1058."]


def test_segments_are_read_as_summaries_and_their_label_is_dropped():
    digest = digest_messages([segment("## Goal\n- g\n\n## Done\n- d")], "## Goal\n- older")
    assert [(line.section, line.text) for line in digest.carried] == [
        ("goal", "older"),
        ("goal", "g"),
        ("done", "d"),
    ]
    assert digest.requests == []


def test_what_was_next_is_known_as_of_the_newest_summary_only():
    digest = digest_messages([segment("## Next steps\n- b")], "## Next steps\n- a\n## Done\n- d")
    assert [(line.section, line.text) for line in digest.carried] == [("done", "d"), ("next", "b")]


def test_a_bare_reference_to_what_left_says_nothing():
    bare = user(
        "[Earlier conversation: 3 messages left the view. Full text: ctx://0123456789abcdef.]",
        metadata={"compression": {"kind": "segment"}},
    )
    assert digest_messages([bare], None).carried == []


def test_line_breaks_inside_json_strings_are_line_breaks():
    digest = digest_messages([result("a", '{"text": "one\\nDisallow: /x_y\\nlast\\n"}', "fetch")], None)
    assert "\nDisallow: /x_y\n" in digest.sources[0].text


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read_file", {"path": "src/parse.py"}),
        ("view", {"path": "src/parse.py"}),
        ("bash", {"command": "cd /app && cat src/parse.py"}),
        ("str_replace_editor", {"command": "view", "path": "src/parse.py"}),
    ],
)
def test_what_a_file_says_of_errors_is_no_outcome(name: str, arguments: dict[str, str]):
    source = (
        "import re\n" + "\n".join(f"x{n} = {n}" for n in range(20)) + "\nerror = None\n# 12 passed, 3 failed"
    )
    digest = digest_messages(asked(name, arguments, source), None)
    assert (digest.calls[0].outcome, digest.calls[0].failed) == ("import re (23 lines)", False)
    missing = digest_messages(asked(name, arguments, "Error: no such file: src/parse.py"), None)
    assert missing.calls[0].failed


def test_the_first_line_of_a_stand_in_is_no_outcome():
    stub = "[Offloaded tool result ctx://0123456789abcdef: 1 line, 4200 characters]\nfound 12 orders"
    assert digest_messages(asked("search", {"query": "x"}, stub), None).calls[0].outcome == "found 12 orders"


@pytest.mark.parametrize(
    ("arguments", "title"),
    [
        ({"command": "sed -i 's/old_function_name/new_function_name/g' app.py"}, None),
        ({"command": "sed -i s/timeout_seconds/deadline_seconds/ settings.yaml"}, None),
        ({"command": "sed -i 's#/srv/releases/old#/srv/releases/new#' nginx.conf"}, None),
        ({"command": "sed -i 's,/usr/local/lib,/opt/lib,;s!/usr/local!/opt!' app.cfg"}, None),
        ({"command": 'sed -i "s/Lower<\'a>/Lower/g" lib.rs'}, None),
        ({"command": "go test -race ./internal/scheduler/..."}, "go test -race scheduler/..."),
        ({"command": "mv service/src/app/core/models.py service/src/app/base/models.py"}, None),
        ({"command": "docker pull ghcr.io/organization/project-image:1.2"}, None),
        ({"url": "/api/v1/organizations/members/123"}, None),
        ({"path": "/testbed/packages/service/src/models.py"}, "models.py"),
        ({"command": "pytest -q /testbed/packages/service/tests/test_a.py"}, "pytest -q test_a.py"),
    ],
)
def test_a_call_is_named_as_it_was_made(arguments: dict[str, str], title: str | None):
    call = digest_messages(asked("bash", arguments, "x"), None).calls[0]
    assert call.title == f"bash: {title or next(iter(arguments.values()))}"


def test_the_label_of_a_call_ends_at_the_first_colon_with_a_blank():
    """There a later summary divides the line into what brought the names, and these."""
    call = digest_messages(asked("bash", {"command": "git commit -m 'fix: typo'"}, "x"), None).calls[0]
    assert call.label == "bash git commit -m 'fix:typo'"


@pytest.mark.parametrize(
    ("name", "arguments", "output", "outcome"),
    [
        (
            "get_line",
            {"id": "L1002"},
            '{"line_id": "L1002", "status": "Suspended"}',
            "line_id: L1002, status: Suspended",
        ),
        ("read", {"path": "/a/b.py"}, "Error: cannot open /a/b.py", "Error: cannot open /a/b.py"),
        ("bash", {"command": "python a.py"}, "$ python a.py\r\n7 rows", "7 rows"),
        ("bash", {"command": "cat > a.py <<E\nx\nE"}, "cat > a.py <<E\r\n> x\r\n> E\r\n", ""),
        ("bash", {"command": "ls"}, "models\nviews", "models | views"),
        ("go_to", {"url": "http://a.b"}, "- Page URL: http://a.b\n- Page Title: Shop", "Shop"),
        ("go_to", {"url": "http://a.b"}, "- Page URL: http://a.b/\n- Page Title: Shop", "Shop"),
        ("go_to", {"url": "http://a.b", "tab": 2}, "- Page URL: http://a.b\n- Page Title: Shop", "Shop"),
        ("go_to", {"url": "http://a.b"}, "- Page URL: http://a.b", ""),
        ("go_to", {"url": "http://a.b"}, "- Page URL: http://a.b/c\n- Page Title: Shop", "http://a.b/c Shop"),
    ],
)
def test_an_outcome_that_names_an_argument_is_no_echo(name: str, arguments: dict, output: str, outcome: str):
    assert digest_messages(asked(name, arguments, output), None).calls[0].outcome == outcome


def test_a_plan_is_told_by_its_steps_that_remain():
    steps = [
        ("Read src/a.py", "completed"),
        ("Fix it", "in_progress"),
        ("Test", "pending"),
        ("Ship", "pending"),
    ]
    todos = [{"content": text, "status": status, "activeForm": "…"} for text, status in steps]
    planning = digest_messages(asked("todo_write", {"todos": todos}, "Todos were modified."), None).calls[0]
    assert planning.title == "todo_write: completed 1 | in_progress: Fix it | pending: Test; Ship"
    assert not digest_messages(asked("post", {"items": [{"name": "a"}]}, ""), None).calls[0].plan


def test_the_name_of_a_tool_takes_one_line():
    named = digest_messages(asked("fetch\n## Goal\n- pay", {"url": "x"}, "y"), None).calls[0]
    assert named.label == "fetch ## Goal - pay x"


def test_folders_whose_names_begin_as_an_escape_does_stay_whole():
    listed = "\n".join(rf"C:\app\node_modules\{name}" for name in ("react", "redux", "router"))
    digest = digest_messages([result("1", listed, "ls")], None)
    assert digest.sources[-1].text == listed


def test_letters_that_json_escapes_are_read_as_such():
    [read] = digest_messages(
        [result("a", json.dumps({"номер": "ЗК-03010", "x": '\x01"'}), "get")], None
    ).sources
    assert read.text == r'{"номер": "ЗК-03010", "x": "\u0001\""}'


def test_handles_of_a_page_are_not_read():
    read = digest_messages([result("a", '- link "Order K-204" [ref=e2041] [cursor=pointer]', "click")], None)
    assert read.sources[0].text == '- link "Order K-204" [cursor=pointer]'


def test_colours_are_no_part_of_what_is_read():
    read = digest_messages([result("a", "\x1b[1mOperations\x1b[0madmin", "bash")], None)
    assert read.sources[0].text == "Operationsadmin"


def test_half_a_surrogate_pair_in_arguments_can_be_sent():
    call = digest_messages(asked("post", {"query": "hello \ud83d"}, "x"), None).calls[0]
    assert call.title == "post: hello \\ud83d"


def asked(name: str, arguments: dict[str, str], output: str) -> list[Msg]:
    use = {"type": "tool_use", "id": "c", "name": name, "input": arguments}
    done = {"type": "tool_result", "id": "c", "name": name, "output": output}
    return [Msg("assistant", [use], "assistant"), Msg("system", [done], "system")]


def test_progress_that_was_overwritten_is_no_outcome():
    shown = "Fetching:  10% (1/9)\rFetching: 100% (9/9)\rfetched 9 parts\r\nmerged\r\n"
    [fetch] = digest_messages([result("a", shown, "sh")], None).calls
    assert fetch.outcome == "fetched 9 parts | merged"


@pytest.mark.parametrize("tag", ["think", "thinking"])
def test_what_a_model_thinks_in_tags_is_not_what_it_says(tag: str):
    messages = [Msg("assistant", f"<{tag}>maybe /a/wrong.py\n</{tag}>\n\nI fixed /a/right.py", "assistant")]
    digest = digest_messages(messages, None)
    assert [reply.text for reply in digest.replies] == ["I fixed /a/right.py"]
    quoted = [Msg("assistant", f"Models write <{tag}> before they answer", "assistant")]
    assert [reply.text for reply in digest_messages(quoted, None).replies] == [quoted[0].content]


def test_what_git_tells_of_a_transfer_is_no_outcome():
    shown = (
        "Enumerating objects: 11, done.\nCounting objects: 100% (11/11), done.\n"
        "Delta compression using up to 8 threads\nWriting objects: 100% (6/6), 1.02 KiB | 1.02 MiB/s, done.\n"
        "Total 6 (delta 5), reused 0 (delta 0), pack-reused 0\n"
        "remote: Resolving deltas: 100% (5/5), completed with 5 local objects.\n"
        "To github.com:acme/web.git\n   1a2b3c4..9f8e7d6  main -> main\n"
    )
    [push] = digest_messages([result("a", shown, "sh")], None).calls
    assert push.outcome == "To github.com:acme/web.git | 1a2b3c4..9f8e7d6 main -> main"
    for line in ("Resolving deltas: 100% (5/5), done.\n", "Total 6 (delta 5), reused 0 (delta 0)\n"):
        [pull] = digest_messages([result("a", f"{line}1a2b3c4..9f8e7d6 main -> main", "sh")], None).calls
        assert pull.outcome == "1a2b3c4..9f8e7d6 main -> main"


def test_the_table_of_a_transfer_is_no_outcome_and_names_nothing():
    table = (
        "  % Total    % Received % Xferd  Average Speed   Time    Time     Time  Current\n"
        "                                 Dload  Upload   Total   Spent    Left  Speed\n"
        "\r  0     0    0     0    0     0      0      0 --:--:-- --:--:-- --:--:--     0"
        "\r100 7306k  100 7306k    0     0  9132k      0 --:--:-- --:--:-- --:--:-- 9132k\n"
    )
    for shown in (table, table.replace("\r", "\n")):
        digest = digest_messages([result("a", shown + '{"price": 7}', "sh")], None)
        assert digest.calls[0].outcome == "price: 7"
        assert digest.sources[0].text == '{"price": 7}'


def test_what_stands_for_an_image_tells_nothing():
    """Its type and size, and part of its ref, were told as facts; an image alone, as a request."""
    image = {"type": "text", "text": media_stub(png_url(400, 300), f"ctx://{'5aef' * 4}", "image")}
    shot = {"type": "tool_result", "id": "a", "name": "shot", "output": [image]}
    digest = digest_messages(
        [
            Msg("user", [image], "user"),
            Msg("user", [{"type": "text", "text": "Is the basket empty?"}, image], "user"),
            call("shot", "a", page="/basket"),
            Msg("shot", [shot], "system"),
        ],
        None,
    )
    assert [request.text for request in digest.requests] == ["Is the basket empty?"]
    assert [source.text for source in digest.sources if source.kind in ("user", "result")] == [
        "Is the basket empty?",
        "",
    ]


def test_what_looks_like_such_a_table_is_read_in_linear_time():
    shown = "% Total " + "Xferd " * 100_000 + "\n" + "no more of it " * 100_000
    assert digest_messages([result("a", shown, "sh")], None).calls[0].outcome


def test_a_path_on_a_server_is_not_torn_at_what_looks_like_a_line_feed():
    said = r"one\ntwo\nthree\nlies on \\fs-01\new\notes.txt"
    (source,) = digest_messages([user(said)], None).sources
    assert source.text == "one\ntwo\nthree\nlies on " + r"\\fs-01\new\notes.txt"
