"""The door to the protocol's messages: their classes, and the functions that encode and decode them.

The classes are described in `protocol.structs`. The reader and the writer of one (message, version) are compiled when
they are first needed (`protocol.codec`).
"""

from __future__ import annotations

from collections.abc import Generator
from struct import error as struct_error
from typing import Any, TypeVar

from barnabas.protocol.errors import EncodeError, MalformedMessage, TooManyElements
from barnabas.protocol.structs import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    MISSING,
    NO_VERSIONS,
    RECORDS,
    STRING,
    UINT16,
    UINT32,
    UUID,
    Buffer,
    FieldSpec,
    Message,
    Reader,
    SizedWriter,
    SteppedReader,
    SteppedWriter,
    Struct,
    VersionRange,
    WireType,
    Writer,
    array,
    field,
    parse_versions,
    struct,
)

__all__ = [
    "BOOL",
    "BYTES",
    "DECODING_ERRORS",
    "ENCODING_ERRORS",
    "FLOAT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "MISSING",
    "NO_VERSIONS",
    "RECORDS",
    "STRING",
    "UINT16",
    "UINT32",
    "UUID",
    "Buffer",
    "FieldSpec",
    "Message",
    "Reader",
    "SizedWriter",
    "SteppedReader",
    "SteppedWriter",
    "Struct",
    "VersionRange",
    "WireType",
    "Writer",
    "array",
    "decode",
    "decode_in_steps",
    "decode_prefix",
    "encode",
    "encode_chunks",
    "encode_in_steps",
    "field",
    "malformed",
    "parse_versions",
    "struct",
]

M = TypeVar("M", bound=Message)


def decode(cls: type[M], buffer: Buffer, version: int) -> M:
    """The message that fills `buffer`. Records are views into it.

    Raises `MalformedMessage` on anything that is not such a message, also if bytes are left over.
    """
    message, position = decode_prefix(cls, buffer, 0, version)
    if position != len(buffer):
        raise MalformedMessage(f"{cls.__name__}: {len(buffer) - position} bytes are left over")
    return message


def decode_prefix(
    cls: type[M], buffer: Buffer, position: int, version: int, most_elements: int | None = None
) -> tuple[M, int]:
    """The message that starts at `position`, and the position after it. Raises `MalformedMessage`.

    Raises `TooManyElements` for a request with more than `most_elements`; None stands for the most that any may have.
    """
    read = cls.READERS.get(version)
    if read is None:
        read = _reader(cls, version)
    try:
        return read(buffer, position) if most_elements is None else read(buffer, position, most_elements)
    except DECODING_ERRORS as error:
        raise malformed(cls, version, error) from None


def decode_in_steps(
    cls: type[M], buffer: Buffer, version: int, most_elements: int
) -> Generator[None, None, tuple[M, int]]:
    """`decode_prefix` of a large message from position 0, as a generator whose steps take less than a millisecond."""
    read = cls.STEPPED_READERS.get(version)
    if read is None:
        read = _stepped_reader(cls, version)
    # Each time, not only after the reader was made: otherwise the steps would depend on what this process has decoded.
    yield
    try:
        return (yield from read(buffer, 0, most_elements))
    except DECODING_ERRORS as error:
        raise malformed(cls, version, error) from None


DECODING_ERRORS = (MalformedMessage, struct_error, IndexError, UnicodeDecodeError)
"""Errors that readers raise."""


def malformed(cls: type[Message], version: int, error: Exception) -> MalformedMessage:
    """The error to raise if a reader raised `error`."""
    if isinstance(error, TooManyElements):
        return error
    if isinstance(error, (struct_error, IndexError)):
        return MalformedMessage(f"{cls.__name__} version {version} ends too early")
    return MalformedMessage(f"{cls.__name__} version {version}: {error}")


def encode(message: Message, version: int) -> bytes:
    """The bytes of a message. Records in it must be bytes-like.

    Raises `EncodeError` for a value that cannot be encoded, `UnsupportedFieldError` for one that this version
    cannot carry.
    """
    return b"".join(encode_chunks(message, version))


