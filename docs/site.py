"""What the site needs beyond its pages: files of the repository that they name, and `llms.txt`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
_OUTSIDE = re.compile(
    r"\]\((?:\.\./)+((?:context_compressor|examples|tests|benchmarks)/[^)#\s]*)(#only-\w+)?\)"
)
_PICTURE = re.compile(r"(!\[[^]]*\]\((?:\.\./)+)([^)#\s]+\.png)\)")
_LANGUAGES = {".py": "python", ".mjs": "javascript", ".yaml": "yaml", ".json": "json"}
_ASSETS = {".html", ".png", ".svg"}


def on_files(files: Any, config: Any) -> Any:
    """Take in what pages name outside of their folder: text as a page that shows it, folders as lists."""
    pages = [ROOT / "docs" / file.src_uri for file in files.documentation_pages()]
    named = {name for page in pages for name, _ in _OUTSIDE.findall(page.read_text(encoding="utf-8"))}
    for name in sorted(name for name in named if (ROOT / name).exists()):  # a dead link ends the build
        path = ROOT / name
        if path.suffix in _ASSETS:
            for one in filter(Path.exists, (path, _dark(path))):
                address = f"source/{one.relative_to(ROOT).as_posix()}"
                files.append(File.generated(config, address, abs_src_path=str(one)))
            continue
        if path.is_dir():
            text = f"# {name}\n\n" + "".join(f"- {one.name}\n" for one in sorted(path.glob("[!_.]*")))
        elif path.suffix == ".md":
            text = path.read_text(encoding="utf-8")
        else:
            language = _LANGUAGES.get(path.suffix, "text")
            text = f"# {name}\n\n````{language}\n{path.read_text(encoding='utf-8')}\n````\n"
        files.append(File.generated(config, _page_of(name), content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links that leave the folder of pages to what was taken in."""
    return _led(_PICTURE.sub(_by_scheme, markdown), page.file.src_uri)


def on_post_build(config: Any) -> None:
    """Write `llms.txt`: what there is to read, for a model; and each page as it was written, beside it."""
    site, lines = Path(config.site_dir), [f"# {config.site_name}", "", f"> {config.site_description}"]
    programs: set[str] = set()

    def add(entry: Any, level: int) -> None:
        for title, what in entry.items():
            if isinstance(what, str):
                is_made = what.startswith("reference/")  # of docstrings: there is no text to read beside it
                lines.append(f"- [{title}]({what.replace('.md', '.html') if is_made else what})")
                if not is_made:
                    text = (ROOT / "docs" / what).read_text(encoding="utf-8")
                    (site / what).write_text(_led(text, what, ".html"), encoding="utf-8")
                    programs.update(
                        name for name, _ in _OUTSIDE.findall(text) if name.startswith("examples/")
                    )
            else:
                lines.extend(["", f"{'#' * level} {title}", ""])
                for one in what:
                    add(one, level + 1)

    for entry in config.nav:
        add(entry, 2)
    lines.extend(["", "## Programs", ""])
    lines.extend(f"- [{name}](source/{name}.html)" for name in sorted(programs))
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _led(markdown: str, page: str, suffix: str = ".md") -> str:
    """Lead the links of a page that leave the folder of pages to what was taken in."""
    up = "../" * page.count("/")

    def there(found: re.Match[str]) -> str:
        taken = re.sub(r"\.md$", suffix, _page_of(found[1]))
        return f"]({up}{taken}{found[2] or ''})"

    return _OUTSIDE.sub(there, markdown)


def _dark(picture: Path) -> Path:
    return picture.with_stem(f"{picture.stem}-dark")


def _by_scheme(found: re.Match[str]) -> str:
    """Show the dark picture beside a light one in the dark, where there is one."""
    opening, name = found.groups()
    if not _dark(ROOT / name).exists():
        return found[0]
    return f"{opening}{name}#only-light){opening}{_dark(Path(name)).as_posix()}#only-dark)"


def _page_of(name: str) -> str:
    if Path(name).suffix in _ASSETS:
        return f"source/{name}"
    return f"source/{name.rstrip('/').removesuffix('.md')}.md"
