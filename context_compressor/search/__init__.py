"""A full-text index over the messages of a history: terms, SQLite, ranking. It knows of no view."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from context_compressor.search.hits import Document, Found, Hit, find_all, hits_page

if TYPE_CHECKING:
    from context_compressor.search.index import SearchIndex
    from context_compressor.search.query import places_in

__all__ = ["Document", "Found", "Hit", "SearchIndex", "find_all", "hits_page", "places_in"]

_MODULES = {"SearchIndex": "index", "places_in": "query"}
"""Where the names live that only a search loads: their modules compile long patterns."""


def __getattr__(name: str) -> Any:
    """Import a name at its first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
