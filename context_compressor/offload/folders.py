"""What lies in a store's directory: namespaces, their sizes and last use; and calls of the disk."""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO

from context_compressor.errors import (
    InvalidArgumentError,
    OffloadError,
    OffloadFullError,
    OffloadPermissionError,
)
from context_compressor.offload.store import REF_PATTERN

logger = logging.getLogger(__name__)

PLAIN_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
"""For a file of ours: a link in its place could point to any file on the disk; without the last one Windows
writes every line feed as two characters."""


def mode_of(path: Path, *, follows: bool = True) -> int:
    """Return the mode of what stands there, 0 where nothing does.

    Where nobody may look, `Path.exists` and its like answer no since Python 3.14, as if all were gone.

    Raises:
        OSError: nobody can tell.
    """
    try:
        return path.stat(follow_symlinks=follows).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def is_directory(path: Path) -> bool:
    """Tell whether a directory stands there, or a link to one; raises OSError where nobody can tell."""
    return stat.S_ISDIR(mode_of(path))


def is_link(path: Path) -> bool:
    """Tell whether a link stands there; raises OSError where nobody can tell."""
    return stat.S_ISLNK(mode_of(path, follows=False))


def make_directory(path: Path) -> None:
    """Make a directory, and those above it, durably and for this user alone, where there is none."""
    if is_directory(path):
        return
    make_directory(path.parent)
    with suppress(FileExistsError):  # another process was faster
        path.mkdir(0o700)
    with suppress(PermissionError):  # a parent may be passable but not readable
        sync_directory(path.parent)


