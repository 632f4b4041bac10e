"""What a message of a view says of itself in its metadata: what it stands for, and where that is stored."""

from __future__ import annotations

from typing import Any, Final

from context_compressor.messages.msg import Msg

PROVENANCE: Final = "compression"
"""The key in a message's metadata: a dict of its kind (segment, stub, placeholder), the ids that it covers,
and its ref; further refs where a stub has several."""


def provenance_of(msg: Msg) -> dict[str, Any]:
    """Return what a message says of itself; empty where it stands for nothing but itself."""
    provenance = (msg.metadata or {}).get(PROVENANCE)
    return provenance if isinstance(provenance, dict) else {}


def refs_shown(msg: Msg) -> tuple[str, ...]:
    """Return the refs of what a message stands for; none where it stands for itself or holds a place."""
    provenance = provenance_of(msg)
    return tuple(ref for ref in provenance.get("refs") or [provenance.get("ref")] if ref)


def is_segment(msg: Msg) -> bool:
    """Tell whether a message is a summary of earlier ones, in a view or among what is to be summarised."""
    return provenance_of(msg).get("kind") == "segment"


def is_staying(msg: Msg) -> bool:
    """Tell whether a message among what is to be summarised only tells the order: it stays in the view."""
    return provenance_of(msg).get("kind") == "stays"


def staying_metadata() -> dict[str, Any]:
    """Return the metadata of a message that stays in the view, among those that leave."""
    return {PROVENANCE: {"kind": "stays"}}


def segment_metadata() -> dict[str, Any]:
    """Return the metadata of a message that is to be read as a summary of earlier ones."""
    return {PROVENANCE: {"kind": "segment"}}
