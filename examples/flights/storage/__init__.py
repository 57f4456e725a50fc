"""The project's storage in SQLite."""
