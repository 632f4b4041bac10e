"""Every error can be sent to another process, or copied, whole."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from context_compressor import CompressedMemory, Msg, errors, from_openai, ref_of
from context_compressor.errors import (
    ConflictError,
    ContextCompressorError,
    ContextOverflowError,
    SummarizerOverflowError,
)

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, ContextCompressorError)
]
KEYWORDS: dict[type[ContextCompressorError], dict[str, Any]] = {
    ConflictError: {"number": 7},
    ContextOverflowError: {"budget": 4_000, "needed": 5_100, "fixed": (("a", 3_000), ("b", 2_100))},
    SummarizerOverflowError: {"limit_tokens": 8_192},
}
WAYS: dict[str, Callable[[Any], Any]] = {
    **{
        f"pickle {version}": lambda error, version=version: pickle.loads(pickle.dumps(error, version))
        for version in range(pickle.HIGHEST_PROTOCOL + 1)
    },
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_error_survives_whole(kind: type[ContextCompressorError], way: str) -> None:
    error = kind("what is wrong, and what to do", **KEYWORDS.get(kind, {}))
    error.add_note("seen in session 7")
    again = WAYS[way](error)
    assert again is not error
    assert type(again) is kind
    assert str(again) == "what is wrong, and what to do"
    assert again.args == error.args
    assert vars(again) == vars(error) == {**KEYWORDS.get(kind, {}), "__notes__": ["seen in session 7"]}


class Own(ContextOverflowError):
    """An error of somebody's program."""

    def __init__(self, message: str, region: str) -> None:
        super().__init__(message, budget=1, needed=2, fixed=())
        self.region = region


@pytest.mark.parametrize("way", WAYS)
def test_so_does_a_subclass_with_an_argument_of_its_own(way: str) -> None:
    again = WAYS[way](Own("too much", "north"))
    assert (type(again), str(again), again.region, again.needed) == (Own, "too much", "north", 2)


LONG = "x" * 100_000


@pytest.mark.parametrize(
    "call",
    [
        lambda: Msg("user", "hello", LONG),
        lambda: from_openai([{"role": LONG, "content": "hello"}]),
        lambda: CompressedMemory().tools(LONG),  # type: ignore[arg-type]
        lambda: CompressedMemory(summarizer=LONG),  # type: ignore[arg-type]
        lambda: CompressedMemory().face.run(CompressedMemory().read_ref(LONG)),
        lambda: ref_of(5),  # type: ignore[arg-type]
    ],
)
def test_an_error_shows_a_value_and_not_all_of_a_long_one(call: Callable[[], Any]) -> None:
    with pytest.raises(ContextCompressorError) as raised:
        call()
    assert len(str(raised.value)) < 1_000
