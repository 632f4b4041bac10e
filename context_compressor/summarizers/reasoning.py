"""Take a model's reasoning out of its answer, in whatever marks it stands."""

from __future__ import annotations

import re

_MAX_INDENT = 200
_TAG = re.compile(
    r"</?(?:seed:)?(?:think|thinking|thought|reasoning)>|◁/?think▷|(?-i:\[/?THINK\])", re.IGNORECASE
)
"""As most models write them, Doubao's, Kimi's and Mistral's."""
# Harmony, the form of the gpt-oss models; `clean` puts a space into its marks.
_CHANNEL = re.compile(r"\s*(?:< ?\|start\|>assistant)?< ?\|channel\|>")
_FINAL = re.compile(r"< ?\|channel\|>final\b[^<\n]{0,40}(?:< ?\|constrain\|>\w{1,20})?< ?\|message\|>")
_END = re.compile(r"< ?\|(?:end|return)\|>\Z")


def strip_reasoning(text: str) -> str:
    """Return `text` without a model's reasoning, which stands in tags; left open, it hides all that follows.

    A tag opens reasoning only at the start of a line: within one, a summary speaks of it. Of an answer in
    channels only the final one is kept.
    """
    if _CHANNEL.match(text):
        final = _FINAL.search(text)
        text = _END.sub("", text[final.end() :].rstrip()) if final else ""
    kept = ""
    since = 0
    inside = False
    # The first behind `since`; looked for anew at each tag, it would take the square.
    heading = text.find("\n#")
    for tag in _TAG.finditer(text):
        start, end = tag.span()
        closes = "/" in tag[0]
        before = text[max(0, start - _MAX_INDENT) : start]
        starts_line = not before.rpartition("\n")[2].strip() and (start <= _MAX_INDENT or "\n" in before)
        if inside:
            if closes:
                inside, since = False, end
        elif not closes:
            if starts_line:
                kept += text[since:start]
                inside = True
        # Some chat templates open the tag in the prompt, so that the answer only closes it.
        elif starts_line or text[end : end + 1] in ("", "\n"):
            while 0 <= heading < since:
                heading = text.find("\n#", heading + 1)
            has_heading = kept.startswith("#") or text.startswith("#", since) or 0 <= heading < start
            if starts_line or not has_heading:
                kept, since = "", end
    return (kept if inside else kept + text[since:]).strip()
