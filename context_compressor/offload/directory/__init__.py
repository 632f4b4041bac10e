"""Moved: this path goes after one release."""
