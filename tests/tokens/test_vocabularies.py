from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import regex
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from tiktoken import registry
from tiktoken_ext import openai_public

from context_compressor.errors import InvalidArgumentError
from context_compressor.messages.msg import Msg
from context_compressor.tokens import vocabularies
from context_compressor.tokens.counter import TokenCounter
from context_compressor.tokens.tiktoken import TiktokenCounter
from context_compressor.tokens.vocabularies import estimate_tokens
from tests.support.recordings import requires_recordings, sessions
from tests.support.strategies import texts

SAMPLES = (
    "",
    "hello world",
    "It's 12,345.67 — naïve café, isn't it?\r\n\r\n\tyes  ",
    "如何看待外卖大战？价格是 128 元。",
    "👩‍👩‍👧 e\u0301\u0301 \u00a0\u3000\u2028 한국어 ไทย العربية",
    "def f(x):\n    return {'a': [1, 2, 3]}  # ok\n\n\n",
    "<|endoftext|><|im_start|>system\nyou<|im_end|><|extra_0|>",
    "\x00\x01\x1c\x85 ",
)


@pytest.fixture(scope="module")
def theirs() -> Any:
    """dashscope's own tokenizer."""
    from dashscope.tokenizers.qwen_tokenizer import QwenTokenizer

    return QwenTokenizer(str(vocabularies.find_qwen_file()))  # type: ignore[no-untyped-call]


def their_count(tokenizer: Any, text: str) -> int:
    return len(tokenizer.encode(text, allowed_special=set()))


@given(text=texts())
def test_any_text_is_counted_as_dashscopes_tokenizer_does(
    qwen: TiktokenCounter, theirs: Any, text: str
) -> None:
    if len(text) <= vocabularies.CHUNK_CHARACTERS:
        assert qwen.count_text(text) == their_count(theirs, text)


@given(items=st.lists(texts(), min_size=2))
def test_a_list_counts_as_dashscopes_tokenizer_does(
    qwen: TiktokenCounter, theirs: Any, items: list[str]
) -> None:
    text = "\n- ".join(items)
    if len(text) <= vocabularies.CHUNK_CHARACTERS:
        assert qwen.count_text(text) == their_count(theirs, text)
        assert qwen.count_messages(
            [Msg("user", text, "user")]
        ) == vocabularies.QWEN_MESSAGE_TOKENS + qwen.count_text(text)


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base", "o200k_harmony"])
@given(items=st.lists(texts(), min_size=2))
def test_openais_patterns_break_before_each_item_of_a_list(name: str, items: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_public, "load_tiktoken_bpe", lambda *_, **__: {})
        words = regex.compile(getattr(openai_public, name)()["pat_str"])
    pieces = [f"{items[0]}\n", *(f"- {item}\n" for item in items[1:-1]), f"- {items[-1]}"]
    assert [word for piece in pieces for word in words.findall(piece)] == words.findall("".join(pieces))


@requires_recordings
def test_chunks_change_the_count_of_a_recorded_text_hardly_and_never_downwards(
    qwen: TiktokenCounter, theirs: Any
) -> None:
    exact = counted = 0
    for session in sessions("deer_flow"):
        for message in session["messages"]:
            text = message["content"]
            if isinstance(text, str) and vocabularies.CHUNK_CHARACTERS < len(text) < 100_000:
                whole = len(theirs._tokenizer.encode_ordinary(text))
                assert qwen.count_text(text) >= whole
                counted += qwen.count_text(text)
                exact += whole
    assert 0 < exact <= counted <= 1.0005 * exact


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("word", "Two", "12", "'s", "…!", "中文", "x.", "(", "\n", "é")),
            st.sampled_from((" ", "  ", "\n", " \n ", "\t", "\r\n", "")),
        )
    )
)
def test_chunks_that_end_between_words_leave_the_count_exact(
    theirs: Any, pairs: list[tuple[str, str]]
) -> None:
    text = "".join(word + gap for word, gap in pairs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabularies, "CHUNK_CHARACTERS", 20)
        patch.setattr(vocabularies, "_CHUNK_END_SEARCH_CHARACTERS", 19)
        chunks = list(vocabularies.chunks_of(text))
    assert "".join(chunks) == text
    assert all(len(chunk) <= 20 for chunk in chunks)
    if all(len(chunk) < 20 for chunk in chunks[:-1]):
        count = theirs._tokenizer.encode_ordinary
        assert sum(len(count(chunk)) for chunk in chunks) == len(count(text))


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("a" * 600_000, 75_000),
        (" " * 1_000_000, 7_813),
        ("\n" * 600_000, 18_750),
        ("\t" * 600_000, 37_500),
        ("1" * 600_000, 600_000),
        ("=" * 600_000, 9_375),
        ("中" * 600_000, 600_000),
        (" " * 999_999 + "x", 7_814),
    ],
)
def test_a_text_of_one_endless_word_is_counted(qwen: TiktokenCounter, text: str, exact: int) -> None:
    assert exact * 0.99 <= qwen.count_text(text) <= exact * 1.03


@pytest.mark.parametrize("text", ["\ud800", "a\udfff b", "\ud83d\ude00", "\ud83d" * 5_000])
def test_lone_surrogates_are_counted(qwen: TiktokenCounter, text: str) -> None:
    assert 0 < qwen.count_text(text) <= 4 * len(text)


@pytest.mark.parametrize(
    "model", [None, "qwen-max", "Qwen/Qwen3-8B", "QwQ-32B", "openrouter/qwen/qwen3", "qvq-72b"]
)
def test_no_model_and_qwens_models_read_qwens_vocabulary(model: str | None) -> None:
    assert TiktokenCounter(model).encoding_name == "qwen"


