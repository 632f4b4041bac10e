"""Take the arguments of a tool call apart: forgive what models often get wrong, refuse the rest clearly."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_MAX_NUMBER = 10**12 - 1
"""No text has so many lines; larger numbers are cut to it, so that they can be printed and compared."""

_SHOWN_CHARACTERS = 80
"""Of a value in an answer, quotes included."""


class FinalAnswer(Exception):
    """End a call early with this answer for the model: what answers a call raises it."""


class Arguments:
    """The arguments of one call, checked as they are taken."""

    def __init__(self, tool: str, values: Mapping[str, Any]) -> None:
        self._tool = tool
        self._values = values

    def check(self, *known: str) -> None:
        """Refuse a call that has an argument not among `known`."""
        unknown = [name for name in self._values if name not in known]
        if unknown:
            raise FinalAnswer(
                f"{self._tool} has no argument {show_value(unknown[0])}; it takes {', '.join(known)}."
            )

    def get(self, name: str) -> Any:
        """Return an argument as it was given, or None."""
        return self._values.get(name)

    def required(self, name: str) -> Any:
        """Return an argument as it was given; refuse a call without it."""
        value = self.get(name)
        if value is None:
            raise FinalAnswer(f"{self._tool} needs the argument {name}.")
        return value

    def text(self, name: str) -> str:
        """Return a string that is not empty; refuse a call without it."""
        value = self.required(name)
        if not isinstance(value, str) or not value.strip():
            raise FinalAnswer(f"{name} must be a string that is not empty, got {show_value(value)}.")
        return value

    def integer(self, name: str, *, least: int = 1) -> int | None:
        """Return a whole number, None when absent; models also write 41.0 and "41"."""
        value = self.get(name)
        if value is None:
            return None
        number: int | None = None
        if isinstance(value, str):
            number = int(value) if re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", value) else None
        elif isinstance(value, float):
            number = int(value) if value.is_integer() else None
        elif isinstance(value, int) and not isinstance(value, bool):
            number = value
        if number is None or number < least:
            raise FinalAnswer(f"{name} must be a whole number from {least} up, got {show_value(value)}.")
        return min(number, _MAX_NUMBER)

    def one_of(self, name: str, values: Sequence[str]) -> str | None:
        """Return one of the allowed words, or None when absent. Case is ignored: models also write "User"."""
        value = self.get(name)
        said = value.strip().lower() if isinstance(value, str) else value
        if said is None or said == "":
            return None
        if said not in values:
            raise FinalAnswer(f"{name} must be one of {', '.join(values)}, got {show_value(value)}.")
        return str(said)

    def flag(self, name: str) -> bool:
        """Return a boolean, False when absent; models also write "true"."""
        value = self.get(name)
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        if value is None or isinstance(value, bool):
            return bool(value)
        raise FinalAnswer(f"{name} must be true or false, got {show_value(value)}.")


def as_arguments(arguments: Mapping[str, Any] | str | None) -> Mapping[str, Any]:
    """Return the arguments as a mapping; the JSON text of one will do."""
    if arguments is None or arguments == "":
        return {}
    parsed: Any = arguments
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            raise FinalAnswer(f"The arguments are not valid JSON ({error}); send one JSON object.") from None
    if not isinstance(parsed, Mapping):
        raise FinalAnswer(f"The arguments must be one JSON object, got {show_value(parsed)}.")
    return parsed


def show_value(value: object) -> str:
    """Return a short form of what the model gave, whatever it was."""
    value = value[:_SHOWN_CHARACTERS] if isinstance(value, str) else value
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):  # ValueError: also an integer of thousands of digits
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
