"""`barnabas groups reset-offsets` and `delete-offsets`: where a group goes on, and forgetting where it was."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli import completion
from barnabas.cli.connection import AsJson, Connection
from barnabas.cli.group_progress import committed_offsets
from barnabas.cli.offset_reset import Aim, Known, Partition, Reset, Target, one_target, plan, read_csv, write_csv
from barnabas.cli.option_group import grouped
from barnabas.cli.output import Account, complain, say, show_json, show_table
from barnabas.cli.partition_choice import PartitionChoice, by_name
from barnabas.cli.session import with_admin
from barnabas.cli.times import parse_duration, parse_time
from barnabas.cli.topic_records import chosen_partitions
from barnabas.cluster.errors import ClusterError, WrongArgument

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, Results
    from barnabas.client.cluster import TopicPartition

Group = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=completion.groups)]
TopicChoices = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC[:PARTITIONS]", help="As in flights:0,2-4; may be repeated."),
]


@dataclass(frozen=True)
class Where:
    """One of these."""

    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False
    to_current: Annotated[bool, typer.Option("--to-current", help="To where it is.")] = False
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, metavar="N")] = None
    shift_by: Annotated[int | None, typer.Option("--shift-by", metavar="N", help="Forwards, or with - back.")] = None
    to_datetime: Annotated[
        str | None, typer.Option("--to-datetime", metavar="TIME", help="UTC unless it says otherwise.")
    ] = None
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", metavar="TIME", help="Back from now: 90s, 1h30m, PT1H.")
    ] = None
    from_file: Annotated[
        Path | None,
        typer.Option("--from-file", exists=True, dir_okay=False, help="Lines of topic,partition,offset."),
    ] = None

    def target(self, now_ms: int) -> Target:
        """Raises `WrongArgument` unless it is exactly one."""
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
    """Which partitions are moved, and whether they are."""

    topic: TopicChoices = None
    all_topics: Annotated[bool, typer.Option("--all-topics", help="All that it has committed offsets of.")] = False
    execute: Annotated[bool, typer.Option("--execute", help="Do it; else the plan is shown only.")] = False
    export: Annotated[
        bool, typer.Option("--export", help="Write the plan as --from-file reads it, and do nothing.")
    ] = False
    as_json: AsJson = False


@grouped
def reset_offsets(group: Group, *, where: Where, scope: Scope, connection: Connection) -> None:
    """Plan, and with --execute make, a group go on elsewhere. Nobody may be in the group then."""
    target = where.target(time.time_ns() // 1_000_000)
    if scope.export and scope.execute:
        raise WrongArgument("--export and --execute: one of them")
    if target.aim is not Aim.GIVEN and scope.all_topics == bool(scope.topic):
        raise WrongArgument("which partitions? --topic TOPIC[:PARTITIONS], or --all-topics")
    choices = [PartitionChoice.parse("--topic", text) for text in scope.topic or []]

    async def work(admin: Admin) -> tuple[list[Reset], Results[TopicPartition, None] | None]:
        resets = plan(target, await _known(admin, group, target, choices))
        return resets, await _alter(admin, group, resets) if scope.execute else None

    resets, results = with_admin(connection, work)
    account = Account()
    if results is not None:
        account.failures(by_name(results.errors))
    if scope.export:
        say("\n".join(write_csv(resets)))
    elif scope.as_json:
        show_json({"executed": scope.execute, "offsets": list(map(_reset_json, resets)), "errors": account.errors})
    else:
        rows = [(*each.partition, each.before, each.after) for each in resets]
        show_table(("topic", "partition", "before", "after"), rows)
    for each in resets:
        if each.wanted != each.after:
            complain(
                f"{each.partition.topic}:{each.partition.partition}: there is no offset {each.wanted}; "
                f"{each.after} is the nearest"
            )
    if not (scope.execute or scope.export):
        complain("nothing was changed; --execute does it")
    account.close()


@grouped
def delete_offsets(group: Group, topic: TopicChoices = None, *, connection: Connection) -> None:
    """Forget where a group is in topics that it does not read now."""
    if not topic:
        raise WrongArgument("which? --topic TOPIC[:PARTITIONS]")
    choices = [PartitionChoice.parse("--topic", text) for text in topic]

    async def work(admin: Admin) -> Results[TopicPartition, None]:
        committed = list(await committed_offsets(admin, group))
        partitions = [
            each
            for choice in choices
            for each in committed
            if each.topic == choice.topic and (choice.partitions is None or each.partition in choice.partitions)
        ]
        if not partitions:
            raise ClusterError(f"{group} has committed nothing there")
        return await admin.delete_consumer_group_offsets(group, partitions, raise_errors=False)

    results = with_admin(connection, work)
    account = Account()
    for name in by_name(results.succeeded):
        say(f"forgot {name}")
    account.failures(by_name(results.errors))
    account.close()


async def _known(
    admin: Admin, group: str, target: Target, choices: Sequence[PartitionChoice]
) -> dict[Partition, Known]:
    """What the plan needs. ClusterError for a partition that there is not."""
    from barnabas.client.admin import OffsetSpec

    committed = await committed_offsets(admin, group)
    if target.given is not None:
        from barnabas.client.cluster import TopicPartition

        partitions = [TopicPartition(*each) for each in target.given]
    elif choices:
        partitions = await chosen_partitions(admin, choices)
    else:
        partitions = list(committed)
        if not partitions:
            raise ClusterError(f"{group} has committed no offsets; name a --topic")

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


async def _alter(admin: Admin, group: str, resets: Sequence[Reset]) -> Results[TopicPartition, None]:
    from barnabas.client.cluster import TopicPartition

    offsets = {TopicPartition(*each.partition): each.after for each in resets}
    return await admin.alter_consumer_group_offsets(group, offsets, raise_errors=False)


def _reset_json(reset: Reset) -> dict[str, Any]:
    return {
        "topic": reset.partition.topic,
        "partition": reset.partition.partition,
        "before": reset.before,
        "after": reset.after,
    }
