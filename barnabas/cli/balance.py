"""`barnabas cluster balance`: spreads replicas over racks, disks and brokers; a dry run without `--execute`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.balance_plan import Balance, Limits, PartitionLoad, balanced
from barnabas.cli.connection import AsJson, Connection
from barnabas.cli.offset_reset import Partition
from barnabas.cli.option_group import grouped
from barnabas.cli.output import Account, show_json, show_table, show_text
from barnabas.cli.partition_choice import by_name
from barnabas.cli.reassignment import by_partition, until_moved
from barnabas.cli.reassignment_throttle import throttled
from barnabas.cli.replica_plan import write_plan
from barnabas.cli.session import with_admin
from barnabas.cli.shared_hosts import hosts_of
from barnabas.cluster.errors import ClusterError

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, Results
    from barnabas.client.cluster import TopicPartition


@dataclass(frozen=True)
class Moves:
    """Options on what is moved, and how."""

    execute: Annotated[bool, typer.Option("--execute", help="Move the replicas, and wait until they have moved.")] = (
        False
    )
    max_moves: Annotated[int, typer.Option("--max-moves", min=0, help="Replicas that are moved at most.")] = 50
    max_bytes: Annotated[
        int | None, typer.Option("--max-bytes", min=0, help="Bytes that are copied at most; default: no limit.")
    ] = None
    sample: Annotated[
        float, typer.Option("--sample", metavar="SECONDS", min=0, help="Time for which write rates are measured.")
    ] = 5.0
    throttle: Annotated[
        int | None, typer.Option("--throttle", metavar="BYTES", min=1, help="Bytes per second of each broker.")
    ] = None
    back: Annotated[
        Path | None,
        typer.Option("--back", dir_okay=False, help="Write the current assignment to FILE, as a plan for going back."),
    ] = None


@grouped
def balance(moves: Moves, as_json: AsJson = False, *, connection: Connection) -> None:
    """Plan moves that balance racks, disk use, write rates and leaders. Moves nothing without --execute."""

    async def work(admin: Admin) -> tuple[Balance, Results[TopicPartition, None] | None]:
        return await _balance(admin, moves)

    plan, results = with_admin(connection, work)
    if as_json:
        show_json(_as_json(plan))
    else:
        _show(plan)
    if results is not None:
        account = Account()
        for name in by_name(results.succeeded):
            show_text(f"{name} has moved")
        account.failures(by_name(results.errors))
        account.close()


async def _balance(admin: Admin, moves: Moves) -> tuple[Balance, Results[TopicPartition, None] | None]:
    from barnabas.client.admin import ElectionType

    moving = await admin.list_partition_reassignments()
    if moving:
        raise ClusterError(f"{len(moving)} partitions are being reassigned: `barnabas topics reassign list` shows them")
    described = await admin.describe_cluster()
    racks = {node.node_id: node.rack for node in described.nodes}
    limits = Limits(moves.max_moves, moves.max_bytes)
    plan = balanced(await _loads(admin, moves.sample), racks, limits, hosts_of(described.nodes))
    if plan.back and moves.back is not None:
        moves.back.write_text(write_plan(plan.back) + "\n")
    if not moves.execute or not plan.plan:
        return plan, None
    async with throttled(admin, plan.back, plan.plan, moves.throttle):
        results = await admin.alter_partition_reassignments(by_partition(plan.plan), raise_errors=False)
        await until_moved(admin, list(results.succeeded))
    await admin.elect_leaders(ElectionType.PREFERRED, list(by_partition(plan.plan)), raise_errors=False)
    return plan, results


async def _loads(admin: Admin, sample_seconds: float) -> dict[Partition, PartitionLoad]:
    """Replicas, sizes and write rates of all partitions. A rate is the growth of the largest replica."""
    import trio

    before = await _sizes(admin) if sample_seconds else {}
    await trio.sleep(sample_seconds)
    sizes = await _sizes(admin)
    described = await admin.describe_topics(list(await admin.list_topics(list_internal=True)))
    found = {}
    for name, topic in described.items():
        for part in topic.partitions:
            partition = Partition(name, part.partition)
            size = sizes.get(partition, 0)
            growth = max(0, size - before.get(partition, size))
            found[partition] = PartitionLoad(tuple(part.replicas), size, growth / sample_seconds if growth else 0.0)
    return found


async def _sizes(admin: Admin) -> dict[Partition, int]:
    sizes: dict[Partition, int] = {}
    for directories in (await admin.describe_log_dirs()).values():
        for directory in directories.values():
            for each, replica in directory.replicas.items():
                partition = Partition(each.topic, each.partition)
                if not replica.is_future:
                    sizes[partition] = max(sizes.get(partition, 0), replica.size_bytes)
    return sizes


def _show(plan: Balance) -> None:
    titles = ("broker", "replicas", "", "leaders", "", "bytes", "", "bytes/s", "")
    rows = []
    for broker, now in plan.before.items():
        then = plan.after[broker]
        pairs = zip(
            (now.replicas, now.leaders, now.size_bytes, round(now.rate)),
            (then.replicas, then.leaders, then.size_bytes, round(then.rate)),
            strict=True,
        )
        rows.append((broker, *(cell for old, new in pairs for cell in (old, f"-> {new}"))))
    show_table(titles, rows)
    if not plan.plan:
        show_text("the cluster is balanced: nothing to move")
        return
    moves = [
        (each.topic, each.partition, _ids(plan.back[each]), _ids(replicas)) for each, replicas in plan.plan.items()
    ]
    show_table(("topic", "partition", "replicas", "new replicas"), moves)
    show_text(f"{plan.moved_replicas} replicas to move, {plan.moved_bytes} bytes")


def _as_json(plan: Balance) -> dict[str, object]:
    return {
        "moved_replicas": plan.moved_replicas,
        "moved_bytes": plan.moved_bytes,
        "partitions": [
            {"topic": each.topic, "partition": each.partition, "from": plan.back[each], "replicas": replicas}
            for each, replicas in plan.plan.items()
        ],
    }


def _ids(brokers: list[int]) -> str:
    return ",".join(map(str, brokers))
