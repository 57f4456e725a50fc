"""The error for a client library that is not on this machine."""

from __future__ import annotations


class LibraryMissing(Exception):
    """One line: what is missing and how to install it."""
