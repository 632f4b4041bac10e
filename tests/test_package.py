"""The house rules that a machine can check: public names, what an import costs, who may know whom."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import context_compressor
from context_compressor.moved import MOVED, new_path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "context_compressor"
MODULES = sorted(PACKAGE.rglob("*.py"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

MAX_MODULE_LINES = 900

EXTRA_NAMES = {
    "AsyncSQLAlchemyMemory",
    "FsspecOffloadStore",
    "RedisMemory",
    "RedisMemoryService",
    "RedisOffloadStore",
    "RedisStates",
    "SQLAlchemyMemory",
    "SQLAlchemyMemoryService",
    "SQLAlchemyOffloadStore",
    "SQLAlchemyStates",
}
"""Each needs an extra; without it, `import *` leaves it out."""
PUBLIC_NAMES = {
    "CompressedMemory",
    "CompressionConfig",
    "CompressionEvent",
    "CompressionResult",
    "CompressionStats",
    "ConflictError",
    "ContextCompressorError",
    "ContextOverflowError",
    "DashScopeSummarizer",
    "ExtractiveSummarizer",
    "FallbackSummarizer",
    "FileOffloadStore",
    "Forgotten",
    "Form",
    "HandOver",
    "History",
    "InMemoryMemory",
    "InMemoryMemoryService",
    "InMemoryOffloadStore",
    "InvalidArgumentError",
    "InvalidMessageError",
    "InvalidStateError",
    "LoopError",
    "MemoryBase",
    "MemoryService",
    "Msg",
    "NotStartedError",
    "OffloadCollisionError",
    "OffloadCorruptError",
    "OffloadError",
    "OffloadFullError",
    "OffloadKeyError",
    "OffloadNotFoundError",
    "OffloadPermissionError",
    "OffloadStore",
    "OffloadTools",
    "OffloadWriteError",
    "OpenAISummarizer",
    "RedactionError",
    "SessionNotFoundError",
    "Summarizer",
    "SummarizerError",
    "SummarizerOverflowError",
    "SummarizerTimeoutError",
    "Summary",
    "SummaryRejectedError",
    "SummaryRequest",
    "TiktokenCounter",
    "TokenCounter",
    "UnrelatedMessagesError",
    "acompress_messages",
    "collect_garbage",
    "compress_messages",
    "from_anthropic",
    "from_openai",
    "from_responses",
    "in_turn",
    "is_overflow",
    "limit_in",
    "ref_of",
    "to_anthropic",
    "to_openai",
    "to_responses",
}

FRAMEWORKS = (
    *(
        "agents",
        "agentscope",
        "anthropic",
        "dashscope",
        "langchain",
        "langchain_core",
        "langgraph",
        "litellm",
    ),
    *("mcp", "openai", "opentelemetry", "pydantic_ai"),
)
HEAVY = (
    *FRAMEWORKS,
    *("aiohttp", "httpx", "httpx2", "jinja2", "matplotlib", "redis", "requests", "rich", "sqlalchemy"),
    *("starlette", "typer", "uvicorn"),
)
"""Packages that only a summariser, a framework or the command line needs, most of them slow to import."""

SEARCH = ("regex", "snowballstemmer", "context_compressor.search.index", "context_compressor.search.terms")
"""What takes long to import, and only a search needs."""

LEVELS = (
    {"errors", "events"},
    {"messages"},
    {"tokens"},
    {"offload", "summarizers"},
    {"core"},
    {"search"},
    {"memory"},
    {"tools"},
    {"backends"},
    {"integrations"},
    {"services"},
    {"gateway"},
    {"laws"},
    {"cli"},
    {"lab"},
)
"""The rooms, and modules at the top, each of which knows those in the lines above it alone."""
UPWARD = {
    "cli/app.py": ("context_compressor.lab.commands",),
    "memory/compressed.py": (
        "context_compressor.integrations.agentscope.history",
        "context_compressor.tools",
    ),
    "memory/stateless.py": ("context_compressor.tools",),
    "messages/chat.py": ("context_compressor.moved",),
    "offload/__init__.py": ("context_compressor.moved",),
}
"""Imports that go up: of the lab's commands, which nobody else knows; inside a function or for types, of what
wraps AgentScope memories, and of tools; of a room for names that it gave."""


def place(module: Path) -> str:
    """Return where a module stands in the package."""
    return module.relative_to(PACKAGE).as_posix()


def room_of(name: str) -> str | None:
    """Return the room of a dotted name, None for the package itself."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else None


