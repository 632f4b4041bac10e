"""Forms: a provider's shape of messages, read into `Msg` and written out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from context_compressor.errors import InvalidArgumentError
from context_compressor.messages import anthropic, responses
from context_compressor.messages.chat import from_openai, to_openai
from context_compressor.messages.msg import Block, Msg
from context_compressor.messages.remark import among_of


def _each_alone(items: Sequence[Any]) -> list[list[Any]]:
    return [[item] for item in items]


def _never(before: Msg, after: Msg) -> bool:  # noqa: ARG001
    return False


def _as_written(written: list[Any], said: Sequence[Any], system: Any) -> list[Any]:  # noqa: ARG001
    return written


def _nothing(said: Sequence[Any], shown: Sequence[Any] | None) -> list[Block]:  # noqa: ARG001
    return []


def _lends_nothing(said: Sequence[Any]) -> list[anthropic.Lent]:  # noqa: ARG001
    return []


@dataclass(frozen=True, slots=True)
class Form:
    """A shape of messages. What `read` takes, `write` gives back.

    Args:
        read: returns a list of messages as `Msg`; raises `InvalidMessageError` for what it cannot read. One
            item may give several messages.
        write: returns messages in this shape; what `read` made of one item becomes one again.
        pieces: cuts a list into what can be read by itself, mostly each item alone.
        joins: tells whether two messages, one behind the other, are one in this shape.
        finish: returns what is sent, for rules that hold for the whole of it: is given a view in this shape,
            what the history has of the list that it is of, and what the request carries as `system`.
        beside: returns the blocks that `finish` put beside a view of a list, to be counted; for None in its
            place those that it may put beside any view, what is lent apart.
        is_frozen: whether nobody changes an item, so that the same object always says the same.
        lends: returns what else `finish` puts beside a view once something has left.
    """

    read: Callable[[Iterable[Any]], list[Msg]]
    write: Callable[[Sequence[Msg]], list[Any]]
    pieces: Callable[[Sequence[Any]], list[list[Any]]] = _each_alone
    joins: Callable[[Msg, Msg], bool] = _never
    finish: Callable[[list[Any], Sequence[Any], Any], list[Any]] = _as_written
    beside: Callable[[Sequence[Any], Sequence[Any] | None], list[Block]] = _nothing
    is_frozen: bool = False
    lends: Callable[[Sequence[Any]], list[anthropic.Lent]] = _lends_nothing

    @property
    def may_join(self) -> bool:
        """Whether two messages may be one in this shape."""
        return self.joins is not _never


def _join_among_chat(before: Msg, after: Msg) -> bool:
    return bool(among_of(before) and among_of(after)) and anthropic.joins(before, after)


FormName = Literal["chat", "responses", "anthropic"]
FORMS: dict[str, Form] = {
    "chat": Form(from_openai, to_openai, joins=_join_among_chat),
    "responses": Form(
        responses.from_responses,
        responses.to_responses,
        lambda items: list(responses.runs(items)),
        finish=responses.as_accepted,
    ),
    "anthropic": Form(
        anthropic.from_anthropic,
        anthropic.write_messages,
        joins=anthropic.joins,
        finish=anthropic.as_accepted,
        beside=anthropic.beside,
        lends=anthropic.lends,
    ),
}
"""Those that have names: chat dicts, as OpenAI and DashScope take them, items of OpenAI's Responses API, and
Anthropic's Messages."""


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
    raise InvalidArgumentError(f"form: expected {names} or a Form(read, write), got {form!r:.200}")
