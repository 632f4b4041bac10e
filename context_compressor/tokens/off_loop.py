"""Where work runs: what reads little on the event loop, what reads much in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

from context_compressor.messages.msg import Msg
from context_compressor.tokens.counter import count_characters

T = TypeVar("T")
P = ParamSpec("P")

OFF_LOOP_CHARACTERS = 100_000
"""Hashing or checking more than this holds the event loop for some 5 ms; a hop to a thread costs some 0.1 ms.
Counting, which is slower, has a limit of its own (`tokens.measure`)."""
RULES_SLOWNESS = 25
"""How much longer a character takes what reads texts by rules, to preview, index or summarise them: on the
loop it reads at most 4,000. A megabyte of an agent's work takes it about a second, an event of it 20 to 100
ms."""


async def run_off_loop(characters: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that reads so many characters; in a thread when they are many."""
    if characters > OFF_LOOP_CHARACTERS:
        return await asyncio.to_thread(function, *args, **kwargs)
    return function(*args, **kwargs)


async def run_rules_off_loop(
    characters: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call a function that reads so many characters by rules; in a thread unless they are few."""
    return await run_off_loop(RULES_SLOWNESS * characters, function, *args, **kwargs)


def text_characters(messages: Iterable[Msg]) -> int:
    """Return the characters of messages: of texts, results, reasoning, names and arguments."""
    return sum(map(count_characters, messages))


async def gather(awaitables: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all at once; the first failure cancels the others and is raised as it is."""
    if len(awaitables) == 1:
        return [await awaitables[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(awaitable) for awaitable in awaitables]
    except BaseExceptionGroup as failures:
        first = failures.exceptions[0]
    else:
        return [task.result() for task in tasks]
    raise first
