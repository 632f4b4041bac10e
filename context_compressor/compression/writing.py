"""Writing to the offload store for an event."""

from __future__ import annotations

from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.performed import Performed
from context_compressor.errors import OffloadCollisionError, OffloadError
from context_compressor.offload.calls import write_text
from context_compressor.offload.protocol import OffloadStore, ref_of
from context_compressor.tokens.off_loop import run_off_loop


class Writer:
    """Write texts for events.

    Args:
        config: the time limit in seconds, and what failures lead to.
        store: where the texts go.
    """

    def __init__(self, config: CompressionConfig, store: OffloadStore) -> None:
        self._config = config
        self._store = store

    async def write_own(self, text: str, done: Performed) -> str:
        """Store a text of our own making; a collision leaves it pending, served from the history."""
        ref = await run_off_loop(len(text), ref_of, text)
        try:
            await self.write(text, ref, done)
        except OffloadCollisionError as error:
            done.fail(error)
            done.pending.add(ref)
        return ref

    async def write(self, text: str, ref: str, done: Performed) -> None:
        """Make a text durable, or note it as pending.

        Raises:
            OffloadCollisionError: another text holds the ref.
            OffloadError: the store refused and `on_failure` is "raise".
        """
        done.attempted.add(ref)
        try:
            await write_text(self._store, text, ref, self._config.store_timeout_seconds)
        except OffloadCollisionError:
            raise
        except OffloadError as error:
            if self._config.on_failure == "raise":
                raise
            done.fail(error)
            done.pending.add(ref)
        else:
            done.written.add(ref)
