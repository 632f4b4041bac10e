"""What a person said, and what a program wrote in a user's place."""

import pytest

from context_compressor.messages.chat import from_openai
from context_compressor.messages.msg import Msg
from context_compressor.messages.speech import is_handed, is_result, loaded_note, said_in

TABS = "<environment_details>\n# Open tabs\nsrc/app.ts\n</environment_details>"
REMINDER = "<system-reminder>\nYour list of tasks has changed. You MUST go on.\n</system-reminder>"
NOTE = loaded_note("ctx://0123456789abcdef", "load_offloaded")
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


def blocks(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.mark.parametrize(
    "content",
    [
        "<long_term_memory>The content below was retrieved.\nDepot 7.</long_term_memory>",
        blocks("<retrieved_knowledge>Use the following:\n", "One.", "</retrieved_knowledge>"),
        [{"type": "text", "text": NOTE}, IMAGE],
        [*blocks(NOTE, REMINDER), IMAGE],
        "Observation: 3 rows",
        "<returncode>0</returncode>\n<output>\nok\n</output>",
        "<tool_response>\n42\n</tool_response>",
        blocks("[read_file for 'src/app.ts'] Result:", "import x"),
        "EXECUTION RESULT of [execute_bash]:\n/workspace",
        "工具调用结果：\n执行状态：成功",
        "Please continue working on the task on whatever approach you think is suitable.\nWhen done, say so.",
        "No tool calls found in the response. Every response MUST hold one.",
        REMINDER,
        blocks(REMINDER, REMINDER),
    ],
)
def test_what_a_program_wrote_was_said_by_nobody(content):
    assert is_handed(from_openai([{"role": "user", "content": content}])[0])


@pytest.mark.parametrize(
    "content",
    [
        "",
        [],
        "Which <long_term_memory> is that?",
        "<long_term_memory>Depot 7.</long_term_memory> Which one is that?",
        f"{NOTE}\nWhat is that?",
        [*blocks(REMINDER, "What is that?")],
        [*blocks(REMINDER), IMAGE],
        f"Rename it.\n\n{TABS}",
        "[urgent] the results are wrong",
        "<task>\nRename the widget\n</task>",
        "My observation: it is slow",
        [IMAGE],
    ],
)
def test_a_person_speaks(content):
    assert not is_handed(Msg("user", content, "user"))


def test_what_a_program_adds_to_a_message_is_not_what_the_user_says():
    assert said_in(f"Rename it.\n\n{TABS}\n") == "Rename it."
    assert said_in(f"{REMINDER}\nUse UTC.\n\n{REMINDER}") == "Use UTC."
    assert said_in(f"{NOTE}\nUse UTC.") == "Use UTC."
    assert said_in(REMINDER) == ""
    for said in ("What is <environment_details>?", "What is </environment_details>", "Use tabs."):
        assert said_in(said) == said


def test_a_person_reports_no_result():
    assert is_result("  Observation: 3 rows")
    for said in ("", "Result: it fails. Please look again.", "The output is\n<output>3</output>"):
        assert not is_result(said)
