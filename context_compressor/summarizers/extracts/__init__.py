"""A summary without a model: eight mechanisms that know no program and no tool by name."""
