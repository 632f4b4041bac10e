"""Removing from a memory's own store what its ledger does not name: what a crash left behind."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from context_compressor.errors import OffloadError
from context_compressor.offload.protocol import check_ref

if TYPE_CHECKING:
    from context_compressor.memory.compressed import CompressedMemory

logger = logging.getLogger(__name__)


async def remove_orphans(memory: CompressedMemory) -> list[str]:
    """Remove the stored texts that neither the ledger nor an event under way names; return their refs.

    Whatever an event stores is named by the ledger when it ends, or removed by it. Only a process that ended
    in the middle leaves texts that nobody names. Call this after the saved state was loaded: a memory whose
    ledger names nothing may be one that was not loaded yet, and removes nothing.

    Raises:
        OffloadError: the store could not be listed. What could not be removed is tried again at later events.
    """
    runner, upkeep = memory._runner, memory._upkeep
    async with runner.telling(), runner.event_lock:
        ledger = upkeep.state.ledger
        if not ledger.refs():
            return []
        limit_seconds = memory.config.store_timeout_seconds
        try:
            async with asyncio.timeout(limit_seconds):
                stored = [check_ref(ref) for ref in await memory.store.refs()]
        except OffloadError:
            raise
        except TimeoutError as error:
            raise OffloadError(f"the store did not name its refs within {limit_seconds:g} s") from error
        except Exception as error:
            raise OffloadError(f"the store failed to name its refs: {error!r}") from error
        # No event writes while its lock is held. One that is prepared in the background says what it writes
        # before it does; from here to `telling`'s end, which removes what is unwanted, nothing is awaited but
        # that lock, and what an event commits in between is wanted again.
        prepared = runner.prepared_refs()
        orphans = [ref for ref in stored if not ledger.is_live(ref) and ref not in prepared]
        if orphans:
            logger.info("%d stored texts that nothing names are removed", len(orphans))
        ledger.unwanted.update(orphans)
    return orphans
