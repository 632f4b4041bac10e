"""A gateway: any agent gets views by its base URL."""
