"""Adapters in a few lines, run by this interpreter, and a session that peers have to convert."""

import json
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from benchmarks.peers import FOLDER
from benchmarks.peers.piped import PipedSystem
from benchmarks.peers.processes import ForkServer
from context_compressor.lab.measure import CachedCounter, Chat
from tests.lab.measure.support import Words, call, result, says

HEAD = f"""
import sys
sys.path.insert(0, {str(FOLDER)!r})
from adapter import *
class Peer(Storeless):
    def __init__(self, budget, parent):
        self.budget, self.parent, self.seen = budget, parent, []
    def convert(self, messages):
        return messages
    def send(self, new):
        self.seen += new
        return self.answer(new)
"""


def write_peer(folder: Path, body: str, head: str = "") -> list[str]:
    """Return how to start an adapter whose class has `body` for the rest of its methods, after `head`."""
    script = folder / "peer.py"
    methods = textwrap.indent(textwrap.dedent(body), "    ")
    script.write_text(f"{textwrap.dedent(head)}{HEAD}{methods}\nserve(Peer)\n", encoding="utf-8")
    return [sys.executable, str(script)]


def make_system(start: list[str] | ForkServer, budget: int = 1_000) -> PipedSystem:
    """Return a session's system."""
    return PipedSystem("peer", start, budget, CachedCounter(Words()))


@asynccontextmanager
async def piped(
    folder: Path, body: str, budget: int = 1_000, *, forks: bool = False
) -> AsyncIterator[PipedSystem]:
    """Run an adapter whose class has `body` for the rest of its methods."""
    command = write_peer(folder, body)
    with closing(ForkServer(command)) as server:
        system = make_system(server if forks else command, budget)
        try:
            yield system
        finally:
            await system.aclose()


def session(turns: int = 30, words: int = 60) -> list[Chat]:
    """Return a session with two calls at once, an empty result, a call without content and many turns."""
    messages = [
        says("system", "Handle parcels."),
        says("user", "Deliver every parcel, and mind the «umlauts»: äöü, 包裹."),
        {**call("a", "look", '{"at": "shelf"}'), "content": "First the shelf."},
        result("a", ""),
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [*call("b", "track", "{}")["tool_calls"], *call("c", "track", "{}")["tool_calls"]],
        },
        result("b", "on its way"),
        result("c", "lost"),
    ]
    for n in range(turns):
        rows = " ".join(f"PX-{n:03}-{k:03}" for k in range(words))
        arguments = json.dumps({"parcel": f"PX-{n:05}"})
        messages += [call(f"d{n}", "track", arguments), result(f"d{n}", rows)]
        if n % 5 == 4:
            messages += [says("assistant", f"That was row {n}."), says("user", f"Go on after {n}.")]
    return messages
