"""The threads in which the stores of a directory wait for its disk."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from context_compressor.offload.directory.process import OnePerDirectory


class DiskThreads:
    """Threads of one directory, which end when nobody has a store in it any more.

    The event loop's are few and belong to everybody: a disk that hangs would take them all, one write each,
    and whatever else needs one, such as counting a long text or looking up a host, would wait for the disk.
    """

    def __init__(self) -> None:
        self.pool = _new_pool()

    def start_as_child(self) -> None:
        """Take over in a process that was forked, which has none of its parent's threads."""
        self.pool = _new_pool()


def _new_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_name_prefix="offload")


threads_of = OnePerDirectory(lambda _: DiskThreads())
"""What one disk holds up, another does not."""
