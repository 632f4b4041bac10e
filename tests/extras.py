"""Try each extra alone: `python -m tests.extras WHEEL [EXTRA ...]`, or `make extras`.

Each gets a fresh environment with the wheel and that extra, nothing else. There its module is imported, and
its examples run, against a loopback server in the place of the provider. What was tried with the same wheel,
and went well, is not tried again. Not part of `make test`: it installs every framework.
"""

from __future__ import annotations

import argparse
import asyncio
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
from tests.support.model_server import ModelServer, answer
from tests.support.replies import Reply
from tests.support.wires import Received

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / "build" / "extras"
NONE = "(none)"
"""The wheel without an extra."""
MODULES = {
    "gateway": "context_compressor.gateway.app",
    "fsspec": "context_compressor.backends.fsspec",
    "laws": "context_compressor.laws.anthropic_rules",
    "redis": "context_compressor.backends.redis",
    "report": "context_compressor.lab.measure.charts",
    "sql": "context_compressor.backends.sql.history",
}
"""Where the module of an extra is no adapter of its name."""
MORE = {"langchain": ["langchain-openai"]}
"""What an example says that it needs besides."""
PROGRAM = (
    "import sys; from context_compressor.__main__ import main; sys.argv[0] = 'context-compressor'; main()"
)
DURABLE = """
import asyncio, sys
from context_compressor import CompressedMemory, Msg, SQLAlchemyMemory
async def run():
    async def size():
        base = SQLAlchemyMemory("sqlite+aiosqlite:///memory.db", session_id="s", user_id="u")
        async with CompressedMemory(base) as memory:
            await memory.add(Msg("user", "Hello", "user"))
            count = len(await memory.get_memory())
        await base.close()
        return count
    return [await size(), await size()]
assert asyncio.run(run()) == [1, 2]
"""
SAID = "All of it is read."
READERS = {"read_file": "path", "view_text_file": "file_path", "Read": "file_path"}
"""The tools by which an example's agent reads a file, and the name of their argument."""
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


class Reader:
    """A model that reads two files, and says so.

    Args:
        folder: where they lie.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._turn = 0

    def __call__(self, messages: list[Any], received: Received) -> Reply:
        self._turn += 1
        if self._turn > 2:
            return answer(SAID)
        names = [(one.get("function") or one).get("name") for one in received.tools]
        [name] = [name for name in names if name in READERS]
        file = f"{self._turn}.txt"
        path = file if name == "read_file" else str(self._folder / file)
        return answer("Next.", [(name, {READERS[name]: path})])


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
        except (AssertionError, subprocess.TimeoutExpired) as error:
            self._told.append(str(error))
            is_fine = False
        result = {"ok": is_fine, "key": key, "seconds": round(time.monotonic() - began), "told": self._told}
        self._stamp.write_text(json.dumps(result), encoding="utf-8")
        return result

    def _install(self) -> None:
        venv.create(self.place, clear=True, with_pip=False)
        what = str(self._wheel) if self.extra == NONE else f"{self._wheel}[{self.extra}]"
        pip = [sys.executable, "-m", "pip", "--python", str(self._python), "install", "--quiet"]
        options = ["--disable-pip-version-check", "--no-compile"]
        what_else = MORE.get(self.extra, [])
        subprocess.run(
            [*pip, *options, what, *what_else], check=True, capture_output=True, text=True, cwd=self.place
        )

    @property
    def _python(self) -> Path:
        return self.place / "bin" / "python"

    def _call(self, *arguments: object, given: str | None = None, **more: str) -> str:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            [self._python, *map(str, arguments)],
            cwd=self.place,
            env=environment | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"} | more,
            input=given,
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        ).stdout

    def _run_example(self, path: Path) -> None:
        """Run an example over a folder of two files."""
        folder = self.place / "files"
        folder.mkdir(exist_ok=True)
        for number in (1, 2):
            (folder / f"{number}.txt").write_text(f"line of {number}\n" * 4_000, encoding="utf-8")

        async def run() -> str:
            async with ModelServer(Reader(folder), enforce=True) as server:
                providers = {
                    "OPENAI_BASE_URL": server.url,
                    "ANTHROPIC_BASE_URL": server.anthropic_url,
                    "DASHSCOPE_HTTP_BASE_URL": server.dashscope_url,
                    **{f"{name}_API_KEY": "x" for name in ("OPENAI", "ANTHROPIC", "DASHSCOPE")},
                }
                said = await asyncio.to_thread(self._call, path, folder, "Read all.", **providers)
                assert server.refusals == [], server.refusals
                return said

        said = asyncio.run(run())
        assert SAID in said, said
        self._told.append(f"{path.name} runs")

    def _try_base(self) -> None:
        assert "demo" in self._call("-c", PROGRAM, "--help")
        self._call("-c", PROGRAM, "demo")
        self._told.append("--help and demo run")
        pieces = blocks("python", (ROOT / "README.md").read_text(encoding="utf-8"))
        said = self._call("-c", RUN_PIECES, given=json.dumps(pieces), OPENAI_API_KEY="x")
        left_out = said.count("left out")
        self._told.append(f"{len(pieces) - left_out} of {len(pieces)} pieces of README run")
        for name in NEED_NO_MODEL:
            self._call(ROOT / "examples" / f"{name}.py")
        self._told.append(f"{len(NEED_NO_MODEL)} examples run without a model")
        for name in ("openai_client", "dashscope_client"):
            self._run_example(ROOT / "examples" / f"{name}.py")

    def _try_extra(self) -> None:
        own = self.extra.replace("-", "_")
        module = MODULES.get(self.extra, f"context_compressor.integrations.{own}")
        # `*` imports what a package loads at its first use only.
        self._call("-c", f"from {module} import *")
        self._told.append(f"{module} imports")
        for path in sorted((ROOT / "examples").glob(f"{own}_*.py")):
            self._run_example(path)
        if self.extra == "sql":
            self._call("-c", DURABLE)
            self._told.append("a memory in SQLite goes on")
        if self.extra == "laws":
            for form in ("chat", "responses", "anthropic"):
                self._call("-c", PROGRAM, "laws", "--adapter", "memory", "--form", form, "--examples", "1")
            self._told.append("our views are judged in every form")
        if self.extra == "mcp":
            self._call("-c", PROGRAM, "mcp", "--store", "texts", "--namespace", "n", given="")
            self._told.append("the server starts and ends")
        if self.extra == "gateway":
            self._call("-c", PROGRAM, "serve", "--help")
            self._told.append("the gateway tells its options")
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