@contextmanager
def replacing(path: Path, mode: int = 0o600, *, is_durable: bool = True) -> Iterator[IO[bytes]]:
    """Open a file that takes its name once all is written; a failure leaves what was there.

    A device or a pipe is written to as it is. What earlier processes left half written is swept.

    Args:
        path: the file.
        mode: its rights.
        is_durable: whether a power cut leaves the one or the other; else it may leave part of either.
    """
    if (found := mode_of(path)) and not stat.S_ISREG(found):
        with path.open("wb") as file:
            yield file
        return
    path = path.resolve()  # a link stays a link
    sweep(path.parent)
    prefix = f"{TEMPORARY_PREFIX}{path.name[:40]}-"
    descriptor, name = tempfile.mkstemp(TEMPORARY_SUFFIX, prefix, path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if is_durable:
                os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException as error:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        if isinstance(error, OSError) and error.filename is None:  # the error of a full disk names no file
            error.filename = str(path)
        raise
    if is_durable:
        sync_directory(path.parent)


ABANDONED_SECONDS = 24 * 3600
"""Age at which a temporary file belongs to a process that died: no write takes a day, and a clock that is
off by hours (network disks) does no harm."""


def sweep(directory: Path) -> None:
    """Remove temporary files of processes that died; they are looked for once an hour at most."""
    _sweep(directory, int(time.time() // 3600))


@lru_cache(maxsize=256)
def _sweep(directory: Path, hour: int) -> None:  # noqa: ARG001 - one look for each
    oldest = time.time() - ABANDONED_SECONDS
    with suppress(OSError):
        for file in directory.glob(f"{TEMPORARY_PREFIX}*{TEMPORARY_SUFFIX}"):
            with suppress(OSError):  # another process may be sweeping too
                if file.lstat().st_mtime < oldest:
                    file.unlink()


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


def refuse_link(directory: Path) -> None:
    """Refuse a link in the place of a directory: what goes into it, or is removed, would be elsewhere.

    Raises:
        OSError: it is a link.
    """
    if is_link(directory):
        raise OSError(errno.ELOOP, "the directory is a link, which is not followed", str(directory))


def disk_error(error: OSError, what: str, otherwise: type[OffloadError]) -> OffloadError:
    """Return what a disk's error is called here, and what to do: `otherwise` where nothing more is known."""
    reason = f"{what}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OffloadFullError(f"{reason}; free disk space there, or raise the quota")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return OffloadPermissionError(f"{reason}; give this process access, or choose another path")
    return otherwise(f"{reason}; mend the disk or choose another path")


STORE_FOLDER = ".store"
"""Folder in a store's directory for what is not a namespace, which no namespace can be called."""


def own_folder(root: Path, *, make: bool = False) -> Path:
    """Return the folder of a store that is not a namespace; made on demand.

    Raises:
        OSError: it is a link, or cannot be made.
    """
    folder = root / STORE_FOLDER
    refuse_link(folder)
    if make:
        make_directory(folder)
    return folder


NAMESPACE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
REMOVING_PREFIX = "removing-"
"""How a namespace is called, in `.store`, that is being removed."""
FILE_NAME = re.compile(r"([0-9a-f]{16})\.txt")
"""A text."""
TEMPORARY_PREFIX, TEMPORARY_SUFFIX = ".writing-", ".tmp"
"""What is being written."""
INDEX_FILE = "search.sqlite3"
"""The search index of a memory whose texts are files: it stands beside them."""
SESSION_FILE = re.compile(r"session-[0-9a-f]{32}\.(json|lock)")
"""The state of a conversation whose texts are files, and what is locked while it is worked with: they stand
beside the texts, and go with them."""
_SESSION_TEMPORARY = re.compile(r"\.session-[0-9a-f]{32}-\w+\.tmp")
"""A state that was being written, as releases up to 0.2 call it."""
_INDEX_FILES = frozenset(f"{INDEX_FILE}{suffix}" for suffix in ("", "-journal", "-wal", "-shm"))
_MADE_BY_US = 0o700
_LOOKS = 4
"""How often a directory is listed in which files come and go meanwhile, at most."""


@dataclass(frozen=True, slots=True)
class FoundNamespace:
    """A namespace as it lies on the disk."""

    name: str
    bytes: int
    """Sizes of its files together: texts, index, states, what is half written; none that no store made."""
    texts: int
    used_ns: int
    """When it was last used, in nanoseconds since the epoch, to within an hour: its directory's time of
    change, which any new or removed file sets, and a store that opens it."""
    has_others: bool = False
    """Whether there is something else in it, which is left alone."""
    is_certain: bool = False
    """Whether a text or a state is in it, be it half written: only stores make those."""

    @property
    def is_empty(self) -> bool:
        return not (self.texts or self.bytes)


def is_ours(entry: os.DirEntry[str]) -> bool:
    """Tell whether a file is one that stores and indexes make; a link is not."""
    name = entry.name
    known = (
        FILE_NAME.fullmatch(name) is not None
        or name in _INDEX_FILES
        or SESSION_FILE.fullmatch(name) is not None
        or _SESSION_TEMPORARY.fullmatch(name) is not None
        or (name.startswith(TEMPORARY_PREFIX) and name.endswith(TEMPORARY_SUFFIX))
    )
    return known and entry.is_file(follow_symlinks=False)


def index_bytes(directory: Path) -> int:
    """Return the size of a namespace's index, which grows beside the texts."""
    total = 0
    for name in _INDEX_FILES:
        with suppress(OSError):
            total += (directory / name).lstat().st_size
    return total


def find_namespaces(path: Path) -> list[FoundNamespace]:
    """Return the namespaces in a store's directory; directories that no store made are passed over, and those
    that this process may not read.
    """
    found: list[FoundNamespace] = []
    is_store = is_directory(own_folder(path))
    with os.scandir(path) as entries:
        names = [
            entry.name
            for entry in entries
            if NAMESPACE.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
        ]
    for name in names:
        try:
            status = (path / name).lstat()  # before the files: what comes meanwhile makes a difference later
            namespace = _look_into(path / name, status.st_mtime_ns)
        except FileNotFoundError:  # somebody else is removing it
            continue
        except PermissionError as error:
            logger.warning("%s is not counted and stays: %s", path / name, error.strerror)
            continue
        # An empty directory may be anybody's, and so may a search.sqlite3; stores make private directories.
        is_private = os.name == "posix" and stat.S_IMODE(status.st_mode) == _MADE_BY_US
        is_likely = is_private and not namespace.has_others and (is_store or namespace.bytes > 0)
        if namespace.is_certain or is_likely:
            found.append(namespace)
    return found


def _look_into(directory: Path, used_ns: int) -> FoundNamespace:
    """Return what lies in a directory.

    A file that gets its name while we look may be missed under both, its old one and its new one: then we
    look again, and take what was most.
    """
    looks = []
    for _ in range(_LOOKS):
        changed_ns = directory.lstat().st_mtime_ns
        found, has_vanished = _list_files(directory, used_ns)
        if not has_vanished and directory.lstat().st_mtime_ns == changed_ns:
            return found
        looks.append(found)
    return max(looks, key=lambda found: found.bytes)


def _list_files(directory: Path, used_ns: int) -> tuple[FoundNamespace, bool]:
    """Return what lies in a directory, and whether something went while we looked."""
    total = texts = 0
    has_others = has_vanished = is_certain = False
    with os.scandir(directory) as entries:
        for entry in entries:
            if not is_ours(entry):
                has_others = True
                continue
            is_certain |= entry.name not in _INDEX_FILES
            try:
                total += entry.stat(follow_symlinks=False).st_size
                texts += FILE_NAME.fullmatch(entry.name) is not None
            except FileNotFoundError:
                has_vanished = True
    return FoundNamespace(directory.name, total, texts, used_ns, has_others, is_certain), has_vanished


def being_removed(path: Path) -> list[Path]:
    """Return the directories in which what is being removed lies."""
    try:
        return [each for each in own_folder(path).iterdir() if each.name.startswith(REMOVING_PREFIX)]
    except FileNotFoundError:
        return []


def empty(directory: Path) -> None:
    """Remove our files in a directory, and the directory if there is nothing else in it; a link stays.

    Raises:
        OSError: a file cannot be removed.
    """
    if is_link(directory):
        return
    try:
        with os.scandir(directory) as entries:
            ours = [entry.path for entry in entries if is_ours(entry)]
    except FileNotFoundError:
        return
    for file in ours:
        Path(file).unlink(missing_ok=True)
    with suppress(OSError):  # there is something else in it, or somebody else was faster
        directory.rmdir()


def as_root(path: object) -> Path:
    """Return the directory of a store, as it stands now.

    Raises:
        ValueError: it is empty, as an unset variable is, and would be the current directory; or no path.
        InvalidArgumentError: it is of the wrong type.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidArgumentError(f"path: expected a str or os.PathLike, got {type(path).__name__}")
    name = os.fsdecode(path)
    if not name or "\0" in name:
        raise ValueError(f"path: {name!r} names no directory; '.' is the current one")
    return Path(name).absolute()


def check_namespace(namespace: object) -> str:
    """Return a name that a namespace may have.

    Raises:
        ValueError: it is not of that form.
        InvalidArgumentError: it is of the wrong type.
    """
    if not isinstance(namespace, str):
        raise InvalidArgumentError(f"namespace: expected a str, got {type(namespace).__name__}")
    if not NAMESPACE.fullmatch(namespace):
        raise ValueError(
            f"namespace: {namespace!r} cannot name a directory here; use 1 to 64 letters, digits, dots, "
            "underscores and hyphens, not starting with a dot"
        )
    return namespace


def check_limit(name: str, value: object, *, whole: bool = False) -> None:
    """Check a limit that may be None.

    Raises:
        ValueError: it is below 0.
        InvalidArgumentError: it is no number.
    """
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        expected = "a whole number" if whole else "a number"
        raise InvalidArgumentError(f"{name}: expected {expected} or None, got {type(value).__name__}")
    if not value >= 0:
        raise ValueError(f"{name} ({value}) must not be below 0; None sets no limit")


def refs_of_states_in(directory: Path, *, but: str = "") -> set[str]:
    """Return the refs that states of conversations beside the texts name; maybe too many.

    Args:
        directory: of the texts.
        but: the name of a state that is left out.

    Raises:
        OffloadError: one cannot be read.
    """
    named: set[str] = set()
    with suppress(FileNotFoundError):
        for file in directory.iterdir():
            if SESSION_FILE.fullmatch(file.name) and file.suffix == ".json" and file.name != but:
                try:
                    named.update(REF_PATTERN.findall(file.read_text("utf-8", "replace")))
                except FileNotFoundError:
                    continue
                except OSError as error:
                    raise OffloadError(f"{file}: cannot be read: {error.strerror}") from error
    return named
