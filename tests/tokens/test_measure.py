from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given

from context_compressor.errors import InvalidArgumentError
from context_compressor.messages.msg import Block, Msg
from context_compressor.messages.parts import text_parts
from context_compressor.tokens.counter import MessageTokens, count_characters, measure
from context_compressor.tokens.off_loop import COUNT_OFF_LOOP_CHARACTERS, measure_all_off_loop
from context_compressor.tokens.tiktoken import TiktokenCounter
from tests.support.strategies import messages


class Counter:
    """Counts ten tokens a message, or returns what it is told to, and notes where it was called."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.calls: list[list[Msg]] = []
        self.threads: list[int] = []

    def count_text(self, text: str) -> int:
        raise AssertionError("a message is counted once, whole")

    def count_messages(self, messages: Sequence[Msg | dict[str, Any]]) -> int:
        self.calls.append(list(messages))  # type: ignore[arg-type]
        self.threads.append(threading.get_ident())
        return 10 * len(messages) if self.answer is None else self.answer


class MeasuringCounter(Counter):
    def measure(self, msg: Msg) -> Any:
        return self.answer


def said(*texts: str) -> Msg:
    blocks: list[Block] = [{"type": "text", "text": text} for text in texts]
    return Msg("user", blocks, "user")


def test_a_counters_own_measure_is_used(qwen: TiktokenCounter) -> None:
    msg = said("one", "two words")
    assert measure(qwen, msg) == qwen.measure(msg) == MessageTokens(8, (1, 2))


def test_a_custom_counter_is_asked_once_and_its_total_shared_by_characters() -> None:
    counter = Counter(answer=100)
    msg = said("a" * 48, "b" * 24, "c" * 24)
    assert measure(counter, msg) == MessageTokens(100, (48, 24, 24))  # 4 of 100 characters are the name
    assert counter.calls == [[msg]]


@given(msg=messages().filter(bool).map(lambda found: found[0]))
def test_shares_are_never_more_than_the_total(msg: Msg) -> None:
    for answer in (0, 1, 1_000_000):
        measured = measure(Counter(answer=answer), msg)
        assert measured.total == answer
        assert len(measured.texts) == len(text_parts(msg))
        assert sum(measured.texts) <= answer


@pytest.mark.parametrize("answer", [-1, True, 1.5, "7", [1]])
def test_a_counter_that_returns_no_number_of_tokens_is_named(answer: Any) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"Counter object.*count_messages returned .*expected tokens"
    ):
        measure(Counter(answer), said("hi"))


@pytest.mark.parametrize("answer", [7, None, MessageTokens(1, ()), MessageTokens(1, (1, 1))])
def test_a_measure_that_does_not_fit_the_message_is_named(answer: Any) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"MeasuringCounter object.*measure returned .*each of 1 texts"
    ):
        measure(MeasuringCounter(answer), said("hi"))


async def test_small_messages_are_counted_on_the_loop_and_large_ones_off_it() -> None:
    here = threading.get_ident()
    counter = Counter()
    await measure_all_off_loop(counter, [said("small")])
    await measure_all_off_loop(counter, [said("x" * (COUNT_OFF_LOOP_CHARACTERS + 1))])
    assert counter.threads[0] == here
    assert counter.threads[1] != here


async def test_a_vocabulary_is_read_off_the_loop() -> None:
    class Reading(Counter):
        is_loaded = False
        read_in: int | None = None

        def load(self) -> None:
            assert not self.threads, "who counts first has the faster way from then on"
            self.read_in, self.is_loaded = threading.get_ident(), True

        def count_text(self, text: str) -> int:
            self.threads.append(threading.get_ident())
            return 1

    here, counter = threading.get_ident(), Reading()
    await measure_all_off_loop(counter, [said("x" * (COUNT_OFF_LOOP_CHARACTERS + 1))])
    assert counter.read_in not in (None, here)
    assert counter.threads[0] == here
    assert counter.threads[1] != here


async def test_an_error_of_a_counter_reaches_the_caller_from_a_thread() -> None:
    with pytest.raises(InvalidArgumentError, match="count_messages returned -1"):
        await measure_all_off_loop(Counter(-1), [said("x" * 20_000)])


def test_encoded_media_are_no_characters_and_texts_always_are() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 50_000}}
    assert count_characters(Msg("u", [image], "user")) < 100
    assert count_characters(Msg("u", [image], "user"), with_media=True) > 50_000
    assert count_characters(said("A" * 50_000)) >= 50_000
    output: list[Block] = [{"type": "text", "text": "A" * 50_000}, image, {"type": "x", "n": 5}]
    answer = Msg("system", [{"type": "tool_result", "id": "c", "name": "f", "output": output}], "system")
    assert 50_000 <= count_characters(answer) < 50_200
