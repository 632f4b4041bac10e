"""What all stores but that in memory have in common: refs, packing, errors, a quota."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from copy import copy
from importlib import import_module
from math import inf
from typing import Any, Self

from context_compressor.errors import (
    InvalidArgumentError,
    OffloadCollisionError,
    OffloadCorruptError,
    OffloadError,
    OffloadFullError,
    OffloadKeyError,
    OffloadNotFoundError,
    OffloadWriteError,
    check_number,
)
from context_compressor.offload.folders import check_limit, disk_error
from context_compressor.offload.store import REF_PREFIX, StoredText, check_ref, check_text, ref_of
from context_compressor.tokens.off_loop import run_off_loop

logger = logging.getLogger(__name__)

_PLAIN, _SMALLER, _SEALED = 0, 1, 2
"""Bits of the first byte: compressed by zstd, encrypted."""
_MOST_UNPACKED = 256 * 2**20
"""Bytes above which a text is not compressed, so that no small stored text unpacks to fill the memory."""
_COUNTED_SECONDS, _FULL_SECONDS = 60.0, 1.0
"""How long a count of what is stored is gone by; and one by which a text does not fit."""


class Packing:
    """Make bytes of texts, smaller and encrypted where that is wanted, and texts of them again.

    Args:
        compress_above: bytes above which a text is compressed by zstd; None: never.
        encryption_key: encrypts every text: a key of `cryptography.fernet.Fernet.generate_key()`.

    Raises:
        InvalidArgumentError: no such number or key, or the package that it needs is missing.
    """

    def __init__(self, compress_above: int | None = None, encryption_key: bytes | str | None = None) -> None:
        if compress_above is not None:
            check_number("compress_above", compress_above, is_whole=True)
        self._above = compress_above
        self._zstd: Any = None if compress_above is None else _needed("zstandard", "compress_above")
        self._fernet: Any = None
        if encryption_key is not None:
            fernet = _needed("cryptography.fernet", "encryption_key")
            try:
                self._fernet = fernet.Fernet(encryption_key)
            except (ValueError, TypeError) as error:
                raise InvalidArgumentError(
                    f"encryption_key: {error}; Fernet.generate_key() makes one"
                ) from None

    async def pack(self, text: str) -> bytes:
        """Return what is stored."""
        return await run_off_loop(len(text), self._pack, text)

    def _pack(self, text: str) -> bytes:
        data, bits = text.encode("utf-8", "surrogatepass"), _PLAIN
        if self._above is not None and self._above < len(data) <= _MOST_UNPACKED:
            data, bits = self._zstd.compress(data), bits | _SMALLER
        if self._fernet is not None:
            data, bits = self._fernet.encrypt(data), bits | _SEALED
        return bytes([bits]) + data

    async def unpack(self, data: bytes, ref: str) -> str:
        """Return the text again.

        Raises:
            OffloadKeyError: it is encrypted, and the key is missing or another one.
            OffloadCorruptError: it was changed.
        """
        return await run_off_loop(len(data), self._unpack, data, ref)

    def _unpack(self, data: bytes, ref: str) -> str:
        if not data or data[0] > _SMALLER | _SEALED:
            raise OffloadCorruptError(f"what is stored under {ref} is no text of a store")
        bits, data = data[0], bytes(data[1:])
        if bits & _SEALED:
            if self._fernet is None:
                raise OffloadKeyError(f"the text under {ref} is encrypted: give its store the key")
            try:
                data = self._fernet.decrypt(data)
            except Exception as error:  # InvalidToken, whether the key is wrong or the text was changed
                raise OffloadKeyError(
                    f"the text under {ref} does not open: the key is another one, or the text was changed"
                ) from error
        try:
            if bits & _SMALLER:
                zstd = self._zstd or _needed("zstandard", "compress_above")
                if zstd.frame_content_size(data) > _MOST_UNPACKED:
                    raise ValueError(f"it unpacks to more than {_MOST_UNPACKED:,} bytes")
                data = zstd.decompress(data, max_output_size=_MOST_UNPACKED)
            text = data.decode("utf-8", "surrogatepass")
        except InvalidArgumentError as error:
            raise OffloadError(f"the text under {ref} is compressed: {error}") from error
        except Exception as error:
            raise OffloadCorruptError(f"the text under {ref} was changed: {error}") from error
        if (found := ref_of(text)) != ref:
            raise OffloadCorruptError(f"the text under {ref} was changed: it hashes to {found}")
        return text


def _needed(module: str, argument: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise InvalidArgumentError(
            f"{argument}: needs the package {package} (pip install {package})"
        ) from error


class PackedOffloadStore(ABC):
    """An `OffloadStore` over a few steps that a subclass has, each by ref; write-once without locks.

    Args:
        label: what to call the namespace.
        packing: makes bytes of texts, and texts of them again.
        name: what stands for the namespace where its name may be any; None: the label.
        max_bytes: bytes that the namespace may hold; None: any. A text that does not fit is refused, none is
            removed for it. What others write there meanwhile is counted once a minute.
    """

    def __init__(
        self, label: str, packing: Packing, max_bytes: int | None = None, name: str | None = None
    ) -> None:
        check_limit("max_bytes", max_bytes, whole=True)
        self.label = label
        self._name = label if name is None else name
        self._packing = packing
        self._max_bytes = max_bytes
        self._used, self._counted_at = 0, -inf
        self._under_way, self._put_in_all = 0, 0
        """Bytes that are being written at this moment, and that were written here so far."""

    async def write(self, text: str) -> str:
        """Make `text` durable and return its ref; a text that is already stored is not written again.

        Raises:
            OffloadCollisionError: another text holds this ref.
            OffloadFullError: there is no room left, or the quota is used up.
            OffloadPermissionError: this process may not write there.
            OffloadWriteError: any other reason why the text could not be made durable.
            InvalidArgumentError: `text` is no string.
        """
        ref = await run_off_loop(len(check_text(text)), ref_of, text)
        data = await self._packing.pack(text)
        await self._kept(self._check_room(ref, len(data)), ref)
        self._under_way += len(data)  # at once, so that others who write now find this room taken
        try:
            await self._write_once(ref, data, text)
        finally:
            self._under_way -= len(data)
        return ref

    async def _write_once(self, ref: str, data: bytes, text: str) -> None:
        for _ in range(2):
            if await self._kept(self._put(ref, data), ref):
                self._used += len(data)
                self._put_in_all += len(data)
                return
            try:
                held = await self._read(ref)
            except OffloadNotFoundError:
                continue  # it was removed meanwhile
            except OffloadCorruptError:
                await self._kept(self._replace(ref, data), ref)  # and the right text is at hand
                return
            if held == text:
                await self._renew(ref, data)
                return
            raise OffloadCollisionError(
                f"another text already holds {ref} ({self.where(ref)}); the text at hand was not stored"
            )
        raise OffloadWriteError(f"{ref} comes and goes: somebody removes it while it is written")

    async def _kept(self, step: Any, ref: str) -> Any:
        try:
            return await step
        except OffloadError:
            raise
        except OSError as error:
            raise disk_error(error, f"{ref} could not be stored", OffloadWriteError) from error
        except Exception as error:
            reason = f"{ref} could not be stored: {getattr(error, 'orig', None) or error}"
            if self._is_full(error):
                raise OffloadFullError(f"{reason}; make room there") from error
            raise OffloadWriteError(reason) from error

    def _is_full(self, error: Exception) -> bool:  # noqa: ARG002
        """Tell whether a driver's error says that there is no room left."""
        return False

    async def _check_room(self, ref: str, size: int) -> None:
        """Raise OffloadFullError where a text is not there yet and does not fit."""
        if self._max_bytes is None:
            return
        age, is_full = time.monotonic() - self._counted_at, self._taken + size > self._max_bytes
        if age > _COUNTED_SECONDS or (is_full and age > _FULL_SECONDS):
            counted_at, before = self._counted_at, self._put_in_all
            found = sum(one.bytes for one in await self._list())
            if self._counted_at == counted_at:  # nobody here was faster
                # What was put meanwhile may be in it or not; rather twice than not at all.
                self._used, self._counted_at = found + self._put_in_all - before, time.monotonic()
        if self._taken + size > self._max_bytes and await self._get(ref) is None:
            raise OffloadFullError(
                f"{ref} was not stored: {size:,} bytes do not fit: {self.label} holds {self._taken:,} and "
                f"may hold {self._max_bytes:,} (max_bytes); raise max_bytes, or delete messages or sessions"
            )

    @property
    def _taken(self) -> int:
        return self._used + self._under_way

    async def _renew(self, ref: str, data: bytes) -> None:
        """Let the age of a text begin anew: a collection goes by it, nothing else, so that it may fail."""
        try:
            await self._touch(ref, data)
        except Exception as error:
            logger.info("%s: its age could not be set: %r", ref, error)

    async def read(self, ref: str) -> str:
        """Return the text under `ref`, as it was written.

        Raises:
            OffloadNotFoundError: the ref is absent or malformed.
            OffloadCorruptError: what is stored was truncated or changed, or is a link.
            OffloadPermissionError: this process may not read it.
            OffloadKeyError: it is encrypted, and the key is missing or another one.
            OffloadError: the store failed otherwise.
        """
        return await self._read(check_ref(ref))

    async def _read(self, ref: str) -> str:
        try:
            data = await self._get(ref)
        except OffloadError:
            raise
        except Exception as error:
            raise OffloadError(f"{ref} could not be read: {error}") from error
        if data is None:
            raise OffloadNotFoundError(f"{ref} is not stored here; refs() lists what is")
        return await self._packing.unpack(data, ref)

    async def delete(self, ref: str) -> None:
        """Remove the text under `ref`; absent is fine.

        Raises:
            OffloadNotFoundError: the ref is malformed.
            OffloadError: it could not be removed.
        """
        check_ref(ref)
        self._counted_at = -inf
        try:
            await self._remove(ref)
        except OffloadError:
            raise
        except Exception as error:
            raise OffloadError(f"{ref} could not be removed: {error}") from error

    async def refs(self) -> list[str]:
        """Return every ref that is stored, sorted."""
        return [text.ref for text in await self.stored()]

    async def stored(self) -> list[StoredText]:
        """Return what is stored, sorted by ref."""
        try:
            return sorted(await self._list())
        except OffloadError:
            raise
        except Exception as error:
            raise OffloadError(f"the store could not be listed: {error}") from error

    @abstractmethod
    async def _put(self, ref: str, data: bytes) -> bool:
        """Store data where there is none yet; tell whether that was so."""

    @abstractmethod
    async def _replace(self, ref: str, data: bytes) -> None:
        """Store data in the place of what is there."""

    @abstractmethod
    async def _get(self, ref: str) -> bytes | None:
        """Return what is stored; None: nothing."""

    @abstractmethod
    async def _remove(self, ref: str) -> None:
        """Remove what is stored."""

    @abstractmethod
    async def _touch(self, ref: str, data: bytes) -> None:
        """Note that what is stored was written again."""

    @abstractmethod
    async def _list(self) -> list[StoredText]:
        """Return what is stored."""

    async def remove_halves(self, older_than: float) -> list[tuple[str, int]]:  # noqa: ARG002
        """Remove texts that a crash left half written, so many seconds old; return where, and bytes.

        Raises:
            OffloadError: they could not be found or removed.
        """
        return []  # a store that writes whole texts or none has none

    async def remove_index(self) -> list[tuple[str, int]]:
        """Remove what is kept beside the texts to search by; return where, and bytes."""
        return []

    def refs_of_states(self) -> set[str]:
        """Return the refs that something in the namespace itself names; maybe too many.

        Raises:
            OffloadError: it cannot be read.
        """
        return set()

    def is_of(self, user_id: str, session_id: str) -> bool:  # noqa: ARG002
        """Tell whether the namespace is these ids of a user and a session: nothing else uses it."""
        return False

    async def namespaces(self) -> list[Self]:
        """Return stores for all namespaces beside this one, itself among them; they end with it."""
        return [self._beside(name) for name in await self._names()]

    def _beside(self, name: str) -> Self:
        if name == self._name:
            return self
        other = copy(self)
        other._name = name
        other._be(name)
        return other

    @abstractmethod
    async def _names(self) -> list[str]:
        """Return what all namespaces are called, or what stands for their names."""

    @abstractmethod
    def _be(self, name: str) -> None:
        """Stand for another namespace from now on, and close nothing."""

    @abstractmethod
    def close(self) -> Awaitable[None] | None:
        """Close what was opened here; await what it gives, if anything."""

    @abstractmethod
    def where(self, ref: str) -> str:
        """Return where a text lies, for people."""


def digits(ref: str) -> str:
    """Return the digits of a ref."""
    return ref.removeprefix(REF_PREFIX)


def label_of(namespace: str | tuple[str, str] | None) -> str:
    """Return what to call a namespace that was checked."""
    if namespace is None:
        return "default"
    return namespace if isinstance(namespace, str) else ", ".join(namespace)
