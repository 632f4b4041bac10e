"""Try each extra alone: `python -m tests.extras WHEEL [EXTRA ...]`, or `make extras`.

Each gets a fresh environment with the wheel and that extra, nothing else: its module is imported, and so are
its examples. What was tried with the same wheel, and went well, is not tried again. Not part of `make test`:
it installs every framework.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
import tomllib
import venv
from pathlib import Path
from typing import Any

from tests.support.markdown import blocks

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / "build" / "extras"
NONE = "(none)"
"""The wheel without an extra."""
MODULES = {"report": "context_compressor.measure.charts"}
"""Where the module of an extra is no adapter of its name."""
PROGRAM = (
    "import sys; from context_compressor.__main__ import main; sys.argv[0] = 'context-compressor'; main()"
)
IMPORT_EXAMPLE = """
import runpy, sys
from pathlib import Path
sys.path.insert(0, str(Path(sys.argv[1]).parent))
try:
    runpy.run_path(sys.argv[1], run_name="example")
except ImportError:
    raise
except BaseException as error:  # no model answers here
    print(f"stopped by {type(error).__name__}, as it needs a model", end="")
"""
RUN_PIECES = """
import ast, asyncio, inspect, json, sys
async def run(pieces):
    names = {}
    for number, piece in enumerate(pieces):
        try:
            result = eval(compile(piece, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
            if inspect.isawaitable(result):
                await result
        except ImportError as error:  # a piece for those who have the framework
            print(f"left out, needs a framework: {error}")
asyncio.run(run(json.load(sys.stdin)))
"""
NEED_NO_MODEL = ("custom_store", "custom_summarizer", "stateless", "web_handler", "agent_loop", "five_lines")


class Trial:
    """One extra in an environment of its own."""

    def __init__(self, extra: str, wheel: Path) -> None:
        self.extra = extra
        self.place = ENVIRONMENTS / (extra if extra != NONE else "none")
        self._wheel = wheel
        self._stamp = self.place / "tried.json"
        self._told: list[str] = []

    def run(self) -> dict[str, Any]:
        """Return what came of it: `ok`, `seconds` and `told`."""
        key = hashlib.sha256(self._wheel.read_bytes() + Path(__file__).read_bytes()).hexdigest()
        if self._stamp.exists():
            earlier: dict[str, Any] = json.loads(self._stamp.read_text(encoding="utf-8"))
            if earlier["ok"] and earlier["key"] == key:
                return earlier
        began = time.monotonic()
        try:
            self._install()
            self._try_base() if self.extra == NONE else self._try_extra()
            is_fine = True
        except subprocess.CalledProcessError as error:
            lines = f"{error.stdout or ''}{error.stderr or ''}".strip().splitlines()
            self._told.append(lines[-1] if lines else f"exit code {error.returncode}")
            is_fine = False
        result = {"ok": is_fine, "key": key, "seconds": round(time.monotonic() - began), "told": self._told}
        self._stamp.write_text(json.dumps(result), encoding="utf-8")
        return result

    def _install(self) -> None:
        venv.create(self.place, clear=True, with_pip=False)
        what = str(self._wheel) if self.extra == NONE else f"{self._wheel}[{self.extra}]"
        pip = [sys.executable, "-m", "pip", "--python", str(self._python), "install", "--quiet"]
        options = ["--disable-pip-version-check", "--no-compile"]
        subprocess.run([*pip, *options, what], check=True, capture_output=True, text=True, cwd=self.place)

    @property
    def _python(self) -> Path:
        return self.place / "bin" / "python"

    def _call(self, *arguments: object, given: str | None = None) -> str:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        # Nobody answers there, so that no example reaches a provider.
        unreachable = {
            "OPENAI_API_KEY": "x",
            "OPENAI_BASE_URL": "http://127.0.0.1:9",
            "ANTHROPIC_API_KEY": "x",
        }
        return subprocess.run(
            [self._python, *map(str, arguments)],
            cwd=self.place,
            env=environment | unreachable | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
            input=given,
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        ).stdout

    def _try_base(self) -> None:
        assert "demo" in self._call("-c", PROGRAM, "--help")
        self._call("-c", PROGRAM, "demo")
        self._told.append("--help and demo run")
        pieces = blocks("python", (ROOT / "README.md").read_text(encoding="utf-8"))[1:]
        left_out = self._call("-c", RUN_PIECES, given=json.dumps(pieces)).count("left out")
        self._told.append(f"{len(pieces) - left_out} of {len(pieces)} pieces of README run")
        for name in NEED_NO_MODEL:
            self._call(ROOT / "examples" / f"{name}.py")
        self._told.append(f"{len(NEED_NO_MODEL)} examples run")

    def _try_extra(self) -> None:
        own = self.extra.replace("-", "_")
        module = MODULES.get(self.extra, f"context_compressor.integrations.{own}")
        # `*` imports what a package loads at its first use only.
        self._call("-c", f"from {module} import *")
        self._told.append(f"{module} imports")
        for path in sorted((ROOT / "examples").glob(f"{own}_*.py")):
            said = self._call("-c", IMPORT_EXAMPLE, path)
            self._told.append(f"{path.name}: {said.strip().splitlines()[-1] if said.strip() else 'imports'}")
        if self.extra == "mcp":
            self._call("-c", PROGRAM, "mcp", "--store", "texts", "--namespace", "n", given="")
            self._told.append("the server starts and ends")
        if self.extra == "report":
            session = self.place / "chat.json"
            session.write_text(self._call(ROOT / "examples" / "make_session.py"), encoding="utf-8")
            self._call("-c", PROGRAM, "replay", session, "--report", "page.html", "--png", "pictures")
            self._told.append("replay writes page and pictures")


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [NONE, *project["optional-dependencies"]]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("extra", nargs="*", help="default: all")
    options = parser.parse_args()
    if unknown := set(options.extra) - set(extras):
        parser.error(f"no such extra: {', '.join(sorted(unknown))}; there are {', '.join(extras)}")
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    failed = 0
    print("| extra | result | seconds | what was tried |\n| --- | --- | ---: | --- |", flush=True)
    for extra in options.extra or extras:
        found = Trial(extra, options.wheel.absolute()).run()
        failed += not found["ok"]
        told = "; ".join(found["told"])
        print(f"| {extra} | {'ok' if found['ok'] else 'FAILED'} | {found['seconds']} | {told} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
