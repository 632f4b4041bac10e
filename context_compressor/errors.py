"""Every exception that leaves the library, and the checks that its doors share."""

from __future__ import annotations

import copyreg
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.util import find_spec
from inspect import signature
from typing import Any, is_typeddict
from urllib.parse import unquote


class ContextCompressorError(Exception):
    """Base of every error that this library raises on purpose."""


class InvalidMessageError(ContextCompressorError, ValueError):
    """Report a message that is not what its format says; the text names index, field and what is expected."""


class InvalidArgumentError(ContextCompressorError, TypeError):
    """Report an argument of the wrong type; the text shows the value and what is accepted."""


class SessionNotFoundError(InvalidArgumentError, LookupError):
    """Report a session that a database or Redis does not have: it was deleted, or never begun."""


class InvalidStateError(ContextCompressorError, ValueError):
    """Report saved state that cannot be loaded: an unknown version, a missing or malformed field."""


class ContextOverflowError(ContextCompressorError):
    """Report that what may not leave the view, plus the smallest stand-ins, exceeds the budget.

    Attributes:
        budget: what a view may cost, in tokens.
        needed: the smallest view that could be built, in tokens.
        fixed: `(message id, tokens)` of each message that may not leave.
    """

    def __init__(self, message: str, *, budget: int, needed: int, fixed: Sequence[tuple[str, int]]) -> None:
        super().__init__(message)
        self.budget = budget
        self.needed = needed
        self.fixed = tuple(fixed)

    def __reduce__(self) -> tuple[Any, ...]:
        # By default an exception is made again from its message alone, and this one needs its keywords.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class ConflictError(ContextCompressorError):
    """Report that a history moved on since it was read, so that what was to be written may not fit any more.

    Attributes:
        number: where its head is now.
    """

    def __init__(self, message: str, *, number: int) -> None:
        super().__init__(message)
        self.number = number

    __reduce__ = ContextOverflowError.__reduce__


class UnrelatedMessagesError(ContextCompressorError, ValueError):
    """Report a list that shares nothing with the conversation so far: another conversation, it seems."""


class NotStartedError(ContextCompressorError, RuntimeError):
    """Report a service that was asked before its `start`, or after its `stop`."""


class LoopError(ContextCompressorError, RuntimeError):
    """Report a memory that is used from another event loop than that of its first use."""


class RedactionError(ContextCompressorError):
    """Report that the user's `redact` callable failed, so that no text could be stored or summarised."""


class OffloadError(ContextCompressorError):
    """Base of the errors of an offload store."""


class OffloadNotFoundError(OffloadError, LookupError):
    """Report a ref that is absent or malformed."""


class OffloadCollisionError(OffloadError):
    """Report that another text already holds this ref; the text at hand was not stored."""


class OffloadCorruptError(OffloadError):
    """Report a stored text whose hash no longer matches its ref: truncated or tampered with."""


class OffloadWriteError(OffloadError):
    """Report that a text could not be made durable; nothing was stored."""


class OffloadFullError(OffloadWriteError):
    """Report a full disk or an exhausted quota."""


class OffloadKeyError(OffloadError):
    """Report a stored text that does not open: its key is missing or another one."""


class OffloadPermissionError(OffloadWriteError):
    """Report a directory or file that this process may not write or read."""


class SummarizerError(ContextCompressorError):
    """Report that a summariser gave no usable summary."""


class SummarizerTimeoutError(SummarizerError):
    """Report that a summariser did not answer in time."""


class SummarizerOverflowError(SummarizerError):
    """Report that a provider refused a prompt because its model does not read that much.

    Attributes:
        limit_tokens: what the model reads at most, where the provider says so, else None. Most providers
            include the room for the answer.
    """

    def __init__(self, message: str, *, limit_tokens: int | None = None) -> None:
        super().__init__(message)
        self.limit_tokens = limit_tokens


class SummaryRejectedError(SummarizerError):
    """Report a summary that was refused, and why: empty, the template, an error text, longer than allowed."""


_EXTRAS = {"fsspec": "fsspec", "redis": "redis", "sqlalchemy": "sql"}
"""The extra that brings a package of a backend."""


def is_extra_missing(module: str) -> bool:
    """Tell whether a module of ours, such as "backends.redis.store", needs a package that is missing."""
    parts = module.split(".")
    needed = [package for package, extra in _EXTRAS.items() if package in parts or extra in parts]
    return any(find_spec(package) is None for package in needed)


