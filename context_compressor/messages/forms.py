"""Forms: a provider's shape of messages, read into `Msg` and written out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from context_compressor.errors import InvalidArgumentError
from context_compressor.messages.chat import from_openai, to_openai
from context_compressor.messages.msg import Msg


@dataclass(frozen=True, slots=True)
class Form:
    """A shape of messages. What `read` takes, `write` gives back.

    Args:
        read: returns a list of messages as `Msg`; raises `InvalidMessageError` for what it cannot read.
        write: returns messages in this shape.
    """

    read: Callable[[Iterable[Any]], list[Msg]]
    write: Callable[[Sequence[Msg]], list[Any]]


FormName = Literal["chat"]
FORMS: dict[str, Form] = {"chat": Form(from_openai, to_openai)}
"""Those that have names: chat dicts, as OpenAI and DashScope take them."""


def as_form(form: object) -> Form:
    """Return a form by its name, or as given.

    Raises:
        InvalidArgumentError: neither a name nor a `Form`.
    """
    if isinstance(form, Form):
        return form
    if isinstance(form, str) and form in FORMS:
        return FORMS[form]
    names = ", ".join(map(repr, FORMS))
    raise InvalidArgumentError(f"form: expected {names} or a Form(read, write), got {form!r}")
