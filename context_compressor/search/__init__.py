"""A full-text index over the messages of a history: terms, SQLite, ranking. It knows of no view."""

from __future__ import annotations
