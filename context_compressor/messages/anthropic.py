"""Anthropic's Messages <-> `Msg`, with nothing lost either way.

Blocks of content are ours but for results. Tool results stand in a message of the user there, before what he
says: reading makes two messages of it, writing joins them again. What blocks cannot say goes into the remark
(`remark`), which says `of: "anthropic"`. Blocks of unknown types are carried along as they are.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Any, Final, NamedTuple

from context_compressor.errors import InvalidMessageError
from context_compressor.messages.kinds import WRAPPED, Words, data_of_part, part_of, refuse_foreign, told
from context_compressor.messages.media import source_of, url_of
from context_compressor.messages.msg import Block, Msg, Role, copy_json
from context_compressor.messages.plain import (
    as_dict,
    as_list,
    check_messages,
    get,
    made_id,
    plain,
    with_keys,
    wrong,
)
from context_compressor.messages.remark import REMARK, assemble, form_name_of, noted_as, remark_of, remember

OF: Final = "anthropic"
OPENING = "[The conversation goes on.]"
"""What the user says first where a view would begin with the assistant, which this API refuses."""
MAX_CACHE_MARKS = 4
"""Breakpoints of the prompt cache in one request (Anthropic, "Prompt caching"); more are refused."""

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_ID_KEYS = {"tool_use": "id", "tool_result": "tool_use_id"}
_THOUGHTS = ("thinking", "redacted_thinking")
_ROLES: tuple[Role, ...] = ("user", "assistant", "system")
_KEYS = {
    "text": ("type", "text"),
    "thinking": ("type", "thinking"),
    "tool_use": ("type", "id", "name", "input"),
}
"""Keys of blocks that are ours; what else a block has stands in its remark."""
_KINDS = frozenset(
    {
        *("document", "search_result", "container_upload", "tool_reference", "browser_state"),
        *("redacted_thinking", "server_tool_use", "mcp_tool_use"),
    }
)
"""Kinds of blocks that are Anthropic's whoever has read them: others write them in chat dicts, too."""
_OF_RESULTS = ("tool_reference", "browser_state")
"""Kinds of blocks that stand only in results; if the call of a result is gone, a text tells of them."""
_RESULT_KEYS = ("type", "tool_use_id", "content", "is_error")
_STRINGS = {"text": ("text",), "thinking": ("thinking",), "tool_use": ("id", "name")}
_JOINED = "joined"


def from_anthropic(messages: Iterable[Any]) -> list[Msg]:
    """Turn messages of Anthropic's API into ours; one with results and more becomes two.

    Args:
        messages: dicts, or what the SDK gives (`{"role": "assistant", "content": response.content}`).

    Raises:
        InvalidMessageError: a message is malformed, or of another form; the text names index and field.
        InvalidArgumentError: `messages` is not a list or another iterable of messages.
    """
    tool_names: dict[str, str] = {}
    result: list[Msg] = []
    for index, message in enumerate(as_list(messages)):
        try:
            result += read_message(message, tool_names)
        except InvalidMessageError as error:
            raise InvalidMessageError(f"messages[{index}].{error}") from None
    return result


def read_message(message: object, tool_names: dict[str, str], form: str = OF) -> list[Msg]:
    """Return what one message says; names of tools are looked up, and noted, by the ids of calls.

    `form`: that of the list in which it stands; chat dicts may hold parts of their own beside blocks.

    Raises:
        InvalidMessageError: it is malformed; the text begins with the field.
    """
    data = as_dict(message)
    if data is None:
        raise wrong("message", "a dict", message)
    refuse_foreign(data, form)
    role, content = data.get("role"), data.get("content")
    if role not in _ROLES:
        raise InvalidMessageError(f"role: expected one of {', '.join(_ROLES)}, got {role!r:.200}")
    noted = remember(data, ("role", "content"), ("role", "content"), "")
    # Of an instruction always: else it would be like one of another form, which has no place here.
    remark = {REMARK: {"of": OF}} | noted_as(OF, noted) if role == "system" else noted_as(OF, noted)
    if isinstance(content, str):
        return [Msg(role, content, role, remark or None)]
    if not isinstance(content, list | tuple):
        raise wrong("content", "a string or a list of blocks", content)
    blocks = [_read_block(part, f"content[{n}]", tool_names, form) for n, part in enumerate(content)]
    if role != "user":
        return [Msg(role, blocks, role, remark or None)]
    results = [block for block in blocks if block.get("type") == "tool_result"]
    others = [block for block in blocks if block.get("type") != "tool_result"]
    # Always with a remark: no name of a tool is sent with its result.
    metadata = {REMARK: {"of": OF, **noted}}
    read = [Msg(results[0]["name"], results, "system", metadata)] if results else []
    if others or not results:
        read.append(Msg("user", others, "user", noted_as(OF, {_JOINED: "yes"} if results else noted) or None))
    return read


