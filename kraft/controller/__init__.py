"""Core: the active controller's decisions: a command goes in, the records to append and the answer come out."""
