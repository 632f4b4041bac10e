"""Where modules of earlier releases are now: an old path gives the new module and warns, for one release."""

import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PACKAGE = "context_compressor."
MOVED = {
    "backends.archive": "backends.admin.archive",
    "backends.changes": "backends.batch",
    "backends.claims": "backends.sql.history",
    "backends.collecting": "backends.admin.collection",
    "backends.deleting": "backends.admin.deletion",
    "backends.engines": "backends.sql.engines",
    "backends.moving": "backends.admin.archive",
    "backends.namespaces": "backends.admin.collection",
    "backends.opening": "backends.admin.opening",
    "backends.redis_clients": "backends.redis.clients",
    "backends.redis_keys": "backends.redis.scripts",
    "backends.redis_sessions": "backends.redis.sessions",
    "backends.redis_states": "backends.redis.states",
    "backends.redis_store": "backends.redis.store",
    "backends.redis_users": "backends.redis.users",
    "backends.sessions": "backends.admin.sessions",
    "backends.snapshots": "backends.admin.archive",
    "backends.sqlalchemy": "backends.sql.history",
    "backends.sqlalchemy_sessions": "backends.sql.sessions",
    "backends.sqlalchemy_states": "backends.sql.states",
    "backends.sqlalchemy_store": "backends.sql.store",
    "backends.stores": "offload.packed",
    "backends.tables": "backends.sql.tables",
    "backends.writing": "backends.sql.write",
    "cli.compress": "lab.commands.compress",
    "cli.compress_sessions": "lab.commands.compress_sessions",
    "cli.demo": "lab.commands.demo",
    "cli.demo_agent": "lab.commands.demo_agent",
    "cli.examine": "lab.commands.examine",
    "cli.inputs": "lab.commands.inputs",
    "cli.replay": "lab.commands.replay",
    "cli.replay_parallel": "lab.commands.replay_parallel",
    "integrations.langchain.tools": "integrations.langchain.middleware",
    "integrations.lists": "memory.listing",
    "integrations.openai_agents.tools": "integrations.openai_agents.turns",
    "integrations.taken": "integrations.asked",
    "measure": "lab.measure",
    "compression.draft": "core.decide",
    "compression.engine": "core.event",
    "compression.planner": "core.decide",
    "compression.plans": "core.decide",
    "compression.segments": "core.event",
    "compression.stub_draft": "core.decide",
    "compression.stubs": "core.event",
    "compression": "core",
    "memory.ahead": "memory.performance",
    "memory.following": "memory.tracking",
    "memory.housekeeping": "memory.shell",
    "memory.listed": "memory.listing",
    "memory.making": "memory.tracking",
    "memory.running": "memory.shell",
    "memory.searching": "memory.places",
    "messages.chat.blocks": "messages.chat",
    "messages.chat.reading": "messages.chat",
    "messages.chat.writing": "messages.chat",
    "messages.compaction": "messages.hosted",
    "messages.foreign": "messages.kinds",
    "messages.loading": "messages.hosted",
    "messages.turns": "messages.chat",
    "messages.wire": "messages.chat",
    "offload.directory.gc": "offload.directory",
    "offload.protocol": "offload.store",
    "offload.retention": "offload.directory",
    "offload.tenant": "offload.directory",
    "readers": "lab.readers",
    "services.in_memory": "services.base",
    "services.finding": "services.indexes",
    "summarizers.attempts": "summarizers.bill",
    "summarizers.checking": "summarizers.check",
    "summarizers.cutting": "summarizers.cut",
    "summarizers.extracts": "summarizers.chain",
    "summarizers.fallback": "summarizers.chain",
    "summarizers.rules.reading": "summarizers.rules.steps",
    "summarizers.writing": "summarizers.writers",
}
"""Old path -> new one, of a module or of a room with all that is in it."""


class MovedFinder:
    """Import the module that an old path means.

    It is asked before all other finders: in a room that moved, they would load each module once more.
    """

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Return how to load an old path, None for every other name."""
        return ModuleSpec(name, self) if name.startswith(_PACKAGE) and new_path(name) else None  # type: ignore[arg-type]  # without `importlib.abc`, which takes long to import

    def create_module(self, _spec: ModuleSpec) -> None:
        """Leave making the module to Python: another one takes its place."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the module of the new path in the place of the old one, and warn."""
        old = module.__name__
        new = new_path(old)
        warnings.warn(f"{old} has moved: import from {new}", DeprecationWarning, stacklevel=2)
        sys.modules[old] = import_module(str(new))


def new_path(name: str) -> str | None:
    """Return where the module of a dotted name is now, None where it is what it was."""
    inside = name.removeprefix(_PACKAGE)
    for old, new in MOVED.items():
        if inside == old or inside.startswith(old + "."):
            return _PACKAGE + new + inside.removeprefix(old)
    return None


def names_of(room: str, *modules: str) -> Callable[[str], Any]:
    """Return what finds a name that was imported from a room itself in the room's modules, and warns."""

    def find(name: str) -> Any:
        for module in modules if not name.startswith("_") else ():
            found = getattr(import_module(f"{room}.{module}"), name, None)
            if found is not None and not isinstance(found, ModuleType):
                told = f"{room}.{name} has moved: import from {room}.{module}"
                warnings.warn(told, DeprecationWarning, stacklevel=2)
                return found
        raise AttributeError(f"module {room!r} has no attribute {name!r}")

    return find