def _read_block(part: object, path: str, tool_names: dict[str, str], form: str) -> Block:
    data = data_of_part(part, path, form)
    kind = data.get("type")
    if not isinstance(kind, str | None):
        raise wrong(f"{path}.type", "a string", kind)
    if kind == "tool_result":
        return _read_result(data, path, tool_names, form)
    if kind == "image" and REMARK not in data and url_of(_source_of(data)) is not None:
        return data
    if kind not in _KEYS:
        is_clear = REMARK not in data and kind not in (None, WRAPPED)
        return {**(data if is_clear else {"type": WRAPPED, WRAPPED: data}), REMARK: {"of": OF}}
    for key in _STRINGS[kind]:
        if not isinstance(data.get(key), str):
            raise wrong(f"{path}.{key}", "a string", data.get(key))
    if kind == "tool_use":
        if not isinstance(data.get("input"), dict):
            raise wrong(f"{path}.input", "a dict", data.get("input"))
        tool_names[data["id"]] = data["name"]
    noted = remember(data, _KEYS[kind], _KEYS[kind], f"{path}.")
    return {key: data[key] for key in _KEYS[kind]} | noted_as(OF, noted)


def _source_of(block: Mapping[str, Any]) -> dict[str, Any]:
    source = block.get("source")
    return source if isinstance(source, dict) else {}


def _read_result(data: dict[str, Any], path: str, tool_names: dict[str, str], form: str) -> Block:
    call_id, content = data.get("tool_use_id"), data.get("content")
    if not isinstance(call_id, str):
        raise wrong(f"{path}.tool_use_id", "a string", call_id)
    output: Any = content
    if isinstance(content, list):
        output = [_read_block(part, f"{path}.content[{n}]", {}, form) for n, part in enumerate(content)]
    elif content is None:
        output = ""
    elif not isinstance(content, str):
        raise wrong(f"{path}.content", "a string or a list of blocks", content)
    canonical = [key for key in _RESULT_KEYS if key in data]
    noted = remember(data, canonical, _RESULT_KEYS, f"{path}.")
    if not content:
        noted["content"] = "absent" if "content" not in data else "null" if content is None else "empty"
    block: Block = {"type": "tool_result", "id": call_id, "name": tool_names.get(call_id, "tool")}
    block["output"] = output
    if "is_error" in data:
        block["is_error"] = data["is_error"]
    return block | noted_as(OF, noted)


# Writing


def to_anthropic(messages: Iterable[Msg]) -> list[Any]:
    """Turn messages into those of Anthropic's API, as it accepts them.

    All results of an assistant's calls come first in the next message. Where the assistant would speak first,
    the user opens; of more than four cache marks the last four stay. A system message of another form, for
    which there is no place but the request's `system`, becomes the user's, as does one that no longer stands
    before the assistant. Ids of calls that the API does not take are replaced. Thoughts without a signature,
    as other providers write them, are left out.

    Raises:
        InvalidArgumentError: `messages` is not a list or another iterable of `Msg`.
    """
    return as_accepted(write_messages(check_messages(messages)), (), None)


def write_messages(messages: Sequence[Msg]) -> list[Any]:
    """Return messages as they are on the wire, without what only the whole can say."""
    return [wire for group in groups(messages) if (wire := _write(group)) is not None]


