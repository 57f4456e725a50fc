"""Uuids and the limits of the wire's integers. Pure values; knows no message."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

Uuid = bytes
"""16 bytes, big-endian, as they travel."""

Records = Any
"""Record batches in a message: a `memoryview` into the frame once decoded; when encoding, bytes or any other
sized piece of a frame (a region of a file). A closer type would need an import from the floor above."""

ZERO_UUID: Uuid = bytes(16)
"""Stands for "no id"."""
ONE_UUID: Uuid = bytes(15) + b"\x01"
"""Reserved: the topic id of `__cluster_metadata`."""

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


_UUID_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def uuid_to_string(uuid: Uuid) -> str:
    """URL-safe base64 without padding, as Kafka prints ids."""
    return urlsafe_b64encode(uuid).rstrip(b"=").decode("ascii")


def uuid_from_string(text: str) -> Uuid:
    """The reverse of `uuid_to_string`; ValueError if `text` is not the form of 16 bytes."""
    if len(text) != 22 or not _UUID_CHARACTERS.issuperset(text):
        raise ValueError(f"not a uuid: {text!r}")
    return urlsafe_b64decode(text + "==")
