"""What this process holds for directories, and what a fork does to it."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar


class ForkAware(Protocol):
    """What a child process may have inherited in the middle of something."""

    def start_as_child(self) -> None:
        """Take over in a process that was forked: a thread of the parent may have held the locks."""
        ...


T = TypeVar("T", bound=ForkAware)

_watched: weakref.WeakSet[ForkAware] = weakref.WeakSet()


def watch_forks(holder: ForkAware) -> None:
    """Let an object start anew in every process that is forked from this one, as long as it lives."""
    _watched.add(holder)


class OnePerDirectory(Generic[T]):
    """The one object that all users of a directory share in this process. Thread-safe."""

    def __init__(self, make: Callable[[Path], T]) -> None:
        self._make = make
        self._known: weakref.WeakValueDictionary[Path, T] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        watch_forks(self)

    def __call__(self, path: Path) -> T:
        """Return the object of a directory; made where nobody has one."""
        with self._lock:
            found = self._known.get(path)
            if found is None:
                found = self._known[path] = self._make(path)
                watch_forks(found)
            return found

    def start_as_child(self) -> None:
        """Take over in a process that was forked."""
        self._lock = threading.Lock()


def _start_as_child() -> None:
    for holder in list(_watched):
        holder.start_as_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_as_child)
