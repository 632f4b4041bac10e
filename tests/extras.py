"""Try each extra alone: `python -m tests.extras WHEEL [EXTRA ...]`, or `make extras`.

Each gets a fresh environment with the wheel and that extra, nothing else, for every Python that the wheel is
for, with the lowest dependencies that it allows and with the newest. There runs what README and the
quickstart show of it, its module is imported, and its examples run, against a loopback server in the place of
the provider. What was tried with the same wheel, and went well, is not tried again. Not part of `make test`:
it installs every framework eight times.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from tests.support.markdown import assert_answer_as_shown, blocks
from tests.support.model_server import ModelServer, answer
from tests.support.replies import Reply
from tests.support.wires import Received

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / "build" / "extras"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NONE = "(none)"
"""The wheel without an extra."""
EXTRAS = [NONE, *PROJECT["optional-dependencies"]]
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
DEPENDENCIES = ["lowest", "newest"]
PAGES = {
    page.name: page.read_text(encoding="utf-8") for page in (ROOT / "README.md", ROOT / "docs/quickstart.md")
}
MODULES = {
    "gateway": "context_compressor.gateway.app",
    "fsspec": "context_compressor.backends.fsspec",
    "laws": "context_compressor.laws.anthropic_rules",
    "redis": "context_compressor.backends.redis",
    "report": "context_compressor.lab.measure.charts",
    "sql": "context_compressor.backends.sql.history",
}
"""Where the module of an extra is no adapter of its name."""
MORE = {"langchain": ["langchain-openai>=1.1,<2"]}
"""What an example says that it needs besides."""
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
    for piece in pieces:
        result = eval(compile(piece, "piece", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.isawaitable(result):
            await result
asyncio.run(run(json.load(sys.stdin)))
"""
ASK = """
import sys, openai
client = openai.OpenAI(base_url=sys.argv[1], api_key="x")
messages = [{"role": "user", "content": "Hello"}]
print(client.chat.completions.create(model="m", messages=messages).choices[0].message.content)
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


def pieces_for(extra: str, page: str) -> list[str]:
    """Return the blocks of Python that name the adapter of an extra; without one, those that name none."""
    return [
        piece
        for piece in blocks("python", PAGES[page])
        if next((name for name in EXTRAS if f"integrations.{name.replace('-', '_')} " in piece), NONE)
        == extra
    ]


@dataclass
class Trial:
    """One extra in an environment of its own.

    Args:
        wheel: what to try.
        extra: its extra.
        python: an interpreter, as a path or a version.
        dependencies: "lowest" or "newest".
    """

    wheel: Path
    extra: str
    python: str
    dependencies: str
    told: list[str] = field(default_factory=list)

    @property
    def place(self) -> Path:
        name = "-".join((self.extra.strip("()"), Path(self.python).name, self.dependencies))
        return ENVIRONMENTS / name

    def run(self) -> dict[str, Any]:
        """Return what came of it: `ok`, `seconds` and `told`. What failed is left to be looked at."""
        stamp = self.place.with_name(f"{self.place.name}.json")
        key = hashlib.sha256(self.wheel.read_bytes() + Path(__file__).read_bytes()).hexdigest()
        if stamp.exists():
            earlier: dict[str, Any] = json.loads(stamp.read_text(encoding="utf-8"))
            if earlier["ok"] and earlier["key"] == key:
                return earlier
        began = time.monotonic()
        try:
            self._install()
            self._try_pages()
            self._try_base() if self.extra == NONE else self._try_extra()
            is_fine = True
        except subprocess.CalledProcessError as error:
            lines = f"{error.stdout or ''}{error.stderr or ''}".strip().splitlines()
            self.told.append(lines[-1] if lines else f"exit code {error.returncode}")
            is_fine = False
        except (AssertionError, subprocess.TimeoutExpired) as error:
            self.told.append(str(error))
            is_fine = False
        result = {"ok": is_fine, "key": key, "seconds": round(time.monotonic() - began), "told": self.told}
        stamp.write_text(json.dumps(result), encoding="utf-8")
        if is_fine:
            shutil.rmtree(self.place)
        return result

    def _install(self) -> None:
        """Install wheels only: a release without one for this Python is none of those that it can have.

        The newest are installed in two steps: what errors tell to run finds a wheel that is installed.
        """
        uv("venv", "--quiet", "--clear", "--python", self.python, self.place)
        command = ["pip", "install", "--quiet", "--no-build", "--python", self.place]
        named = "" if self.extra == NONE else f"[{self.extra}]"
        more = MORE.get(self.extra, [])
        if self.dependencies == "newest":
            uv(*command, self.wheel)
            uv(*command, f"{PROJECT['name']}{named}", *more)
        else:  # uv takes the lowest of what is named here, but not of what a wheel wants
            also = ["--extra", self.extra] if named else []
            wanted = ["-r", ROOT / "pyproject.toml", *also]
            uv(*command, "--resolution", "lowest-direct", f"{self.wheel}{named}", *more, *wanted)

    @property
    def _program(self) -> Path:
        return self.place / "bin" / "context-compressor"

    def _environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return kept | {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "COLUMNS": "100", "PYTHONUTF8": "1"} | more

    def _call(self, *arguments: object, given: str | None = None, **more: str) -> str:
        return subprocess.run(
            [*map(str, arguments)],
            cwd=self.place,
            env=self._environment(**more),
            input=given,
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        ).stdout

    def _run(self, *arguments: object, given: str | None = None, **more: str) -> str:
        """Run Python; what our own modules warn of is an error."""
        options = ["-W", "error:::context_compressor"]
        return self._call(self.place / "bin" / "python", *options, *arguments, given=given, **more)

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
                said = await asyncio.to_thread(self._run, path, folder, "Read all.", **providers)
                assert server.refusals == [], server.refusals
                return said

        said = asyncio.run(run())
        assert SAID in said, said
        self.told.append(f"{path.name} runs")

    def _try_pages(self) -> None:
        for page in PAGES:
            if pieces := pieces_for(self.extra, page):
                self._run("-c", RUN_PIECES, given=json.dumps(pieces), OPENAI_API_KEY="x")
                self.told.append(f"{len(pieces)} pieces of {page} run")

    def _try_base(self) -> None:
        assert "demo" in self._call(self._program, "--help")
        self._call(self._program, "demo")
        self.told.append("--help and demo run")
        python = self.place / "bin" / "python"
        for text in PAGES.values():
            assert_answer_as_shown(text, str(self._program), python, self.place, self._environment())
        self.told.append("commands answer as shown")
        for name in NEED_NO_MODEL:
            self._run(ROOT / "examples" / f"{name}.py")
        self.told.append(f"{len(NEED_NO_MODEL)} examples run without a model")
        for name in ("openai_client", "dashscope_client"):
            self._run_example(ROOT / "examples" / f"{name}.py")

    def _try_extra(self) -> None:
        own = self.extra.replace("-", "_")
        module = MODULES.get(self.extra, f"context_compressor.integrations.{own}")
        # `*` imports what a package loads at its first use only.
        self._run("-c", f"from {module} import *")
        self.told.append(f"{module} imports")
        for path in sorted((ROOT / "examples").glob(f"{own}_*.py")):
            self._run_example(path)
        if self.extra == "sql":
            self._run("-c", DURABLE)
            self.told.append("a memory in SQLite goes on")
        if self.extra == "laws":
            for form in ("chat", "responses", "anthropic"):
                self._call(self._program, "laws", "--adapter", "memory", "--form", form, "--examples", "1")
            self.told.append("our views are judged in every form")
        if self.extra == "mcp":
            self._call(self._program, "mcp", "--store", "texts", "--namespace", "n", given="")
            self.told.append("the server starts and ends")
        if self.extra == "gateway":
            self._call(self._program, "serve", "--help")
            asyncio.run(self._ask_through())
            self.told.append("a request goes through the gateway")
        if self.extra == "report":
            session = self.place / "chat.json"
            session.write_text(self._run(ROOT / "examples" / "make_session.py"), encoding="utf-8")
            self._call(self._program, "replay", session, "--report", "page.html", "--png", "pictures")
            self.told.append("replay writes page and pictures")

    async def _ask_through(self) -> None:
        async with ModelServer(lambda *_: answer(SAID)) as server:
            command = [self._program, "serve", "--upstream", server.url, "--max-total-tokens", "16000"]
            with self._running(*command, "--port", "0") as process:
                assert process.stderr is not None
                line = await asyncio.to_thread(process.stderr.readline)
                address = re.search(r"at (http://\S+/v1);", line)
                assert address is not None, line
                assert SAID in await asyncio.to_thread(self._run, "-c", ASK, address[1])

    @contextmanager
    def _running(self, *command: object) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [*map(str, command)], cwd=self.place, env=self._environment(), stderr=subprocess.PIPE, text=True
        )
        with process:
            try:
                yield process
            finally:
                process.terminate()


def uv(*arguments: object) -> str:
    command = [sys.executable, "-m", "uv", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ENVIRONMENTS).stdout


def is_here(python: str) -> bool:
    try:
        uv("python", "find", python)
    except subprocess.CalledProcessError:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("extra", nargs="*", help="default: all")
    parser.add_argument("--python", nargs="+", help="versions or paths; default: all that are here")
    parser.add_argument("--dependencies", nargs="+", choices=DEPENDENCIES, default=DEPENDENCIES)
    options = parser.parse_args()
    if unknown := set(options.extra) - set(EXTRAS):
        parser.error(f"no such extra: {', '.join(sorted(unknown))}; there are {', '.join(EXTRAS)}")
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    pythons = options.python or [python for python in PYTHONS if is_here(python)]
    if missing := [python for python in PYTHONS if python not in pythons and not options.python]:
        print(f"Not tried, since they are not here: Python {', '.join(missing)}")
    failed = 0
    print("| extra | Python | dependencies | result | seconds | what was tried |", flush=True)
    print("| --- | --- | --- | --- | ---: | --- |", flush=True)
    for extra, python, dependencies in product(options.extra or EXTRAS, pythons, options.dependencies):
        found = Trial(options.wheel.absolute(), extra, python, dependencies).run()
        failed += not found["ok"]
        result, told = "ok" if found["ok"] else "FAILED", "; ".join(found["told"])
        print(f"| {extra} | {python} | {dependencies} | {result} | {found['seconds']} | {told} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
