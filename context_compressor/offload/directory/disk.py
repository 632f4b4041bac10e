"""What all who write into a store's directory share: durable directories, errors that say what to do."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from context_compressor.errors import OffloadError, OffloadFullError, OffloadPermissionError

PLAIN_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
"""For a file of ours: a link in its place could point to any file on the disk; without the last one Windows
writes every line feed as two characters."""


def make_directory(path: Path) -> None:
    """Make a directory, and those above it, durably and for this user alone, where there is none."""
    if path.is_dir():
        return
    make_directory(path.parent)
    with suppress(FileExistsError):  # another process was faster
        path.mkdir(0o700)
    with suppress(PermissionError):  # a parent may be passable but not readable
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable; a no-op where the system has no such call."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network disks cannot
            raise
    finally:
        os.close(descriptor)


def disk_error(error: OSError, what: str, otherwise: type[OffloadError]) -> OffloadError:
    """Return what a disk's error is called here, and what to do: `otherwise` where nothing more is known."""
    reason = f"{what}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OffloadFullError(f"{reason}; free disk space there, or raise the quota")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return OffloadPermissionError(f"{reason}; give this process access, or choose another path")
    return otherwise(f"{reason}; mend the disk or choose another path")
