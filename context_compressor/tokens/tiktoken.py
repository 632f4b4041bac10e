"""`TiktokenCounter`, the default counter: it works offline, and exactly where it has the vocabulary."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Sequence
from typing import Any

from context_compressor.errors import InvalidArgumentError
from context_compressor.messages.chat import from_openai
from context_compressor.messages.msg import Block, Msg
from context_compressor.messages.plain import as_list
from context_compressor.messages.remark import (
    beside,
    beside_content,
    form_name_of,
    is_legacy_result,
    sends_name,
)
from context_compressor.tokens.counter import TOLD, MessageTokens, TokenCounter, is_text, written_arguments
from context_compressor.tokens.media import (
    ImageFormula,
    block_tokens,
    highest_tokens,
    openai_formula,
    qwen_tokens,
)
from context_compressor.tokens.vocabularies import (
    ESTIMATE,
    ESTIMATED,
    QWEN,
    Vocabulary,
    VocabularyError,
    find_qwen_file,
    is_at_hand,
    is_qwen,
    load_vocabulary,
    openai_encoding_name,
)

CALL_TOKENS = 14
"""What a tool call costs besides its name and arguments. Chat templates either write its id (Mistral, Kimi)
or tags and JSON keys around it (Qwen: 14 tokens), and OpenAI publishes neither; so the larger of the two is
counted."""
RESULT_TOKENS = 4
"""The same for a tool result (Qwen: `<tool_response>`, `</tool_response>` and two line breaks)."""
NAME_TOKENS = 1
"""OpenAI's cookbook: a name costs its own tokens and one more."""

_loading = threading.Lock()  # or threads that count first at once would each read the file, and warn

_ROLE_WORDS = frozenset({"user", "assistant", "system", "tool", "developer", "function"})


class TiktokenCounter:
    """Count tokens with the vocabulary that a model reads, offline.

    No model, or a Qwen one (`qwen…`, `qwq…`, `qvq…`, with or without a vendor's prefix): the vocabulary in
    the `dashscope` package. An OpenAI model: its own, if tiktoken has it in its cache; nothing is ever
    downloaded. Any other model, or an OpenAI one whose vocabulary is not at hand: Qwen's, with one warning
    from the constructor; Qwen's vocabulary splits digits, so it rather counts too much. Where the file of the
    `dashscope` package is missing or damaged: an estimate that errs on the high side
    (`context_compressor.tokens.vocabularies`), with one warning.

    Construction is cheap; the vocabulary is read at first need (0.3 s) and shared in the process. Threads may
    share a counter.

    Args:
        model: the name of the model whose tokens are counted; also chooses how images are counted.

    Raises:
        InvalidArgumentError: `model` is neither a string nor None.
    """

    def __init__(self, model: str | None = None) -> None:
        if model is not None and not isinstance(model, str):
            raise InvalidArgumentError(f"model: expected the name of a model or None, got {model!r:.200}")
        self.model = model
        self._vocabulary: Vocabulary | None = None
        self._vocabulary_name, problem = _choose_vocabulary(model)
        if problem:
            warnings.warn(problem, stacklevel=2)
        self._image_formula = _image_formula(model)

    @property
    def encoding_name(self) -> str:
        """The vocabulary in use: "qwen", tiktoken's name of an encoding, or "estimate"."""
        return self._load().name

    @property
    def is_loaded(self) -> bool:
        """Tell whether the vocabulary has been read, so that counting starts at once."""
        return self._vocabulary is not None

    def load(self) -> None:
        """Read the vocabulary, if it has not been read; without this it is at first need."""
        self._load()

    def count_text(self, text: str) -> int:
        """Return the tokens of a text; strings that look like special tokens count as plain text.

        Raises:
            InvalidArgumentError: not a string.
        """
        if not isinstance(text, str):
            raise InvalidArgumentError(f"text: expected a string, got {type(text).__name__}")
        return (self._vocabulary or self._load()).count_whole(text)

    def count_messages(self, messages: Sequence[Msg | dict[str, Any]]) -> int:
        """Return the tokens of messages (`Msg` or chat dicts), calls, results, names, overhead and all.

        A list costs the sum of its messages. A message with several tool results is counted as the
        several messages that it is on the wire. The few tokens that a provider adds once per request are not
        counted.

        Raises:
            InvalidMessageError: a dict is not a chat message.
            InvalidArgumentError: not a list, or another iterable, of messages.
        """
        given = (one if isinstance(one, Msg) else from_openai([one])[0] for one in as_list(messages))
        return sum(self.measure(msg).total for msg in given)

    def measure(self, msg: Msg) -> MessageTokens:
        """Return what a message costs, and each of its texts (those of `text_parts`, in that order)."""
        vocabulary = self._vocabulary or self._load()
        count, count_name = vocabulary.count, vocabulary.count_name
        content = msg.content
        others = self._measure_rest(beside_content(msg), vocabulary)
        if isinstance(content, str):
            tokens = vocabulary.count_whole(content)
            return MessageTokens(tokens + others + _overhead(msg, vocabulary), (tokens,))
        texts: list[int] = []
        only_results = bool(content)
        for block in content:
            kind = block.get("type")
            told = TOLD.get(str(kind), ())
            if told:
                others += self._measure_rest(beside(block, *told), vocabulary)
            if kind == "tool_result":
                others += self._measure_result(msg, block, vocabulary, texts)
                continue
            only_results = False
            if kind == "text":
                texts.append(count(block["text"]))
            elif kind == "thinking":
                others += count(block["thinking"])
            elif kind == "tool_use":
                others += count_name(block["name"]) + count(written_arguments(block))
                others += max(CALL_TOKENS, count_name(block["id"]))
            else:
                others += self._measure_other(block, vocabulary)
        # Results go as messages of their own; what stands beside them, or nothing at all, goes as one.
        if not only_results:
            others += _overhead(msg, vocabulary)
        return MessageTokens(others + sum(texts), tuple(texts))

    def _measure_result(self, msg: Msg, block: Block, vocabulary: Vocabulary, texts: list[int]) -> int:
        """Append the tokens of a result's texts to `texts`, and return what it costs besides."""
        count, count_name = vocabulary.count, vocabulary.count_name
        others = vocabulary.message_tokens + max(RESULT_TOKENS, count_name(block["id"]))
        if _sends_result_name(msg, block):
            others += NAME_TOKENS + count_name(block["name"])
        output = block["output"]
        if isinstance(output, str):
            texts.append(count(output))
            return others
        for inner in output:
            if is_text(inner):
                texts.append(count(inner["text"]))
                others += self._measure_rest(beside(inner, "text"), vocabulary)
            elif isinstance(inner, dict):
                others += self._measure_other(inner, vocabulary)
            else:
                others += count(json.dumps(inner, ensure_ascii=False, default=str))
        return others

    def _measure_other(self, block: Block, vocabulary: Vocabulary) -> int:
        """Return the tokens of a block that is no text, thought, call or result."""
        said = {"type": block["type"]} if "type" in block else {}
        return block_tokens(said | beside(block), vocabulary.count, self._image_formula)

    def _measure_rest(self, rest: Block, vocabulary: Vocabulary) -> int:
        """Return the tokens of the fields of a block or message that are not counted by their kind."""
        return block_tokens(rest, vocabulary.count, self._image_formula) if rest else 0

    def _load(self) -> Vocabulary:
        with _loading:
            if self._vocabulary is None:
                try:
                    self._vocabulary = load_vocabulary(self._vocabulary_name)
                except VocabularyError as error:
                    problem = f"{error}; counting with an estimate that errs on the high side"
                    warnings.warn(problem, stacklevel=3)
                    self._vocabulary = ESTIMATED
            return self._vocabulary

    def __repr__(self) -> str:
        return f"TiktokenCounter({'' if self.model is None else repr(self.model)})"


