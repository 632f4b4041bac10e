"""What `compress` does."""
