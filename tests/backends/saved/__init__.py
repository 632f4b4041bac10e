"""What SQL and Redis held of invented sessions, as an earlier release wrote it."""
