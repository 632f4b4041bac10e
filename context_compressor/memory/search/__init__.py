"""Searching the whole history: what of it is indexed, and where in it, or in the store, a passage stands."""
