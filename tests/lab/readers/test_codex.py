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
