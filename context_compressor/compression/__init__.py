"""How a history becomes a view: what to let go is decided by pure functions, and performed by the engine."""
