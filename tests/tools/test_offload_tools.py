from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.errors import (
    InvalidArgumentError,
    OffloadCorruptError,
    OffloadError,
    OffloadNotFoundError,
    OffloadWriteError,
)
from context_compressor.memory.compressed import CompressedMemory
from context_compressor.offload.guide import GUIDE, LOAD_TOOL, SHORT_GUIDE, is_own_tool, names_tools
from context_compressor.offload.store import InMemoryOffloadStore, ref_of
from context_compressor.tools import tools
from context_compressor.tools.tools import OffloadTools
from tests.offload.counters import WordCounter
from tests.support.media import png_url
from tests.support.pages import page_matches, parse_page
from tests.tools.sources import COUNTER, Source


class Unread(WordCounter):
    """A counter with a vocabulary to read; notes whether that, and counting, held the event loop."""

    def __init__(self) -> None:
        self.is_loaded = False
        self.read_in: list[bool] = []
        self.counted_in: list[bool] = []

    def load(self) -> None:
        self.read_in.append(in_loop())
        self.is_loaded = True

    def count_text(self, text: str) -> int:
        assert self.is_loaded
        return super().count_text(text)

    def count_messages(self, messages: Any) -> int:
        self.counted_in.append(in_loop())
        return 1


def in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


LOG = "\n".join(f"{i}: worker-{i % 7} finished job {i * 13}" for i in range(1, 813))
PROSE = "Alpha.\nBeta gamma.\nAlpha."
ABSENT = "ctx://0123456789abcdef"


async def call(source: Source, tool: str, **arguments: Any) -> str:
    answer = await OffloadTools(source).call(tool, arguments)
    assert source.counter.count_text(answer) <= min(2000, source.budget_tokens // 8)
    return answer


async def read(source: Source, **arguments: Any) -> str:
    return await call(source, "read_offloaded", **arguments)


async def grep(source: Source, **arguments: Any) -> str:
    return await call(source, "grep_offloaded", **arguments)


def is_page_of(answer: str, source: Source) -> bool:
    return parse_page(answer) is not None and page_matches(answer, source.texts)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, "a NoneType is not a CompressedMemory; it lacks counter, "),
        (InMemoryOffloadStore(), "a InMemoryOffloadStore is not a CompressedMemory; it lacks counter, "),
        ({"messages": []}, "a dict is not a CompressedMemory; it lacks counter, "),
        (CompressedMemory, r"CompressedMemory is a class; give an object, CompressedMemory\(...\)"),
    ],
)
def test_what_is_no_memory_is_refused_at_the_door(given: Any, told: str) -> None:
    """Else the agent's first call would fail, and not with a sentence for the model."""
    with pytest.raises(InvalidArgumentError, match=f"memory: {told}"):
        OffloadTools(given)


class TestSchemas:
    def test_they_have_the_form_that_openai_asks_for(self) -> None:
        schemas = OffloadTools(Source()).schemas
        names = [schema["function"]["name"] for schema in schemas]
        assert names == ["read_offloaded", "grep_offloaded", "load_offloaded"]
        for schema in schemas:
            assert schema["type"] == "function"
            parameters = schema["function"]["parameters"]
            assert parameters["type"] == "object"
            assert set(parameters["required"]) <= set(parameters["properties"])
        json.dumps(schemas)

    @pytest.mark.parametrize(
        "name", ["read_offloaded", "mcp__memory__read_offloaded", "memory.read_offloaded"]
    )
    def test_a_tool_is_known_by_its_name_with_any_prefix(self, name: str) -> None:
        assert is_own_tool(name)

    @pytest.mark.parametrize("name", [None, "", "offloaded", "thread_offloaded", "read_offloaded_files"])
    def test_a_tool_of_another_name_is_another(self, name: str | None) -> None:
        assert not is_own_tool(name)

    def test_a_stand_in_tells_of_the_tools_in_its_own_words_only(self) -> None:
        """A preview may be of this library's own code."""
        assert names_tools(f"[Offloaded. {GUIDE}]\nand a preview")
        assert names_tools(f"[offloaded; {SHORT_GUIDE}]")
        assert not names_tools(f"[Offloaded.]\n{GUIDE}")

    def test_they_are_cheap(self) -> None:
        assert COUNTER.count_text(json.dumps(OffloadTools(Source()).schemas)) < 575


