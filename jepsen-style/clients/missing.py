"""What is said where a client library is not on this machine."""

from __future__ import annotations


class LibraryMissing(Exception):
    """One line that says what is missing and how to get it."""
