"""The one renderer: messages as transcripts and summaries read them, redacted and abridged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from context_compressor.core.items import READ_TOKENS
from context_compressor.core.ledger import Ledger
from context_compressor.errors import RedactionError
from context_compressor.messages.hosted import compacted_words
from context_compressor.messages.media import MIN_CHARACTERS, is_data_url
from context_compressor.messages.msg import Block, Msg
from context_compressor.messages.parts import Part, PartPath, other_parts, replace_parts, text_parts
from context_compressor.messages.plain import SENT_BESIDE, parse_arguments
from context_compressor.messages.remark import REMARK, extra_of, extras_of_call, form_of, metadata_with
from context_compressor.messages.repair import is_orphan, orphan_as_result
from context_compressor.messages.text import LINE_ENDS, dump_sendable, indent_lines
from context_compressor.offload.store import ref_of
from context_compressor.summarizers.cut import cut, left_out
from context_compressor.tokens.counter import TokenCounter

Redact = Callable[[str], str]
"""What a user lets every text go through before it is stored, indexed or summarised."""

_OF_ANY = frozenset({"type", REMARK})
_STRUCTURE = {
    "text": _OF_ANY | {"text"},
    "thinking": _OF_ANY | {"thinking"},
    "tool_use": _OF_ANY | {"id", "name", "input", "raw_input"},
    "tool_result": _OF_ANY | {"id", "name", "output"},
}
"""Keys of a block, by its type, that are ours; all others came from outside."""
_NAMING = frozenset({"type", "id", "name"})
"""Those whose values name things rather than say them; redacted, nothing would pair any more."""


def redacted_text(text: str, redact: Redact | None) -> str:
    """Return the text after redaction.

    Raises:
        RedactionError: the callable raised, or did not return a string.
    """
    if redact is None:
        return text
    try:
        result = redact(text)
    except Exception as error:
        # What it says may quote the text, and this is logged, and told to the model that searched.
        name = type(error).__name__
        raise RedactionError(f"redact failed on a text of {len(text)} characters: {name}") from error
    if not isinstance(result, str):
        raise RedactionError(f"redact must return a string, returned {type(result).__name__}")
    return result


def stored_text(part: Part, redact: Redact | None) -> str:
    """Return what is stored of a part that leaves: its text redacted, media as they are.

    Raises:
        RedactionError: as `redacted_text`.
    """
    return redacted_text(part.text, None if part.is_media else redact)


def shown_message(
    source: Msg, stubs: Mapping[PartPath, str], names: Mapping[str, str], redact: Redact | None = None
) -> Msg:
    """Return a message as summaries and transcripts read it: redacted, stubs in place, results named.

    A result with no open call is one here, where the view has it as a user's message.

    Args:
        source: the message before stubs.
        stubs: stand-ins for single texts, by address; these are not redacted again.
        names: tool names by call id.
        redact: applied to every other string, keys and the speaker's name among them; then metadata are left
            out but for what is read of them.
    """
    msg = source
    if redact is not None:
        msg = source.copy()
        kept = set(stubs)
        if msg.name not in ("", msg.role):
            msg.name = redacted_text(msg.name, redact)
        if isinstance(msg.content, str):
            msg.content = _redacted(msg.content, redact, kept, ())
        else:
            msg.content = [
                redacted_call(block, redact)
                if block.get("type") == "tool_use"
                else _redacted(block, redact, kept, (i,))
                for i, block in enumerate(msg.content)
            ]
        extra = extra_of(msg.metadata)
        msg.metadata = metadata_with(_redacted(extra, redact, set(), (), block=False))
    msg = replace_parts(msg, stubs)
    if names and not isinstance(msg.content, str):
        for block in msg.content:
            if block.get("type") == "tool_result" and block["id"] in names:
                block["name"] = names[block["id"]]
    # By the source: a stub leaves nothing of the label.
    return orphan_as_result(msg) if is_orphan(source) else msg


def redacted_call(block: Block, redact: Redact) -> Block:
    """Return a call redacted in both forms in which it is read: each string of it, then its JSON.

    What either form leaves stands in `input` and, where the call has one, in `raw_input`, so that none says
    what the other withholds.
    """
    said = {key: value for key, value in block.items() if key != "raw_input"}
    call: Block = _redacted(said, redact, set(), ())
    is_kept = call["input"] == block["input"]
    text = left = arguments_text(block if is_kept else call)
    if call["input"] not in ({"arguments": text}, {"input": text}):
        left = redacted_text(text if is_kept else dump_sendable(call["input"], default=str), redact)
    if left != text:
        call["input"] = parse_arguments(left)
    if block.get("raw_input") is not None:
        call["raw_input"] = left
    return call


def _redacted(value: Any, redact: Redact, kept: set[PartPath], path: PartPath, *, block: bool = True) -> Any:
    """Return a copy in which every text is redacted, keys too, but for the addresses in `kept`, and no
    encoded media.

    `block` tells whether dicts met here are content blocks, whose structure must stay.
    """
    if isinstance(value, str):
        return value if path in kept or not value or is_data_url(value) else redacted_text(value, redact)
    if isinstance(value, list):
        return [_redacted(item, redact, kept, (*path, i), block=block) for i, item in enumerate(value)]
    if isinstance(value, dict):
        structure = _STRUCTURE.get(str(value.get("type")), _OF_ANY) if block else frozenset()
        result: dict[Any, Any] = {}
        for key, item in value.items():
            encoded = key == "data" and (value.get("type") == "base64" or "format" in value)
            if isinstance(item, str) and (encoded or key in structure & _NAMING):
                result[key] = item
            elif block and key == "output":
                place = (*path, -1) if isinstance(item, str) else path
                result[key] = _redacted(item, redact, kept, place)
            else:
                said = key if key in structure or not key else _redacted_key(key, redact, result)
                result[said] = _redacted(item, redact, kept, path, block=False)
        return result
    return value


def _redacted_key(key: Any, redact: Redact, taken: Container[Any]) -> Any:
    """Return a key redacted, numbered where another one has become the same: no value stands for two."""
    said = redacted_text(key, redact) if isinstance(key, str) else key
    number = 2
    unique = said
    while unique in taken:
        unique, number = f"{said} {number}", number + 1
    return unique


_TITLE_LIKE = re.compile(
    rf"=== (?:user|assistant|system|result of)\b[^{LINE_ENDS}]*===[ \t]*(?![^{LINE_ENDS}])"
)
"""A line that would pass for a title: indented by a space, a tool cannot speak in the user's name."""