class TestRead:
    async def test_a_page_and_the_next(self) -> None:
        source = Source(LOG)
        first = await read(source, ref=ref_of(LOG))
        assert first.startswith(f"[{ref_of(LOG)} lines 1-")
        assert is_page_of(first, source)
        more = r"\[more: page full at \d+ tokens; read_offloaded\(ref, offset=(\d+)\)\]"
        offset = int(re.findall(more, first)[0])
        second = await read(source, ref=ref_of(LOG), offset=offset)
        assert second.startswith(f"[{ref_of(LOG)} lines {offset}-")
        assert is_page_of(second, source)

    async def test_offset_limit_and_column(self) -> None:
        source = Source(PROSE)
        ref = ref_of(PROSE)
        page = await read(source, ref=ref, offset=2, limit=1, column=6)
        assert page.split("\n") == [
            f"[{ref} lines 2-2 of 3, from column 6]",
            "gamma.",
            "[more: limit reached; read_offloaded(ref, offset=3)]",
        ]
        assert is_page_of(page, source)

    @pytest.mark.parametrize(
        "form", ["{}", "`{}`", '"{}"', "<{}>", "({})", " {}\n", "{}.", "ref={}", "[{} lines 1-3]"]
    )
    async def test_stray_characters_around_a_ref_are_forgiven(self, form: str) -> None:
        source = Source(PROSE)
        ref = ref_of(PROSE)
        for spelled in (ref, ref.removeprefix("ctx://"), ref.upper(), ref.replace("ctx://", "ctx:")):
            assert is_page_of(await read(source, ref=form.format(spelled)), source)

    @pytest.mark.parametrize(
        "ref", [ABSENT, "ctx://", "", "report.txt", 5, ["a"], {"a": 1}, "0" * 17, "x" * 5000]
    )
    async def test_an_unknown_ref_gets_a_final_answer_that_says_what_exists(self, ref: Any) -> None:
        source = Source(*(f"text {i}" for i in range(9)))
        answer = await read(source, ref=ref)
        assert "retry will not change that" in answer
        assert re.findall(r"ctx://[0-9a-f]{16}", answer.replace(ABSENT, "")) == list(source.texts)[:5]
        assert "9 in all" in answer
        assert parse_page(answer) is None

    async def test_with_nothing_offloaded_it_says_so(self) -> None:
        assert "nothing has left this conversation" in await read(Source(), ref=ABSENT)

    async def test_past_the_end_says_how_many_lines_there_are(self) -> None:
        source = Source(PROSE)
        assert "has 3 lines" in await read(source, ref=ref_of(PROSE), offset=4)
        assert "has 3 lines" in await read(source, ref=ref_of(PROSE), offset=10**30)
        assert "has 6 characters" in await read(source, ref=ref_of(PROSE), column=7)

    @pytest.mark.parametrize(
        "value", [0, -(10**30), 1.5, "1.5", True, [], float("nan"), float("inf"), "9" * 40]
    )
    @pytest.mark.parametrize("name", ["offset", "limit", "column"])
    async def test_a_bad_number_is_answered(self, name: str, value: Any) -> None:
        source = Source(PROSE)
        answer = await read(source, ref=ref_of(PROSE), **{name: value})
        assert answer.startswith(f"{name} must be a whole number from 1 up, got ")

    @pytest.mark.parametrize("value", [2, 2.0, "2", " 2 "])
    async def test_numbers_as_models_write_them_are_taken(self, value: Any) -> None:
        source = Source(PROSE)
        assert "\nBeta gamma.\n" in await read(source, ref=ref_of(PROSE), offset=value, limit=1)

    @pytest.mark.parametrize(
        ("error", "said"),
        [
            (OffloadNotFoundError("gone"), "no longer stored"),
            (OffloadCorruptError("/secret/path"), "damaged"),
            (OffloadWriteError("/secret/path"), "cannot be read"),
        ],
    )
    async def test_a_text_that_cannot_be_read_is_answered(self, error: Exception, said: str) -> None:
        source = Source(PROSE)
        source.failing[ref_of(PROSE)] = error
        answer = await read(source, ref=ref_of(PROSE))
        assert said in answer
        assert "/secret" not in answer


