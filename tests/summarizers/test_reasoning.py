import pytest

from context_compressor.messages.text import clean, strip_reasoning

GOOD = "## Goal\n- Fix parse_date in src/utils/dates.py\n\n## Done\n- read: dates.py → 120 lines"
THOUGHT = "<|channel|>analysis<|message|>The user wants a fix.<|end|>"
FINAL = "<|channel|>final<|message|>"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"<think>hm\n## Goal\n- draft</think>\n{GOOD}", GOOD),
        (f"<THINKING>\nhm\n</THINKING>{GOOD}", GOOD),
        (f"[THINK]The user wants a fix.[/THINK]{GOOD}", GOOD),
        (f"<seed:think>hm\n</seed:think>\n{GOOD}", GOOD),
        (f"◁think▷hm\n◁/think▷\n\n{GOOD}", GOOD),
        (f"<think>one</think>\n<think>two</think>\n{GOOD}", GOOD),
        (f"The user wants a fix.\n</think>\n\n{GOOD}", GOOD),
        (f"I should list it.</think>\n{GOOD}", GOOD),
        ("<think>never closed\n## Goal\n- draft", ""),
        (f"{GOOD}\n<think>and now", GOOD),
        (
            "## Goal\n- handle `</think>`\n- and text before </think>",
            "## Goal\n- handle `</think>`\n- and text before </think>",
        ),
        ("## Goal\n[think] again\n- about [THINK]", "## Goal\n[think] again\n- about [THINK]"),
    ],
)
def test_reasoning_is_stripped(text: str, left: str):
    assert strip_reasoning(text) == left


def test_tags_behind_a_late_heading_are_read_in_linear_time():
    """The heading was looked for anew at each tag: minutes for this."""
    text = "a" * 1_000_000 + "\n#" + "a</think>\n" * 100_000
    assert strip_reasoning(text) == text.strip()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"{THOUGHT}<|start|>assistant{FINAL}{GOOD}<|return|>", GOOD),
        (f"{THOUGHT}{FINAL}{GOOD}", GOOD),
        (f"<|start|>assistant{FINAL}\n{GOOD}\n<|end|>\n", GOOD),
        (f"{THOUGHT}<|start|>assistant<|channel|>final <|constrain|>json<|message|>{{}}", "{}"),
        (THOUGHT, ""),
        ("<|channel|>analysis<|message|>never ended", ""),
        (f"## Goal\n- parse `{FINAL}` marks", f"## Goal\n- parse `{FINAL}` marks"),
    ],
)
def test_of_an_answer_in_channels_the_final_one_is_kept(text: str, left: str):
    assert strip_reasoning(text) == left
    assert strip_reasoning(clean(text)) == clean(left)
