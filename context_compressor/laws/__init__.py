"""The laws of a good compactor, checked for any function from messages to messages, over random histories.

from context_compressor.laws import check

report = check(my_function, form="chat", budget=4_000)
assert not report.broken
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from context_compressor.laws.counterexample import Counterexample
    from context_compressor.laws.subject import LAWS, Subject
    from context_compressor.laws.suite import Report, check

__all__ = ["LAWS", "Counterexample", "Report", "Subject", "check"]

_MODULES = {
    "Counterexample": "counterexample",
    "LAWS": "subject",
    "Report": "suite",
    "Subject": "subject",
    "check": "suite",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is used: pytest loads this package's plugin in every run."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
