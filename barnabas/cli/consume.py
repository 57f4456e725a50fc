"""`barnabas consume`: prints records as lines or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from barnabas.cli import completion
from barnabas.cli.connection import Connection, SchemaRegistry
from barnabas.cli.line_format import LineFormat, Show, raw, unescape
from barnabas.cli.option_group import grouped
from barnabas.cli.output import complain
from barnabas.cli.reading import Reader, Shown
from barnabas.cli.record_text import KINDS, SCHEMA_KINDS, json_of, plain, text_of
from barnabas.cli.session import run_connected
from barnabas.cli.share_reading import ShareReader, Sharing
from barnabas.cli.start_offsets import Place, Span, parse_span
from barnabas.cluster.errors import WrongArgument
from barnabas.protocol.acknowledge_type import AcknowledgeType
from barnabas.runtime.visible import visible_bytes


@dataclass(frozen=True)
class Extent:
    """Options for the records to read."""

    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Read this partition only; repeatable.")
    ] = None
    offset: Annotated[
        list[str] | None,
        typer.Option(
            "--offset",
            "-o",
            metavar="WHERE",
            help="Start at beginning, end (the default), offset N, -N records before the end, or s@TIME; stop at "
            "e@TIME. With --group: beginning or end, for partitions without a committed offset.",
        ),
    ] = None
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Same as --offset beginning.")] = False
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", "-c", min=0, help="Exit after N records.", metavar="N")
    ] = None
    exit_at_end: Annotated[bool, typer.Option("--exit", "-e", help="Exit at the end offsets found at the start.")] = (
        False
    )
    group: Annotated[
        str | None,
        typer.Option("--group", "-G", help="Consume as a member of this group and commit offsets.", metavar="ID"),
    ] = None
    committed: Annotated[
        bool, typer.Option("--read-committed", help="Skip records of open and aborted transactions.")
    ] = False

    def check_shared(self, group: str) -> None:
        """Raises `WrongArgument` for options that a share group leaves no room for."""
        given = {
            "--group": self.group is not None,
            "--partition": self.partition is not None,
            "--exit": self.exit_at_end,
            "--read-committed": self.committed,
            "--offset": bool(self.offset),
            "--from-beginning": self.from_beginning,
        }
        hints = {
            "--exit": "; --idle SECONDS ends the command",
            "--read-committed": f"; see `barnabas configs set group {group} share.isolation.level=read_committed`",
            "--offset": "; `barnabas groups reset-offsets` moves a group",
            "--from-beginning": f"; see `barnabas configs set group {group} share.auto.offset.reset=earliest`",
        }
        for option, is_given in given.items():
            if is_given:
                raise WrongArgument(f"{option} cannot be used with --share-group" + hints.get(option, ""))

    def span(self) -> Span:
        """Start and end of the read. Raises `WrongArgument`."""
        texts = list(self.offset or [])
        if self.from_beginning:
            texts.append("beginning")
        span = parse_span(texts, Place.END if self.group is None else Place.STORED)
        if self.group is None:
            if span.start is Place.STORED:
                raise WrongArgument("--offset stored needs --group")
            return span
        if span.start not in (Place.BEGINNING, Place.END, Place.STORED) or span.until_ms is not None:
            raise WrongArgument(
                "--offset must be beginning or end with --group; `barnabas groups reset-offsets` moves a group"
            )
        if self.partition is not None:
            raise WrongArgument("--partition cannot be used with --group, which assigns partitions itself")
        return span


@dataclass(frozen=True)
class Look:
    """Options for the output."""

    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            help="Format each record as kcat does: %t topic, %p partition, %o offset, %T timestamp, %k key, %K key "
            "length, %s value, %S value length, %h headers, \\n, \\t, …",
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", "-J", help="Print a JSON object per record.")] = False
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-k", "-K", help="Print the key and this text before each value.")
    ] = None
    delimiter: Annotated[str, typer.Option("--delimiter", "-D", help="Text after each record.")] = "\\n"
    null: Annotated[str, typer.Option("--null", "-Z", metavar="TEXT", help="Text for a null key or value.")] = "null"
    key_deserializer: Annotated[
        str, typer.Option("--key-deserializer", metavar="KIND", help=", ".join((*KINDS, *SCHEMA_KINDS)))
    ] = "bytes"
    value_deserializer: Annotated[
        str, typer.Option("--value-deserializer", "--value", metavar="KIND", help="Same kinds as for keys.")
    ] = "bytes"
    registry: SchemaRegistry = None
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress bar and no count.")] = False

    def shown(self) -> Shown:
        """Function from a record to the bytes to print. Raises `WrongArgument`."""
        for option, kind in (("key", self.key_deserializer), ("value", self.value_deserializer)):
            if kind not in (*KINDS, *SCHEMA_KINDS):
                known = ", ".join((*KINDS, *SCHEMA_KINDS))
                raise WrongArgument(f"--{option}-deserializer must be one of {known}; got {kind!r}")
        if sum((self.format is not None, self.as_json, self.key_separator is not None)) > 1:
            raise WrongArgument("--format, --json and --key-separator exclude each other")
        null = raw(self.null)
        # A file or another program gets the bytes as they are.
        show: Show = visible_bytes if sys.stdout.isatty() else bytes
        if self.as_json:
            return lambda record: show(_as_json(record))
        if self.format is not None:
            line_format = LineFormat.parse("--format", self.format, null, show)
            return lambda record: line_format(record, text_of(record.key), text_of(record.value))
        end = unescape("--delimiter", self.delimiter)
        if self.key_separator is None:
            return lambda record: _or(null, text_of(record.value), show) + end
        separator = unescape("--key-separator", self.key_separator)
        return lambda record: (
            _or(null, text_of(record.key), show) + separator + _or(null, text_of(record.value), show) + end
        )


@grouped
def consume(
    topics: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC...", autocompletion=completion.topics, help="Topics; with --group also ^PATTERN."
        ),
    ],
    *,
    extent: Extent,
    sharing: Sharing,
    look: Look,
    connection: Connection,
) -> None:
    """Print records to standard output, one per line, until Ctrl-C."""
    kind = sharing.kind()
    if kind is not None:
        _consume_shared(topics, extent, sharing, kind, look, connection)
        return
    span = extent.span()
    reader = Reader(topics, span, look.shown(), limit=extent.max_messages, to_end=extent.exit_at_end)

    async def work() -> None:
        from barnabas.client.consumer.consumer import Consumer
        from barnabas.client.consumer.settings import ConsumerSettings

        settings = connection.settings(
            ConsumerSettings.model_fields,
            group_id=extent.group,
            auto_offset_reset=_reset(span),
            isolation_level="read_committed" if extent.committed else None,
            key_deserializer=look.key_deserializer,
            value_deserializer=look.value_deserializer,
            schema_registry_url=look.registry,
            default_api_timeout_ms=connection.timeout_ms,
            allow_auto_create_topics=False,
        )
        async with Consumer(**settings) as consumer:
            if extent.group is None:
                await reader.assign(consumer, extent.partition)
            else:
                await reader.subscribe(consumer)
            await reader.read(consumer, quiet=look.quiet)

    _run(connection, work, reader, quiet=look.quiet)


def _consume_shared(
    topics: list[str], extent: Extent, sharing: Sharing, kind: AcknowledgeType, look: Look, connection: Connection
) -> None:
    group = sharing.share_group
    assert group is not None
    extent.check_shared(group)
    reader = ShareReader(look.shown(), kind, limit=extent.max_messages, idle_s=sharing.idle)

    async def work() -> None:
        from barnabas.cli.topic_check import existing_partitions
        from barnabas.client.shares.settings import ShareConsumerSettings
        from barnabas.client.shares.share_consumer import ShareConsumer

        settings = connection.settings(
            ShareConsumerSettings.model_fields,
            group_id=group,
            share_acknowledgement_mode="explicit",
            # What is acquired beyond the limit would count as a delivery.
            share_acquire_mode="batch_optimized" if extent.max_messages is None else "record_limit",
            key_deserializer=look.key_deserializer,
            value_deserializer=look.value_deserializer,
            default_api_timeout_ms=connection.timeout_ms,
            allow_auto_create_topics=False,
        )
        for topic in topics:
            await existing_partitions(connection, topic)
        async with ShareConsumer(*topics, **settings) as consumer:
            await reader.read(consumer, quiet=look.quiet)

    _run(connection, work, reader, quiet=look.quiet)


def _run(
    connection: Connection, work: Callable[[], Awaitable[None]], reader: Reader | ShareReader, *, quiet: bool
) -> None:
    try:
        run_connected(connection, work)
    finally:
        if reader.began and not quiet:
            complain(f"{reader.count} record{'s' if reader.count != 1 else ''}")


def _reset(span: Span) -> str:
    """The auto.offset.reset policy for the span."""
    match span.start:
        case Place.OFFSET:
            return "none"
        case Place.FROM_END | Place.TIME | Place.BEGINNING:
            return "earliest"
        case _:
            return "latest"


def _as_json(record: Any) -> bytes:
    return json.dumps(json_of(record), ensure_ascii=False, default=plain).encode(errors="backslashreplace") + b"\n"


def _or(null: bytes, data: bytes | None, show: Show) -> bytes:
    return null if data is None else show(data)
