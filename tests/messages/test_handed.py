"""What is a user's message by its role alone."""

import pytest

from context_compressor import Msg, from_openai
from context_compressor.messages.handed import is_handed, loaded_note

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
    ],
)
def test_what_a_program_retrieved_or_loaded_was_said_by_nobody(content):
    assert is_handed(from_openai([{"role": "user", "content": content}])[0])


@pytest.mark.parametrize(
    "content",
    [
        "",
        [],
        "Which <long_term_memory> is that?",
        "<long_term_memory>Depot 7.</long_term_memory> Which one is that?",
        blocks("<retrieved_knowledge>Use", "</retrieved_knowledge>", "Which one?"),
        f"{NOTE} What is that?",
        [*blocks(NOTE, "What is that?"), IMAGE],
        [IMAGE],
    ],
)
def test_a_person_speaks(content):
    assert not is_handed(Msg("user", content, "user"))
