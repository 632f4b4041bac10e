"""The names and values of a conversation: found, described, and ranked by later need."""
