"""An agent's session, saved in one process and loaded in another, for which this is run as a program."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from agentscope.agent import ReActAgent
from agentscope.formatter import OpenAIChatFormatter
from agentscope.message import Msg
from agentscope.model import ChatModelBase
from agentscope.session import JSONSession

from context_compressor import Summary, SummaryRequest
from context_compressor.integrations.agentscope import AgentScopeCompressedMemory
from tests.integrations.bases import Place
from tests.integrations.messages import turns


class Summarizer:
    """Writes a summary, or none: in the second process nothing is left to summarise."""

    remote = True

    def __init__(self, *, allowed: bool) -> None:
        self.allowed = allowed
        self.calls = 0

    async def summarize(self, request: SummaryRequest) -> Summary:
        self.calls += 1
        if not self.allowed:
            raise AssertionError("paid for twice")
        return Summary(text="## Goal\n- read part_0.log to part_14.log")


async def run(kind: str, folder: Path, port: int, session: str, *, save: bool) -> dict[str, Any]:
    """Let an agent's memory grow and save it, or load it; return what the agent would send, and more."""
    place = Place(kind, folder, lambda: port, session)
    async with nullcontext() if kind == "own" else place.open() as base:
        summarizer = Summarizer(allowed=save)
        memory = AgentScopeCompressedMemory(
            base=base,
            max_total_tokens=2_000,
            store_dir=str(folder / "texts"),
            summarizer=summarizer,
            background_ratio=None,  # what is prepared ahead may be lost with a process, and is paid for again
        )
        agent = ReActAgent(
            "Friday", "You are Friday.", ChatModelBase("m", False), OpenAIChatFormatter(), memory=memory
        )
        files = JSONSession(str(folder))
        if save:
            for msg in turns(15):
                await memory.add(msg)
                await memory.get_memory()
            await memory.add(Msg("user", "And now?", "user"), marks="asked")
        else:
            await files.load_session_state(f"{kind}.{session}", agent=agent, allow_not_exist=False)
        view = await memory.get_memory()
        if save:
            await files.save_session_state(f"{kind}.{session}", agent=agent)
        refs = await memory.reachable_refs()
        return {
            "request": json.dumps(await agent.formatter.format(view), ensure_ascii=False),
            "ids": [msg.id for msg in view],
            "metadata": [msg.metadata for msg in view],
            "history": [msg.to_dict() for msg in await memory.get_history()],
            "asked": [msg.id for msg in await memory.get_memory(mark="asked")],
            "stored": {ref: await memory.compressed.store.read(ref) for ref in refs},
            "noted": memory.stats().noted,
            "paid": summarizer.calls,
        }


def load(folder: Path, port: int, session: str, kinds: list[str]) -> None:
    """Print what `run` returns of each kind, as JSON."""

    async def main() -> dict[str, Any]:
        return {kind: await run(kind, folder, port, session, save=False) for kind in kinds}

    print(json.dumps(asyncio.run(main())))


if __name__ == "__main__":
    load(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