def own_imports(module: Path) -> Iterator[str]:
    """Yield the dotted names that a module imports from this package, wherever in it the import stands."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative imports hide which room is meant"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == PACKAGE.name)


def test_public_names_are_those_promised() -> None:
    """Exactly the promised names are exported, in order, and each of them is there."""
    assert context_compressor.__all__ == sorted(PUBLIC_NAMES | EXTRA_NAMES)
    brought: dict[str, object] = {}
    exec("from context_compressor import *", brought)
    assert brought.keys() >= PUBLIC_NAMES | EXTRA_NAMES
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    [told] = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and "__all__" in ast.unparse(node)
    ]
    assert sorted(ast.literal_eval(told)) == context_compressor.__all__  # what type checkers see


def test_without_extras_all_else_is_there() -> None:
    missing = "import sys; sys.modules |= dict.fromkeys(('fsspec', 'redis', 'sqlalchemy'))"
    told = f"{missing}\nfrom context_compressor import *\nprint(sorted(globals()))"
    done = subprocess.run([sys.executable, "-c", told], cwd=ROOT, capture_output=True, text=True, check=True)
    found = set(ast.literal_eval(done.stdout))
    assert (found & EXTRA_NAMES, PUBLIC_NAMES - found) == (set(), set())


def modules_after(statement: str) -> set[str]:
    """Return the names of all modules that a process has loaded after a statement."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("old", [*MOVED, "readers.tables", "measure.page"])
def test_an_old_path_gives_the_new_module_and_warns(old: str) -> None:
    """Also of a module in a room that moved: it is the same one, not a second one."""
    old, new = f"{PACKAGE.name}.{old}", new_path(f"{PACKAGE.name}.{old}")
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=rf"{old} has moved: import from {new}") as warned:
        exec(f"import {old}")
    assert sys.modules[old] is import_module(str(new))
    assert {warning.filename for warning in warned} == {"<string>"}  # whoever imports it, not the machinery


@pytest.mark.parametrize("name", ["FileOffloadStore", "REF_PATTERN", "counted", "check_namespace"])
def test_a_name_that_a_room_gave_warns_and_is_the_same(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"offload\.{name} has moved: import from \S+") as warned:
        found = getattr(import_module("context_compressor.offload"), name)
    module = import_module(str(warned[0].message).rpartition(" ")[2])
    assert getattr(module, name) is found


def test_import_is_light() -> None:
    """No public name pulls in a provider SDK, anything of the command line, or anything to search by."""
    names = ", ".join(sorted(PUBLIC_NAMES))
    assert modules_after(f"from context_compressor import {names}").isdisjoint((*HEAVY, *SEARCH))


@pytest.mark.parametrize("name", ["integrations", "integrations.conversations", "cli.app"])
def test_a_framework_is_imported_by_its_own_adapter_alone(name: str) -> None:
    assert modules_after(f"import context_compressor.{name}").isdisjoint(FRAMEWORKS)


def test_the_plugin_for_pytest_is_light() -> None:
    """It is loaded in every run of pytest where the package is installed."""
    loaded = modules_after("import context_compressor.laws.plugin")
    ours = {name for name in loaded if name.startswith(f"{PACKAGE.name}.")}
    assert ours == {"context_compressor.laws", "context_compressor.laws.plugin", "context_compressor.moved"}
    assert "hypothesis" not in loaded


