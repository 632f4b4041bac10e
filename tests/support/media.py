"""Small media for tests, as `data:` URLs."""

from __future__ import annotations

import base64
import random
import struct
import zlib


def png_url(width: int = 640, height: int = 480, *, seed: int = 0, noise: int = 300) -> str:
    """Return a PNG of the given size in pixels; `noise` bytes that do not compress make it larger."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + b"\x7f" * width for _ in range(height)))
    ballast = random.Random(seed).randbytes(noise)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"tEXt", ballast)
    return "data:image/png;base64," + base64.b64encode(data + chunk(b"IEND", b"")).decode()
