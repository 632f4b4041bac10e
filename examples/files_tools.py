"""Three small tools over a folder, for the agents beside this file: list, read and search files."""

import re
from pathlib import Path
from typing import Any

SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {argument: {"type": "string"}},
                "required": [argument],
            },
        },
    }
    for name, description, argument in (
        ("list_files", "List the files whose names match a glob pattern such as *.py.", "pattern"),
        ("read_file", "Return the text of a file.", "path"),
        ("search_files", "Return the lines of all files that match a regular expression.", "pattern"),
    )
]


class FileTools:
    """Look at the text files under one folder, and nowhere else."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).resolve()

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Run a tool; what goes wrong is an answer, too."""
        try:
            if name == "list_files":
                return "\n".join(self._name(path) for path in self._files(arguments["pattern"]))
            if name == "read_file":
                return self._inside(arguments["path"]).read_text(encoding="utf-8", errors="replace")
            if name == "search_files":
                return "\n".join(self._search(re.compile(arguments["pattern"])))
            return f"There is no tool {name!r}."
        except Exception as error:  # there is no telling what a model asks for
            return f"{type(error).__name__}: {error}"

    def _files(self, pattern: str) -> list[Path]:
        if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            raise ValueError(f"{pattern!r} leads out of the folder; name files in it, such as *.py")
        found = (path for path in self.folder.rglob(pattern) if path.is_file())
        return sorted(path for path in found if path.resolve().is_relative_to(self.folder))

    def _inside(self, path: str) -> Path:
        found = (self.folder / path).resolve()
        if not found.is_relative_to(self.folder):
            raise ValueError(f"{path!r} is outside of the folder")
        return found

    def _name(self, path: Path) -> str:
        """Return the name of a file in the folder, what cannot be printed (bytes, line feeds) escaped."""
        name = str(path.relative_to(self.folder))
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)

    def _search(self, pattern: re.Pattern[str]) -> list[str]:
        return [
            f"{self._name(path)}:{number}:{line}"
            for path in self._files("*")
            for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
            if pattern.search(line)
        ]
