"""The arguments that stores and collections take alike, checked at the door."""

from __future__ import annotations

import os
from pathlib import Path

from context_compressor.errors import InvalidArgumentError
from context_compressor.offload.directory.namespaces import NAMESPACE


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