class TestLoad:
    async def test_media_are_shown_and_not_read(self) -> None:
        url = png_url()
        source = Source(url)
        assert f"is image/png: show it with {LOAD_TOOL}" in await read(source, ref=ref_of(url))
        assert "follows as a message" in await call(source, LOAD_TOOL, ref=ref_of(url))
        assert (await OffloadTools(source).load(ref_of(url)))["type"] == "image_url"

    async def test_a_text_that_begins_with_data_is_a_text(self) -> None:
        text = f"{png_url()}\n{LOG}"
        source, ref = Source(text), ref_of(text)
        assert is_page_of(await read(source, ref=ref, offset=2), source)
        assert "15: worker-1" in await grep(source, pattern="worker-1 finished job 195$")
        assert "is a text" in await call(source, LOAD_TOOL, ref=ref)
        assert await OffloadTools(source).attachment(LOAD_TOOL, {"ref": ref}) is None
        with pytest.raises(OffloadError, match="is a text"):
            await OffloadTools(source).load(ref)

    async def test_media_of_no_known_type_are_a_file(self) -> None:
        url = "data:;base64,AAAA"
        source = Source(url)
        assert "(file) follows" in await call(source, LOAD_TOOL, ref=ref_of(url))
        part = await OffloadTools(source).load(ref_of(url))
        assert part == {"type": "file", "file": {"filename": "offloaded.bin", "file_data": url}}

    async def test_what_takes_more_than_all_pages_may_is_not_shown(self) -> None:
        url = png_url(2_000, 2_000)
        source = Source(url, budget=4_000)
        answer = await call(source, LOAD_TOOL, ref=ref_of(url))
        assert "cannot be shown" in answer
        assert "1000 are allowed. Do not retry." in answer
        assert await OffloadTools(source).attachment(LOAD_TOOL, {"ref": ref_of(url)}) is None


class TestArguments:
    @pytest.mark.parametrize(
        "arguments",
        [
            "{",
            "[1]",
            '"x"',
            "5",
            "null",
            "[" * 100_000,
            "1" * 5000,
            '{"ref": ' + "9" * 5000 + "}",
            "x" * 10_000,
            "",
            None,
            5,
            [],
        ],
    )
    async def test_whatever_comes_is_answered(self, arguments: Any) -> None:
        source = Source(PROSE)
        for tool in ("read_offloaded", "grep_offloaded"):
            answer = await OffloadTools(source).call(tool, arguments)
            assert answer
            assert parse_page(answer) is None
            assert COUNTER.count_text(answer) < 200

    async def test_an_unknown_argument_is_named_with_those_there_are(self) -> None:
        answer = await read(Source(PROSE), ref=ref_of(PROSE), lines=5)
        assert answer == 'read_offloaded has no argument "lines"; it takes ref, offset, limit, column.'

    async def test_a_missing_argument_is_named(self) -> None:
        assert "needs the argument ref" in await read(Source(PROSE))
        assert "needs the argument pattern" in await grep(Source(PROSE))

    @pytest.mark.parametrize("name", ["rm", "", None, 5, ["read_offloaded"]])
    async def test_an_unknown_tool_is_answered(self, name: Any) -> None:
        answer = await OffloadTools(Source(PROSE)).call(name, {})
        assert "use read_offloaded, grep_offloaded, load_offloaded" in answer

    @given(
        st.dictionaries(
            st.sampled_from(["ref", "pattern", "offset", "limit", "column", "context", "ignore_case"]),
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.text(max_size=30)
            | st.lists(st.integers()),
        )
    )
    async def test_no_arguments_raise(self, arguments: dict[str, Any]) -> None:
        source = Source(LOG, PROSE, budget=4000)
        for tool in ("read_offloaded", "grep_offloaded"):
            allowed = {
                k: v
                for k, v in arguments.items()
                if k in ("ref", "limit") or (tool[0] == "r") == (k in ("offset", "column"))
            }
            for given_ in (arguments, {"ref": ref_of(LOG), "pattern": "job", **allowed}):
                answer = await OffloadTools(source).call(tool, given_)
                assert COUNTER.count_text(answer) <= 500

    @pytest.mark.parametrize(
        ("tool", "arguments"),
        [
            ("read_offloaded", {"ref": "\ud83d"}),
            ("grep_offloaded", {"pattern": "caf\ud83d"}),
            ("\ud83d", {}),
            ("read_offloaded", {"ref": ref_of("half \ud83d")}),
            ("grep_offloaded", {"pattern": "half"}),
        ],
    )
    async def test_every_answer_can_be_sent(self, tool: str, arguments: dict[str, Any]) -> None:
        """A model may write half a surrogate pair as an escape, in a call or in a file that it wrote."""
        answer = await call(Source("half \ud83d"), tool, **arguments)
        assert "\\ud83d" in answer
        answer.encode()


