"""Tell of which format a file is: of that which most of its values are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from context_compressor.lab.readers import apis, assistants, claude_code, coding_agents, frameworks, observed
from context_compressor.lab.readers.documents import Document
from context_compressor.lab.readers.session import Format, UnreadableError
from context_compressor.lab.readers.tables import is_there, pick
from context_compressor.lab.readers.transcript import dicts_in, first_in

READERS = {
    reader.format: reader
    for reader in (
        *(claude_code.READER, coding_agents.codex, observed.READER),
        *assistants.READERS,
        *coding_agents.READERS,
        *frameworks.READERS,
        *apis.READERS,
    )
}
"""Every reader, the plainest format last: others resemble it, and of equal claims the first counts."""

_INSTEAD = (
    "which are not read; convert them to OpenAI chat or Anthropic messages (from_openai, from_anthropic)"
)
_TYPED = frozenset({"type", "kind", "part_kind"})


def detect_format(sample: Sequence[Any], among: Iterable[Format] = tuple(READERS)) -> Format | None:
    """Return the format of most of the first values of a file, or None where no reader knows any."""
    claims = {format: READERS[format].claims(sample) for format in among}
    best = max(claims, key=lambda format: claims[format])
    return best if claims[best] else None


def refuse_strangers(sample: Sequence[Any], known: Format | None) -> None:
    """Refuse by its name a format that is not read, where it claims as many values as the one found.

    Raises:
        UnreadableError: names the format, and what to do instead.
    """
    if known in (Format.RESPONSES, Format.OPENAI) and (name := name_stranger(sample)):
        raise UnreadableError(f"looks like {name}")
    messages = [value for value in sample if _is_message(value)]
    names = Counter(_name_of(value) for value in sample if not _is_message(value))
    names[_name_of(messages)] += len(messages)
    del names[None]
    if not names:
        return
    name, count = names.most_common(1)[0]
    if known is None or count >= READERS[known].claims(sample):
        raise UnreadableError(f"looks like {name}, {_INSTEAD}")


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and not {"role", "parts"}.isdisjoint(value)


def _name_of(value: Any) -> str | None:
    """Return the name of a format that is not read, if most messages with several parts are of it."""
    if isinstance(value, dict):
        value = first_in(value, "messages", "contents", "history")
    items = [item for item in dicts_in(value) if dicts_in(first_in(item, "parts", "content"))]
    found = Counter(name for item in items for name, is_one in _STRANGERS.items() if is_one(item))
    name, count = next(iter(found.most_common(1)), (None, 0))
    return name if 2 * count > len(items) else None


def _is_bedrock(item: dict[str, Any]) -> bool:
    blocks = dicts_in(item.get("content"))
    return "role" in item and bool(blocks) and not any(_TYPED & block.keys() for block in blocks)


def _is_gemini(item: dict[str, Any]) -> bool:
    parts = dicts_in(item.get("parts"))
    return bool(parts) and not any(_TYPED & part.keys() for part in parts) and "info" not in item


def _is_vercel(item: dict[str, Any]) -> bool:
    parts = dicts_in(item.get("parts"))
    return "role" in item and any("type" in part for part in parts)


def _is_vercel_model(item: dict[str, Any]) -> bool:
    blocks = dicts_in(item.get("content"))
    return "role" in item and any(block.get("type") in ("tool-call", "tool-result") for block in blocks)


_STRANGERS = {
    "Bedrock Converse messages (toolUse, toolResult)": _is_bedrock,
    "Gemini contents (parts, functionCall)": _is_gemini,
    "UI messages of the Vercel AI SDK": _is_vercel,
    "model messages of the Vercel AI SDK": _is_vercel_model,
}
"""Formats that are known and not read, each with how a message of it looks."""


_SHOWN = "what the window of Cline or Roo Code shows; read the api_conversation_history.json beside it"
_TAU2 = {"simulations", "tasks"}
_TRACES = "traces of Langfuse; export the messages in their inputs and outputs"
_NO_SESSIONS: list[tuple[str, set[str]]] = [
    ("answers of a chat API; read the conversations that they belong to", {"choices", "object"}),
    ("answers of Gemini; read the conversations that they belong to", {"candidates"}),
    ("the prompt history of Claude Code; its sessions are in ~/.claude/projects", {"display", "project"}),
    ("the prompt history of Codex; its sessions are in ~/.codex/sessions", {"session_id", "ts", "text"}),
    ("OpenTelemetry traces; export the messages that they carry", {"resourceSpans"}),
    ("runs of LangSmith; export the messages in their inputs and outputs", {"run_type", "inputs"}),
    ("observations of Langfuse; export the messages in their inputs and outputs", {"traceId", "startTime"}),
    *((_TRACES, keys) for keys in ({"observations"}, {"input", "output", "sessionId", "tags"})),
    ("what Kimi CLI shows; read the context.jsonl beside it", {"timestamp", "message.payload"}),
    ("simulations of tau2-bench; make chat messages of theirs, with tool calls as OpenAI has them", _TAU2),
    ("requests with answers that are no messages, as streams are not", {"request", "response"}),
    (_SHOWN, {"ts", "type", "say"}),
    (_SHOWN, {"ts", "type", "ask"}),
]
"""Kinds of records that are no sessions, with the paths by which they are known."""


def name_stranger(sample: Sequence[Any]) -> str | None:
    """Return the name of the kind to which most values belong, if they are no sessions; else None."""
    values = [one for value in sample for one in (value if isinstance(value, list) else [value])]
    found = Counter(
        name
        for value in dicts_in(values)
        for name in {name for name, paths in _NO_SESSIONS if all(is_there(value, path) for path in paths)}
    )
    return next((name for name, count in found.most_common(1) if 2 * count > len(values)), None)


def open_wrapper(document: Document, format: Format | None) -> Document:
    """Return a document of what its values wrap, where they are not of the format asked for, or of any."""
    if detect_format(document.sample, READERS if format is None else [format]) is not None:
        return document
    opened = [item for value in document.sample for item in _opened(value)]
    if opened == document.sample:
        return document
    values = ((line, item) for line, value in document.values() for item in _opened(value))
    part = document.part(values)
    part.sample, part.is_opened = opened, True
    return part


_MESSAGES = ("history", "conversations", "traj")
"""Keys under which objects without `messages` keep their messages."""


def _opened(value: Any) -> list[Any]:
    """Return what a value wraps: records, or objects that hold a list of messages; else the value.

    Other keys beside a list of messages are kept.
    """
    if isinstance(value, list) and not any(map(_is_message, value)):
        sessions = [opened for one in value for opened in _opened(one)]
        return sessions if detect_format(sessions) is not None or name_stranger(sessions) else [value]
    if not isinstance(value, dict) or "messages" in value:
        return [value]
    if isinstance(value.get("loglines"), list):
        return list(value["loglines"])
    if exchange := _exchange(value):
        return [{**exchange, "id": _id_of(exchange, value)}]
    one = first_in(value, "body", "llm_context")
    held = [one] if isinstance(one, dict) else value.get("samples")
    agents = value.get("agent_states")  # of a saved AutoGen team, each with a context of its own
    if isinstance(agents, dict):
        contexts = {name: pick(agent, "agent_state.llm_context") for name, agent in agents.items()}
        held = [{"id": name, **one} for name, one in contexts.items() if _holds_messages(one)]
    held = held if isinstance(held, list) and any(map(_holds_messages, held)) else []
    wrapped = [{**one, "id": _id_of(one, value)} if _holds_messages(one) else one for one in held]
    if isinstance(value.get("mapping"), dict):
        id = first_in(value, "conversation_id", "id")
        return [{"id": id, "title": value.get("title"), "messages": _nodes(value)}]
    key = next((key for key in _MESSAGES if isinstance(value.get(key), list)), None)
    if not wrapped and key is not None:
        pairs = [one if isinstance(one, list) else [one] for one in value[key]]
        beside = {name: held for name, held in value.items() if name != key}
        wrapped = [{**beside, "id": _id_of(value), "messages": [item for pair in pairs for item in pair]}]
    return wrapped or [value]


def _nodes(value: dict[str, Any]) -> list[Any]:
    """Return the nodes of an exported ChatGPT conversation; those that lead to the newest come last."""
    nodes = value["mapping"]
    path: dict[str, Any] = {}
    name = value.get("current_node")
    while isinstance(name, str) and name in nodes and name not in path:
        path[name] = nodes[name]
        name = pick(nodes[name], "parent")
    others = [node for name, node in nodes.items() if name not in path]
    return [*others, *reversed(path.values())]


def _exchange(value: dict[str, Any]) -> dict[str, Any] | None:
    """Return a request that got an answer, which stands behind it, where a log has both."""
    request, answer = (pick(value, f"{key}.body", key) for key in ("request", "response"))
    if not isinstance(request, dict) or not isinstance(answer, dict):
        return None
    if "input" in request and isinstance(answer.get("output"), list):
        return {**request, "output": answer["output"]}
    said = pick(answer, "choices.0.message", "message") or answer
    if not _holds_messages(request) or not isinstance(said, dict) or not {"role", "content"} & said.keys():
        return None
    return {**request, "messages": [*request["messages"], {"role": "assistant", **said}]}


def _holds_messages(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("messages"), list)


def _id_of(*holders: dict[str, Any]) -> str | None:
    """Return what the first of some objects that has a name calls itself, with the run that it was."""
    for holder in holders:
        found = first_in(holder, "id", "session_id", "instance_id", "sample_id", "task_id")
        if isinstance(found, str | int):
            epoch = holder.get("epoch")
            return f"{found}/{epoch}" if isinstance(epoch, int) and epoch > 1 else str(found)
    return None
