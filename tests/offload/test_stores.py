"""What every store does."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.errors import (
    InvalidArgumentError,
    OffloadCollisionError,
    OffloadCorruptError,
    OffloadNotFoundError,
)
from context_compressor.offload.files import FileOffloadStore
from context_compressor.offload.store import REF_PATTERN, InMemoryOffloadStore, OffloadStore, ref_of

TEXTS = st.text(st.characters())  # all of Unicode, unpaired surrogates included
MALFORMED = [
    "",
    "ctx://",
    "ctx://0123456789ABCDEF",
    "ctx://0123456789abcde",
    "ctx://0123456789abcdef0",
    "ctx://../../etc/passwd0",
    "ctx://0123456789abcdef\n",
    "0123456789abcdef",
    None,
    5,
]


@contextmanager
def fresh_store(kind: str) -> Iterator[OffloadStore]:
    if kind == "memory":
        yield InMemoryOffloadStore()
    else:
        with tempfile.TemporaryDirectory() as directory:
            yield FileOffloadStore(directory)


@pytest.fixture(params=["memory", "files"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[OffloadStore]:
    with fresh_store(request.param) as made:
        yield made


@pytest.mark.parametrize("kind", ["memory", "files"])
@given(text=TEXTS)
async def test_any_text_reads_back_as_it_was_written(kind: str, text: str) -> None:
    with fresh_store(kind) as store:
        ref = await store.write(text)
        assert await store.read(ref) == text
        assert ref == ref_of(text)


@pytest.mark.parametrize("text", ["", "\r\n\r\n", "a\rb\x0b\x0c\x1c\x85\u2028c\n", "\ud83d\ude00", "\0"])
async def test_line_ends_and_surrogates_stay_as_they_are(store: OffloadStore, text: str) -> None:
    assert await store.read(await store.write(text)) == text


async def test_a_large_text_reads_back(store: OffloadStore) -> None:
    text = "0123456789é\n" * 400_000
    assert await store.read(await store.write(text)) == text


async def test_the_ref_is_the_head_of_the_sha256(store: OffloadStore) -> None:
    for text, data in (("naïve\r\n", b"na\xc3\xafve\r\n"), ("half \ud800", b"half \xed\xa0\x80")):
        digits = hashlib.sha256(data).hexdigest()[:16]
        assert await store.write(text) == f"ctx://{digits}"


async def test_refs_are_sorted_and_a_text_is_listed_once(store: OffloadStore) -> None:
    assert await store.refs() == []
    written = [await store.write(text) for text in ("b", "a", "c", "a", "b")]
    assert await store.refs() == sorted(set(written))
    assert len(set(written)) == 3


async def test_writes_of_one_text_at_the_same_time_agree(store: OffloadStore) -> None:
    refs = await asyncio.gather(*(store.write(f"text {i % 4}") for i in range(40)))
    assert await store.refs() == sorted({ref_of(f"text {i}") for i in range(4)})
    assert refs == [ref_of(f"text {i % 4}") for i in range(40)]


async def test_a_deleted_text_is_gone_and_deleting_again_is_fine(store: OffloadStore) -> None:
    ref, other = await store.write("going"), await store.write("staying")
    await store.delete(ref)
    await store.delete(ref)
    assert await store.refs() == [other]
    with pytest.raises(OffloadNotFoundError, match=ref):
        await store.read(ref)
    assert await store.write("going") == ref
    assert await store.read(ref) == "going"


async def test_an_absent_ref_is_not_found(store: OffloadStore) -> None:
    with pytest.raises(OffloadNotFoundError, match="ctx://0123456789abcdef"):
        await store.read("ctx://0123456789abcdef")
    await store.delete("ctx://0123456789abcdef")


@pytest.mark.parametrize("ref", MALFORMED)
async def test_a_malformed_ref_is_not_found(store: OffloadStore, ref: str) -> None:
    with pytest.raises(OffloadNotFoundError, match="16 lower-case hex digits"):
        await store.read(ref)
    with pytest.raises(OffloadNotFoundError, match="16 lower-case hex digits"):
        await store.delete(ref)


def test_longer_digits_hold_no_ref() -> None:
    ref = "ctx://0123456789abcdef"
    assert REF_PATTERN.findall(f"see {ref}, {ref}0 and {ref}.") == [ref, ref]


async def test_only_strings_are_stored(store: OffloadStore) -> None:
    with pytest.raises(InvalidArgumentError, match="bytes"):
        await store.write(b"bytes")  # type: ignore[arg-type]


async def test_a_collision_keeps_the_first_text(store: OffloadStore, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two texts with the same 64 bits take hours to find; a hash of 0 for all texts does the same.
    for module in ("files", "packed", "store"):
        monkeypatch.setattr(f"context_compressor.offload.{module}.ref_of", lambda text: "ctx://" + "0" * 16)
    ref = await store.write("first")
    with pytest.raises(OffloadCollisionError, match=ref):
        await store.write("second")
    assert await store.write("first") == ref
    assert await store.read(ref) == "first"


async def test_colliding_texts_written_at_once_are_not_mixed(
    store: OffloadStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("files", "packed", "store"):
        monkeypatch.setattr(f"context_compressor.offload.{module}.ref_of", lambda text: "ctx://" + "0" * 16)
    texts = [f"text {i}" for i in range(12)]
    results = await asyncio.gather(*map(store.write, texts), return_exceptions=True)
    winners = [text for text, result in zip(texts, results, strict=True) if isinstance(result, str)]
    assert winners == [await store.read("ctx://" + "0" * 16)]
    assert sum(isinstance(result, OffloadCollisionError) for result in results) == len(texts) - 1


class TestInMemory:
    async def test_it_begins_with_the_texts_given(self) -> None:
        store = InMemoryOffloadStore({ref_of("a"): "a"})
        await store.write("b")
        assert store.texts() == {ref_of("a"): "a", ref_of("b"): "b"}

    async def test_its_texts_are_a_copy(self) -> None:
        store = InMemoryOffloadStore()
        store.texts()["ctx://0123456789abcdef"] = "smuggled"
        assert await store.refs() == []

    def test_keys_must_be_refs_and_values_texts(self) -> None:
        with pytest.raises(OffloadNotFoundError, match="'a'"):
            InMemoryOffloadStore({"a": "a"})
        with pytest.raises(InvalidArgumentError, match="int"):
            InMemoryOffloadStore({ref_of("a"): 1})  # type: ignore[dict-item]
        with pytest.raises(InvalidArgumentError, match="texts: expected texts by ref, got list"):
            InMemoryOffloadStore(["a"])  # type: ignore[arg-type]

    async def test_a_text_that_was_changed_in_saved_state_is_corrupt(self) -> None:
        store = InMemoryOffloadStore({ref_of("a"): "b"})
        with pytest.raises(OffloadCorruptError, match=ref_of("a")):
            await store.read(ref_of("a"))
        await store.write("a")
        assert await store.read(ref_of("a")) == "a"


def test_the_file_store_is_given_a_directory_that_need_not_exist(tmp_path: Path) -> None:
    store = FileOffloadStore(tmp_path / "a" / "b")
    assert store.directory == tmp_path / "a" / "b" / "default"
    assert list(tmp_path.iterdir()) == []