def as_accepted(written: list[Any], said: Sequence[Any], system: Any) -> list[Any]:
    """Return a request's messages with what only the whole can say.

    Args:
        written: the messages.
        said: the list that they are a view of.
        system: what the request has as `system`, which may bear cache marks.
    """
    shown = [filled for wire in map(_with_fit_ids, written) if (filled := _without_blanks(wire)) is not None]
    opened = _with_opening(_with_system_in_place(shown))
    return _with_few_marks(
        _with_thoughts(opened, _thoughts_to_lend(said)), MAX_CACHE_MARKS - count_marks({"content": system})
    )


def beside(said: Sequence[Any], shown: Sequence[Any] | None = None) -> list[Block]:
    """Return what `as_accepted` puts beside a view of a list; without one, what it may put beside any, loans
    apart.
    """
    opening = {"type": "text", "text": OPENING}
    if shown is None:
        return [opening]
    lent, opened = _thoughts_to_lend(said), _with_opening([*shown])
    begun = [one for one in _with_thoughts(opened, lent) if _begins_with_thoughts(one)]
    calls = [str(get(part, "id")) for one in begun for part in _parts_of(one, "tool_use")]
    thoughts = next((lent[call] for call in calls if call in lent), [])
    is_ours = opened[:1] != [*said[:1]] and get(next(iter(opened), None), "content") == OPENING
    return [opening, *thoughts] if is_ours else thoughts


def _with_fit_ids(wire: Any) -> Any:
    """Return a message in which the API takes the ids of calls."""
    return _with_parts(wire, [_with_fit_id(part) for part in _parts_of(wire)])


def _with_fit_id(part: Any) -> Any:
    key = _ID_KEYS.get(str(get(part, "type")), "")
    id = get(part, key)
    return part if not isinstance(id, str) or _ID.fullmatch(id) else with_keys(part, **{key: made_id(id)})


def _with_parts(wire: Any, parts: list[Any]) -> Any:
    """Return a message with other parts; the very message where they are the same."""
    said = _parts_of(wire)
    is_same = len(parts) == len(said) and all(map(operator.is_, parts, said))
    return wire if is_same else with_keys(wire, content=parts)


def _without_blanks(wire: Any) -> Any:
    """Return a message without blank texts, and without thoughts at its end, which are refused; None where
    nothing is left.
    """
    content = get(wire, "content")
    if not isinstance(content, list | tuple):
        return wire if content and content.strip() else None
    parts = [part for part in map(_result_without_blanks, content) if not _is_blank(part)]
    while get(wire, "role") == "assistant" and parts and get(parts[-1], "type") in _THOUGHTS:
        parts.pop()
    return _with_parts(wire, parts) if parts else None


def _is_blank(part: Any) -> bool:
    return get(part, "type") == "text" and not str(get(part, "text")).strip()


def _result_without_blanks(part: Any) -> Any:
    is_result = get(part, "type") == "tool_result"
    return _with_parts(part, [one for one in _parts_of(part) if not _is_blank(one)]) if is_result else part


def _with_system_in_place(written: Sequence[Any]) -> list[Any]:
    """Return messages in which a system message that is refused where it stands is the user's.

    It may follow the user, or a tool that Anthropic runs, and comes before the assistant or at the end. One
    at the end can become the user's later, in a list which the API refuses itself: a user's follows it there.
    """
    placed: list[Any] = []
    for wire, behind in zip(written, [*written[1:], None], strict=False):
        if get(wire, "role") == "system":
            follows = placed and (get(placed[-1], "role") == "user" or _calls_hosted(placed[-1]))
            if not follows or get(behind, "role") not in ("assistant", None):
                wire = with_keys(wire, role="user")
        placed.append(wire)
    return placed


def _with_opening(written: list[Any]) -> list[Any]:
    """Return messages that begin with a user, or with a compaction, before which nothing may stand."""
    opens = written and get(written[0], "role") == "assistant" and not _begins_with(written[0], "compaction")
    return [{"role": "user", "content": OPENING}, *written] if opens else written


