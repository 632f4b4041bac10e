"""Where full texts go and how they come back: stores, stubs with previews, the agent's tools."""

from __future__ import annotations
