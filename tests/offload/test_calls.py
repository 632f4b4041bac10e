"""Whatever somebody else's store does comes out as an `OffloadError` that says what it was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from context_compressor.errors import OffloadCorruptError, OffloadError, OffloadFullError, OffloadWriteError
from context_compressor.offload.store import list_refs, read_text, ref_of, write_text

REF = ref_of("a text")


class Store:
    """A store all of whose calls do the same."""

    def __init__(self, act: Callable[[], Awaitable[Any]]) -> None:
        self.write = self.read = self.delete = lambda text: act()
        self.refs = act


async def hangs() -> None:
    await asyncio.Event().wait()


async def breaks() -> None:
    raise ConnectionError("gone")


async def is_full() -> None:
    raise OffloadFullError("no room")


CALLS = {
    f"take {REF}": lambda store: write_text(store, "a text", REF, 0.01),
    f"give {REF}": lambda store: read_text(store, REF, 0.01),
    "name its refs": lambda store: list_refs(store, 0.01),
}


@pytest.mark.parametrize("asked", CALLS)
async def test_a_store_that_does_not_answer_in_time_is_named_with_its_limit(asked: str) -> None:
    with pytest.raises(OffloadError, match=f"the store did not {asked} within 0.01 s"):
        await CALLS[asked](Store(hangs))


@pytest.mark.parametrize("asked", CALLS)
async def test_an_error_of_another_kind_is_told_in_ours(asked: str) -> None:
    with pytest.raises(OffloadError, match=rf"the store failed to {asked}: ConnectionError\('gone'\)"):
        await CALLS[asked](Store(breaks))


@pytest.mark.parametrize("asked", CALLS)
async def test_an_error_of_ours_stays_what_it_is(asked: str) -> None:
    with pytest.raises(OffloadFullError, match="no room"):
        await CALLS[asked](Store(is_full))


async def test_a_text_that_was_stored_under_another_ref_is_not_taken_for_stored() -> None:
    async def answers() -> str:
        return ref_of("another")

    with pytest.raises(OffloadWriteError, match="answered"):
        await write_text(Store(answers), "a text", REF, 1)


@pytest.mark.parametrize("answer", ["a tex", None, b"a text"])
async def test_what_is_not_the_text_that_was_stored_is_not_taken_for_it(answer: Any) -> None:
    async def answers() -> Any:
        return answer

    with pytest.raises(OffloadCorruptError, match=f"did not give {REF} as it was written"):
        await read_text(Store(answers), REF, 1)


async def test_a_store_that_names_what_is_no_ref_is_refused() -> None:
    async def answers() -> list[str]:
        return [REF, "../elsewhere"]

    with pytest.raises(OffloadError, match="is not a ref"):
        await list_refs(Store(answers), 1)