@contextmanager
def naming_extras(extra: str | None = None, more: str = "") -> Iterator[None]:
    """Name the extra where a package is missing or too old.

    The command works for whoever has a checkout or a wheel, too: what is installed is not fetched again.

    Args:
        extra: which one; None finds the extra of a backend, by the package.
        more: what else there is to say.

    Raises:
        ImportError: something is missing.
    """
    try:
        yield
    except ImportError as error:
        extra = extra or _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        raise ImportError(
            f"needs the extra {extra}: pip install 'agent-context-compressor[{extra}]'{more} ({error})"
        ) from error


_SHORTEST_SECRET = 3
"""Characters. Shorter secrets are not looked for in texts: they are found in any text by chance."""


def shown_url(url: str) -> str:
    """Return a URL that may be shown: without a password, and without the values of its query.

    A URL that can be read in two ways, since its password has "?" or "#" in it, is hidden whole.
    """
    scheme, mark, rest = url.partition(":")
    slashes = rest[: len(rest) - len(rest.lstrip("/"))]
    named, at, place = rest[len(slashes) :].rpartition("@")
    if mark and (re.search(r"[?#]", named) or (at and len(slashes) < 2)):
        return f"{scheme}:{slashes}***"
    if ":" in named:
        named = f"{named.partition(':')[0]}:***"
    elif at and len(slashes) == 2:
        named = "***"  # a user name alone may be a token; "@" behind a third slash belongs to a path
    bare = re.split(r"[?#]", place)[0]
    said = place[len(bare) + 1 :].split("&")
    names = "&".join(f"{one.partition('=')[0]}=***" if "=" in one else "***" for one in said)
    query = "" if bare == place else f"?{names}" if place[len(bare)] == "?" else "#***"
    return f"{scheme}{mark}{slashes}{named}{at}{bare}{query}"


def without_secrets(error: object, url: str) -> str:
    """Return what an error says of a URL, without the pieces that `shown_url` hides."""
    said, shown = str(error).replace(url, shown_url(url)), re.split(r"[/?#@:&=]", shown_url(url))
    pieces = {piece for text in (url, unquote(url)) for piece in re.split(r"[/?#@:&=]", text)}
    for piece in sorted(pieces.difference(shown), key=len, reverse=True):
        if len(piece) >= _SHORTEST_SECRET:
            said = said.replace(piece, "***")
    return said


def check_members(
    argument: str, value: object, expected: str, members: Iterable[str], mend: str = ""
) -> None:
    """Check at the door that an object has what will be asked of it, or it would show in the middle of work.

    Raises:
        InvalidArgumentError: it is a class, or lacks some; the text names them.
    """
    if isinstance(value, type):
        raise InvalidArgumentError(
            f"{argument}: {value.__name__} is a class; give an object, {value.__name__}(...)"
        )
    missing = [member for member in members if not hasattr(value, member)]
    if missing:
        text = f"{argument}: a {type(value).__name__} is not {expected}; it lacks {', '.join(missing)}"
        raise InvalidArgumentError(f"{text}; {mend}" if mend else text)


def check_options(
    options: Iterable[str], *takers: Callable[..., Any], known: Iterable[str] = (), what: str = "option"
) -> None:
    """Refuse an option that does not exist, and name the nearest one that does.

    Args:
        options: names that were given.
        takers: functions and classes whose arguments are valid names, or `TypedDict`s whose keys are.
        known: other names that exist; they are listed where none is near.
        what: what an option is called.
    """
    names = [*known]
    for taker in takers:
        if is_typeddict(taker):
            names += taker.__annotations__
            continue
        names += [one.name for one in signature(taker).parameters.values() if one.kind is not one.VAR_KEYWORD]
    for option in options:
        if option not in names:
            near = get_close_matches(option, names, n=1)
            mend = f"did you mean {near[0]}?" if near else f"the {what}s are {', '.join([*known] or names)}"
            raise InvalidArgumentError(f"{option}: there is no such {what}; {mend}")


def check_number(
    argument: str, value: object, least: int = 0, *, is_whole: bool = False, is_above: bool = False
) -> None:
    """Check a number at the door: from `least` up, or above it; whole, or a fraction, as seconds are."""
    is_number = isinstance(value, int if is_whole else int | float) and not isinstance(value, bool)
    if not (is_number and (value > least or (value == least and not is_above))):  # type: ignore[operator]
        expected = "a whole number" if is_whole else "a number"
        wanted = f"{expected} above {least}" if is_above else f"{expected} from {least} up"
        raise InvalidArgumentError(f"{argument}: expected {wanted}, got {value!r:.200}")
