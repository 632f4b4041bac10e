import json
from typing import Any

import pytest

from context_compressor import ExtractiveSummarizer, SummaryRequest, from_openai
from context_compressor.summarizers.extracts.digest import digest_messages
from context_compressor.summarizers.extracts.spoken import read_calls

TABS = "\n\n<environment_details>\n# VSCode Open Tabs\nsrc/app.ts\n</environment_details>"
PROMPT = "(Open file: /a/b.py)\n(Current directory: /a)\nbash-$"


@pytest.mark.parametrize(
    ("reply", "said", "name", "arguments"),
    [
        (
            "I shall look.\n\n<read_file>\n<path>src/app.ts</path>\n</read_file>",
            "I shall look.",
            "read_file",
            {"path": "src/app.ts"},
        ),
        (
            "<write_to_file>\n<path>a.html</path>\n<content>\n<b>x</b>\n</content>\n</write_to_file>",
            "",
            "write_to_file",
            {"path": "a.html", "content": "<b>x</b>"},
        ),
        (
            "Sure!\n<function=execute_bash>\n<parameter=command>\nls -la\n</parameter>\n</function>",
            "Sure!",
            "execute_bash",
            {"command": "ls -la"},
        ),
        ('<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>', "", "add", {"a": 1}),
        ("Thought: look\nAction: search\nAction Input: who?", "Thought: look", "search", {"input": "who?"}),
        ('Action: search\nAction Input: {"q": "who"}', "", "search", {"q": "who"}),
        (
            "It says\n```python\nx = 1\n```\nso I run\n```bash\nls\n```",
            "It says\n```python\nx = 1\n```\nso I run",
            "bash",
            {"command": "ls"},
        ),
        ("Code:\n```py\nprint(1)\n```<end_code>", "Code:\n<end_code>", "py", {"code": "print(1)"}),
        (
            json.dumps({"analysis": "a", "commands": [{"keystrokes": "ls\n", "duration": 0.1}]}),
            "",
            "terminal",
            {"command": "ls"},
        ),
        ('```json\n{"action": "go", "action_input": {"url": "/a"}}\n```', "", "go", {"url": "/a"}),
    ],
)
def test_a_call_that_stands_in_a_reply_is_read(reply: str, said: str, name: str, arguments: dict[str, Any]):
    assert read_calls(reply) == (said, [(name, arguments)])


def test_a_reply_without_a_call_stays_whole():
    reply = "Use `ls`. For example <b>ls -l</b>, or {x}."
    assert read_calls(reply) == (reply, [])


def test_a_call_that_stands_in_the_reply_as_well_is_told_once():
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    replies = [
        f'{said}<tool_call>\n{{"name": "add", "arguments": {{"a": {a}}}}}\n</tool_call>'
        for said, a in [("", 1), ("I add. ", 1), ("As in ", 2)]
    ]
    messages = [{"role": "assistant", "content": text, "tool_calls": [call]} for text in replies]
    digest = digest_messages(from_openai(messages), None)
    assert [reply.text for reply in digest.replies] == ["I add.", replies[2]]
    assert [call.name for call in digest.calls] == ["add"] * 3


def test_what_claude_code_reminds_of_is_said_by_nobody():
    reminder = "<system-reminder>\nYour todo list has changed. You MUST go on.\n</system-reminder>"
    call = {"id": "c", "type": "function", "function": {"name": "Bash", "arguments": '{"command": "make"}'}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": text} for text in (reminder, "Use UTC.")]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": f"built\n\n{reminder}\n"},
    ]
    digest = digest_messages(from_openai(messages), None)
    assert [said.text for said in digest.requests] == ["Use UTC."]
    assert digest.calls[0].outcome == "built"


@pytest.mark.parametrize(
    "nudge",
    [
        "Please continue working on the task on whatever approach you think is suitable.\nIMPORTANT",
        "Please always provide EXACTLY ONE action in triple backticks, found 0 actions.",
        "No tool calls found in the response. Every response MUST include at least one tool call.",
        "\nYour last output did not use any tool calls!\nPlease make sure your output includes one.",
    ],
)
def test_what_a_frame_says_where_no_tool_was_called_is_nobodys_wish(nudge: str):
    said = ["Make the tests pass.", nudge, "Please always provide the exact action that you mean."]
    digest = digest_messages(from_openai([{"role": "user", "content": text} for text in said]), None)
    assert [request.text for request in digest.requests] == [said[0], said[2]]


