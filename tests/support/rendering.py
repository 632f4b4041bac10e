"""How a request reads, for people: what a test shows where a server refused one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tests.support.provider_tokens import count_message, count_request
from tests.support.wires import Received

_WIDTH = 100


def render_request(received: Received) -> str:
    """Return a request as a table of its messages, what it was refused for beside the messages at fault."""
    state = "; ".join(received.refused) or "accepted"
    tokens = count_request(received.messages, received.tools)
    lines = [f"request {received.number} to {received.path}: {tokens:,} tokens, {state}"]
    for index, message in enumerate(received.messages):
        lines.append(f"  [{index:3}] {count_message(message):6,} tokens  {_render_message(message)}")
        lines += [f"        ^ {fault}" for fault in faults_at(index, received.refused)]
    tools = [str((tool.get("function") or {}).get("name")) for tool in received.tools]
    return "\n".join([*lines, f"  tools: {', '.join(tools) or 'none'}"])


def faults_at(index: int, refused: Iterable[str]) -> list[str]:
    """Return what the message at this index is refused for."""
    return [fault for fault in refused if re.match(rf"messages\[{index}\]\W", fault)]


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a message, whatever the form of its content."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", f"<{part.get('type')}>")) for part in content)
    return content or ""


def _render_message(message: dict[str, Any]) -> str:
    role = str(message.get("role"))
    if role == "tool":
        role += f" (answers {message.get('tool_call_id')})"
    text = " ".join(text_of(message).split())
    told = [text if len(text) <= _WIDTH else f"{text[:_WIDTH]}..."] if text else []
    for call in message.get("tool_calls") or []:
        function = call["function"]
        told.append(f"-> {function['name']}({function['arguments']}) as {call['id']}")
    return f"{role}: {' '.join(told)}"
