"""Core: plans that take all replicas off one broker, and the partitions that a restart of a broker would harm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.cli.offset_reset import Partition
from barnabas.cli.replica_plan import Plan
from barnabas.cli.shared_hosts import NO_HOSTS, Hosts, shares_host
from barnabas.cluster.errors import ClusterError


class PartitionHealth(NamedTuple):
    """The replicas of one partition, as its leader reports them."""

    partition: Partition
    replicas: Sequence[int]
    isr: Sequence[int]
    min_insync_replicas: int


def drained(
    assignment: Mapping[Partition, Sequence[int]],
    racks: Mapping[int, str | None],
    broker: int,
    hosts: Hosts = NO_HOSTS,
) -> Plan:
    """A plan for the partitions that have a replica on `broker`: another broker takes its place in each.

    `racks`: racks of the brokers in service; `hosts`: those that they share. The new one is in a rack without a replica
    if there is one, and has the fewest replicas. Raises `ClusterError` if there are too few brokers.
    """
    counts = Counter(each for replicas in assignment.values() for each in replicas)
    plan: Plan = {}
    for partition, replicas in sorted(assignment.items()):
        if broker not in replicas:
            continue
        staying = [each for each in replicas if each != broker]
        others = [
            each
            for each in racks
            if each != broker and each not in replicas and not shares_host(each, staying, hosts)
        ]
        if not others:
            left = len({hosts.get(each, each) for each in racks if each != broker})
            raise ClusterError(
                f"{_name(partition)} has {len(replicas)} replicas, "
                f"and without broker {broker} only {left} {'hosts' if hosts else 'brokers'} are in service"
            )
        taken = {racks.get(each) for each in staying} - {None}
        chosen = min(others, key=lambda each: (racks[each] in taken, counts[each], each))
        counts[chosen] += 1
        plan[partition] = [chosen if each == broker else each for each in replicas]
    return plan


def not_in_sync(partitions: Iterable[PartitionHealth]) -> list[str]:
    """One line for each partition with a replica that is not in its ISR."""
    return [
        f"{_name(each.partition)} has {len(each.isr)} of {len(each.replicas)} replicas in sync"
        for each in partitions
        if set(each.isr) != set(each.replicas)
    ]


def harmed(partitions: Iterable[PartitionHealth], broker: int) -> list[str]:
    """One line for each partition that cannot be read, or not be written with acks=all, while `broker` is down."""
    lines = []
    for each in partitions:
        name, least = _name(each.partition), each.min_insync_replicas
        left = [replica for replica in each.isr if replica != broker]
        if broker not in each.replicas:
            continue
        if not left:
            lines.append(f"{name} would have no leader: broker {broker} has its only replica in sync")
        elif len(left) < least:
            lines.append(f"{name} could not be written: {len(left)} of min.insync.replicas={least} would remain")
    return lines


def _name(partition: Partition) -> str:
    return f"{partition.topic}:{partition.partition}"
