"""The numbers of record format v2. They live where they are compiled together with the loops that need them."""

from __future__ import annotations

from protocol.records.layout import encode_varint, read_varint, read_varlong, varint_size

__all__ = ["encode_varint", "read_varint", "read_varlong", "varint_size"]
