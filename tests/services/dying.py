"""A process whose receiver may end it: `python -m tests.services.dying DATABASE FILE none|before|after`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from context_compressor import CompressedMemory, FileOffloadStore, Msg, SQLAlchemyMemory
from context_compressor.memory import leases
from context_compressor.memory.handover import Departure

BUDGET = 1_200
leases.LEASE_SECONDS = 0.5  # for so long the lease of a process that died stands in the way


class Receiver:
    def __init__(self, file: Path, dies: str) -> None:
        self._file, self._dies = file, dies

    async def receive(self, departure: Departure) -> None:
        taken = len(self._file.read_text().splitlines()) if self._file.exists() else 0
        if self._dies == "before" and taken == 1:
            os._exit(9)
        with self._file.open("a") as file:
            file.write(json.dumps([departure.ref, [msg.id for msg in departure.messages]]) + "\n")
        if self._dies == "after" and taken == 1:
            os._exit(9)


async def main(database: str, file: str, dies: str) -> None:
    async with SQLAlchemyMemory(f"sqlite+aiosqlite:///{database}") as base:
        store = FileOffloadStore(Path(database).parent / "texts")
        receiver = Receiver(Path(file), dies)
        async with CompressedMemory(base, store=store, max_total_tokens=BUDGET, hand_over=receiver) as memory:
            for number in range(await base.size(), 22):
                await memory.add(Msg("user", f"Parcel {number} went out. " * 20, "user", id=f"m{number}"))
                await memory.get_memory()
                await asyncio.sleep(0)
            while memory.stats().to_hand_over:
                await memory.get_memory()
                await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
