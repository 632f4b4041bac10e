"""What `replay` does."""
