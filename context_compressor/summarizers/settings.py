"""What a provider's summariser is set to, checked at the door: later it would fail at every event, and the
extractive summariser would step in each time.
"""

from __future__ import annotations

from context_compressor.errors import InvalidArgumentError


def check_model(model: object, base_url: object) -> None:
    """Check the name of a model, and the address of its server, where one is given.

    Raises:
        InvalidArgumentError: the one is no string, or blank, or the other no address on the web.
    """
    if not isinstance(model, str) or not model.strip():
        raise InvalidArgumentError(f"model: expected the name of a model, got {model!r}")
    if base_url is not None and not str(base_url).lower().startswith(("http://", "https://")):
        raise InvalidArgumentError(
            f"base_url: expected an address that begins with http:// or https://, got {base_url!r}"
        )


def check_whole(argument: str, value: object, least: int) -> None:
    """Check a number of tokens or attempts.

    Raises:
        InvalidArgumentError: it is no int, or too small.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidArgumentError(f"{argument}: expected a whole number from {least} up, got {value!r}")


def check_number(argument: str, value: object, *, is_above_zero: bool = False) -> None:
    """Check a number that may have a fraction, such as seconds.

    Raises:
        InvalidArgumentError: it is no number, negative, or 0 where it has to be above.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and (value > 0 or (value == 0 and not is_above_zero))):  # type: ignore[operator]
        least = "above 0" if is_above_zero else "from 0 up"
        raise InvalidArgumentError(f"{argument}: expected a number {least}, got {value!r}")
