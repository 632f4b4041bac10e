"""Read what documents show."""

import re
from textwrap import dedent


def blocks(language: str, text: str) -> list[str]:
    """Return the fenced blocks of a language, in order, those within tabs as well."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    return [dedent(block) for _, block in found]
