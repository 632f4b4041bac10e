"""The locks of a memory, which outlives event loops."""

from __future__ import annotations

import asyncio

import pytest

from context_compressor.memory.loops import LoopLock


class Holder:
    """Something with a lock."""

    lock = LoopLock()

    async def hold(self, gate: asyncio.Future[None]) -> None:
        """Hold the lock until the gate opens."""
        async with self.lock:
            await gate


async def test_each_object_has_a_lock_of_its_own() -> None:
    one, other = Holder(), Holder()
    async with one.lock:
        assert one.lock.locked()
        assert not other.lock.locked()


def test_a_task_of_a_closed_loop_does_not_give_back_what_another_loop_holds() -> None:
    """Python ends a task that was left waiting when it forgets it, maybe in the middle of another loop."""
    holder = Holder()
    first = asyncio.new_event_loop()
    left = holder.hold(first.create_future())
    task = first.create_task(left)
    first.run_until_complete(asyncio.sleep(0))
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio would complain of it, rightly
    first.close()

    async def use() -> bool:
        async with holder.lock:
            left.close()
            return holder.lock.locked()

    assert asyncio.run(use())


async def test_without_a_loop_there_is_no_lock() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        await asyncio.to_thread(lambda: Holder().lock)
