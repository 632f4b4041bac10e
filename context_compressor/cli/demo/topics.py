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
    whole: bool = False
    """Whether the agent reads the file whole."""


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
        ("submit", "_adjust_thread_count", "set_result"),
        """
from concurrent.futures import ThreadPoolExecutor

with ThreadPoolExecutor(2) as pool:
    print(list(pool.map(lambda n: n * n, range(10))))
    print(repr(pool.submit(int, "seven").exception()))
""",
        guess="concurrent/threads.py",
    ),
    Topic(
        "How does heapq keep its order?",
        "heapq.py",
        ("heappush", "_siftup", "merge"),
        """
import heapq

heap = []
for number in (5, 1, 4, 2, 3):
    heapq.heappush(heap, number)
    print(heap)
print([heapq.heappop(heap) for _ in range(5)])
""",
        whole=True,
    ),
    Topic(
        "How does tempfile avoid races over names?",
        "tempfile.py",
        ("_mkstemp_inner", "NamedTemporaryFile", "_get_candidate_names"),
        """
import os, stat, tempfile

with tempfile.NamedTemporaryFile() as file:
    print(stat.filemode(os.stat(file.name).st_mode), len(os.path.basename(file.name)))
print(os.path.exists(file.name))
""",
    ),
    Topic(
        "How does lru_cache know its keys, and what does it throw away?",
        "functools.py",
        ("_lru_cache_wrapper", "_make_key", "cached_property"),
        """
from functools import lru_cache

@lru_cache(maxsize=2)
def square(n):
    print("computing", n)
    return n * n

for n in (1, 2, 1, 3, 2, 1.0):
    square(n)
print(square.cache_info())
""",
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
    Topic(
        "In what order does ExitStack close things, and what if one fails?",
        "contextlib.py",
        ("ExitStack", "_fix_exception_context", "contextmanager"),
        """
from contextlib import ExitStack

def fail():
    raise OSError("while closing")

with ExitStack() as stack:
    stack.callback(print, "first in, last out")
    stack.push(lambda kind, error, traceback: print("saw", repr(error)) or True)
    stack.callback(fail)
print("went on")
""",
    ),
    Topic(
        "How does a Queue make its readers wait?",
        "queue.py",
        ("get", "put", "task_done"),
        """
import queue, threading

tasks, done = queue.Queue(maxsize=2), []

def work():
    while (item := tasks.get()) is not None:
        done.append(item)
        tasks.task_done()

worker = threading.Thread(target=work)
worker.start()
for n in range(5):
    tasks.put(n)
tasks.join()
tasks.put(None)
worker.join()
print(done)
""",
        guess="queue/__init__.py",
        whole=True,
    ),
    Topic(
        "How does http.client read a chunked body?",
        "http/client.py",
        ("_read_chunked", "_get_chunk_left", "begin"),
        """
import io
from http.client import HTTPResponse

class Socket:
    def makefile(self, mode):
        return io.BytesIO(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
                          b"5\\r\\nhello\\r\\n6\\r\\n world\\r\\n0\\r\\n\\r\\n")

response = HTTPResponse(Socket())
response.begin()
print(response.status, response.read())
""",
        guess="http/chunked.py",
    ),
    Topic(
        "How does pathlib compare and split paths?",
        "pathlib",
        ("relative_to", "with_suffix", "match"),
        """
from pathlib import PurePosixPath, PureWindowsPath

path = PurePosixPath("/srv/data/../app/main.tar.gz")
print(path.parts, path.suffixes, path.with_suffix(".zip"))
print(PureWindowsPath("C:/Temp") == PureWindowsPath("c:\\\\temp"), path.match("*.gz"))
try:
    path.relative_to("/var")
except ValueError as error:
    print(type(error).__name__)
""",
        guess="pathlib.py",
    ),
    Topic(
        "How does argparse match arguments to options?",
        "argparse.py",
        ("_parse_known_args", "_match_arguments_partial", "_get_values"),
        """
import argparse

parser = argparse.ArgumentParser(prog="tool")
parser.add_argument("files", nargs="+")
parser.add_argument("--level", type=int, default=1)
print(parser.parse_args(["a", "b", "--lev", "3"]))
parser.parse_args(["--level", "high", "a"])
""",
    ),
    Topic(
        "How does urllib split a URL, and what does it refuse?",
        "urllib/parse.py",
        ("urlsplit", "urljoin", "unquote"),
        """
from urllib.parse import quote, urljoin, urlsplit

print(urlsplit("https://user@example.org:8443/a/b?q=1#top"))
print(urljoin("https://example.org/a/b/c", "../d"), quote("/naïve path"))
try:
    urlsplit("http://[::1/")
except ValueError as error:
    print(type(error).__name__, error)
""",
    ),
    Topic(
        "How does difflib find what two texts have in common?",
        "difflib.py",
        ("find_longest_match", "get_matching_blocks", "_fancy_replace"),
        """
import difflib

before, after = "one two three four".split(), "one three four five".split()
print(difflib.SequenceMatcher(None, before, after).get_opcodes())
print("\\n".join(difflib.ndiff(before, after)))
""",
    ),
    Topic(
        "How does configparser resolve references between values?",
        "configparser.py",
        ("before_get", "_interpolate_some", "_read"),
        """
import configparser

parser = configparser.ConfigParser()
parser.read_string("[paths]\\nroot = /srv\\nlogs = %(root)s/logs\\nbad = %(nothing)s\\n")
print(parser["paths"]["logs"])
try:
    parser["paths"]["bad"]
except configparser.Error as error:
    print(type(error).__name__)
""",
    ),
    Topic(
        "How does enum turn class attributes into members?",
        "enum.py",
        ("EnumType", "_proto_member", "_missing_"),
        """
import enum

class Colour(enum.Flag):
    RED = enum.auto()
    BLUE = enum.auto()

print(list(Colour), Colour.RED | Colour.BLUE, Colour(3))
""",
    ),
    Topic(
        "How does shutil copy a tree, and when does it use the kernel's help?",
        "shutil.py",
        ("_copytree", "copyfile", "_fastcopy_sendfile"),
        """
import shutil

print(sorted(name for name, _ in shutil.get_archive_formats()))
print(shutil.which("no-such-program"))
""",
    ),
)