class TestGrep:
    async def test_newest_text_and_last_line_first(self) -> None:
        newer = "alpha\nbeta\nalpha again"
        source = Source(newer, PROSE)
        answer = await grep(source, pattern="alpha", ignore_case=True)
        assert answer.split("\n") == [
            f"[{ref_of(newer)} matches: 2, lines: 3]",
            "3| alpha again",
            "1| alpha",
            f"[{ref_of(PROSE)} matches: 2, lines: 3]",
            "3 x2| Alpha.",
            "[end; what stands in view was not searched]",
        ]
        assert is_page_of(answer, source)

    async def test_one_text_can_be_named(self) -> None:
        source = Source(LOG, PROSE)
        answer = await grep(source, pattern=".", ref=ref_of(PROSE).removeprefix("ctx://"))
        assert re.findall(r"ctx://[0-9a-f]{16}", answer) == [ref_of(PROSE)]
        assert "retry will not change that" in await grep(source, pattern=".", ref=ABSENT)

    async def test_it_is_short_unless_more_is_asked_for(self) -> None:
        source = Source(LOG)
        short = await grep(source, pattern="job")
        assert COUNTER.count_text(short) <= 300
        assert "of 812 matches shown" in short
        long = await grep(source, pattern="job", limit=1000)
        assert 1500 < COUNTER.count_text(long) <= 2000
        assert long.split("\n")[1].startswith("812| ")
        few = await grep(source, pattern="job", limit=3)
        assert len(few.split("\n")) == 5
        assert all(is_page_of(answer, source) for answer in (short, long, few))

    async def test_context(self) -> None:
        source = Source(PROSE)
        answer = await grep(source, pattern="Beta", context=1)
        assert answer.split("\n")[1:-1] == ["1- Alpha.", "2| Beta gamma.", "3- Alpha."]
        assert is_page_of(await grep(source, pattern="Beta", context="0"), source)
        assert is_page_of(await grep(source, pattern="Beta", context=10**9), source)
        assert "whole number from 0 up" in await grep(source, pattern="Beta", context=-1)

    @pytest.mark.parametrize("context", [5, 6, 20])
    async def test_the_first_match_is_shown_with_all_its_context(self, context: int) -> None:
        text = LOG.replace("finished", "at 2024-05-01 12:00:00,123 finished").replace(" 7800", " ERROR")
        source = Source(text)
        answer = await grep(source, pattern="ERROR", context=context)
        numbered = list(enumerate(text.split("\n"), 1))[599 - context : 600 + context]
        assert answer.split("\n")[1:] == [
            *(f"{number}{'|' if number == 600 else '-'} {line}" for number, line in numbered),
            "[end; what stands in view was not searched]",
        ]
        assert is_page_of(answer, source)

    async def test_no_match_says_where_it_looked(self) -> None:
        assert await grep(Source(PROSE), pattern="zeta") == (
            f'No line matches "zeta" in {ref_of(PROSE)}. What stands in view was not searched.'
        )
        assert "any of 2 stored texts" in await grep(Source(PROSE, LOG), pattern="zeta")
        assert "nothing to search" in await grep(Source(), pattern="zeta")

    @pytest.mark.parametrize("pattern", ["(", "", 5, "a{9}{99999}{9999}", "(?R)", "x" * 2000])
    async def test_a_bad_pattern_is_answered(self, pattern: Any) -> None:
        answer = await grep(Source(PROSE), pattern=pattern)
        assert parse_page(answer) is None
        assert "pattern" in answer.lower()

    async def test_a_bad_flag_is_answered(self) -> None:
        assert "true or false" in await grep(Source(PROSE), pattern="a", ignore_case="maybe")
        assert is_page_of(await grep(Source(PROSE), pattern="ALPHA", ignore_case="True"), Source(PROSE))

    async def test_texts_that_cannot_be_read_are_counted(self) -> None:
        source = Source(LOG, PROSE)
        source.failing[ref_of(LOG)] = OffloadCorruptError("damaged")
        answer = await grep(source, pattern="Alpha")
        assert answer.endswith("[end; what stands in view was not searched; texts that could not be read: 1]")
        assert is_page_of(answer, source)
        assert f"1 could not be read: {ref_of(LOG)}" in await grep(source, pattern="zeta")
        assert "damaged" in await grep(source, pattern="job", ref=ref_of(LOG))

    async def test_a_pattern_that_never_ends_gets_an_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tools, "SEARCH_SECONDS", 0.05)
        source = Source("a" * 60 + "!", PROSE)
        answer = await grep(source, pattern="(a|aa)+$")
        assert "was stopped after 0.05 s, nothing found" in answer
        assert "Simplify" in answer

    @pytest.mark.parametrize("tool", ["read_offloaded", "grep_offloaded", "load_offloaded", "unknown"])
    async def test_no_first_call_counts_on_the_event_loop_before_the_vocabulary_is_there(
        self, tool: str
    ) -> None:
        """As in a session that was resumed: its counts were saved, so nothing was counted yet."""
        source = Source("text", counter=Unread())
        await OffloadTools(source).call(tool, {"ref": ABSENT, "pattern": "text"})
        assert source.counter.read_in == [False]


