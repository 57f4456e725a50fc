"""What the project remembers, in SQLite."""
