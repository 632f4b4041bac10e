"""What a token counter is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from context_compressor.errors import check_members
from context_compressor.messages.msg import Msg


@runtime_checkable
class TokenCounter(Protocol):
    """Measure texts and messages in tokens.

    A counter should be additive: a list of messages costs no more than the sum of its messages counted alone,
    because the wrapper counts each message once in its life and adds up. Several threads may call it at once:
    much text is counted, and what stands in for text is made, beside the event loop.
    """

    def count_text(self, text: str) -> int:
        """Return the tokens of a text; strings that look like special tokens count as plain text."""
        ...

    def count_messages(self, messages: Sequence[Msg | dict[str, Any]]) -> int:
        """Return the tokens of messages (`Msg` or chat dicts): calls, results, names, overhead included."""
        ...


def check_counter(counter: object) -> None:
    """Check at the door what is given as a counter; None stands for the default.

    Raises:
        InvalidArgumentError: it is none; the text names what it lacks.
    """
    if counter is not None:
        members = ("count_text", "count_messages")
        check_members("counter", counter, "a TokenCounter", members, "leave it out for TiktokenCounter()")
