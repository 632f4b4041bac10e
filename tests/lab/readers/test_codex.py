"""The lines are of the shapes that codex-rs' protocol types and public samples show."""

from typing import Any

from context_compressor.lab.readers import Format
from tests.lab.readers.support import PNG, arguments, outline, read_lines


def line(kind: str, **payload: Any) -> dict:
    return {"timestamp": "2026-01-02T03:04:05.000Z", "type": kind, "payload": payload}


def item(kind: str, **fields: Any) -> dict:
    return line("response_item", **{"type": kind, **fields})


def said(role: str, text: str) -> dict:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": kind, "text": text}])


META = line(
    "session_meta", id="t1", cwd="/w", originator="codex_cli_rs", base_instructions={"text": "You are"}
)
THOUGHT = item("reasoning", summary=[{"type": "summary_text", "text": "**Look**"}], encrypted_content="gAAA")


def test_a_rollout_with_every_kind_of_call():
    patch = "*** Begin Patch\n*** End Patch"
    reading = read_lines(
        [
            META,
            line("turn_context", model="gpt-x", cwd="/w"),
            said("developer", "<permissions>"),
            said("user", "<environment_context>\n</environment_context>"),
            item("message", role="user", content=[
                {"type": "input_image", "image_url": PNG}, {"type": "input_text", "text": "list"},
            ]),
            line("event_msg", type="user_message", message="list"),
            THOUGHT,
            said("assistant", "Listing."),
            item("function_call", name="shell", arguments='{"command":["ls"]}', call_id="c1"),
            item("function_call", name="shell", arguments='{"command":["pwd"]}', call_id="c2"),
            line("event_msg", type="token_count", info=None),
            item("function_call_output", call_id="c2", output="/w"),
            item("function_call_output", call_id="c1", output={"content": "a.txt", "success": True}),
            item("custom_tool_call", name="apply_patch", input=patch, call_id="c3", status="completed"),
            item("custom_tool_call_output", call_id="c3", output=[{"type": "input_text", "text": "Done!"}]),
            item("local_shell_call", call_id="c4", action={"type": "exec", "command": ["id"]}),
            item("function_call_output", call_id="c4", output="uid=0"),
            item("web_search_call", action={"type": "search", "query": "q"}),
            item("ghost_snapshot", ghost_commit={"id": "x"}),
            said("assistant", "Done."),
            line("something_new", whatever=1),
        ]
    )  # fmt: skip

    (session,) = reading.sessions
    assert session.format is Format.CODEX
    assert session.id == "t1"
    assert reading.problems == ()
    picture = [{"type": "image_url", "image_url": {"url": PNG}}, {"type": "text", "text": "list"}]
    assert outline(session.messages) == [
        ("developer", "<permissions>"),
        ("user", "<environment_context>\n</environment_context>"),
        ("user", picture),
        ("assistant", (("Listing.", "**Look**"), ("c1", "shell"), ("c2", "shell"))),
        ("tool c2", "/w"),
        ("tool c1", "a.txt"),
        ("assistant", (None, ("c3", "apply_patch"))),
        ("tool c3", "Done!"),
        ("assistant", (None, ("c4", "local_shell"))),
        ("tool c4", "uid=0"),
        ("assistant", (None, ("web_search_1", "web_search"))),
        ("tool web_search_1", "(completed)"),
        ("assistant", "Done."),
    ]
    assert arguments(session.messages)["web_search_1"] == '{"type": "search", "query": "q"}'
    assert session.message_lines[:5] == (3, 4, 5, 7, 12)


def test_the_older_form_without_envelopes():
    reading = read_lines(
        [
            {"id": "t0", "timestamp": "2025-08-18T01:16:13.522Z", "instructions": None, "git": {}},
            {"record_type": "state"},
            {
                "type": "message",
                "id": None,
                "role": "user",
                "content": [{"type": "input_text", "text": "hi"}],
            },
            {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": None},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hello"}]},
            {"record_type": "state"},
        ]
    )

    (session,) = reading.sessions
    assert (session.format, session.id) == (Format.CODEX, "t0")
    assert outline(session.messages) == [("user", "hi"), ("assistant", "hello")]
    assert session.message_lines == (3, 5)
    assert reading.problems == ()


def test_turns_that_were_rolled_back_are_left_out_and_counted():
    (session,) = read_lines(
        [
            META,
            said("user", "one"),
            said("assistant", "first"),
            said("user", "two"),
            item("function_call", name="shell", arguments="{}", call_id="c1"),
            line("event_msg", type="thread_rolled_back", num_turns=1),
            item("function_call_output", call_id="c1", output="late"),
            said("user", "three"),
        ]
    ).sessions

    assert [text for _, text in outline(session.messages)] == ["one", "first", "late", "three"]
    assert session.notes == ("left out: items of turns that were rolled back (2)",)


def test_compaction_keeps_what_was_before_or_what_it_kept_itself():
    kept = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "kept"}]}]
    compacted = line("compacted", message="so far", replacement_history=kept)

    (whole,) = read_lines([META, said("user", "one"), compacted, said("user", "two")]).sessions
    (resumed,) = read_lines([META, compacted, said("user", "two")]).sessions
    kept_nothing = line("compacted", message="so far", replacement_history=[])
    (summed_up,) = read_lines([META, kept_nothing, said("user", "two")]).sessions

    assert [text for _, text in outline(whole.messages)] == ["one", "so far", "two"]
    assert [text for _, text in outline(resumed.messages)] == ["kept", "two"]
    assert [text for _, text in outline(summed_up.messages)] == ["so far", "two"]


def test_a_fork_keeps_its_own_id():
    parent = line("session_meta", id="parent", cwd="/w")

    (session,) = read_lines([META, parent, said("user", "hi")]).sessions

    assert session.id == "t1"


def test_images_without_data_are_left_out_with_a_note():
    parts = [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": None}]
    call = {"type": "function_call", "name": "look", "arguments": "{}", "call_id": "c"}
    items = [
        {"type": "message", "role": "user", "content": parts},
        call,
        {"type": "function_call_output", "call_id": "c", "output": parts},
    ]
    meta = {"type": "session_meta", "payload": {"id": "s"}}
    (session,) = read_lines([meta, *({"type": "response_item", "payload": item} for item in items)]).sessions

    assert outline(session.messages) == [
        ("user", "see"),
        ("assistant", (None, ("c", "look"))),
        ("tool c", "see"),
    ]
    assert "left out: images without data (2)" in session.notes


def test_an_item_that_is_none_is_named_and_the_rest_is_read():
    reading = read_lines(
        [
            META,
            said("robot", "hi"),
            item("function_call", call_id="c1"),
            {"type": "response_item", "payload": 7},
            said("user", "hi"),
            said("user", "ho"),
            said("assistant", "hi ho"),
        ]
    )

    assert [str(problem) for problem in reading.problems] == [
        "f, line 2: role: expected one of user, system, developer, assistant, got 'robot'",
        "f, line 3: name: expected a string, but it is missing",
        "f, line 4: payload: expected an object, got int",
    ]
    assert [text for _, text in outline(reading.sessions[0].messages)] == ["hi", "ho", "hi ho"]
