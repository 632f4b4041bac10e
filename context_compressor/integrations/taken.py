"""Which settings of an agent's own requests a request for a summary takes over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ANSWERS = frozenset(
    (
        *("max_tokens", "max_completion_tokens", "max_output_tokens", "n", "stop", "stop_sequences"),
        *(
            "tool_choice",
            "parallel_tool_calls",
            "response_format",
            "modalities",
            "audio",
            "voice",
            "prediction",
        ),
        *("logprobs", "top_logprobs", "stream", "stream_options", "metadata", "store", "truncation"),
        *("context_management", "background", "previous_response_id", "conversation_id", "conversation"),
    )
)
"""How long an answer to the agent is, what shape it has, and where it is kept. The rest says how a model is
reached and how it thinks."""
_BODIES = ("extra_body", "extra_args", "model_kwargs")
"""Settings that hold settings."""


def is_taken_over(name: str, value: object = None) -> bool:
    """Tell whether a request for a summary takes a setting over; a provider's name may stand before its own.

    That nothing is to be stored holds for all that is said.
    """
    is_own = name in _ANSWERS or any(name.endswith(f"_{one}") for one in _ANSWERS)
    return not is_own or (value is False and name.endswith("store"))


def taken_over(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the settings that a request for a summary takes over."""
    return {
        name: taken_over(value) if name in _BODIES and isinstance(value, Mapping) else value
        for name, value in (settings or {}).items()
        if is_taken_over(name, value)
    }