def test_a_memory_imports_no_rules() -> None:
    """What reads a conversation by rules is imported by the first event that asks it for a summary."""
    statement = "from context_compressor import CompressedMemory, compress_messages, from_openai"
    assert modules_after(statement).isdisjoint((*HEAVY, *SEARCH))


def test_a_public_name_is_imported_when_it_is_used() -> None:
    """The package alone loads none of its rooms, and a name none but those that it needs."""
    rooms = {f"context_compressor.{room}" for rooms in LEVELS for room in rooms}
    assert modules_after("import context_compressor").isdisjoint(rooms)
    needed = {f"context_compressor.{room}" for room in ("errors", "messages", "tokens")}
    assert modules_after("from context_compressor import TiktokenCounter") & rooms == needed


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    """As of any module: `hasattr` and `from ... import` rest on it."""
    assert not hasattr(context_compressor, "Compressor")
    assert set(dir(context_compressor)) >= PUBLIC_NAMES


def test_making_a_memory_reads_no_vocabulary() -> None:
    """Reading the vocabulary takes 0.3 s, which belong to the first count."""
    code = (
        "from context_compressor import CompressedMemory, OffloadTools\n"
        "memory = CompressedMemory()\nOffloadTools(memory)\nprint(memory.counter.is_loaded)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_modules_stay_short() -> None:
    """A module is one concept, and a concept is not cut in two: longer than this, its first line says why."""
    programs = [path for folder in ("benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")]
    programs = [path for path in programs if ".venvs" not in path.parts]  # what peers are installed in
    texts = {str(path): path.read_text(encoding="utf-8").splitlines() for path in MODULES + programs}
    long = {path: lines[0] for path, lines in texts.items() if len(lines) > MAX_MODULE_LINES}
    assert [path for path, first in long.items() if "Long, because" not in first] == []


def test_imports_point_one_way() -> None:
    """Each room knows only the rooms below it."""
    level = {room: number for number, rooms in enumerate(LEVELS) for room in rooms}
    wrong = []
    for path in MODULES:
        if path.parent == PACKAGE and path.stem.startswith("__"):
            continue  # the front doors know everybody
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        wrong += [
            f"{place(path)} imports {name}"
            for name in own_imports(path)
            if (other := room_of(name)) != room
            and (other not in level or level[other] >= level[room])
            and not name.startswith(UPWARD.get(place(path), ("-",)))
        ]
    assert wrong == []


def test_no_imports_go_round() -> None:
    """No module knows, through others, a module that knows it: each can be read with those below it."""
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in MODULES}
    known = {
        name: {
            found for own in own_imports(path) for found in (own, own.rpartition(".")[0]) if found in names
        }
        for name, path in names.items()
    }
    TopologicalSorter(known).prepare()  # names the circle that it meets


def test_version_is_told_once() -> None:
    """The changelog's newest release, pyproject.toml and the installed package name one version."""
    told = PYPROJECT["project"]["version"]
    headings = [
        line
        for line in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
        if line[:4] == "## ["
    ]
    releases = [heading[4:].split("]")[0] for heading in headings if "Unreleased" not in heading]
    assert releases[0] == told
    try:
        assert version("agent-context-compressor") == told
    except PackageNotFoundError:
        pytest.skip("run from its sources, not installed")


def test_nobody_is_told_to_install_it_from_an_index() -> None:
    """On PyPI `context-compressor`, our name without its first word, is another project, imported alike."""
    texts = [
        path
        for folder in (PACKAGE, ROOT / "docs", ROOT / "examples", ROOT / "benchmarks")
        for path in folder.rglob("*")
        if path.suffix in (".py", ".md")
    ]
    told = re.compile(r"install\s+(?:-\S+\s+)*['\"]?context[-_]compressor")
    found = [path for path in [ROOT / "README.md", *texts] if told.search(path.read_text(encoding="utf-8"))]
    assert found == []


def test_license_is_the_one_named() -> None:
    """pyproject.toml names the licence whose text lies in the repository."""
    assert PYPROJECT["project"]["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Copyright 2026 the context_compressor authors" in text
