"""What `demo` does."""
