"""`barnabas consume`: records become lines, or JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from barnabas.cli import completion
from barnabas.cli.connection import Connection
from barnabas.cli.line_format import LineFormat, Show, raw, unescape
from barnabas.cli.option_group import grouped
from barnabas.cli.output import complain
from barnabas.cli.reading import Reader, Shown
from barnabas.cli.record_text import KINDS, json_of, text_of
from barnabas.cli.session import run_until_done
from barnabas.cli.start_offsets import Place, Span, parse_span
from barnabas.cluster.errors import WrongArgument
from runtime.visible import visible_bytes


@dataclass(frozen=True)
class Extent:
    """Which records are read."""

    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one; may be repeated.")
    ] = None
    offset: Annotated[
        list[str] | None,
        typer.Option(
            "--offset",
            "-o",
            metavar="WHERE",
            help="beginning, end, N, -N from the end, s@TIME; e@TIME is where to stop. end unless set; with --group "
            "what is not stored is meant.",
        ),
    ] = None
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="As --offset beginning.")] = False
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", "-c", min=0, help="End after so many.")
    ] = None
    exit_at_end: Annotated[
        bool, typer.Option("--exit", "-e", help="End with the last record that is there when it begins.")
    ] = False
    group: Annotated[
        str | None, typer.Option("--group", "-G", help="Share the partitions with the group, and commit.")
    ] = None
    committed: Annotated[
        bool, typer.Option("--read-committed", help="Nothing of transactions that are open or aborted.")
    ] = False

    def span(self) -> Span:
        """Where reading begins and ends. Raises `WrongArgument`."""
        texts = list(self.offset or [])
        if self.from_beginning:
            texts.append("beginning")
        span = parse_span(texts, Place.END if self.group is None else Place.STORED)
        if self.group is None:
            if span.start is Place.STORED:
                raise WrongArgument("--offset stored: of which --group?")
            return span
        if span.start not in (Place.BEGINNING, Place.END, Place.STORED) or span.until_ms is not None:
            raise WrongArgument("--offset: `barnabas groups reset-offsets` moves a group; here beginning or end")
        if self.partition is not None:
            raise WrongArgument("--partition: in a group the coordinator says who reads what")
        return span


@dataclass(frozen=True)
class Look:
    """How records are written."""

    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            help="%t topic, %p partition, %o offset, %T timestamp, %k key, %K its length, %s value, %S its length, "
            "%h headers, \\n, \\t, …",
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", "-J", help="An object for each record.")] = False
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-k", "-K", help="Write KEY and this before each value.")
    ] = None
    delimiter: Annotated[str, typer.Option("--delimiter", "-D", help="What ends a record.")] = "\\n"
    null: Annotated[str, typer.Option("--null", "-Z", metavar="TEXT", help="What stands for no key or value.")] = "null"
    key_deserializer: Annotated[str, typer.Option("--key-deserializer", metavar="KIND", help=", ".join(KINDS))] = (
        "bytes"
    )
    value_deserializer: Annotated[str, typer.Option("--value-deserializer", metavar="KIND", help="As for keys.")] = (
        "bytes"
    )
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Neither a bar nor a sum.")] = False

    def shown(self) -> Shown:
        """From a record to what is written. Raises `WrongArgument`."""
        for option, kind in (("key", self.key_deserializer), ("value", self.value_deserializer)):
            if kind not in KINDS:
                raise WrongArgument(f"--{option}-deserializer {kind}: there are {', '.join(KINDS)}")
        if sum((self.format is not None, self.as_json, self.key_separator is not None)) > 1:
            raise WrongArgument("--format, --json and --key-separator: one of them")
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
        typer.Argument(metavar="TOPIC...", autocompletion=completion.topics, help="With --group also ^PATTERN."),
    ],
    *,
    extent: Extent,
    look: Look,
    connection: Connection,
) -> None:
    """Write records to standard output, one per line, until Ctrl-C."""
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
            default_api_timeout_ms=connection.timeout_ms,
            allow_auto_create_topics=False,
        )
        async with Consumer(**settings) as consumer:
            if extent.group is None:
                await reader.assign(consumer, extent.partition)
            else:
                await reader.subscribe(consumer)
            await reader.read(consumer, quiet=look.quiet)

    try:
        run_until_done(work)
    finally:
        if reader.began and not look.quiet:
            complain(f"{reader.count} record{'s' if reader.count != 1 else ''}")


def _reset(span: Span) -> str:
    """What happens where there is no offset, or one that is gone."""
    match span.start:
        case Place.OFFSET:
            return "none"
        case Place.FROM_END | Place.TIME | Place.BEGINNING:
            return "earliest"
        case _:
            return "latest"


def _as_json(record: Any) -> bytes:
    return json.dumps(json_of(record), ensure_ascii=False).encode(errors="backslashreplace") + b"\n"


def _or(null: bytes, data: bytes | None, show: Show) -> bytes:
    return null if data is None else show(data)
