"""Compress without keeping an object between calls: the state is data, here a file.

python examples/stateless.py
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from make_session import make_session

from context_compressor import CompressionConfig, compress_messages

CONFIG = CompressionConfig(max_total_tokens=16_000)


def handle_request(messages: list[dict[str, Any]], state_file: Path) -> list[dict[str, Any]]:
    """Return what to send to the model for a conversation whose state lies in a file."""
    state = json.loads(state_file.read_text()) if state_file.exists() else None
    result = compress_messages(messages, config=CONFIG, state=state)
    state_file.write_text(json.dumps(result.state))
    print(
        f"{len(messages)} messages, {result.stats.history_tokens:,} tokens: view {result.stats.view_tokens:,}"
    )
    return result.messages


session = make_session()
with tempfile.TemporaryDirectory() as directory:
    file = Path(directory, "conversation-1.json")
    first = handle_request(session[:60], file)
    second = handle_request(session[:62], file)
assert second[: len(first)] == first  # nothing said before has changed, so the provider's prompt cache holds
