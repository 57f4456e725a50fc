"""`barnabas groups reset-offsets` and `delete-offsets`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from barnabas.cli import completion
from barnabas.cli.connection import AsJson, Connection
from barnabas.cli.offset_reset import Aim, Known, Partition, Reset, Target, one_target, plan, read_csv, write_csv
from barnabas.cli.option_group import grouped
from barnabas.cli.output import Account, complain, show_json, show_table, show_text
from barnabas.cli.partition_choice import PartitionChoice, by_name
from barnabas.cli.session import with_admin
from barnabas.cli.times import parse_duration, parse_time
from barnabas.cli.topic_records import chosen_partitions
from barnabas.cluster.errors import ClusterError, WrongArgument
from barnabas.group_views.progress import committed_offsets, known_offsets

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, Results
    from barnabas.client.cluster import TopicPartition
    from barnabas.protocol.errors import KafkaError

Group = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=completion.groups)]
TopicChoices = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC[:PARTITIONS]", help="Topic or partitions, e.g. flights:0,2-4; repeatable."),
]

Outcomes: TypeAlias = "Mapping[str, KafkaError | None]"
"""By the name of a topic or partition: the error, or None if its offset is deleted."""


@dataclass(frozen=True)
class ResetTarget:
    """Options for the new offsets, of which exactly one is given."""

    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="Reset to the log start offset.")] = False
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Reset to the log end offset.")] = False
    to_current: Annotated[bool, typer.Option("--to-current", help="Reset to the current offset.")] = False
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, metavar="N", help="Reset to offset N.")] = None
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="Shift by N records; negative is backward.")
    ] = None
    to_datetime: Annotated[
        str | None,
        typer.Option("--to-datetime", metavar="TIME", help="Reset to the first record at or after TIME (UTC)."),
    ] = None
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", metavar="TIME", help="Reset to TIME before now: 90s, 1h30m, PT1H.")
    ] = None
    from_file: Annotated[
        Path | None,
        typer.Option("--from-file", exists=True, dir_okay=False, help="CSV file with lines topic,partition,offset."),
    ] = None

    def target(self, now_ms: int) -> Target:
        """Raises `WrongArgument` unless exactly one is given."""
        time_ms: int | None = None
        if self.to_datetime is not None:
            time_ms = parse_time("--to-datetime", self.to_datetime)
        back_ms: int | None = None
        if self.by_duration is not None:
            back_ms = now_ms - parse_duration("--by-duration", self.by_duration)
        file = self.from_file
        given = None if file is None else read_csv(file.read_text(), str(file))
        return one_target(
            [
                ("--to-earliest", Target(Aim.EARLIEST) if self.to_earliest else None),
                ("--to-latest", Target(Aim.LATEST) if self.to_latest else None),
                ("--to-current", Target(Aim.CURRENT) if self.to_current else None),
                ("--to-offset", None if self.to_offset is None else Target(Aim.OFFSET, self.to_offset)),
                ("--shift-by", None if self.shift_by is None else Target(Aim.SHIFT, self.shift_by)),
                ("--to-datetime", None if time_ms is None else Target(Aim.TIME, time_ms)),
                ("--by-duration", None if back_ms is None else Target(Aim.TIME, back_ms)),
                ("--from-file", None if given is None else Target(Aim.GIVEN, given=given)),
            ]
        )


@dataclass(frozen=True)
class Scope:
    """Options for the partitions to reset, and for the output."""

    topic: TopicChoices = None
    all_topics: Annotated[bool, typer.Option("--all-topics", help="Reset all topics with committed offsets.")] = False
    execute: Annotated[
        bool, typer.Option("--execute", help="Commit the new offsets; without it, only print the plan.")
    ] = False
    export: Annotated[bool, typer.Option("--export", help="Print the plan as CSV for --from-file; change nothing.")] = (
        False
    )
    as_json: AsJson = False


@grouped
def reset_offsets(group: Group, *, where: ResetTarget, scope: Scope, connection: Connection) -> None:
    """Plan new committed offsets of a group, or start offsets of a share group, and set them with --execute. The group
    must be empty."""
    target = where.target(time.time_ns() // 1_000_000)
    if scope.export and scope.execute:
        raise WrongArgument("--export and --execute exclude each other")
    if target.aim is not Aim.GIVEN and scope.all_topics == bool(scope.topic):
        raise WrongArgument("needs --topic TOPIC[:PARTITIONS] or --all-topics")
    choices = [PartitionChoice.parse("--topic", text) for text in scope.topic or []]

    async def work(admin: Admin) -> tuple[list[Reset], Results[TopicPartition, None] | None]:
        from barnabas.group_views.kinds import is_share_group

        is_shared = await is_share_group(admin, group)
        before = await known_offsets(admin, group, is_shared=is_shared)
        if not (before or choices or target.given is not None):
            raise ClusterError(f"{group} has committed no offsets; name a --topic")
        resets = plan(target, await _known(admin, before, target, choices))
        return resets, await _alter(admin, group, resets, is_shared=is_shared) if scope.execute else None

    resets, results = with_admin(connection, work)
    account = Account()
    if results is not None:
        account.failures(by_name(results.errors))
    if scope.export:
        show_text("\n".join(write_csv(resets)))
    elif scope.as_json:
        show_json({"executed": scope.execute, "offsets": list(map(_reset_json, resets)), "errors": account.errors})
    else:
        rows = [(*each.partition, each.before, each.after) for each in resets]
        show_table(("topic", "partition", "before", "after"), rows)
    for each in resets:
        if each.wanted != each.after:
            complain(
                f"{each.partition.topic}:{each.partition.partition}: offset {each.wanted} is out of range; "
                f"using {each.after}, the nearest"
            )
    if all(each.before is None for each in resets):
        complain(f"group {group} has no committed offsets in these partitions; it need not exist")
    if not (scope.execute or scope.export):
        complain("nothing was changed; run it again with --execute")
    account.close()


@grouped
def delete_offsets(group: Group, topic: TopicChoices = None, *, connection: Connection) -> None:
    """Delete a group's committed offsets of topics that it is not subscribed to, or a share group's offsets of whole
    topics."""
    if not topic:
        raise WrongArgument("needs --topic TOPIC[:PARTITIONS]")
    choices = [PartitionChoice.parse("--topic", text) for text in topic]

    async def work(admin: Admin) -> Outcomes:
        from barnabas.group_views.kinds import is_share_group

        if await is_share_group(admin, group):
            return await _delete_of_share_group(admin, group, choices)
        committed = list(await committed_offsets(admin, group))
        partitions = [
            each
            for choice in choices
            for each in committed
            if each.topic == choice.topic and (choice.partitions is None or each.partition in choice.partitions)
        ]
        if not partitions:
            raise ClusterError(f"{group} has no committed offset in them")
        return by_name((await admin.delete_consumer_group_offsets(group, partitions, raise_errors=False)).outcomes)

    account = Account()
    outcomes = with_admin(connection, work)
    failures = {name: error for name, error in outcomes.items() if error is not None}
    for name in outcomes:
        if name not in failures:
            show_text(f"deleted {name}")
    account.failures(failures)
    account.close()


async def _delete_of_share_group(admin: Admin, group: str, choices: Sequence[PartitionChoice]) -> Outcomes:
    for choice in choices:
        if choice.partitions is not None:
            raise WrongArgument(
                f"--topic {choice.topic}:…: share group {group} has its offsets deleted by topic; "
                f"give --topic {choice.topic}"
            )
    topics = list(dict.fromkeys(choice.topic for choice in choices))
    return (await admin.delete_share_group_offsets(group, topics, raise_errors=False)).outcomes


async def _known(
    admin: Admin, committed: Mapping[TopicPartition, int], target: Target, choices: Sequence[PartitionChoice]
) -> dict[Partition, Known]:
    """Offsets that the plan needs. Raises `ClusterError` for an unknown partition."""
    from barnabas.client.admin import OffsetSpec

    if target.given is not None:
        from barnabas.client.cluster import TopicPartition

        partitions = [TopicPartition(*each) for each in target.given]
    elif choices:
        partitions = await chosen_partitions(admin, choices)
    else:
        partitions = list(committed)

    async def offsets(at: OffsetSpec) -> dict[TopicPartition, int]:
        found = (await admin.list_offsets(dict.fromkeys(partitions, at))).all()
        return {partition: each.offset for partition, each in found.items()}

    firsts, ends = await offsets(OffsetSpec.earliest()), await offsets(OffsetSpec.latest())
    timely = await offsets(OffsetSpec.for_timestamp(max(0, target.value))) if target.aim is Aim.TIME else {}
    return {
        Partition(*each): Known(
            firsts[each], ends[each], committed.get(each), None if timely.get(each, -1) < 0 else timely[each]
        )
        for each in partitions
    }


async def _alter(
    admin: Admin, group: str, resets: Sequence[Reset], *, is_shared: bool
) -> Results[TopicPartition, None]:
    from barnabas.client.cluster import TopicPartition

    offsets = {TopicPartition(*each.partition): each.after for each in resets}
    if is_shared:
        return await admin.alter_share_group_offsets(group, offsets, raise_errors=False)
    return await admin.alter_consumer_group_offsets(group, offsets, raise_errors=False)


def _reset_json(reset: Reset) -> dict[str, Any]:
    return {
        "topic": reset.partition.topic,
        "partition": reset.partition.partition,
        "before": reset.before,
        "after": reset.after,
    }