def _with_thoughts(written: list[Any], lent: Mapping[str, list[dict[str, Any]]]) -> list[Any]:
    """Return messages in which a turn whose beginning left the view begins with the thoughts it began with.

    With thinking enabled the last run of calls and results must begin with a thought, be it that those before
    left ("a final `assistant` message must start with a thinking block"). Models that think once a turn, and
    not before each call, have it at its beginning alone. The turn keeps them when it is over: what was sent
    stays. Turns leave from the front, so the last that lacks its beginning is the only one that was last.
    """
    for first, *_ in reversed([*_turns(written)]) if lent else ():
        calls = [str(get(part, "id")) for part in _parts_of(written[first], "tool_use")]
        thoughts = next((lent[call] for call in calls if call in lent), None)
        if thoughts is not None and not _begins_with_thoughts(written[first]):
            content = [*copy_json(thoughts), *get(written[first], "content")]
            return [*written[:first], with_keys(written[first], content=content), *written[first + 1 :]]
    return written


def _thoughts_to_lend(said: Sequence[Any]) -> dict[str, list[dict[str, Any]]]:
    """Return, by the ids of calls before which nothing was thought, the thoughts that begin their turn."""
    return {
        str(get(part, "id")): one.blocks
        for one in lends(said)
        for part in _parts_of(said[one.place], "tool_use")
    }


class Lent(NamedTuple):
    """Blocks with which a message begins once something that stands between two places has left the view."""

    lender: int
    """The place of the message whose blocks they are."""
    start: int
    """Where that begins which has to stand before it."""
    place: int
    blocks: list[Block]


def lends(said: Sequence[Any]) -> list[Lent]:
    """Return what the calls of a list may have to borrow: those before which nothing was thought.

    A call borrows, as `_with_thoughts` has it, where no other of its turn is left before it, or where notes
    stand between: so something from the one before it on has left.
    """
    found: list[Lent] = []
    for turn in _turns(said):
        if len(turn) < 2 or not _begins_with_thoughts(said[turn[0]]):
            continue
        thoughts = _thoughts_of(said[turn[0]])
        found += [
            Lent(turn[0], before, place, thoughts)
            for before, place in pairwise(turn)
            if _parts_of(said[place], "tool_use") and not _begins_with_thoughts(said[place])
        ]
    return found


def _turns(messages: Sequence[Any]) -> Iterator[list[int]]:
    """Yield where the assistant's messages stand, turn by turn: all up to where the user brings no result."""
    turn: list[int] = []
    for place, message in enumerate(messages):
        role = get(message, "role")
        if role == "assistant":
            turn.append(place)
        elif turn and role == "user" and not _parts_of(message, "tool_result"):
            yield turn
            turn = []
    if turn:
        yield turn


def _parts_of(holder: Any, kind: str | None = None) -> Sequence[Any]:
    """Return the parts of a message or a result, of one kind if it is given; a text has none."""
    content = get(holder, "content")
    parts = content if isinstance(content, list | tuple) else ()
    return parts if kind is None else [part for part in parts if get(part, "type") == kind]


def _calls_hosted(message: Any) -> bool:
    return get(message, "role") == "assistant" and bool(_parts_of(message, "server_tool_use"))


def _begins_with(message: Any, *kinds: str) -> bool:
    return get(next(iter(_parts_of(message)), None), "type") in kinds


def _begins_with_thoughts(message: Any) -> bool:
    return _begins_with(message, *_THOUGHTS)


def _thoughts_of(message: Any) -> list[dict[str, Any]]:
    """Return the thoughts with which a message begins."""
    found = takewhile(lambda part: get(part, "type") in _THOUGHTS, _parts_of(message))
    return [plain(dict(as_dict(part) or {}), "") for part in found]


def _with_few_marks(written: list[Any], most: int) -> list[Any]:
    """Return messages with the last cache marks, at most so many."""
    places = [place for place, wire in enumerate(written) for _ in range(count_marks(wire))]
    too_many = len(places) - most
    for place in dict.fromkeys(places[: max(0, too_many)]):
        written[place], too_many = _without_marks(written[place], too_many)
    return written


def count_marks(value: Any) -> int:
    """Return how many cache marks a message, or a block, bears."""
    found = as_dict(value) or {}
    content = found.get("content")
    inner = sum(map(count_marks, content)) if isinstance(content, list | tuple) else 0
    return inner + (found.get("cache_control") is not None)


