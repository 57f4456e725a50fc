"""`barnabas topics offsets` and `delete-records`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli import completion
from barnabas.cli.connection import AsJson, Connection
from barnabas.cli.offset_reset import read_csv
from barnabas.cli.option_group import grouped
from barnabas.cli.output import Account, show_json, show_table, show_text
from barnabas.cli.partition_choice import PartitionChoice, by_name
from barnabas.cli.session import with_admin
from barnabas.cli.times import iso_time, parse_time
from barnabas.cli.topic_check import with_missing_topics_named
from barnabas.cluster.errors import WrongArgument

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, DeletedRecords, OffsetSpec, Results
    from barnabas.client.cluster import TopicPartition
    from barnabas.client.offsets import OffsetAndTimestamp

    Found = Results[TopicPartition, OffsetAndTimestamp]

Choices = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TOPIC[:PARTITIONS]]...",
        autocompletion=completion.topics,
        help="Topics or partitions, e.g. flights:0,2-4.",
    ),
]

PLACES = ("earliest", "latest", "max-timestamp")
"""Values of --at other than a time."""


@grouped
def offsets(
    topics: Choices = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="WHEN", help=f"Show one offset: {', '.join(PLACES)}, or the first at or after a time."
        ),
    ] = None,
    as_json: AsJson = False,
    *,
    connection: Connection,
) -> None:
    """Show log start and end offsets of partitions, or the offset for a time."""
    choices = [PartitionChoice.parse("TOPIC", text) for text in topics or []]
    timestamp_ms = None if at is None or at in PLACES else parse_time("--at", at)

    async def work(admin: Admin) -> list[Found]:
        from barnabas.client.admin import OffsetSpec

        chosen = choices or [PartitionChoice(name, None) for name in await admin.list_topics()]
        partitions = await chosen_partitions(admin, chosen)
        specs = [OffsetSpec.earliest(), OffsetSpec.latest()]
        if at is not None:
            specs = [_spec(at) if timestamp_ms is None else OffsetSpec.for_timestamp(timestamp_ms)]
        return [await admin.list_offsets(dict.fromkeys(partitions, spec)) for spec in specs]

    found = with_admin(connection, work)
    account = Account()
    for results in found:
        account.failures(by_name(results.errors))
    whole = [each for each in found[0] if all(results.error(each) is None for results in found)]
    if as_json:
        show_json([_offsets_json(each, [results[each] for results in found]) for each in whole])
    elif at is None:
        firsts, ends = found
        rows = [
            (*each, firsts[each].offset, ends[each].offset, ends[each].offset - firsts[each].offset) for each in whole
        ]
        show_table(("topic", "partition", "first", "end", "records at most"), rows)
    else:
        [only] = found
        show_table(
            ("topic", "partition", "offset", "timestamp"),
            [(*each, _offset(only[each]), iso_time(only[each].timestamp_ms)) for each in whole],
        )
    account.close()


@grouped
def delete_records(
    topics: Choices = None,
    before: Annotated[
        str | None, typer.Option("--before", metavar="OFFSET", help="First offset to keep; `end` removes all records.")
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option("--from-file", exists=True, dir_okay=False, help="CSV file with lines topic,partition,offset."),
    ] = None,
    *,
    connection: Connection,
) -> None:
    """Delete records before an offset. This cannot be undone."""
    if (before is None) == (from_file is None) or bool(topics) == (before is None):
        raise WrongArgument("needs TOPIC[:PARTITIONS] --before OFFSET, or --from-file FILE")
    if before is not None and before != "end" and not (before.isascii() and before.isdigit()):
        raise WrongArgument(f"--before must be an offset or end; got {before!r}")
    choices = [PartitionChoice.parse("TOPIC", text) for text in topics or []]
    given = {} if from_file is None else read_csv(from_file.read_text(), str(from_file))

    async def work(admin: Admin) -> Results[TopicPartition, DeletedRecords]:
        from barnabas.client.cluster import TopicPartition

        wanted = {TopicPartition(*each): offset for each, offset in given.items()}
        if before is not None:
            offset = -1 if before == "end" else int(before)
            wanted = dict.fromkeys(await chosen_partitions(admin, choices), offset)
        return await admin.delete_records(wanted, raise_errors=False)

    results = with_admin(connection, work)
    account = Account()
    for name, left in by_name(results.succeeded).items():
        show_text(f"{name} begins at {left.low_watermark}")
    account.failures(by_name(results.errors))
    account.close()


async def chosen_partitions(admin: Admin, choices: Iterable[PartitionChoice]) -> list[TopicPartition]:
    """The partitions, each once. Raises `ClusterError` for an unknown topic, `WrongArgument` for a partition."""
    from barnabas.client.cluster import TopicPartition

    choices = list(choices)
    described = await admin.describe_topics(list(dict.fromkeys(choice.topic for choice in choices)))
    for error in with_missing_topics_named(described.errors).values():
        raise error
    found: dict[TopicPartition, None] = {}
    for choice in choices:
        count = len(described[choice.topic].partitions)
        for index in range(count) if choice.partitions is None else choice.partitions:
            if index >= count:
                raise WrongArgument(f"{choice.topic}:{index}: the topic has partitions 0 to {count - 1}")
            found[TopicPartition(choice.topic, index)] = None
    return list(found)


def _spec(place: str) -> OffsetSpec:
    """The `OffsetSpec` for one of `PLACES`."""
    from barnabas.client.admin import OffsetSpec

    match place:
        case "earliest":
            return OffsetSpec.earliest()
        case "latest":
            return OffsetSpec.latest()
        case _:
            return OffsetSpec.max_timestamp()


def _offset(result: OffsetAndTimestamp) -> int | None:
    return None if result.offset < 0 else result.offset


def _offsets_json(partition: TopicPartition, results: Sequence[OffsetAndTimestamp]) -> dict[str, Any]:
    names: dict[str, Any] = {"topic": partition.topic, "partition": partition.partition}
    if len(results) == 2:
        return {**names, "first": results[0].offset, "end": results[1].offset}
    [result] = results
    timestamp_ms = None if result.timestamp_ms < 0 else result.timestamp_ms
    return {**names, "offset": _offset(result), "timestamp": timestamp_ms}
