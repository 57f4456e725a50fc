"""Core: the error of a check."""

from __future__ import annotations


class CannotRun(Exception):
    """There is no verdict; the message is one line that names the reason."""
