from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.errors import InvalidStateError
from context_compressor.offload.store import InMemoryOffloadStore, ref_of


@given(st.lists(st.text(st.characters() | st.sampled_from("\ud83d\ude00"))))
async def test_state_goes_through_json_and_keeps_every_text(texts: list[str]) -> None:
    store = InMemoryOffloadStore()
    for text in texts:
        await store.write(text)
    state = json.loads(json.dumps(store.to_state()))
    restored = InMemoryOffloadStore.from_state(state)
    assert restored.texts() == store.texts()
    assert list(state) == await store.refs()
    for ref in await restored.refs():
        assert ref_of(await restored.read(ref)) == ref


@pytest.mark.parametrize(
    "state",
    [
        [],
        {"a": "text"},
        {"ctx://0123456789abcdef": 5},
        {"ctx://0123456789abcdef": {"base64": "%"}},
        {"ctx://0123456789abcdef": {"base64": "/w=="}},
        {"ctx://0123456789abcdef": {}},
    ],
)
def test_malformed_state_is_refused(state: object) -> None:
    with pytest.raises(InvalidStateError, match="offloaded texts"):
        InMemoryOffloadStore.from_state(state)  # type: ignore[arg-type]
