"""`barnabas produce`: sends lines, files or JSON as records."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli import completion
from barnabas.cli.connection import Connection, SchemaRegistry
from barnabas.cli.line_format import raw, unescape
from barnabas.cli.option_group import grouped
from barnabas.cli.output import complain, show_text
from barnabas.cli.progress import Advance, progress
from barnabas.cli.record_text import KINDS, Headers, Outgoing, WrongText, parse_json, parse_text
from barnabas.cli.session import refusal, run_connected
from barnabas.cli.times import parse_duration, parse_time
from barnabas.cluster.errors import ClusterError, WrongArgument

if TYPE_CHECKING:
    from barnabas.client.producer import FutureRecordMetadata, Producer, RecordMetadata

SCHEMA_INPUTS = ("avro", "json-schema")
"""Kinds with a schema that lines of JSON can be written in."""
AWAITED = 10_000
"""Limit of records in flight."""


@dataclass(frozen=True)
class Input:
    """Options for parsing the input."""

    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-k", "-K", help="Split lines into key and value at this text.")
    ] = None
    delimiter: Annotated[str, typer.Option("--delimiter", "-D", help="Text that ends a record.")] = "\\n"
    as_json: Annotated[
        bool, typer.Option("--json", "-J", help="Read a JSON object per line, as `consume --json` prints it.")
    ] = False
    key: Annotated[str | None, typer.Option("--key", help="Key for all records.")] = None
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Header for all records; repeatable."),
    ] = None
    deliver_at: Annotated[
        str | None,
        typer.Option("--deliver-at", metavar="TIME", help="Deliver them then, e.g. 2026-08-01T12:00 (UTC)."),
    ] = None
    deliver_after: Annotated[
        str | None, typer.Option("--deliver-after", metavar="DURATION", help="Deliver them later, e.g. 5s or 2h.")
    ] = None
    empty_is_null: Annotated[bool, typer.Option("--null", "-Z", help="Send empty keys and values as null.")] = False
    key_serializer: Annotated[
        str, typer.Option("--key-serializer", metavar="KIND", help=", ".join((*KINDS, *SCHEMA_INPUTS)))
    ] = "bytes"
    value_serializer: Annotated[
        str, typer.Option("--value-serializer", metavar="KIND", help="Same kinds as for keys.")
    ] = "bytes"
    key_schema: Annotated[
        Path | None, typer.Option("--key-schema", metavar="FILE", help="Schema of keys, for avro and json-schema.")
    ] = None
    value_schema: Annotated[
        Path | None, typer.Option("--value-schema", metavar="FILE", help="Schema of values, for avro and json-schema.")
    ] = None
    registry: SchemaRegistry = None

    def parser(self) -> Callable[[bytes], Outgoing]:
        """Function that parses the bytes of a record and raises `WrongText`. Raises `WrongArgument`."""
        for option, kind in (("key", self.key_serializer), ("value", self.value_serializer)):
            if kind not in (*KINDS, *SCHEMA_INPUTS):
                known = ", ".join((*KINDS, *SCHEMA_INPUTS))
                raise WrongArgument(f"--{option}-serializer must be one of {known}; got {kind!r}")
        headers = self._headers()
        if self.as_json:
            if self.key_separator is not None or self.key is not None:
                raise WrongArgument("--json excludes --key and --key-separator: the objects contain the keys")
            return lambda line: self._from_json(line, headers)
        if self.key_separator is None:
            key = None if self.key is None else self._parse("key", self.key_serializer, raw(self.key))
            return lambda line: Outgoing(key, self._value(line), headers)
        if self.key is not None:
            raise WrongArgument("--key and --key-separator exclude each other")
        separator = _not_empty("--key-separator", self.key_separator)
        return lambda line: self._split(line, separator, headers)

    def _headers(self) -> Headers:
        from barnabas.protocol.records.delivery_time import DELIVER_AFTER, DELIVER_AT

        headers = []
        for text in self.header or []:
            name, equals, value = text.partition("=")
            if not equals or not name:
                raise WrongArgument(f"--header must be NAME=VALUE; got {text!r}")
            headers.append((name, raw(value)))
        if self.deliver_at is not None and self.deliver_after is not None:
            raise WrongArgument("--deliver-at and --deliver-after exclude each other")
        if self.deliver_at is not None:
            headers.append((DELIVER_AT, b"%d" % parse_time("--deliver-at", self.deliver_at)))
        if self.deliver_after is not None:
            headers.append((DELIVER_AFTER, b"%d" % parse_duration("--deliver-after", self.deliver_after)))
        return tuple(headers)

    def _from_json(self, line: bytes, headers: Headers) -> Outgoing:
        found = parse_json(line, self.key_serializer, self.value_serializer)
        return Outgoing(found.key, found.value, (*headers, *found.headers), found.partition, found.timestamp_ms)

    def _split(self, line: bytes, separator: bytes, headers: Headers) -> Outgoing:
        key, found, value = line.partition(separator)
        if not found:
            raise WrongText(f"has no {separator.decode(errors='backslashreplace')!r} between key and value")
        return Outgoing(self._parse("key", self.key_serializer, key), self._value(value), headers)

    def _value(self, data: bytes) -> Any:
        return self._parse("value", self.value_serializer, data)

    def _parse(self, part: str, kind: str, data: bytes) -> Any:
        if not data and self.empty_is_null:
            return None
        try:
            return parse_text(kind, data)
        except WrongText as error:
            raise WrongText(f"{part}: {error}") from None


@dataclass(frozen=True)
class Delivery:
    """Options for sending."""

    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Send to this partition.")] = None
    acks: Annotated[str | None, typer.Option("--acks", "-a", help="Acks: all, 1 or 0.")] = None
    compression: Annotated[
        str | None, typer.Option("--compression", "-z", help="Codec: none, gzip, snappy, lz4 or zstd.")
    ] = None
    transactional_id: Annotated[
        str | None, typer.Option("--transactional-id", metavar="ID", help="Send all records in one transaction.")
    ] = None
    report: Annotated[
        bool, typer.Option("--report", help="Print partition and offset of each record as JSON lines.")
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress bar and no count.")] = False


@grouped
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=completion.topics)],
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", exists=True, dir_okay=False, help="Files, each sent as one record."),
    ] = None,
    *,
    source: Input,
    delivery: Delivery,
    connection: Connection,
) -> None:
    """Send lines of standard input, or files, as records; return when all are acked (acks=all)."""
    parse = source.parser()
    delimiter = _not_empty("--delimiter", source.delimiter)
    shipment = _Shipment(topic, delivery.report)

    async def work() -> None:
        from barnabas.cli.topic_check import existing_partitions
        from barnabas.client.producer import Producer, ProducerSettings

        settings = connection.settings(
            ProducerSettings.model_fields,
            acks=delivery.acks,
            compression_type=delivery.compression,
            transactional_id=delivery.transactional_id,
            key_serializer=source.key_serializer,
            value_serializer=source.value_serializer,
            key_schema=source.key_schema,
            value_schema=source.value_schema,
            schema_registry_url=source.registry,
            max_block_ms=connection.timeout_ms,
            allow_auto_create_topics=False,
        )
        # Wrong settings are reported before any request.
        opening = Producer(**settings)
        count = await existing_partitions(connection, topic)
        if delivery.partition is not None and delivery.partition >= count:
            raise WrongArgument(f"--partition must be 0 to {count - 1} for topic {topic}; got {delivery.partition}")
        quiet = delivery.quiet or (not files and sys.stdin.isatty())
        with progress(f"to {topic}", _total_bytes(files), unit="bytes", quiet=quiet) as advance:
            records = _records(files or [], delimiter, parse, advance)
            async with opening as producer:
                if delivery.transactional_id is None:
                    await shipment.send_all(producer, records, delivery.partition)
                else:
                    async with producer.transaction():
                        await shipment.send_all(producer, records, delivery.partition)

    run_connected(connection, work)
    if not delivery.quiet:
        complain(f"{shipment.arrived} record{'s' if shipment.arrived != 1 else ''} sent to {topic}")


class _Shipment:
    """Records in flight, in input order."""

    def __init__(self, topic: str, report: bool) -> None:
        self.arrived = 0
        self._taken = 0
        self._topic = topic
        self._report = report
        self._under_way: deque[FutureRecordMetadata] = deque()

    async def send_all(self, producer: Producer, records: AsyncIterator[Outgoing], partition: int | None) -> None:
        """Sends all records and waits for their acks. Raises `ClusterError` for the first that fails, when all
        records before it are acked.
        """
        wrong: ClusterError | None = None
        try:
            async for record in records:
                self._under_way.append(await self._enqueue(producer, record, partition))
                await self._settle(AWAITED)
        except ClusterError as error:
            wrong = error
        await self._settle(0)
        if wrong is not None:
            raise wrong

    async def _enqueue(self, producer: Producer, record: Outgoing, partition: int | None) -> FutureRecordMetadata:
        from barnabas.protocol.errors import KafkaError

        self._taken += 1
        try:
            return await producer.enqueue(
                self._topic,
                record.value,
                key=record.key,
                headers=record.headers,
                partition=record.partition if partition is None else partition,
                timestamp_ms=record.timestamp_ms,
            )
        except KafkaError as error:
            raise _of_record(self._taken, error) from None

    async def _settle(self, left: int) -> None:
        from barnabas.protocol.errors import KafkaError

        while len(self._under_way) > left:
            try:
                metadata = await self._under_way.popleft()
            except KafkaError as error:
                raise _of_record(self.arrived + 1, error) from None
            self.arrived += 1
            if self._report:
                show_text(_report_line(metadata))


def _of_record(number: int, error: Exception) -> ClusterError:
    failure = refusal(error)
    return type(failure)(f"record {number}: {failure}")


async def _records(
    files: list[Path], delimiter: bytes, parse: Callable[[bytes], Outgoing], advance: Advance
) -> AsyncIterator[Outgoing]:
    from barnabas.cli.stdin import pieces

    if files:
        for path in files:
            data = path.read_bytes()
            yield _parsed(parse, data, str(path))
            advance(len(data))
        return
    number = 0
    async for line in pieces(delimiter):
        number += 1
        yield _parsed(parse, line, f"line {number}")
        advance(len(line) + len(delimiter))


def _parsed(parse: Callable[[bytes], Outgoing], data: bytes, place: str) -> Outgoing:
    try:
        return parse(data)
    except WrongText as error:
        raise WrongArgument(f"{place} {error}" if str(error).startswith("has no") else f"{place}: {error}") from None


def _total_bytes(files: list[Path] | None) -> int | None:
    """Size of the files, or of standard input if it is a file; None if unknown."""
    import os
    import stat
    from io import UnsupportedOperation

    if files:
        return sum(path.stat().st_size for path in files)
    try:
        found = os.fstat(sys.stdin.fileno())
    except (UnsupportedOperation, AttributeError, OSError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _report_line(metadata: RecordMetadata) -> str:
    return json.dumps(
        {
            "topic": metadata.topic,
            "partition": metadata.partition,
            "offset": metadata.offset,
            "timestamp": metadata.timestamp_ms,
        }
    )


def _not_empty(option: str, text: str) -> bytes:
    data = unescape(option, text)
    if not data:
        raise WrongArgument(f"{option} cannot be empty")
    return data
