"""Replays as a page to look at, as pictures, and as data for programs."""