_TITLE = re.compile(rf"^{_TITLE_LIKE.pattern}", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Transcript:
    """A transcript and the media texts (`data:` URLs) that it names by ref."""

    text: str
    media: tuple[str, ...]


def render_transcript(
    messages: Sequence[Msg], *, segments: int = 0, before: Sequence[str] = ()
) -> Transcript:
    """Return the transcript of messages as `shown_message` gives them.

    Args:
        messages: what leaves the view, oldest first.
        segments: how many of them, at the start, are earlier segments that are merged, as earlier releases
            did it; the transcript is then the list of their contents, each with its own ref.
        before: the refs of what left before these, which the transcript names.
    """
    media: dict[str, None] = {}
    sections = [f"[What left before this: {', '.join(before)}]"] if before else []
    if segments:
        sections.append(f"[Contents: {segments} earlier parts of the conversation, oldest first]")
    if len(messages) > segments:
        sections.append(f"[Transcript of {len(messages) - segments} messages, oldest first]")
    for msg in messages:
        lines: list[str] = []
        title: str = msg.role
        if isinstance(msg.content, str):
            lines.append(msg.content)
        else:
            results = [block for block in msg.content if block.get("type") == "tool_result"]
            if results:
                title = "result of " + ", ".join(str(block.get("name") or msg.name) for block in results)
            for block in msg.content:
                lines += _render_block(block, media)
        if title == "user" and msg.name not in ("user", ""):
            title = f"user {msg.name}"
        lines += _render_extra(extra_of(msg.metadata), media)
        title = " ".join(title.split())  # names come from outside
        said = "\n".join(lines)
        if "=== " in said:  # to look for it takes a twentieth of the time
            said = indent_lines(said, _TITLE_LIKE)
        sections.append(f"=== {title} ===\n{said}")
    return Transcript("\n\n".join(sections), tuple(media))


def own_words_in(transcript: str, ref: str, ledger: Ledger) -> list[tuple[int, int]]:
    """Return where the text under a ref holds words of the memory: merged segments, and stubs."""
    spans: list[tuple[int, int]] = []
    for segment in ledger.segments():
        if segment.ref == ref:
            merged = 0 if segment.is_notes else len(segment.children)
            titles = [found.start() for found in islice(_TITLE.finditer(transcript), merged + 1)]
            if merged:  # they come first
                spans.append((0, titles[merged] if len(titles) > merged else len(transcript)))
            stubs = {stub.text for item in segment.items for stub in ledger.stubs_of(item).values()}
            spans += [(at, at + len(stub)) for stub in stubs if stub and (at := transcript.find(stub)) >= 0]
    return spans


def _render_block(block: Block, media: dict[str, None]) -> list[str]:
    kind = block.get("type")
    if kind == "text" and isinstance(block.get("text"), str):
        return [block["text"]]
    if kind == "thinking" and isinstance(block.get("thinking"), str):
        return ["[thinking]", block["thinking"]]
    if kind == "tool_use":
        extra = [line for extra in extras_of_call(block) for line in _render_extra(extra, media)]
        return [call_text(block), *extra]
    if kind == "tool_result":
        output = block["output"]
        if isinstance(output, str):
            return [output]
        return [line for inner in output for line in _render_block(inner, media)]
    if (words := compacted_words(block)) is not None:
        return ["[compaction]", words]
    source = block.get("source")
    if isinstance(source, dict) and isinstance(source.get("data"), str) and source.get("type") == "base64":
        url = f"data:{source.get('media_type', '')};base64,{source['data']}"
        block = {**block, "source": {**source, "data": _media_ref(url, media)}}
    return [json.dumps(_without_media(block, media), ensure_ascii=False, default=str)]


def _render_extra(extra: Mapping[str, Any], media: dict[str, None]) -> list[str]:
    """Return what a chat dict said outside its content: sources of a web search, a thought's signature."""
    return [
        f"[{key}] {json.dumps(_without_media(value, media), ensure_ascii=False)}"
        for key, value in extra.items()
        if isinstance(value, list | dict | str) and value and key != SENT_BESIDE
    ]


def call_text(block: Block) -> str:
    """Return a call as transcripts have it: the tool, then its arguments."""
    return f"[call of {block['name']}]\n{arguments_text(block)}"


def arguments_text(block: Block) -> str:
    """Return a call's arguments as received; those that were never an object stand under a key of ours."""
    if block.get("raw_input") is not None:
        return str(block["raw_input"])
    custom = form_of(block) == "custom"
    wrapped = block["input"].get("input" if custom else "arguments")
    if len(block["input"]) == 1 and isinstance(wrapped, str):
        return wrapped
    return json.dumps(block["input"], ensure_ascii=False, default=str)


def _without_media(value: Any, media: dict[str, None]) -> Any:
    if isinstance(value, str):
        return _media_ref(value, media) if is_data_url(value) else value
    if isinstance(value, list):
        return [_without_media(item, media) for item in value]
    if isinstance(value, dict):
        return {key: _without_media(item, media) for key, item in value.items()}
    return value


def _media_ref(url: str, media: dict[str, None]) -> str:
    if len(url) < MIN_CHARACTERS:
        return url
    media[url] = None
    return ref_of(url)


MAX_TOKENS = {"tool_result": READ_TOKENS, "argument": 4_000}
"""What is read of one result, and of one argument. Readers of summaries asked for the new side of edits, so
they are whole in all but the largest; of results they used heads, tails and errors."""
HEAD_SHARE, TAIL_SHARE = 0.45, 0.3
"""Of what is read of a result; the rest is for lines that speak of errors between them."""

REPEATED = "[the same as an earlier result"
_LAST_CHARS = 200
_REPEATED_CHARS = 200
"""A result from this length on is read once."""
_ROUNDS, _SLACK, _ENOUGH = 4, 0.97, 0.9
_LONGEST_TOKEN_CHARS = 16
"""More characters than that for each token, and a text is too long without being counted whole."""
_ERROR = re.compile(
    r"error|exception|traceback|fail|fatal|panic|denied|refused|错误|失败|异常|拒绝", re.IGNORECASE
)
_MAX_ERROR_LINE_CHARS = 400


def abridge(messages: Iterable[Msg], counter: TokenCounter, whole: Container[int] = ()) -> tuple[Msg, ...]:
    """Return messages with long results and arguments cut, what is left out being marked; others as they are.

    Args:
        messages: what leaves.
        counter: measures.
        whole: the places of those that are not cut.
    """
    seen: set[str] = set()
    return tuple(
        msg if place in whole else _abridge(msg, counter, seen) for place, msg in enumerate(messages)
    )


def said_ref(source: Msg, redact: Redact | None) -> str:
    """Return the ref of what a message says, by which another text in its place is noticed.

    Raises:
        RedactionError: the callable failed.
    """
    shown = shown_message(source, {}, {}, redact)
    text = shown.get_text_content() if shown.role == "user" else render_transcript([shown]).text
    return ref_of(text or "")


def _abridge(msg: Msg, counter: TokenCounter, seen: set[str]) -> Msg:
    shown: dict[PartPath, str] = {}
    for part in (*text_parts(msg), *other_parts(msg)):
        max_tokens = MAX_TOKENS.get(part.kind)
        if max_tokens is None or len(part.text) <= _REPEATED_CHARS:
            continue
        if part.text in seen and part.kind == "tool_result":
            last = part.text.rstrip().rpartition("\n")[2]
            shown[part.path] = f"{REPEATED}, which ends: {cut(last, _LAST_CHARS)}]"
            continue
        seen.add(part.text)
        if len(part.text) > max_tokens:
            short = shorten(part.text, max_tokens, counter)
            if short != part.text:
                shown[part.path] = short
    return replace_parts(msg, shown) if shown else msg


def shorten(text: str, max_tokens: int, counter: TokenCounter) -> str:
    """Return head and tail of a text, and lines with errors between, in about `max_tokens` tokens at most."""
    sample = text[: max_tokens * _LONGEST_TOKEN_CHARS]
    tokens = max(1, counter.count_text(sample))
    if tokens <= max_tokens and len(sample) == len(text):
        return text
    room = len(sample) * max_tokens / tokens
    best = ""
    for _ in range(_ROUNDS):
        short = "\n".join(_telling_part(text, int(room)))
        tokens = counter.count_text(short)
        if len(best) < len(short) < len(text) and tokens <= max_tokens:
            best = short
        if _ENOUGH * max_tokens <= tokens <= max_tokens:
            break
        room *= _SLACK * max_tokens / max(1, tokens)  # where few errors are, heads and tails may be longer
    return best or text


def _telling_part(text: str, room: int) -> Iterator[str]:
    """Yield head, lines with errors and tail of a text in about `room` characters, and marks between them."""
    end = int(HEAD_SHARE * room)
    start = max(end, len(text) - int(TAIL_SHARE * room))
    # Whole lines, where that does not cost most of the share.
    end = max(text.rfind("\n", end // 2, end), 0) or end
    start = text.find("\n", start, (start + len(text)) // 2) + 1 or start
    yield text[:end]
    left = room - end - (len(text) - start)
    seen: set[str] = set()
    at = end
    for match in _ERROR.finditer(text, end, start):
        first = max(text.rfind("\n", end, match.start()) + 1, end)
        last = text.find("\n", match.end(), start)
        last = start if last < 0 else last
        if first < at:
            continue  # this line is shown already
        begin = max(first, match.start() - _MAX_ERROR_LINE_CHARS // 2)
        finish = min(last, begin + _MAX_ERROR_LINE_CHARS)
        line = "… " * (begin > first) + text[begin:finish] + " …" * (finish < last)
        if line.strip() in seen:
            continue
        if len(line) > left:
            break
        seen.add(line.strip())
        yield from _left_out(text[at:first])
        yield line
        left -= len(line)
        at = last
    yield from _left_out(text[at:start])
    yield text[start:]


def _left_out(gap: str) -> Iterator[str]:
    if gap.strip():
        yield left_out(gap) or gap.strip("\n")
