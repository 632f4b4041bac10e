"""Histories, texts and states in SQLite, PostgreSQL, MySQL or MariaDB, by SQLAlchemy 2."""
