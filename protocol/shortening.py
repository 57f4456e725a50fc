"""Core: cuts error messages that quote a client and are too long to be encoded."""

from __future__ import annotations

from barnabas.protocol.schema import Struct

MOST_CHARACTERS = 1000
"""Longest error message."""


def shorten_error_messages(struct: Struct) -> None:
    """Cut every long `error_message` in a response."""
    for spec in struct.FIELDS:
        value = getattr(struct, spec.name)
        if isinstance(value, Struct):
            shorten_error_messages(value)
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Struct):
                    shorten_error_messages(each)
        elif spec.name == "error_message" and isinstance(value, str) and len(value) > MOST_CHARACTERS:
            setattr(struct, spec.name, value[:MOST_CHARACTERS] + "…")