def _without_marks(wire: Any, most: int) -> tuple[Any, int]:
    """Return a copy without its first cache marks, at most so many, and how many more may go."""
    bare = copy_json(as_dict(wire) or {})
    content = bare.get("content")
    if isinstance(content, list):
        for place, part in enumerate(content):
            content[place], most = _without_marks(part, most)
    if most > 0 and bare.get("cache_control") is not None:
        del bare["cache_control"]
        most -= 1
    return bare, most


def joins(before: Msg, after: Msg) -> bool:
    """Tell whether two messages, one behind the other, are one on the wire."""
    if not _is_answer(before):
        return False
    return _is_answer(after) or bool(remark_of(after.metadata, OF).get(_JOINED))


def groups(messages: Sequence[Msg]) -> Iterator[list[Msg]]:
    """Yield messages by what is one on the wire."""
    group: list[Msg] = []
    for msg in messages:
        if group and not joins(group[-1], msg):
            yield group
            group = []
        group.append(msg)
    if group:
        yield group


def _is_answer(msg: Msg) -> bool:
    """Tell whether a message is of results, which the user brings."""
    return msg.role != "assistant" and any(
        block.get("type") == "tool_result" for block in msg.get_content_blocks()
    )


def _write(group: Sequence[Msg]) -> dict[str, Any] | None:
    """Return what some messages are on the wire; None where nothing of them can be said there."""
    first = group[0]
    noted = remark_of(first.metadata, OF)
    role: str = first.role
    if role == "system" and (_is_answer(first) or not noted):
        role = "user"
    if len(group) == 1 and isinstance(first.content, str):
        return assemble({"role": role, "content": first.content}, noted)
    blocks = [block for msg in group for block in msg.get_content_blocks()]
    results = [block for block in blocks if block.get("type") == "tool_result"]
    others = [block for block in blocks if block.get("type") != "tool_result"]
    ordered = blocks if role == "assistant" else [*results, *others]
    placed = [{"type": "text", "text": told(b)} if b.get("type") in _OF_RESULTS else b for b in ordered]
    content = [part for block in placed if (part := _write_block(block, role)) is not None]
    if blocks and not content:
        return None
    return assemble({"role": role, "content": content}, noted)


def _write_block(block: Block, role: str) -> dict[str, Any] | None:
    noted, kind = remark_of(block, OF), str(block.get("type"))
    if kind == "tool_result":
        return _write_result(block, noted)
    if kind == "thinking" and not noted:
        return None
    if kind in _KEYS:
        return assemble({key: copy_json(block[key]) for key in _KEYS[kind]}, noted)
    if noted and kind == WRAPPED:
        return dict(copy_json(block[WRAPPED]))
    if noted or (kind.endswith("_tool_result") and form_name_of(block) is None):
        return _bare(block)
    return part_of(block, role, _WORDS)


def _bare(block: Block) -> dict[str, Any]:
    return {key: copy_json(value) for key, value in block.items() if key != REMARK}


def _write_own(block: Block, _role: str) -> dict[str, Any] | None:
    return _bare(block) if form_name_of(block) is None else None


def _write_file(block: Block, role: str) -> dict[str, Any] | None:
    file = block.get("file")
    source = source_of(str(file.get("file_data") or "")) if isinstance(file, Mapping) else {}
    is_document = role == "user" and source.get("media_type") == "application/pdf"
    return {"type": "document", "source": source} if is_document else None


def _write_image(block: Block, role: str) -> dict[str, Any] | None:
    source = _source_of(block)
    if role != "user" or url_of(source) is None:
        return None
    # How finely to look at it is for OpenAI alone.
    return _bare({**block, "source": {key: value for key, value in source.items() if key != "detail"}})


_WORDS: Words = {**dict.fromkeys(_KINDS, _write_own), "file": _write_file, "image": _write_image}


def _write_result(block: Block, noted: Mapping[str, Any]) -> dict[str, Any]:
    output, form = block["output"], noted.get("content")
    fields: dict[str, Any] = {"type": "tool_result", "tool_use_id": block["id"]}
    if output != "" or form in (None, "empty"):
        inner = output if isinstance(output, str) else [_write_block(part, "user") for part in output]
        fields["content"] = inner if isinstance(inner, str) else [part for part in inner if part is not None]
    elif form == "null":
        fields["content"] = None
    if "is_error" in block:
        fields["is_error"] = block["is_error"]
    return assemble(fields, noted)
