"""A store from which a memory removes nothing that somebody else may name."""

from __future__ import annotations

from collections.abc import Collection

from context_compressor.offload.protocol import OffloadStore


class KeepingStore:
    """Keep texts that a memory no longer names: an earlier view, or another state, still may.

    Args:
        kept: the only refs that stay; None for all of them.
    """

    def __init__(self, wrapped: OffloadStore, kept: Collection[str] | None = None) -> None:
        self._wrapped = wrapped
        self._kept = kept
        self.write, self.read, self.refs = wrapped.write, wrapped.read, wrapped.refs

    async def delete(self, ref: str) -> None:
        """Remove the text under `ref` unless it is to stay."""
        if self._kept is not None and ref not in self._kept:
            await self._wrapped.delete(ref)
