"""What the stores of one directory share: namespaces, locks, threads, quota, removing what is old."""
