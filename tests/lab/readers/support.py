"""Read what a test wrote, and say shortly what came of it."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from context_compressor import from_openai
from context_compressor.lab.readers import Format, Reading, read_all

SAMPLES = Path(__file__).parent / "samples"
PNG = "data:image/png;base64,iVBORw0KGgo="


def read_text(text: str, format: Format | None = None) -> Reading:
    return read_all(io.BytesIO(text.encode()), "f", format)


def read_value(value: Any, format: Format | None = None) -> Reading:
    return read_text(json.dumps(value), format)


def read_lines(values: Sequence[Any], format: Format | None = None) -> Reading:
    return read_text("".join(f"{json.dumps(value)}\n" for value in values), format)


def read_sample(name: str) -> Reading:
    return read_all(SAMPLES / name, str(SAMPLES / name))


def outline(messages: Sequence[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Return each message as (role, content), with calls as names and answers under their call's id."""
    from_openai(messages)
    found: list[tuple[str, Any]] = []
    for message in messages:
        said = message["content"]
        for key in ("reasoning_content", "name"):
            if key in message and message["role"] != "tool":
                said = (said, message[key])
        calls = [(call["id"], call["function"]["name"]) for call in message.get("tool_calls", ())]
        role = f"tool {message['tool_call_id']}" if message["role"] == "tool" else message["role"]
        found.append((role, (said, *calls)) if "tool_calls" in message else (role, said))
    return found


def arguments(messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the arguments of each call, as text, by its id."""
    return {
        call["id"]: call["function"]["arguments"]
        for message in messages
        for call in message.get("tool_calls", ())
    }