class TestAllowance:
    @pytest.mark.parametrize("budget", [400, 800, 2000, 4000, 16_000, 1_000_000])
    async def test_no_page_exceeds_an_eighth_of_the_budget(self, budget: int) -> None:
        source = Source(LOG, "x y " * 50_000, budget=budget)
        for ref in source.texts:
            await read(source, ref=ref)  # `call` checks it
            await grep(source, pattern=".", ref=ref, limit=10_000)

    async def test_a_sentence_is_cut_where_a_page_may_take_less(self) -> None:
        answer = await read(Source(LOG, budget=80), ref="nonsense")  # `call` checks it
        assert answer.startswith("No text")

    async def test_a_counter_that_finds_everything_short_does_not_get_the_whole_text(self) -> None:
        text = "x" * 5_000_000
        source = Source(text, counter=WordCounter())
        page = await read(source, ref=ref_of(text))
        assert len(page) < 50_000
        assert is_page_of(page, source)

    async def test_pages_in_the_view_share_a_quarter_of_the_budget(self) -> None:
        source = Source(LOG, budget=8000)
        assert 900 < COUNTER.count_text(await read(source, ref=ref_of(LOG))) <= 1000
        source.standing = 1500
        assert 400 < COUNTER.count_text(await read(source, ref=ref_of(LOG))) <= 500
        source.standing = 1850
        assert COUNTER.count_text(await grep(source, pattern="job")) <= 150
        source.standing = 1901
        for answer in (await read(source, ref=ref_of(LOG)), await grep(source, pattern="job")):
            assert parse_page(answer) is None
            assert "1901 of the 2000 tokens" in answer
            assert "do not call this again" in answer

    async def test_a_page_handed_out_counts_nothing_until_it_stands_in_the_view(self) -> None:
        source = Source(LOG, budget=8000)
        for _ in range(10):
            assert is_page_of(await read(source, ref=ref_of(LOG)), source)

    async def test_a_bad_call_is_explained_even_when_pages_are_refused(self) -> None:
        source = Source(LOG, budget=8000)
        source.standing = 2000
        assert "retry will not change that" in await read(source, ref=ABSENT)
        assert "Invalid pattern" in await grep(source, pattern="(")
