"""Following a list of chat dicts that somebody else owns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from context_compressor.memory.locks import LoopLock
from context_compressor.messages.openai import from_openai, to_openai

if TYPE_CHECKING:
    from context_compressor.memory.compressed import CompressedMemory


class ListFollower:
    """Bring a memory in line with a list, by position and content.

    Args:
        memory: the memory whose history follows the list.
    """

    def __init__(self, memory: CompressedMemory) -> None:
        self._memory = memory
        self._synced: list[tuple[dict[str, Any], str]] = []
        """What the list said last time, each dict with the id of its message."""
        self._loaded_ids: list[str] = []
        """Ids synced before a saved state was loaded, until the history was read."""
        # Two callers with one list would both find the same messages new.
        self._lock = LoopLock()

    def synced_ids(self) -> list[str]:
        """Return the ids of the messages that came from the list."""
        return [*self._loaded_ids, *(id for _, id in self._synced)]

    def start_from(self, synced_ids: list[str]) -> None:
        """Forget what was synced, but for the messages under these ids."""
        self._synced, self._loaded_ids = [], list(synced_ids)

    async def follow(self, messages: Iterable[Any]) -> None:
        """Add what is new; where the list says something else than before, let it begin anew from there.

        Raises:
            InvalidMessageError: a message is malformed; nothing was changed.
        """
        # Comparing dicts is far cheaper than reading them, and all but the end is mostly the same.
        said = [item if isinstance(item, dict) else to_openai(from_openai([item]))[0] for item in messages]
        async with self._lock:
            if not self._synced:
                self._synced = await self._read_synced(said)
            same = 0
            for (old, _), new in zip(self._synced, said, strict=False):
                if old != new:
                    break
                same += 1
            added = from_openai(said[same:])
            outdated = [id for _, id in self._synced[same:]]
            if outdated:
                await self._memory.delete(outdated)
                del self._synced[same:]
            await self._memory.add(added)
            self._synced += [(to_openai([msg])[0], msg.id) for msg in added]

    async def _read_synced(self, said: list[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
        """Return what was synced before a restart; unknown, it is how much of the list the history says."""
        history = await self._memory.get_history()
        if self._loaded_ids:
            by_id = {msg.id: msg for msg in history}
            wanted, self._loaded_ids = self._loaded_ids, []
            return [(to_openai([by_id[id]])[0], id) for id in wanted if id in by_id]
        known: list[tuple[dict[str, Any], str]] = []
        for msg in history:
            wire = to_openai([msg])
            if len(wire) != 1 or len(known) >= len(said) or said[len(known)] != wire[0]:
                break
            known.append((wire[0], msg.id))
        return known
