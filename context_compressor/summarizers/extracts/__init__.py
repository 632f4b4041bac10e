"""What a summary says without a model: messages are read, and lines about them chosen by rules."""
