"""Where work runs: what reads little on the event loop, what reads much in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

from context_compressor.messages.msg import Msg
from context_compressor.tokens.counter import MessageTokens, TokenCounter, count_characters, measure

T = TypeVar("T")
P = ParamSpec("P")

OFF_LOOP_CHARACTERS = 100_000
"""Hashing or checking more than this holds the event loop for some 5 ms; a hop to a thread costs some 0.1 ms.
"""
RULES_SLOWNESS = 25
"""How much longer a character takes what reads texts by rules, to preview, index or summarise them: on the
loop it reads at most 4,000. A megabyte of an agent's work takes it about a second, an event of it 20 to 100
ms."""
COUNT_OFF_LOOP_CHARACTERS = 32_000
"""Messages with more characters than this, together, are counted in a thread. With the Qwen vocabulary so
many take 2 ms in English and 4 ms in Chinese; a hop to a thread and back takes 0.05 to 0.2 ms."""

_FIRST_COUNTED = "It's 1 of\n  a\n\n\tkind! "
"""Counted on the event loop before anything is counted elsewhere, with something for every branch of the
vocabularies' patterns. tiktoken's regular expressions give the thread which is there first a way around all
locks (regex-automata's `util::pool`). On the loop, where nearly all is counted, that saves 15 % of the time.
"""


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


def text_characters(messages: Iterable[Msg], most: float = OFF_LOOP_CHARACTERS) -> int:
    """Return the characters of messages: of texts, results, reasoning, names and arguments.

    Args:
        messages: are looked at only until it is known that they have more than `most`.
        most: what there may be; by default what is read on the event loop.
    """
    characters = 0
    for msg in messages:
        characters += count_characters(msg)
        if characters > most:
            break
    return characters


async def load_off_loop(counter: TokenCounter) -> None:
    """Let a counter read its vocabulary in a thread, unless it has: that takes up to a second."""
    if not getattr(counter, "is_loaded", True):
        await asyncio.to_thread(counter.load)  # type: ignore[attr-defined]
        counter.count_text(_FIRST_COUNTED)


async def measure_all_off_loop(counter: TokenCounter, messages: Sequence[Msg]) -> list[MessageTokens]:
    """Measure messages as `measure` does: together in one thread if they are large together, else at once.

    A counter whose `is_loaded` is false has a vocabulary to read first: its `load` is called in a thread.

    Raises:
        InvalidArgumentError: the counter returned anything but a number of tokens.
    """
    if not messages:
        return []
    # Media are not tokenised, but megabytes of them are read through, to be sure that they are media.
    characters = sum([count_characters(msg, with_media=True) for msg in messages])
    await load_off_loop(counter)
    if characters > COUNT_OFF_LOOP_CHARACTERS:
        return await asyncio.to_thread(lambda: [measure(counter, msg) for msg in messages])
    return [measure(counter, msg) for msg in messages]


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
