"""headroom's `compress`, as its readme has it: on all messages, before each request.

All is as by default, save that its model for texts, which it would download, is switched off, as its own
options allow. It promises no budget. What its markers name is read from its own store.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence

from adapter import Chat, Parent, serve
from headroom import compress
from headroom.cache.compression_store import get_compression_store
from headroom.compress import CompressConfig

NAMED = re.compile(r"hash=([0-9a-f]+)")


class Compress:
    def __init__(self, budget: int, parent: Parent) -> None:  # noqa: ARG002
        self._history: list[Chat] = []
        self._stored: dict[str, str] = {}
        logging.disable(logging.WARNING)

    def send(self, new: Sequence[Chat]) -> list[Chat]:
        self._history += new
        config = CompressConfig(kompress_model="disabled")
        view = list(compress(list(self._history), model="gpt-4o", config=config).messages)
        for name in NAMED.findall(json.dumps(view)):
            entry = get_compression_store().retrieve(name)
            if entry is not None:
                self._stored[name] = entry.original_content
        return view

    def stored(self) -> dict[str, str]:
        return dict(self._stored)

    def convert(self, messages: Sequence[Chat]) -> list[Chat]:
        return list(messages)


if __name__ == "__main__":
    serve(Compress)