def as_counter(counter: TokenCounter | str | None) -> TokenCounter:
    """Return the counter that was given, or a `TiktokenCounter` for the model of that name."""
    return TiktokenCounter(counter) if counter is None or isinstance(counter, str) else counter


def _overhead(msg: Msg, vocabulary: Vocabulary) -> int:
    """Return what a message costs beside its content."""
    name = msg.name
    if not name or name in _ROLE_WORDS:  # a name that repeats the role is not sent
        return vocabulary.message_tokens
    return vocabulary.message_tokens + NAME_TOKENS + vocabulary.count_name(name)


def _sends_result_name(msg: Msg, block: Block) -> bool:
    """Tell whether a tool result is sent with the name of its tool.

    `from_openai` looks the name up when a dict has none; such a name must not count, or the same dict would
    cost more beside its call than alone.
    """
    name = block.get("name")
    if not isinstance(name, str) or form_name_of(msg.metadata) is not None:
        return False
    return sends_name(msg) or is_legacy_result(msg) or name != msg.name


def _choose_vocabulary(model: str | None) -> tuple[str, str | None]:
    """Return the name of the vocabulary for `model`, and what to warn of."""
    problems = []
    if model is not None and not is_qwen(model):
        name = openai_encoding_name(model)
        if name is None:
            problems.append(
                f"no vocabulary is known for the model {model!r}; leave the model out if that is meant, "
                "or pass a token counter of your own"
            )
        elif is_at_hand(name):
            return name, None
        else:
            problems.append(
                f"{name}, the vocabulary of {model!r}, is not in tiktoken's cache, and nothing is "
                f"downloaded from here; run tiktoken.get_encoding({name!r}) once where there is a network, "
                "or let TIKTOKEN_CACHE_DIR name a folder that has it"
            )
    chosen = QWEN
    if find_qwen_file() is None:
        problems.append("the dashscope package has no resources/qwen.tiktoken; install a release that has it")
        chosen = ESTIMATE
    if not problems:
        return chosen, None
    instead = "an estimate that errs on the high side" if chosen == ESTIMATE else "Qwen's vocabulary"
    return chosen, f"{'; '.join(problems)}. Counting with {instead}"


def _image_formula(model: str | None) -> ImageFormula:
    if model is None:
        return highest_tokens
    if is_qwen(model):
        return qwen_tokens
    return openai_formula(model) if openai_encoding_name(model) else highest_tokens
