"""Take out of texts what a reader does not see and a model or terminal may obey."""

from __future__ import annotations

import re

# Colours and cursor moves; titles and links, which hold a text of their own; the other short ones.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]?"
)
_LINE_ENDS = re.compile(r"\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_HIDDEN = (
    "\x00-\x08\x0e-\x1f\x7f-\x9f",  # control characters
    "\u200b\u2060-\u2064\ufeff\u00ad\u180e",  # without width; joiners stay, which scripts and emoji need
    "\u061c\u202a-\u202e\u2066-\u2069",  # overrides of the writing direction; plain marks stay
    "\U000e0000-\U000e007f",  # tags: a second, invisible ASCII
)
_HIDDEN_CHARACTER = re.compile(f"[{''.join(_HIDDEN)}]")
_PLAIN = bytes([*b"\n\t", *range(0x20, 0x7F)])
_TEMPLATE_MARK = re.compile(
    r"<(?=[|｜][\w▁:/ -]{1,40}[|｜]>|/?s>|(?:start|end)_of_turn>|</?SYS>>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_(?:CALLS|RESULTS))\])"
)
"""ChatML and its kin; Mistral and Llama, whose `</s>` ends a text; Gemma."""
_TEMPLATE_PARTS = ("<|", "s>", "_of_turn>", "SYS>>", "INST]", "S]", "SYSTEM_PROMPT]")
"""One stands in each mark of ASCII."""


def clean(text: str) -> str:
    r"""Return `text` with lines ended by `\n` only, and without control, escape and invisible characters.

    Lone surrogates, which no request body can carry, become question marks. The marks of chat templates
    (`<|im_start|>`, `[INST]`), which some servers take for their own wherever they stand, get a space that
    breaks them.
    """
    if text.isascii() and not text.encode().translate(None, _PLAIN):
        return _break_marks(text)
    text = _ESCAPES.sub("", text) if "\x1b" in text else text
    text = _HIDDEN_CHARACTER.sub("", _LINE_ENDS.sub("\n", text))
    return _break_marks(text.encode("utf-8", "replace").decode("utf-8"))


def _break_marks(text: str) -> str:
    if "<" not in text and "[" not in text:
        return text
    has_mark = "｜>" in text or any(map(text.__contains__, _TEMPLATE_PARTS))
    return _TEMPLATE_MARK.sub(r"\g<0> ", text) if has_mark else text
