"""Read what documents show, and try it."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

_NUMBER = re.compile(r"(?<![0-9a-z])[0-9][0-9,]*")
_EXAMPLES = Path(__file__).parents[2] / "examples"


def blocks(language: str, text: str) -> list[str]:
    """Return the fenced blocks of a language, in order, those within tabs as well."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    return [dedent(block) for _, block in found]


def commands(block: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a console block with the lines that are said to follow."""
    for part in ("\n" + block).split("\n$ ")[1:]:
        command, *shown = part.splitlines()
        yield command, [line for line in shown if line != "..."]


def assert_answer_as_shown(text: str, program: str, python: object, cwd: Path, env: dict[str, str]) -> None:
    """Run the commands of a document's console blocks.

    Rules of tables apart, and numbers of the demo, which differ from one Python's library to the next.

    Args:
        text: the document.
        program: what to run for `context-compressor`.
        python: what to run for `python`.
        cwd: where.
        env: with which environment.
    """
    for command, shown in (one for block in blocks("console", text) for one in commands(block)):
        told = _without_numbers if "context-compressor demo" in command else _one_spaced
        line = command.replace("context-compressor", program)
        line = line.replace("python examples/", f"{python} {_EXAMPLES}/")
        done = subprocess.run(line, shell=True, cwd=cwd, env=env, stdout=-1, stderr=-2, encoding="utf-8")
        assert done.returncode == 0, f"{command} says:\n{done.stdout}"
        said = iter([told(text) for text in done.stdout.splitlines()])
        missing = [text for text in shown if told(text) not in said]
        assert missing == [], f"{command} says:\n{done.stdout}\nnot {missing}"


def _one_spaced(line: str) -> str:
    return " ".join(line.split())


def _without_numbers(line: str) -> str:
    return _one_spaced(_NUMBER.sub("N", line))