def encode_chunks(message: Message, version: int, prefix: Buffer = b"") -> list[Any]:
    """Like `encode`, with `prefix` before it and the records not copied: each is a chunk of its own.

    Records may be anything with a length, such as a region of a file.
    """
    writer = message.WRITERS.get(version)
    if writer is None:
        writer = _writer(type(message), version)
    start = len(prefix)
    size_bytes = writer.size_bytes + start
    while True:
        buffer = bytearray(size_bytes)
        if start:
            buffer[:start] = prefix
        cuts: list[tuple[int, Any]] = []
        try:
            position = writer.write(message, buffer, start, cuts)
        except ENCODING_ERRORS as error:
            if not _is_too_small(error):
                raise EncodeError(f"{type(message).__name__} version {version}: {error}") from error
            # Run the writer again, in a larger buffer.
            size_bytes = _larger(size_bytes)
        else:
            writer.size_bytes = position + (position >> 2) + 32
            return _cut(buffer, position, cuts)


def encode_in_steps(message: Message, version: int, prefix: Buffer = b"") -> Generator[None, None, list[Any]]:
    """`encode_chunks` of a large message, as a generator whose steps take less than a millisecond. The message must not
    change meanwhile."""
    writer = message.STEPPED_WRITERS.get(version)
    if writer is None:
        writer = _stepped_writer(type(message), version)
        yield
    size_bytes = max(writer.size_bytes, FIRST_STEPPED_BYTES) + len(prefix)
    while True:
        buffer, cuts = bytearray(size_bytes), list[tuple[int, Any]]()
        buffer[: len(prefix)] = prefix
        try:
            position = yield from writer.write(message, buffer, len(prefix), cuts)
        except ENCODING_ERRORS as error:
            if not _is_too_small(error):
                raise EncodeError(f"{type(message).__name__} version {version}: {error}") from error
            size_bytes = _larger(size_bytes)
        else:
            writer.size_bytes = position + (position >> 2) + 32
            return _cut(buffer, position, cuts)


FIRST_STEPPED_BYTES = 64 * 1024
"""Buffer for the first large message of a kind."""

ENCODING_ERRORS = (struct_error, IndexError, TypeError, AttributeError, UnicodeEncodeError)
"""Errors that writers raise."""


def _is_too_small(error: Exception) -> bool:
    """True if a larger buffer may help."""
    return isinstance(error, IndexError) or (isinstance(error, struct_error) and "requires a buffer" in str(error))


def _larger(size_bytes: int) -> int:
    """The size of the next buffer after one that was too small. Writing starts over: so small steps would cost most."""
    return size_bytes * 16 if size_bytes < 4096 else max(size_bytes * 4, 1 << 20)


def _cut(buffer: bytearray, position: int, cuts: list[tuple[int, Any]]) -> list[Any]:
    """The chunks of a message that was written up to `position`: the bytes between the records, and the records."""
    if not cuts:
        del buffer[position:]
        return [buffer]
    chunks: list[Any] = []
    start = 0
    for end, records in cuts:
        chunks.append(buffer[start:end])
        chunks.append(records)
        start = end
    if start < position:
        chunks.append(buffer[start:position])
    return chunks


def _reader(cls: type[Message], version: int) -> Reader:
    """Compile on first use."""
    if version not in cls.VERSIONS:
        raise MalformedMessage(f"{cls.__name__} has versions {cls.VERSIONS}, not {version}")
    from barnabas.protocol.codec.reading import compile_reader

    reader = cls.READERS[version] = compile_reader(cls, version)
    return reader


def _writer(cls: type[Message], version: int) -> SizedWriter[Writer]:
    """Compile on first use."""
    if version not in cls.VERSIONS:
        raise EncodeError(f"{cls.__name__} has versions {cls.VERSIONS}, not {version}")
    from barnabas.protocol.codec.writing import compile_writer

    writer = cls.WRITERS[version] = SizedWriter(compile_writer(cls, version))
    return writer


def _stepped_reader(cls: type[Message], version: int) -> SteppedReader:
    """Compile on first use."""
    from barnabas.protocol.codec.reading import compile_stepped_reader

    reader = cls.STEPPED_READERS[version] = compile_stepped_reader(cls, version)
    return reader


def _stepped_writer(cls: type[Message], version: int) -> SizedWriter[SteppedWriter]:
    """Compile on first use."""
    from barnabas.protocol.codec.writing import compile_stepped_writer

    writer = cls.STEPPED_WRITERS[version] = SizedWriter(compile_stepped_writer(cls, version))
    return writer
