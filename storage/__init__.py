"""Core: one partition's log on one disk: synchronous, with a single writer."""
