"""What a memory is given to work with, checked at the door, or it would show at the first event only."""

from __future__ import annotations

from typing import Any

from context_compressor.compression.config import CompressionConfig
from context_compressor.errors import InvalidArgumentError, check_members
from context_compressor.summarizers.protocol import check_summarizer
from context_compressor.tokens.protocol import check_counter


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
    if store is not None:
        members = ("write", "read", "delete", "refs")
        check_members("store", store, "an OffloadStore", members, "FileOffloadStore(path) keeps files")
    if summarizer is not None:
        check_summarizer("summarizer", summarizer, "leave it out for the extractive one")
    check_counter(counter)
    if not (on_event is None or callable(on_event)):
        raise InvalidArgumentError(f"on_event: expected a callable or None, got {type(on_event).__name__}")
