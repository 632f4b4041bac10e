"""What is a user's message by its role alone."""

import pytest

from context_compressor import Msg, from_openai
from context_compressor.messages.handed import is_handed, loaded_note, read_result, without_surroundings

TABS = "\n\n<environment_details>\n# VSCode Open Tabs\nsrc/app.ts\n</environment_details>"
PROMPT = "(Open file: /a/b.py)\n(Current directory: /a)\nbash-$"
REMINDER = "<system-reminder>\nYour todo list has changed. You MUST go on.\n</system-reminder>"
NOTE = loaded_note("ctx://0123456789abcdef", "load_offloaded")
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


def blocks(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.mark.parametrize(
    "content",
    [
        "<long_term_memory>The content below are retrieved.\nDepot 7.</long_term_memory>",
        blocks("<retrieved_knowledge>Use the following:\n", "One.", "Two.", "</retrieved_knowledge>"),
        [{"type": "text", "text": NOTE}, IMAGE],
        [{"text": NOTE}, {"image": "https://example.com/a.png"}],
        [*blocks(NOTE, REMINDER), IMAGE],
        "Observation: 3 rows",
        blocks("[read_file for 'src/app.ts'] Result:", "import x"),
        f"[File: /a/b.py (9 lines)]\n1:import x\n{PROMPT}",
        "Please continue working on the task on whatever approach you think is suitable.\nWhen done, say so.",
        "Please proceed to the next step using your best judgement.\nWhen done, say so.",
        "\nPlease always provide EXACTLY ONE action in triple backticks, found 0 actions.",
        "No tool calls found in the response. Every response MUST hold one.",
        "Your output was not formatted correctly. You must always include one discussion and one command.",
        "Your last output did not use any tool calls!",
        "[ERROR] You did not use a tool in your previous response! Please retry with a tool use.",
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
        blocks("<retrieved_knowledge>Use", "</retrieved_knowledge>", "Which one?"),
        "Is that all?</long_term_memory>",
        f"{NOTE} What is that?",
        [*blocks(NOTE, "What is that?"), IMAGE],
        [*blocks(REMINDER, "What is that?")],
        [*blocks(REMINDER), IMAGE],
        f"Rename it.{TABS}",
        [IMAGE],
    ],
)
def test_a_person_speaks(content):
    assert not is_handed(Msg("user", content, "user"))


@pytest.mark.parametrize(
    ("message", "text", "name"),
    [
        ("[read_file for 'src/app.ts'] Result:\n\nimport x", "import x", "read_file"),
        ("[list_files for '.'] Result:\n", "", "list_files"),
        ("EXECUTION RESULT of [execute_bash]:\n/workspace", "/workspace", "execute_bash"),
        ("<tool_response>\n42\n</tool_response> \n", "42", ""),
        ("<long_term_memory>Depot 7.</long_term_memory>", "Depot 7.", "long_term_memory"),
        ("<retrieved_knowledge>\nDepot 7.\n</retrieved_knowledge>", "Depot 7.", "retrieved_knowledge"),
        ("Observation: 3 rows", " 3 rows", ""),
        ("OBSERVATION:\nfile edited", "file edited", ""),
        ("工具调用结果：\n工具名称：ls\n执行状态：成功", "工具名称：ls\n执行状态：成功", ""),
        ("Action result: Navigated to https://a.example", " Navigated to https://a.example", ""),
        ("Action error: Element 99 is gone", "error: Element 99 is gone", ""),
        ("New Terminal Output:\n\nroot@box:/# ls", "root@box:/# ls", ""),
        (
            "Previous response had warnings:\nWARNINGS: - Extra text\n\nNew Terminal Output:\n\nroot@box:/#",
            "root@box:/#",
            "",
        ),
        ("<returncode>0</returncode>\nok", "<returncode>0</returncode>\nok", ""),
        (f"[File: /a/b.py (9 lines)]\n1:import x\n{PROMPT}", "[File: /a/b.py (9 lines)]\n1:import x", ""),
        (f"OBSERVATION:\n4 passed\n{PROMPT}", "4 passed", ""),
        (PROMPT, "", ""),
    ],
)
def test_what_a_tool_printed_is_told_apart_from_what_a_user_says(message: str, text: str, name: str):
    assert read_result([message]) == (text, name)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "Result: it fails. Please look again.",
        "[urgent] the results are wrong",
        "My observation: it is slow",
        "<task>\nRename the widget\n</task>",
        "<instructions>Use tabs</instructions>",
        "The output is\n<output>3</output>",
        f"ISSUE:\nIt fails.\n\nINSTRUCTIONS:\nSolve it on your own.\n{PROMPT}",
        "What does (Current directory: /a) mean?",
    ],
)
def test_a_person_reports_no_result(message: str):
    assert read_result([message]) is None


def test_what_an_editor_adds_to_a_message_is_not_what_the_user_says():
    assert without_surroundings(f"Rename it.{TABS}\n") == "Rename it."
    for said in ("What is <environment_details>?", "What is </environment_details>", "\nUse tabs.\n"):
        assert without_surroundings(said) == said
    assert without_surroundings(f"{REMINDER}\nUse UTC.\n\n{REMINDER}") == "Use UTC."
    assert without_surroundings(f"Use{REMINDER}{REMINDER} UTC.") == "Use\n UTC."
    assert without_surroundings("What is <system-reminder>?") == "What is <system-reminder>?"