def session() -> list[dict[str, Any]]:
    messages = [{"role": "user", "content": f"<task>\nMake the tests pass.\n</task>{TABS}"}]
    for number in range(6):
        command = f"<execute_command>\n<command>npm test -- part{number}</command>\n</execute_command>"
        messages.append({"role": "assistant", "content": f"I run part {number}.\n\n{command}"})
        result = (
            f"[execute_command for 'npm test'] Result:\n\nCommand executed.\n{number} failed, 7 passed{TABS}"
        )
        messages.append({"role": "user", "content": result})
    return messages


def test_results_in_users_messages_are_outcomes_of_calls_and_no_requests():
    digest = digest_messages(from_openai(session()), None)
    assert [said.text for said in digest.requests] == ["<task>\nMake the tests pass.\n</task>"]
    assert [said.text for said in digest.replies] == [f"I run part {number}." for number in range(6)]
    assert [call.title for call in digest.calls] == [
        f"execute_command: npm test -- part{number}" for number in range(6)
    ]
    assert digest.calls[5].outcome == "5 failed, 7 passed"
    assert digest.calls[5].failed


def test_the_parts_of_a_users_message_are_one_result():
    parts = ["[read_file for 'a.ts'] Result:", "export const a = 1", TABS.strip()]
    content = [{"type": "text", "text": part} for part in parts]
    digest = digest_messages(from_openai([{"role": "user", "content": content}]), None)
    assert [(call.name, call.outcome) for call in digest.calls] == [("read_file", "export const a = 1")]
    assert not digest.requests


def test_what_an_editor_adds_is_no_request_of_its_own():
    content = [{"type": "text", "text": "Rename it."}, {"type": "text", "text": TABS.strip()}]
    digest = digest_messages(from_openai([{"role": "user", "content": content}]), None)
    assert [said.text for said in digest.requests] == ["Rename it."]


def test_a_result_whose_call_is_not_there_is_told_by_the_name_of_its_tool():
    digest = digest_messages(from_openai([session()[2]]), None)
    assert [(call.name, call.outcome) for call in digest.calls] == [("execute_command", "0 failed, 7 passed")]
    assert not digest.requests


async def test_a_summary_quotes_no_output_as_what_the_user_wants():
    summary = await ExtractiveSummarizer().summarize(
        SummaryRequest(messages=from_openai(session()), max_tokens=300)
    )
    assert "npm test -- part5 → 5 failed, 7 passed" in summary.text
    assert "Result:" not in summary.text
    assert "environment_details" not in summary.text


def test_a_result_of_another_tool_is_not_that_of_a_fence_in_the_reply():
    reply = {"role": "assistant", "content": "The plan:\n```\nuser -> agent\n```\n<WebFetch url='/a'/>"}
    result = {"role": "user", "content": "[WebFetch for '/a'] Result:\n\nA page."}
    digest = digest_messages(from_openai([reply, result]), None)
    assert [(made.name, made.outcome) for made in digest.calls] == [("WebFetch", "A page.")]
    assert digest.replies[0].text == reply["content"]


def test_a_result_with_no_open_call_is_that_of_the_call_in_the_reply_before():
    call = '<tool_call>\n{"name": "lookup", "arguments": {"id": "A-4521"}}\n</tool_call>'
    messages = [
        {"role": "assistant", "content": call},
        {"role": "tool", "tool_call_id": "c", "content": '{"status": "active"}'},
    ]
    digest = digest_messages(from_openai(messages), None)
    assert [(made.title, made.outcome) for made in digest.calls] == [("lookup: A-4521", "status: active")]


def test_what_was_retrieved_or_loaded_for_the_agent_is_nobodys_wish():
    note = "[ctx://0123456789abcdef, loaded by load_offloaded]"
    said = ["Which depot is open?", "<long_term_memory>Depot 7 closes at noon.</long_term_memory>", note]
    digest = digest_messages(from_openai([{"role": "user", "content": text} for text in said]), None)
    assert [request.text for request in digest.requests] == said[:1]
    assert [(call.name, call.outcome) for call in digest.calls] == [
        ("long_term_memory", "Depot 7 closes at noon.")
    ]
