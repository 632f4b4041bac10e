"""Where work runs: what reads little on the event loop, what reads much in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

from context_compressor.messages.msg import Msg
from context_compressor.messages.parts import plain_texts

T = TypeVar("T")
P = ParamSpec("P")

OFF_LOOP_CHARACTERS = 100_000
"""Hashing, previewing or checking more than this holds the event loop for some 10 ms; a hop to a thread costs
some 0.1 ms. Counting, which is slower, has a limit of its own (`tokens.measure`)."""


async def run_off_loop(characters: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that reads so many characters; in a thread when they are many."""
    if characters > OFF_LOOP_CHARACTERS:
        return await asyncio.to_thread(function, *args, **kwargs)
    return function(*args, **kwargs)


def text_characters(messages: Iterable[Msg]) -> int:
    """Return the characters of the texts and tool results of messages."""
    return sum([len(text) for msg in messages for text in plain_texts(msg)])


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
