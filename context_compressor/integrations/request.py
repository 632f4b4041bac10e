"""One request of an agent's: sent with a view, and once more, smaller, where it is refused as too long."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from context_compressor.errors import LoopError
from context_compressor.integrations.conversations import Conversations, Shown
from context_compressor.memory.loops import run_blocking

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Request:
    """What is sent for a list until the provider takes it.

    Args:
        conversations: what its view is made by.
        shown: the view, as `conversations.view` gave it.
    """

    def __init__(self, conversations: Conversations, shown: Shown) -> None:
        self.conversations = conversations
        self.shown = shown
        """What is to be sent now; after a refusal something smaller, or without the read-back tools."""

    async def ask(
        self,
        send: Callable[[Shown], Any],
        *,
        is_blocking: bool = False,
        refusal: Callable[[Any], str | None] | None = None,
    ) -> Any:
        """Return what `send` gives for the view. What is refused is sent once more, mended.

        Args:
            send: sends a view; what it gives is awaited, unless it blocks.
            is_blocking: whether it blocks: this coroutine waits for nothing then, so that `run_through` runs
                it.
            refusal: returns what an answer says of a failure, where the provider raises nothing.

        Raises:
            Exception: what `send` raised, where nothing that is sent would help.
        """
        while True:
            try:
                answer = send(self.shown)
                answer = answer if is_blocking else await answer
            except Exception as error:
                if not await own_work(self.is_mended(error), is_blocking):
                    raise
            else:
                refused = None if refusal is None else refusal(answer)
                if refused is None or not await own_work(self.is_mended(refused), is_blocking):
                    return answer

    async def is_mended(self, error: BaseException | str, *, has_offered: bool | None = None) -> bool:
        """Tell whether a refused request is to be sent once more, with `shown` as it is then.

        Args:
            error: what the provider said.
            has_offered: whether the request had the read-back tools; None: as `shown` says.
        """
        mended = await self.conversations.after_refusal(self.shown, error, has_offered=has_offered)
        self.shown = self.shown if mended is None else mended
        return mended is not None

    async def taken(self, prompt_tokens: object, sent: Any = None) -> None:
        """Note that the request was taken, and what the provider counted. It never fails.

        Args:
            prompt_tokens: what it counted; what is no number says nothing.
            sent: all that was sent; the next request's `Own.last`.
        """
        try:
            await self.conversations.record_usage(self.shown, prompt_tokens, sent)
        except Exception:
            logger.warning("usage was not recorded", exc_info=True)


async def own_work(work: Coroutine[Any, Any, T], is_blocking: bool) -> T:
    """Run what is the library's own: in its own loop, where the caller blocks."""
    return run_blocking(work) if is_blocking else await work


def run_through(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing, without an event loop.

    Raises:
        LoopError: it waits.
    """
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise LoopError("a blocking client waits for an event loop")
