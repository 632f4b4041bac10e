"""What a request for a summary takes over from an agent's own requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from context_compressor.errors import SummarizerError

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


class Asked(NamedTuple):
    """What a request of an agent's asks whom."""

    beside: tuple[Any, ...]
    """The model, its instructions and the agent's tools."""
    listed: Sequence[Any]
    """The whole list that the view was made of."""

    def check_goes_on(self, last: Asked) -> None:
        """Check that a request goes on where the last one was, so that what that one said may be said again.

        Raises:
            SummarizerError: it does not.
        """
        if self.beside != last.beside or self.listed[: len(last.listed)] != last.listed:
            raise SummarizerError(
                "the last request cannot be sent again: its list, instructions, tools or model were others"
            )


class Last(NamedTuple):
    """An agent's request as it was sent, and what it asked."""

    sent: Any
    asked: Asked