def test_it_is_a_token_counter() -> None:
    assert isinstance(TiktokenCounter(), TokenCounter)
    assert repr(TiktokenCounter()) == "TiktokenCounter()"
    assert repr(TiktokenCounter("qwen-max")) == "TiktokenCounter('qwen-max')"


def test_a_model_that_is_no_name_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="model: expected the name of a model or None, got 5"):
        TiktokenCounter(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4o", "o200k_base"),
        ("openai/gpt-4.1-mini", "o200k_base"),
        ("o1", "o200k_base"),
        ("gpt-5", "o200k_base"),
        ("gpt-oss-120b", "o200k_harmony"),
        ("gpt-4", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
    ],
)
def test_an_openai_vocabulary_that_is_not_at_hand_is_not_fetched(
    no_network: Path, model: str, encoding: str
) -> None:
    with pytest.warns(UserWarning, match="Counting with Qwen's vocabulary") as caught:
        counter = TiktokenCounter(model)
    assert len(caught) == 1
    assert f"tiktoken.get_encoding('{encoding}')" in str(caught[0].message)
    assert "TIKTOKEN_CACHE_DIR" in str(caught[0].message)
    assert caught[0].filename == __file__
    assert counter.count_text("hello world") == 2
    assert counter.encoding_name == "qwen"
    assert not list(no_network.iterdir())


@pytest.mark.parametrize("variable", ["TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"])
def test_tiktokens_cache_is_found_where_tiktoken_looks(
    no_network: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    url = "https://example.com/x.tiktoken"
    data = b"IQ== 0\n"
    monkeypatch.setitem(vocabularies._OPENAI_FILES, "o200k_base", (url, hashlib.sha256(data).hexdigest()))
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR")
    monkeypatch.setenv(variable, str(no_network))
    assert not vocabularies.is_at_hand("o200k_base")
    (no_network / hashlib.sha1(url.encode()).hexdigest()).write_bytes(data)
    assert vocabularies.is_at_hand("o200k_base")
    no_network.rename(no_network.with_name("data-gym-cache"))
    monkeypatch.setattr("tempfile.tempdir", str(no_network.parent))
    monkeypatch.delenv(variable)
    assert vocabularies.is_at_hand("o200k_base")
    monkeypatch.setenv(variable, "")  # tiktoken's way to switch its cache off
    assert not vocabularies.is_at_hand("o200k_base")


@pytest.fixture
def byte_encoding(unloaded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tiktoken have an o200k_base in memory: a token for every byte."""
    encoding = tiktoken.Encoding(
        "o200k_base",
        pat_str=r"[\s\S]",
        mergeable_ranks={bytes([byte]): byte for byte in range(256)},
        special_tokens={"<|endoftext|>": 256},
    )
    monkeypatch.setitem(registry.ENCODINGS, "o200k_base", encoding)


def test_an_openai_vocabulary_at_hand_is_used_without_a_warning(byte_encoding: None) -> None:
    counter = TiktokenCounter("gpt-4o-mini")
    assert counter.encoding_name == "o200k_base"
    assert counter.count_text("<|endoftext|>é") == 15
    assert counter.count_messages([Msg("user", "hi", "user")]) == 2 + vocabularies.OPENAI_MESSAGE_TOKENS


@pytest.mark.parametrize("model", ["claude-sonnet-4", "deepseek-chat", "davinci", ""])
def test_an_unknown_model_is_counted_offline_with_one_warning(model: str) -> None:
    with pytest.warns(UserWarning, match=f"no vocabulary is known for the model '{model}'; leave") as caught:
        counter = TiktokenCounter(model)
    assert len(caught) == 1
    assert counter.encoding_name == "qwen"


def test_without_dashscopes_file_tokens_are_estimated_with_one_warning(
    dashscope_with: Callable[[bytes | None], None],
) -> None:
    dashscope_with(None)
    with pytest.warns(UserWarning, match="Counting with an estimate that errs on the high side") as caught:
        counter = TiktokenCounter()
    assert len(caught) == 1
    assert counter.encoding_name == "estimate"
    assert counter.count_text("hello world") == estimate_tokens("hello world")


def test_without_either_vocabulary_one_warning_says_both(
    dashscope_with: Callable[[bytes | None], None], no_network: Path
) -> None:
    dashscope_with(None)
    with pytest.warns(UserWarning, match=r"o200k_base.*qwen\.tiktoken.*an estimate") as caught:
        counter = TiktokenCounter("gpt-4o")
    assert len(caught) == 1
    assert counter.encoding_name == "estimate"


def whole_file() -> bytes:
    path = vocabularies.find_qwen_file()
    return path.read_bytes()


def damages() -> dict[str, bytes]:
    whole = whole_file()
    lines = whole.splitlines(keepends=True)
    return {
        "empty": b"",
        "no vocabulary": b"<html>404 not found</html>",
        "cut between lines": b"".join(lines[:-10]),
        "a line missing": b"".join(lines[1:]),
        "no base64": b"".join([*lines[:-1], b"!! 151642\n"]),
    }


@pytest.mark.parametrize("damage", damages())
def test_a_damaged_file_is_noticed_with_one_warning(
    dashscope_with: Callable[[bytes | None], None], damage: str
) -> None:
    dashscope_with(damages()[damage])
    counter = TiktokenCounter()
    with pytest.warns(UserWarning, match=r"qwen\.tiktoken .*; counting with an estimate") as caught:
        assert counter.encoding_name == "estimate"
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert counter.count_text("hello") == estimate_tokens("hello")


def test_a_file_in_another_release_is_found_without_importing_it(
    dashscope_with: Callable[[bytes | None], None],
) -> None:
    dashscope_with(whole_file())
    assert TiktokenCounter().encoding_name == "qwen"
