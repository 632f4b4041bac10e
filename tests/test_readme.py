"""What README and the pages beside it say is so: code runs, commands answer as shown, tables match."""

import ast
import asyncio
import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from context_compressor import CompressionConfig, CompressionEvent, CompressionStats
from context_compressor.cli.app import _invoke as read_command_line
from tests.support.markdown import assert_answer_as_shown, blocks

ROOT = Path(__file__).parents[1]
READMES = [ROOT / "README.md", ROOT / "README.zh.md"]
PAGES = [*READMES, *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/clients/*.md"))]
TEXTS = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
TESTED_ELSEWHERE = {
    "agentscope.md",
    "agentscope2.md",
    "langchain.md",
    "clients.md",
    "litellm.md",
    "migrating-from-reme.md",
    "openai-agents.md",
    "pydantic-ai.md",
    "working-memory.md",
}
"""With a test of their own, or, as programs, run by hand."""
NEED_A_MODEL = {
    "agentscope2_agent.py",
    "agentscope_agent.py",
    "anthropic_client.py",
    "dashscope_agent.py",
    "dashscope_client.py",
    "langchain_agent.py",
    "litellm_calls.py",
    "openai_agent.py",
    "openai_agents_agent.py",
    "openai_client.py",
    "pydantic_ai_agent.py",
    "web_service.py",
}
"""Tested in `test_examples.py`, with their adapters, or with databases."""
EXAMPLES = sorted(
    path.name
    for path in (ROOT / "examples").glob("*.py")
    # a module of theirs, and what needs files: `tests/examples/test_reme_sessions.py`
    if path.name not in NEED_A_MODEL | {"files_tools.py", "reme_sessions.py"}
)

PIECES = {
    name: code
    for name, text in TEXTS.items()
    if (code := blocks("python", text)) and name not in TESTED_ELSEWHERE
}


def section(title: str, text: str) -> str:
    """Return what stands under a heading of the second level."""
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    return {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "PYTHONUTF8": "1"}


def run_python(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        encoding="utf-8",
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_runs_as_it_stands(name: str, tmp_path: Path) -> None:
    done = run_python(ROOT / "examples" / name, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_readme_is_short() -> None:
    assert len(TEXTS["README.md"].split()) <= 900


@pytest.mark.parametrize("page", PIECES)
def test_the_pieces_run_one_after_the_other(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in `python -m asyncio`, where `await` may stand outside a function."""
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "DASHSCOPE_API_KEY"):
        monkeypatch.setenv(name, "none")
    names: dict[str, Any] = {}

    async def run_all() -> None:
        for block in PIECES[page]:
            code = compile(block, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            result = eval(code, names)
            if inspect.isawaitable(result):
                await result

    asyncio.run(run_all())
    if page == "providers.md":
        assert names["wire"] == []
    if page == "guide.md":
        assert names["answer"].startswith("Nothing has left this conversation yet")
        assert names["second"].messages == names["messages"]


def test_the_pieces_can_be_pasted_there() -> None:
    """A blank line ends a function there."""
    assert [block for block in PIECES["guide.md"] if re.search(r"\n\n ", block)] == []


def test_the_configuration_table_lists_every_field_with_its_default() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| `(.+?)` \| \S", section("All fields", TEXTS["configuration.md"]), re.MULTILINE
    )
    fields = CompressionConfig.model_fields
    assert [name for name, _ in rows] == list(fields)
    assert {name: ast.literal_eval(default) for name, default in rows} == {
        name: field.default for name, field in fields.items()
    }


@pytest.mark.parametrize("kind", [CompressionEvent, CompressionStats])
def test_every_field_of_events_and_stats_is_named(kind: type) -> None:
    text = section("Events and stats", TEXTS["events.md"])
    assert [name for name in kind.__slots__ if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize("page", [page for page, text in TEXTS.items() if "\n```console\n" in text])
def test_commands_answer_as_shown(page: str, tmp_path: Path) -> None:
    program = f"{sys.executable} -m context_compressor"
    assert_answer_as_shown(TEXTS[page], program, sys.executable, tmp_path, environment())


COMMAND_LINES = sorted(
    {
        line.partition("context-compressor ")[2]
        for text in TEXTS.values()
        for language in ("sh", "bash")
        for block in blocks(language, text)
        for line in block.replace("\\\n", "").splitlines()
        if "context-compressor " in line
    }
)


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_commands_have_such_options(line: str) -> None:
    """Which take such values; what the command then does is tested elsewhere."""
    assert callable(read_command_line(shlex.split(line, comments=True)))


def test_pieces_that_need_others_compile() -> None:
    pieces = [(name, block) for name, text in TEXTS.items() for block in blocks("py", text)]
    assert pieces
    for name, block in pieces:
        compile(f"async def piece():\n{indent(block, '    ')}", name, "exec")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """To a file, and to a heading in it where they name one."""
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)]+)\)", text) + re.findall(r'(?:href|src|srcset)="([^"]+)"', text)
    wrong = []
    for target in targets:
        name, _, anchor = target.partition("#")
        there = page.parent / name if name else page
        if "//" not in target and not (there.exists() and (not anchor or anchor in anchors(there))):
            wrong.append(target)
    assert wrong == []


def anchors(page: Path) -> set[str]:
    """Return what the headings of a page are linked by."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
