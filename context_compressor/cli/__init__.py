"""The command line: a folder or a module for what each command does, and what they share."""

from __future__ import annotations
