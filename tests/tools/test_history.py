from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from context_compressor.errors import ContextCompressorError
from context_compressor.events import CompressionEvent
from context_compressor.search.hits import Hit
from context_compressor.tools.tools import OffloadTools
from tests.tools.sources import Source

READING = {"read_offloaded", "grep_offloaded", "load_offloaded"}


class Searchable(Source):
    """Gives as many hits as it is asked for."""

    async def search_history(self, query: str, limit: int = 5) -> list[Hit]:
        if query == "fail":
            raise ContextCompressorError("the index is gone")
        return [Hit(f"{query} {n}", None, (str(n),), "user", None, None, True, n) for n in range(limit)]


class Compressible(Source):
    """Finds nothing to compress."""

    async def compress_now(self, keep: str | None = None) -> CompressionEvent | None:
        if keep == "fail":
            raise ContextCompressorError("the model is gone")
        return None


class Both(Searchable, Compressible):
    pass


class Wrapper:
    """Hands everything on to what it wraps."""

    def __init__(self, wrapped: Source) -> None:
        self._wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)


@pytest.mark.parametrize("wrap", [lambda source: source, Wrapper], ids=["itself", "wrapped"])
@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (Source, set()),
        (Searchable, {"search_history"}),
        (Compressible, {"compress_context"}),
        (Both, {"search_history", "compress_context"}),
    ],
)
def test_the_tools_are_those_that_the_memory_can_serve(
    kind: type[Source], more: set[str], wrap: Callable[[Source], Any]
) -> None:
    tools = OffloadTools(wrap(kind()))
    assert tools.names == READING | more
    assert {schema["function"]["name"] for schema in tools.schemas} == tools.names


async def test_a_search_gives_five_passages_or_as_many_as_asked_for_up_to_fifty() -> None:
    tools = OffloadTools(Searchable())
    for asked, given in ((None, 5), (2, 2), (1_000, 50)):
        answer = await tools.call("search_history", {"query": "zebra", "limit": asked})
        assert answer.count("zebra") == given
        assert answer.endswith("\n[end]")


async def test_no_page_of_hits_is_shown_where_there_is_no_room() -> None:
    source = Searchable()
    source.standing = source.budget_tokens // 4
    assert (await OffloadTools(source).call("search_history", {"query": "x"})).startswith("Not shown: ")


async def test_what_fails_is_told() -> None:
    tools = OffloadTools(Both())
    assert await tools.call("search_history", {"query": "fail"}) == "Not searched: the index is gone"
    assert await tools.call("compress_context", {"keep": "fail"}) == "Not compressed: the model is gone"


async def test_a_note_with_nothing_to_compress_is_told_to_be_lost() -> None:
    tools = OffloadTools(Compressible())
    nothing = "Nothing to compress: what is there is the latest, or noted already."
    assert await tools.call("compress_context") == nothing
    assert await tools.call("compress_context", {"keep": "x"}) == f"{nothing} The note was not kept."
