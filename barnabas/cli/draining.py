"""`barnabas cluster drain`: moves all replicas off a broker, so that it can be removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.connection import Connection
from barnabas.cli.drain_plan import PartitionHealth, drained
from barnabas.cli.offset_reset import Partition
from barnabas.cli.option_group import grouped
from barnabas.cli.output import Account, show_text
from barnabas.cli.partition_choice import by_name
from barnabas.cli.reassignment import by_partition, until_moved
from barnabas.cli.reassignment_throttle import throttled
from barnabas.cli.replica_plan import Plan
from barnabas.cli.session import with_admin
from barnabas.cli.shared_hosts import hosts_of
from barnabas.cluster.errors import WrongArgument

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, Results
    from barnabas.client.cluster import TopicPartition

CORDONED_LOG_DIRS = "cordoned.log.dirs"


@grouped
def drain(
    broker: Annotated[int, typer.Argument(metavar="BROKER", min=0, help="Broker id.")],
    cordon: Annotated[bool, typer.Option(help="Place no new replicas on the broker from now on.")] = True,
    throttle: Annotated[
        int | None,
        typer.Option("--throttle", metavar="BYTES", min=1, help="Limit of each broker for moved replicas, per second."),
    ] = None,
    *,
    connection: Connection,
) -> None:
    """Move all replicas of a broker to other brokers, and wait until they have moved."""

    async def work(admin: Admin) -> Results[TopicPartition, None] | None:
        return await drain_broker(admin, broker, cordon=cordon, throttle=throttle)

    results = with_admin(connection, work)
    if results is not None:
        account = Account()
        account.failures(by_name(results.errors))
        account.close()
        show_text(f"moved {len(results.succeeded)} replicas to other brokers")
    show_text(f"broker {broker} has no replicas")


async def drain_broker(
    admin: Admin, broker: int, *, cordon: bool, throttle: int | None = None
) -> Results[TopicPartition, None] | None:
    """Move all replicas off `broker`, at `throttle` bytes per second and broker at most. Returns the answers to the
    reassignment; None if there was nothing to move.

    Raises `ClusterError` if too few brokers are in service.
    """
    described = await admin.describe_cluster()
    racks, hosts = {node.node_id: node.rack for node in described.nodes}, hosts_of(described.nodes)
    before = await _assignment(admin)
    plan = drained(before, racks, broker, hosts)
    if cordon:
        await _cordon(admin, broker)
        # Topics may have been created since.
        before = await _assignment(admin)
        plan = drained(before, racks, broker, hosts)
    if not plan:
        return None
    async with throttled(admin, {each: before[each] for each in plan}, plan, throttle):
        results = await admin.alter_partition_reassignments(by_partition(plan), raise_errors=False)
        await until_moved(admin, list(results.succeeded))
    return results


async def _cordon(admin: Admin, broker: int) -> None:
    from barnabas.client.admin import ConfigResource, ResourceType

    resource = ConfigResource(ResourceType.BROKER, str(broker))
    await admin.incremental_alter_configs({resource: {CORDONED_LOG_DIRS: "*"}})


async def _assignment(admin: Admin) -> Plan:
    topics = await admin.list_topics(list_internal=True)
    described = await admin.describe_topics(list(topics))
    return {
        Partition(name, part.partition): list(part.replicas)
        for name, topic in described.items()
        for part in topic.partitions
    }


async def partition_health(admin: Admin) -> list[PartitionHealth]:
    """All partitions with their ISR and `min.insync.replicas`."""
    from barnabas.client.admin import ConfigResource, ResourceType

    topics = await admin.list_topics(list_internal=True)
    described = await admin.describe_topics(list(topics))
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in described]
    configs = await admin.describe_configs(resources)
    least = {resource.name: int(entries["min.insync.replicas"].value or 1) for resource, entries in configs.items()}
    return [
        PartitionHealth(Partition(name, part.partition), list(part.replicas), list(part.isr), least.get(name, 1))
        for name, topic in described.items()
        for part in topic.partitions
    ]


def check_is_broker(name: str) -> int:
    """The id in the name of a broker of a local cluster. Raises `WrongArgument`."""
    role, _, digits = name.partition("-")
    if role != "broker" or not digits.isdigit():
        raise WrongArgument(f"{name}: must be a broker, e.g. broker-1")
    return int(digits)
