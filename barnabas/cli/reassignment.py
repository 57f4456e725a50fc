"""`barnabas topics reassign`: moves replicas to other brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli import completion
from barnabas.cli.connection import AsJson, Connection
from barnabas.cli.offset_reset import Partition
from barnabas.cli.option_group import grouped
from barnabas.cli.output import Account, show_json, show_table, show_text
from barnabas.cli.partition_choice import PartitionChoice, by_name
from barnabas.cli.progress import progress
from barnabas.cli.reassignment_throttle import remove_throttle, set_throttle
from barnabas.cli.replica_plan import Plan, read_plan, spread, write_plan
from barnabas.cli.session import with_admin
from barnabas.cli.shared_hosts import hosts_of
from barnabas.cli.topic_records import chosen_partitions
from barnabas.cluster.errors import WrongArgument

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, PartitionReassignment, Results
    from barnabas.client.cluster import TopicPartition

app = typer.Typer(help="Move partitions to other brokers.", rich_markup_mode=None)

PlanFile = Annotated[
    Path, typer.Argument(metavar="PLAN", exists=True, dir_okay=False, help="Plan file, as written by `generate`.")
]
POLL_SECONDS = 0.5


@app.command()
@grouped
def generate(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC[:PARTITIONS]...", autocompletion=completion.topics)],
    brokers: Annotated[
        str | None, typer.Option("--brokers", metavar="ID,…", help="Target brokers; default: all in service.")
    ] = None,
    *,
    connection: Connection,
) -> None:
    """Print a plan that spreads replicas evenly. Nothing is moved."""
    choices = [PartitionChoice.parse("TOPIC", text) for text in topics]
    wanted = None if brokers is None else _broker_ids(brokers)

    async def work(admin: Admin) -> Plan:
        cluster = await admin.describe_cluster()
        racks = {node.node_id: node.rack for node in cluster.nodes}
        for broker in wanted or ():
            if broker not in racks:
                raise WrongArgument(
                    f"--brokers: no broker {broker}; brokers in service are {', '.join(map(str, racks))}"
                )
        chosen = racks if wanted is None else {broker: racks[broker] for broker in wanted}
        counts = {each: len(replicas) for each, replicas in (await _replicas(admin, choices)).items()}
        return spread(counts, chosen, hosts_of(cluster.nodes))

    show_text(write_plan(with_admin(connection, work)))


@app.command()
@grouped
def execute(
    plan: PlanFile,
    back: Annotated[
        Path | None,
        typer.Option("--back", dir_okay=False, help="Write the current assignment to FILE, as a plan for going back."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the reassignment is complete.")] = False,
    throttle: Annotated[
        int | None,
        typer.Option("--throttle", metavar="BYTES", min=0, help="Maximum rate of each broker, in bytes per second."),
    ] = None,
    *,
    connection: Connection,
) -> None:
    """Start the reassignment of a plan."""
    wanted = read_plan(plan.read_text(), str(plan))

    async def work(admin: Admin) -> Results[TopicPartition, None]:
        before = await _replicas(admin, _choices(wanted))
        if back is not None:
            back.write_text(write_plan(before) + "\n")
        if throttle is not None:
            await set_throttle(admin, before, wanted, throttle)
        results = await admin.alter_partition_reassignments(by_partition(wanted), raise_errors=False)
        if wait:
            await until_moved(admin, list(results.succeeded))
            if throttle is not None:
                await remove_throttle(admin, dict.fromkeys(each.topic for each in wanted))
        return results

    results = with_admin(connection, work)
    account = Account()
    for name in by_name(results.succeeded):
        show_text(f"{name} has moved" if wait else f"{name} is moving")
    account.failures(by_name(results.errors))
    account.close()


@app.command()
@grouped
def verify(plan: PlanFile, as_json: AsJson = False, *, connection: Connection) -> None:
    """Compare the current assignment with a plan; exit code 1 if it differs. Removes the throttle if nothing moves."""
    wanted = read_plan(plan.read_text(), str(plan))

    async def work(admin: Admin) -> tuple[Plan, Mapping[TopicPartition, PartitionReassignment]]:
        moving = await admin.list_partition_reassignments(list(by_partition(wanted)))
        if not moving:
            await remove_throttle(admin, dict.fromkeys(each.topic for each in wanted))
        return await _replicas(admin, _choices(wanted)), moving

    found, moving = with_admin(connection, work)
    states = {}
    for partition in wanted:
        if any((each.topic, each.partition) == partition for each in moving):
            states[partition] = "moving"
        else:
            states[partition] = "done" if found[partition] == wanted[partition] else "elsewhere"
    if as_json:
        show_json(
            [{"topic": each.topic, "partition": each.partition, "state": state} for each, state in states.items()]
        )
    else:
        rows = [(*each, state, _ids(found[each])) for each, state in states.items()]
        show_table(("topic", "partition", "state", "replicas"), rows)
    if any(state != "done" for state in states.values()):
        raise typer.Exit(1)


@app.command("list")
@grouped
def list_(as_json: AsJson = False, *, connection: Connection) -> None:
    """List reassignments in progress."""

    async def work(admin: Admin) -> Mapping[TopicPartition, PartitionReassignment]:
        return await admin.list_partition_reassignments()

    moving = with_admin(connection, work)
    if as_json:
        show_json(
            [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "replicas": move.replicas,
                    "adding": move.adding_replicas,
                    "removing": move.removing_replicas,
                }
                for each, move in moving.items()
            ]
        )
        return
    rows = [
        (*each, _ids(move.replicas), _ids(move.adding_replicas), _ids(move.removing_replicas))
        for each, move in moving.items()
    ]
    show_table(("topic", "partition", "replicas", "adding", "removing"), rows)


@app.command()
@grouped
def cancel(plan: PlanFile, *, connection: Connection) -> None:
    """Cancel the reassignments of a plan."""
    wanted = read_plan(plan.read_text(), str(plan))

    async def work(admin: Admin) -> Results[TopicPartition, None]:
        return await admin.alter_partition_reassignments(dict.fromkeys(by_partition(wanted)), raise_errors=False)

    results = with_admin(connection, work)
    account = Account()
    for name in by_name(results.succeeded):
        show_text(f"{name}: cancelled")
    account.failures(by_name(results.errors))
    account.close()


async def _replicas(admin: Admin, choices: list[PartitionChoice]) -> Plan:
    """Current replicas by partition. Raises as `chosen_partitions`."""
    partitions = await chosen_partitions(admin, choices)
    described = await admin.describe_topics(list(dict.fromkeys(each.topic for each in partitions)))
    found = {(name, part.partition): part for name, topic in described.items() for part in topic.partitions}
    return {Partition(*each): list(found[each].replicas) for each in partitions}


async def until_moved(admin: Admin, partitions: list[TopicPartition]) -> None:
    import trio

    left = len(partitions)
    with progress("moved", left, unit="partitions") as advance:
        while left:
            moving = len(await admin.list_partition_reassignments(partitions))
            advance(left - moving)
            left = moving
            if left:
                await trio.sleep(POLL_SECONDS)


def _choices(plan: Plan) -> list[PartitionChoice]:
    topics: dict[str, list[int]] = {}
    for each in plan:
        topics.setdefault(each.topic, []).append(each.partition)
    return [PartitionChoice(topic, tuple(indexes)) for topic, indexes in topics.items()]


def by_partition(plan: Plan) -> dict[TopicPartition, list[int]]:
    from barnabas.client.cluster import TopicPartition

    return {TopicPartition(*each): replicas for each, replicas in plan.items()}


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def _broker_ids(text: str) -> list[int]:
    ids = text.split(",")
    if not all(each.isascii() and each.isdigit() for each in ids):
        raise WrongArgument(f"--brokers {text}: must be broker ids, e.g. 1,2,3")
    return [int(each) for each in ids]
