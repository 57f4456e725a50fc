"""Core: bytes to values and back; knows no broker, does no I/O."""
