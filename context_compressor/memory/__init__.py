"""Where a history lives, and `CompressedMemory`, which keeps the view of it in step and runs events."""
