"""Keys and values of the coordinators' topics: an int16, then a message.

The int16 of a key is the type of the record (its body has version 0), that of a value is its version. Serves
`__consumer_offsets`, `__transaction_state`, `__share_group_state` and control records alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct as Packing
from struct import error as struct_error
from types import ModuleType
from typing import NamedTuple, TypeVar

from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.schema import Message, decode, encode_chunks

_INT16 = Packing(">h")

M = TypeVar("M", bound=Message)


class RecordType(NamedTuple):
    """The key and the value of a type of record."""

    key: type[Message]
    value: type[Message]


def record_types(module: ModuleType) -> Mapping[int, RecordType]:
    """The types of records in a message module (`protocol.messages.group_log`, …)."""
    found: dict[int, RecordType] = {}
    for name, key in vars(module).items():
        if name.endswith("Key") and isinstance(key, type) and issubclass(key, Message):
            found[key.API_KEY] = RecordType(key, getattr(module, name[:-3] + "Value"))
    return found


def encode_versioned(message: Message, version: int) -> bytes:
    """A value: int16 version, body."""
    return b"".join(encode_chunks(message, version, _INT16.pack(version)))


def decode_versioned(kind: type[M], data: bytes | memoryview) -> tuple[M, int]:
    """The message of a value, and its version. Raises `MalformedMessage`."""
    version = read_int16(data)
    return decode(kind, memoryview(data)[2:], version), version


def encode_key(message: Message) -> bytes:
    """A key: int16 type of the record, body."""
    return b"".join(encode_chunks(message, 0, _INT16.pack(message.API_KEY)))


def decode_key(types: Mapping[int, RecordType], data: bytes | memoryview) -> Message | None:
    """The message of a key; None for a type that is not known, as a newer version may have written it."""
    record_type = types.get(read_int16(data))
    return None if record_type is None else decode(record_type.key, memoryview(data)[2:], 0)


def read_int16(data: bytes | memoryview) -> int:
    """The int16 that leads a key or a value."""
    try:
        (number,) = _INT16.unpack_from(data, 0)
    except struct_error:
        raise MalformedMessage("a record ends within its leading int16") from None
    return int(number)
