"""What the scripted agent looks into: questions, where to look, and a small experiment for each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Topic:
    """One question about the library."""

    question: str
    place: str
    """The file or package to search."""
    symbols: tuple[str, ...]
    """Functions or classes that answer it, the central one first."""
    snippet: str
    """An experiment; prints the same in every run."""
    guess: str = ""
    """A file the agent tries first; it may not be there."""


TOPICS = (
    Topic(
        "How does asyncio decide when a callback runs?",
        "asyncio",
        ("call_soon", "_run_once", "call_at"),
        """
import asyncio

async def main():
    loop, order = asyncio.get_running_loop(), []
    loop.call_soon(order.append, "soon 1")
    loop.call_later(0, order.append, "later")
    loop.call_soon(order.append, "soon 2")
    await asyncio.sleep(0.01)
    print(order)

asyncio.run(main())
""",
        guess="asyncio/scheduler.py",
    ),
    Topic(
        "How does json parse a document, and what does it do with a broken one?",
        "json",
        ("raw_decode", "JSONObject", "py_scanstring"),
        """
import json

for text in ('{"a": [1, 2.5, null]}', "[1,]", '{"a" 1}', '"unfinished', "NaN"):
    try:
        print(repr(json.loads(text)))
    except ValueError as error:
        print(type(error).__name__, error)
""",
        guess="json/parser.py",
    ),
    Topic(
        "How does a log record find its handlers?",
        "logging",
        ("callHandlers", "getEffectiveLevel", "getLogger"),
        """
import logging

class Collect(logging.Handler):
    def emit(self, record):
        print(self.get_name(), record.name, record.getMessage())

for name in ("", "app", "app.db"):
    handler = Collect()
    handler.set_name(f"handler of {name or 'root'}:")
    logging.getLogger(name).addHandler(handler)
logging.getLogger("app").propagate = False
logging.getLogger("app.db").warning("who hears this?")
""",
    ),
    Topic(
        "How does a ThreadPoolExecutor hand work to its threads?",
        "concurrent/futures",
        ("_adjust_thread_count", "_worker", "set_result"),
        """
from concurrent.futures import ThreadPoolExecutor

with ThreadPoolExecutor(2) as pool:
    print(list(pool.map(lambda n: n * n, range(10))))
    print(repr(pool.submit(int, "seven").exception()))
""",
        guess="concurrent/threads.py",
    ),
    Topic(
        "How does dataclass write __init__?",
        "dataclasses.py",
        ("_process_class", "_init_fn", "_get_field"),
        """
from dataclasses import dataclass, field
import inspect

@dataclass(order=True)
class Point:
    x: int
    tags: list = field(default_factory=list, compare=False)

print(inspect.signature(Point), Point(1) < Point(2, ["a"]))

@dataclass
class Wrong:
    tags: list = []
""",
    ),
)
