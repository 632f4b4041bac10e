"""Open what the user named: a file, gzipped or not, or a directory to be walked."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

from context_compressor.readers.session import UnreadableError

_GZIP = b"\x1f\x8b"
_HEAD_BYTES = 4096
"""Read of a file to tell how it is packed or encoded."""
_PACKED = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"PK\x03\x04": "zip",
}
"""How compressed files begin that are not unpacked here."""
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
"""How texts begin that say so themselves; the longer marks first, since one begins with a shorter one."""
_STORED = re.compile(r"[0-9a-f]{16}\.txt|search\.sqlite3")
"""What a `FileOffloadStore` holds: no sessions, but what left their views."""


def open_file(path: Path) -> IO[bytes]:
    """Open a file for reading.

    Raises:
        UnreadableError: it cannot be opened.
    """
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise UnreadableError("there is no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise UnreadableError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None


def as_text_bytes(stream: IO[bytes]) -> IO[bytes]:
    """Return the bytes of a text, unpacked where they are gzipped; the stream can be rewound.

    Raises:
        UnreadableError: they are not those of a text that is read here.
    """
    try:
        if not stream.seekable():
            stream = io.BytesIO(stream.read())
        head = stream.read(_HEAD_BYTES)
        stream.seek(0)
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror or error}") from None
    if head.startswith(_GZIP):
        with suppress(OSError, EOFError, zlib.error):  # whoever reads the lines tells where the damage is
            head = b""
            head = gzip.GzipFile(fileobj=stream).read(_HEAD_BYTES)
        stream.seek(0)
        # Anew: after damage at the very start, the first would not begin there again.
        stream = cast("IO[bytes]", gzip.GzipFile(fileobj=stream))
    for magic, name in _PACKED.items():
        if head.startswith(magic):
            raise UnreadableError(f"is compressed with {name}; unpack it first (gzip is read as it is)")
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            raise UnreadableError(f"is {name} text; save the file as UTF-8")
    if b"\x00" in head:
        raise UnreadableError("is a binary file; expected chat messages as JSON or JSONL")
    return stream


def walk(directory: Path, on_error: Callable[[OSError], None]) -> Iterator[Path]:
    """Yield the regular files below a directory, by name.

    Not hidden ones, nor what an offload store holds, nor any in linked directories.
    """
    for parent, directories, names in os.walk(directory, onerror=on_error):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            if not name.startswith(".") and not _STORED.fullmatch(name) and path.is_file():
                yield path
