"""What each command may be told; it returns what is to be done, and `app` does it."""
