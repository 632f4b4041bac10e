"""What the wrapped clients of providers share: they send views, and answer read-back calls inside."""
