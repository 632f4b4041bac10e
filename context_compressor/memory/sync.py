"""Following a list of chat dicts that somebody else owns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

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

    async def follow(self, messages: Iterable[Any]) -> None:
        """Add what is new; where the list says something else than before, let it begin anew from there.

        Raises:
            InvalidMessageError: a message is malformed; nothing was changed.
        """
        # Comparing dicts is far cheaper than reading them, and all but the end is mostly the same.
        said = [item if isinstance(item, dict) else to_openai(from_openai([item]))[0] for item in messages]
        if not self._synced:
            self._synced = await self._history_said(said)
        same = 0
        for (old, _), new in zip(self._synced, said, strict=False):
            if old != new:
                break
            same += 1
        added = from_openai(said[same:])
        outdated = [id for _, id in self._synced[same:]]
        if outdated:
            await self._memory.delete(outdated)
        await self._memory.add(added)
        self._synced[same:] = [(to_openai([msg])[0], msg.id) for msg in added]

    async def _history_said(self, said: list[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
        """Return how much of the list the history says already: after a restart nothing is added twice."""
        known: list[tuple[dict[str, Any], str]] = []
        for msg in await self._memory.get_history():
            wire = to_openai([msg])
            if len(wire) != 1 or len(known) >= len(said) or said[len(known)] != wire[0]:
                break
            known.append((wire[0], msg.id))
        return known
