"""The site is whole: it builds strictly, asks nobody else for anything, and says what errors really say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.measure.browser import Browser, find_chromium

ROOT = Path(__file__).parents[1]
PROGRAM = find_chromium()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it; a link or a file that leads nowhere ends the build."""
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    # Not --quiet: warnings that are not told are none to --strict.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return folder


def test_pages_ask_nobody_else_for_anything(site: Path) -> None:
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    assert len(pages) > 40
    asked = {
        found
        for text in pages.values()
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", text)
        for found in re.findall(r'(?:src|href)="((?:https?:)?//[^"]*)"', tag)
    }
    assert asked == set()


def test_a_model_finds_every_page(site: Path) -> None:
    told = re.findall(r"\]\(([^)]+)\)", (site / "llms.txt").read_text(encoding="utf-8"))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert pages <= set(told)
    assert [name for name in told if not (site / name).exists() and not name.startswith("reference/")] == []
    for name in (name for name in told if name.endswith(".md")):
        named = re.findall(r"\]\(([^)\s:#]*source/[^)\s#]+)", (site / name).read_text(encoding="utf-8"))
        assert [one for one in named if not (site / name).parent.joinpath(one).exists()] == []


def test_errors_say_what_the_page_says() -> None:
    source = " ".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "context_compressor").rglob("*.py")
    )
    source = re.sub(r'"\s*\n\s*f?"', "", source).replace("\\'", "'")
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    texts = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert len(texts) > 30
    assert [text for text in texts if not all(piece.strip() in source for piece in text.split("…"))] == []


@pytest.mark.parametrize("page", ["quickstart.md", "quickstart.zh.md"])
def test_the_quickstart_shows_its_example(page: str) -> None:
    shown = (ROOT / "docs" / page).read_text(encoding="utf-8")
    code = (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8").split('"""\n\n', 1)[1]
    assert f"```python\n{code}```" in shown


@pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium on PATH to look at pages with")
def test_pages_fit_a_telephone(site: Path) -> None:
    """Opened from the folder: tables, code and drawings scroll within themselves, and the search answers."""
    assert PROGRAM is not None
    with Browser(PROGRAM) as browser:
        wide, complaints = [], []
        for page in (page for page in site.rglob("*.html") if page.name != "404.html"):
            if "source" not in page.relative_to(site).parts:
                browser.open(page, width=390, scheme="dark")
                complaints += browser.complaints()
                if browser.evaluate("document.documentElement.scrollWidth") > 390:
                    wide.append(page.name)
        browser.open(f"{(site / 'index.html').as_uri()}?q=budget", width=390)
        browser.wait_for("document.querySelector('.md-search-result__item')")
    assert (wide, complaints) == ([], [])
