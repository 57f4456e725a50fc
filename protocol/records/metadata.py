"""Metadata records as the value of a record: frame version, type, version, body (KIP-631).

`__cluster_metadata` and `__remote_log_metadata` have them, with types of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from barnabas.protocol.codec.helpers import put_varint, read_varint
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages import metadata_log
from barnabas.protocol.schema import Message, decode, encode

FRAME_VERSION = 1

Types = Mapping[int, type[Message]]
"""Types of records by their number."""


def types_of(module: ModuleType) -> Types:
    """The types of records in a message module."""
    return {
        kind.API_KEY: kind
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message
    }


_CLUSTER_TYPES = types_of(metadata_log)


def encode_metadata_record(message: Message, version: int) -> bytes:
    """The value of a record."""
    head = bytearray(8)
    position = put_varint(head, 0, FRAME_VERSION)
    position = put_varint(head, position, message.API_KEY)
    position = put_varint(head, position, version)
    return bytes(head[:position]) + encode(message, version)


def decode_metadata_record(data: bytes | memoryview, types: Types = _CLUSTER_TYPES) -> tuple[Message, int]:
    """The message and its version; `MalformedMessage` also for an unknown frame version or type."""
    record_type, version, position = read_frame(data)
    kind = types.get(record_type)
    if kind is None:
        raise MalformedMessage(f"no metadata record has the type {record_type}")
    return decode(kind, memoryview(data)[position:], version), version


def read_frame(data: bytes | memoryview) -> tuple[int, int, int]:
    """(type, version, position of the body). Raises `MalformedMessage`."""
    try:
        frame_version, position = read_varint(data, 0)
        record_type, position = read_varint(data, position)
        version, position = read_varint(data, position)
    except IndexError:
        raise MalformedMessage("a metadata record ends within its frame") from None
    if frame_version != FRAME_VERSION:
        raise MalformedMessage(f"a metadata record has frame version {frame_version}")
    return record_type, version, position
