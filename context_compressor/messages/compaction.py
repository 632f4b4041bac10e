"""A provider's own compaction in a conversation: words, or data that only that provider can read."""

from __future__ import annotations

from collections.abc import Mapping

from context_compressor.messages.kinds import held_in
from context_compressor.messages.msg import Block, Msg

_KIND = "compaction"


def compacted_words(block: Block) -> str | None:
    """Return the summary that a provider wrote of what came before, where it can be read (Anthropic)."""
    held = held_in(block)
    words = held.get("content") if held.get("type") == _KIND else None
    return words if isinstance(words, str) and words.strip() else None


def has_compaction(msg: Msg) -> bool:
    """Tell whether a message holds what a provider compacted."""
    return any(held_in(block).get("type") == _KIND for block in _blocks_of(msg))


def is_sealed(msg: Msg) -> bool:
    """Tell whether a message holds a compaction that only its provider can read (OpenAI)."""
    return any(_has_secret(held_in(block)) for block in _blocks_of(msg) if compacted_words(block) is None)


def _blocks_of(msg: Msg) -> list[Block]:
    return [] if isinstance(msg.content, str) else msg.content


def _has_secret(held: Mapping[str, object]) -> bool:
    details = held.get("provider_details")  # where Pydantic AI keeps it
    places = (held, details if isinstance(details, Mapping) else {})
    return held.get("type") == _KIND and any(place.get("encrypted_content") for place in places)
