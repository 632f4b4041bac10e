"""The notes: one text that stands for all that left the view."""
