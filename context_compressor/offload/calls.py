"""Calls of a store that anybody may have made: none takes for ever, and each failure is an `OffloadError`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from context_compressor.errors import OffloadCorruptError, OffloadError, OffloadWriteError
from context_compressor.offload.protocol import OffloadStore, check_ref, ref_of
from context_compressor.tokens.off_loop import run_off_loop


async def write_text(store: OffloadStore, text: str, ref: str, timeout_seconds: float) -> None:
    """Write one text, whose ref is given, within a time limit in seconds.

    Raises:
        OffloadError: it is not durable.
    """
    async with _answering(f"take {ref}", timeout_seconds, OffloadWriteError):
        answer = await store.write(text)
    if answer != ref:
        raise OffloadWriteError(
            f"the store answered {answer!r} to a text whose ref is {ref}; write has to return ref_of(text)"
        )


async def read_text(store: OffloadStore, ref: str, timeout_seconds: float) -> str:
    """Return the text under a ref, read within a time limit in seconds.

    Raises:
        OffloadCorruptError: the store gives something else.
        OffloadError: it does not give it.
    """
    async with _answering(f"give {ref}", timeout_seconds, OffloadError):
        text = await store.read(ref)
    if not isinstance(text, str) or await run_off_loop(len(text), ref_of, text) != ref:
        given = type(text).__name__
        raise OffloadCorruptError(f"the store did not give {ref} as it was written, but another {given}")
    return text


async def list_refs(store: OffloadStore, timeout_seconds: float) -> list[str]:
    """Return the refs of all that is stored, listed within a time limit in seconds.

    Raises:
        OffloadError: the store does not say.
    """
    async with _answering("name its refs", timeout_seconds, OffloadError):
        return [check_ref(ref) for ref in await store.refs()]


@asynccontextmanager
async def _answering(
    what: str, timeout_seconds: float, error_class: type[OffloadError]
) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_seconds):
            yield
    except OffloadError:
        raise
    except TimeoutError as error:
        raise error_class(f"the store did not {what} within {timeout_seconds:g} s") from error
    except Exception as error:
        raise error_class(f"the store failed to {what}: {error!r}") from error
