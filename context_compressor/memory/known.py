"""What is known of the history without holding it: keys in order, token counts, marks."""

from __future__ import annotations

from collections.abc import Iterable

from context_compressor.compression.edits import message_id
from context_compressor.messages.msg import Msg


class KnownMessages:
    """Keys of all history messages in order, with their tokens; ids by mark.

    A key is the message's id; a further message under the same id (`allow_duplicates`) gets a key of its own.

    Attributes:
        tokens: tokens of each message, by key, in history order.
        total_tokens: their sum.
        marks: ids of the messages that bear a mark, by mark; a mark is present once it was looked at.
    """

    def __init__(self) -> None:
        self.tokens: dict[str, int] = {}
        self.total_tokens = 0
        self.marks: dict[str, set[str]] = {}
        self._copies: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self.tokens

    def append(self, message_id: str, tokens: int) -> str:
        """Record a message at the end of the history and return its key."""
        key = message_id
        if key in self.tokens:
            copies = self._copies.setdefault(message_id, [])
            number = len(copies) + 2
            while (key := f"{message_id}\0{number}") in self.tokens:
                number += 1
            copies.append(key)
        self.tokens[key] = tokens
        self.total_tokens += tokens
        return key

    def keys_of(self, message_ids: Iterable[str]) -> list[str]:
        """Return the keys of the messages under these ids, unknown ids left out."""
        return [key for id in message_ids for key in (id, *self._copies.get(id, ())) if key in self.tokens]

    def remove(self, keys: Iterable[str]) -> None:
        """Forget messages and their marks."""
        for key in keys:
            self.total_tokens -= self.tokens.pop(key, 0)
            self._copies.pop(message_id(key), None)
            for ids in self.marks.values():
                ids.discard(message_id(key))

    def bearing(self, mark: str | None) -> set[str]:
        """Return the ids that bear a mark."""
        return set() if mark is None else self.marks.get(mark, set())


def keyed(messages: Iterable[Msg]) -> list[tuple[str, Msg]]:
    """Return history messages with their keys, as `KnownMessages.append` would give them."""
    known = KnownMessages()
    return [(known.append(msg.id, 0), msg) for msg in messages]
