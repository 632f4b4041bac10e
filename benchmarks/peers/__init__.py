"""Peers to measure beside this library, unmodified, each in an environment of its own (`make peers`)."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from context_compressor.lab.measure import CachedCounter

from .piped import AskModel, PipedSystem
from .processes import ForkServer
from .reading import SUFFIX, TOOLS, PipedReading

FOLDER = Path(__file__).resolve().parent
ENVIRONMENTS = FOLDER / ".venvs"


class Peer(NamedTuple):
    """Where a peer is installed, and what speaks for it."""

    environment: str
    """Its folder in `ENVIRONMENTS`, and its file in `requirements`."""
    adapter: str

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return ENVIRONMENTS / self.environment / "bin" / "python"

    @property
    def is_installed(self) -> bool:
        """Whether its installation came to its end."""
        return (ENVIRONMENTS / self.environment / "installed").exists()


PEERS = {
    "langchain-summarize": Peer("langchain", "langchain_summarization.py"),
    "langchain-clear": Peer("langchain", "langchain_clearing.py"),
    "reme": Peer("reme", "reme_short_term.py"),
    "deepagents": Peer("deepagents", "deep_agents.py"),
    "strands": Peer("strands", "strands_summarizing.py"),
    "pydantic-ai-harness": Peer("pydantic_ai", "pydantic_ai_compaction.py"),
}

JUDGED_ALONE = {
    "langchain-trim": Peer("langchain", "langchain_trim.py"),
    "langmem": Peer("langmem", "langmem_summarize.py"),
    "openai-agents": Peer("openai_agents", "openai_agents_trimmer.py"),
    "adk": Peer("adk", "adk_compaction.py"),
    "agentscope2": Peer("agentscope2", "agentscope2_compress.py"),
    "headroom": Peer("headroom", "headroom_compress.py"),
}
"""Peers that `laws_of_others.py` judges, and that nothing measures."""


def make_peer(
    name: str, budget: int, counter: CachedCounter | None = None, ask: AskModel | None = None
) -> PipedSystem:
    """Return a peer for one session. Its process starts when it is asked first; `ask` is a model's.

    A name that ends with `+tools` is that of a peer whose agent has its tools.

    All sessions of a peer are forked from one process, which ends with this one; where processes cannot be
    forked, each has its own.
    """
    peer = name.removesuffix(SUFFIX)
    start = server_of(peer) if hasattr(os, "fork") else command_of(peer)
    if peer != name:
        return PipedReading(peer, start, budget, counter, ask).with_tools(*TOOLS[peer])
    return PipedSystem(name, start, budget, counter, ask)


def command_of(name: str) -> list[str]:
    """Return how to start a peer's adapter."""
    peer = (PEERS | JUDGED_ALONE)[name]
    return [str(peer.python), "-u", str(FOLDER / peer.adapter)]


@cache
def server_of(name: str) -> ForkServer:
    """Return what forks the processes of a peer."""
    server = ForkServer(command_of(name))
    atexit.register(server.close)
    return server


PEER_SYSTEMS: dict[str, Callable[[int, CachedCounter], PipedSystem]] = {
    name: partial(make_peer, name) for name in PEERS
}
"""How to make each peer, as `SYSTEMS` has it for what needs no environment."""

READING_SYSTEMS = {f"{name}{SUFFIX}": partial(make_peer, f"{name}{SUFFIX}") for name in TOOLS}
"""The peers whose agent has tools to read what left, with them."""


def leave_out_missing(names: Sequence[str]) -> list[str]:
    """Return the names without the peers that are not installed; say which those are."""
    peers = {name: PEERS.get(name.removesuffix(SUFFIX)) for name in names}
    missing = [name for name, peer in peers.items() if peer is not None and not peer.is_installed]
    for name in missing:
        print(f"{name} is left out: it is not installed (make peers)", file=sys.stderr)
    return [name for name in names if name not in missing]
