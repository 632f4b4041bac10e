"""What a memory is given to work with, checked at the door, or it would show at the first event only."""

from __future__ import annotations

from typing import Any

from context_compressor.compression.config import CompressionConfig
from context_compressor.errors import InvalidArgumentError, check_members

_MEMBERS = {
    "store": ("an OffloadStore", ("write", "read", "delete", "refs"), "FileOffloadStore(path) keeps files"),
    "summarizer": ("a Summarizer", ("remote", "summarize"), "leave it out for the extractive one"),
    "counter": ("a TokenCounter", ("count_text", "count_messages"), "leave it out for TiktokenCounter()"),
}


def check_collaborators(config: Any, store: Any, summarizer: Any, counter: Any, on_event: Any) -> None:
    """Check what a memory is given; None stands for a default.

    Raises:
        InvalidArgumentError: something is not what it should be; the text names it and what it lacks.
    """
    if not (config is None or isinstance(config, CompressionConfig)):
        raise InvalidArgumentError(
            f"config: expected a CompressionConfig or None, got {type(config).__name__}; "
            "CompressionConfig(**fields) makes one"
        )
    for name, value in {"store": store, "summarizer": summarizer, "counter": counter}.items():
        if value is not None:
            check_members(name, value, *_MEMBERS[name])
    if not (on_event is None or callable(on_event)):
        raise InvalidArgumentError(f"on_event: expected a callable or None, got {type(on_event).__name__}")
