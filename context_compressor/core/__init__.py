"""How a history becomes a view: pure functions decide what to let go (`planner`), an `Event` performs it."""
