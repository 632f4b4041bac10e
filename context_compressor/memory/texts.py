"""All that a memory does with its store: texts read back, stored late, removed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from context_compressor.core.config import CompressionConfig
from context_compressor.core.edits import words_of
from context_compressor.errors import (
    OffloadCollisionError,
    OffloadCorruptError,
    OffloadError,
    OffloadFullError,
    OffloadNotFoundError,
)
from context_compressor.memory.tracking import Tracker
from context_compressor.offload.store import (
    OffloadStore,
    check_ref,
    list_refs,
    read_text,
    ref_of,
    write_text,
)

logger = logging.getLogger(__name__)


class Texts:
    """Give access to what the ledger names, and remove what it does not name any more.

    Args:
        config: redaction and the store's time limit in seconds.
        store: where the texts are.
        tracker: has the ledger, and the history from which they can be made again.
    """

    def __init__(self, config: CompressionConfig, store: OffloadStore, tracker: Tracker) -> None:
        self._config = config
        self._store = store
        self._tracker = tracker

    async def read(self, ref: str) -> str:
        """Return a text that the ledger names; made from the history where the store does not have it.

        Raises:
            OffloadNotFoundError: the ledger does not name the ref, or the text is nowhere any more.
            OffloadError: the store failed, and the history does not give the text either.
        """
        ledger = self._tracker.state.ledger
        if not ledger.is_named(check_ref(ref)):
            raise OffloadNotFoundError(f"{ref} is not one of this memory's refs")
        failure: OffloadError
        if ref in ledger.pending:
            failure = OffloadNotFoundError(f"{ref} is not in the store, and its messages are gone")
        else:
            try:
                return await read_text(self._store, ref, self._config.store_timeout_seconds)
            except OffloadError as error:
                failure = error
        recovery = await self._tracker.rebuilder.recovery(ledger)
        text = await recovery.text_of(ref, self._tracker.rebuilder.read_words)
        if text is None:
            text = recovery.messages_under(ref)
            if text is None:
                raise failure
            logger.warning("%s: %s; the messages under it are read instead", ref, failure)
            return text
        if isinstance(failure, OffloadNotFoundError | OffloadCorruptError):
            ledger.doubtful.add(ref)  # somebody tidied the store; the next event stores it again
        return text

    async def retry_pending(self) -> None:
        """Try again to store what is pending; it stays so where that fails again.

        What is deleted meanwhile is unwanted by then, and removed behind this. Holds: event lock.
        """
        ledger = self._tracker.state.ledger
        missing = ledger.pending
        if not missing:
            return
        recovery = await self._tracker.rebuilder.recovery(ledger)
        refusal: OffloadError | None = None
        for ref in sorted(missing):
            text = await recovery.text_of(ref, self._tracker.rebuilder.read_words)
            if text is None:
                continue
            try:
                await write_text(self._store, text, ref, self._config.store_timeout_seconds)
            except (OffloadCollisionError, OffloadFullError) as error:  # a smaller text may still fit
                refusal = error
                continue
            except OffloadError as error:
                refusal = error
                break
            ledger.note_stored(ref)
        if refusal is not None:  # one line for all: a disk may be full for long, and each event adds a text
            left = missing & ledger.pending
            logger.warning("texts still not stored: %d, the last for: %s", len(left), refusal)

    async def copy_words(self) -> None:
        """Store the words of every edit, for a state without words; the edits keep theirs.

        What the store does not take is tried again at the next call; a state that is loaded meanwhile
        without it has that part of its view made anew. Holds: event lock.
        """
        ledger = self._tracker.state.ledger
        for edit in ledger.entries:
            if edit.text and edit.words_ref is None:
                words = words_of(edit)
                ref = ref_of(words)
                try:
                    await write_text(self._store, words, ref, self._config.store_timeout_seconds)
                except OffloadError as error:
                    logger.warning("the words of what stands in the view are not stored: %s", error)
                    return
                ledger.replace(replace(edit, words_ref=ref))

    async def stored_refs(self) -> list[str]:
        """Return the refs of all that is in the store.

        Raises:
            OffloadError: the store does not say.
        """
        return await list_refs(self._store, self._config.store_timeout_seconds)

    def removable(self) -> list[str]:
        """Return the refs of what is in the store and nothing names any more, branches included."""
        ledger, branches = self._tracker.state.ledger, self._tracker.branches
        # What a branch names is given up once more when that is let go.
        ledger.doubtful -= {ref for ref in ledger.unwanted if branches.holds(ref)}
        return sorted(ledger.unwanted)

    async def remove(self, stored: Callable[[], Collection[str]]) -> None:
        """Remove from the store what nothing names any more; what it does not remove stays unwanted.

        Others may have named some meanwhile: then what they wrote is read first, at the next call.

        Args:
            stored: returns the refs of what is being stored for an event. What that stored while it was
                removed is not known to be there, and pending when it is named.
        """
        if not await self._tracker.is_at_head():
            return
        refused = 0
        refusal: Exception | None = None
        gone: list[str] = []
        for ref in self.removable():
            if ref in stored() or self._tracker.state.ledger.is_live(ref):
                continue
            try:
                async with asyncio.timeout(self._config.store_timeout_seconds):
                    await self._store.delete(ref)
            except TimeoutError:
                logger.warning("%s could not be removed in time, it is tried again", ref)
                break
            except Exception as error:
                refused, refusal = refused + 1, error
                continue
            gone.append(ref)
        if refusal is not None:  # one line for all: a disk may be read-only for long
            logger.warning("texts not removed, tried again: %d, the last for: %r", refused, refusal)
        # Whoever wrote meanwhile may have named one of them: that is to be stored again.
        if gone and await self._tracker.is_at_head():
            ledger, kept = self._tracker.state.ledger, stored()
            ledger.doubtful -= {ref for ref in gone if not (ref in kept or ledger.is_live(ref))}
