"""What is known of the messages of a history without holding them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from context_compressor.core.edits import message_id
from context_compressor.memory.history import Keys


class MessageTable:
    """Keys of all history messages in order, with their tokens; ids by mark.

    Attributes:
        tokens: tokens of each message, by key, in history order.
        total_tokens: their sum.
        marks: ids of the messages that bear a mark, by mark; a mark is present once it was looked at.
    """

    def __init__(self) -> None:
        self.tokens: dict[str, int] = {}
        self.total_tokens = 0
        self.marks: dict[str, set[str]] = {}
        self._keys = Keys()

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, key: object) -> bool:
        return key in self.tokens

    @property
    def last_id(self) -> str | None:
        """Id of the newest message."""
        return message_id(next(reversed(self.tokens))) if self.tokens else None

    def put(self, key: str, tokens: int) -> None:
        """Record a message at the end of the history, which gave it a key."""
        self._keys.note(key)
        self.tokens[key] = tokens
        self.total_tokens += tokens

    def append(self, message_id: str, tokens: int) -> str:
        """Record a message at the end of the history and return its key."""
        key = self._keys.new(message_id, self.tokens)
        self.tokens[key] = tokens
        self.total_tokens += tokens
        return key

    def knows(self, message_id: str) -> bool:
        """Tell whether a message is there under this id."""
        return self._keys.has(message_id, self.tokens)

    def keys_of(self, message_ids: Iterable[str]) -> list[str]:
        """Return the keys of the messages under these ids, unknown ids left out."""
        return self._keys.of(message_ids, self.tokens)

    def places_of(self, message_ids: Collection[str]) -> dict[str, int]:
        """Return where messages stand in the history, by their ids; looked for from its end on."""
        wanted, found, place = set(message_ids), dict[str, int](), len(self.tokens)
        for key in reversed(self.tokens):
            if not wanted:
                break
            place -= 1
            own = message_id(key)
            if own in wanted:
                wanted.discard(own)
                found[own] = place
        return found

    def key_after(self, keys: Collection[str]) -> str | None:
        """Return the key behind the last of these; None behind the newest message, or where none is known."""
        after: str | None = None
        for key in reversed(self.tokens):
            if key in keys:
                return after
            after = key
        return None

    def remove(self, keys: Iterable[str]) -> None:
        """Forget messages and their marks."""
        for key in keys:
            self.total_tokens -= self.tokens.pop(key, 0)
            self._keys.forget(key)
            for ids in self.marks.values():
                ids.discard(message_id(key))

    def exchange(self, gone: Collection[str], added: Mapping[str, int], before: str | None) -> None:
        """Forget messages, and record others with their tokens in front of one; None: at the end."""
        self.remove(gone)
        behind: dict[str, int] = {}
        if before is not None:
            keys = list(self.tokens)
            behind = {key: self.tokens.pop(key) for key in keys[keys.index(before) :]}
        for key, tokens in added.items():
            self.put(key, tokens)
        self.tokens |= behind

    def note_marks(self, message_id: str, marks: Iterable[str]) -> None:
        """Note a message's marks, those that somebody looked at: others are read when somebody does."""
        for mark in marks:
            if mark in self.marks:
                self.marks[mark].add(message_id)

    def bearing(self, mark: str | None) -> set[str]:
        """Return the ids that bear a mark."""
        return set() if mark is None else self.marks.get(mark, set())
