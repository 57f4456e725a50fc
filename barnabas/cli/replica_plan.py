"""Core: plans for partition reassignment, read, written and generated.

The file format is that of kafka-reassign-partitions.sh:
`{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any

from barnabas.cli.offset_reset import Partition
from barnabas.cli.shared_hosts import NO_HOSTS, Hosts, shares_host
from barnabas.cluster.errors import WrongArgument

Plan = dict[Partition, list[int]]
"""Replicas of each partition, the preferred leader first."""


def read_plan(text: str, name: str) -> Plan:
    """Raises `WrongArgument`."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise WrongArgument(f"{name}: invalid JSON: {error}") from None
    parts = found.get("partitions") if isinstance(found, dict) else None
    if not isinstance(parts, list) or found.get("version", 1) != 1:
        raise WrongArgument(f'{name}: must be a JSON object with "version": 1 and "partitions"')
    plan: Plan = {}
    for part in parts:
        partition, replicas = _read_part(part, name)
        if partition in plan:
            raise WrongArgument(f"{name}: {partition.topic}:{partition.partition} is there twice")
        plan[partition] = replicas
    if not plan:
        raise WrongArgument(f"{name}: no partition")
    return plan


def write_plan(plan: Mapping[Partition, Sequence[int]]) -> str:
    """Writes the format of `read_plan`."""
    parts = [
        {"topic": each.topic, "partition": each.partition, "replicas": list(replicas)}
        for each, replicas in sorted(plan.items())
    ]
    lines = ",\n  ".join(json.dumps(part) for part in parts)
    return f'{{"version": 1, "partitions": [\n  {lines}\n]}}'


def spread(partitions: Mapping[Partition, int], racks: Mapping[int, str | None], hosts: Hosts = NO_HOSTS) -> Plan:
    """Spreads partitions with the given replica counts over brokers and racks: leaders round-robin, replicas in as
    many racks as possible, at most one on a host. Raises `WrongArgument` if there are too few brokers or hosts.
    """
    ring = _ring(racks, hosts)
    plan: Plan = {}
    for number, (partition, count) in enumerate(sorted(partitions.items())):
        if count > len(ring):
            raise WrongArgument(f"{partition.topic} has {count} replicas, more than {len(ring)} brokers")
        start = number % len(ring)
        round_ = ring[start:] + ring[:start]
        plan[partition] = _on_different_hosts(_one_of_each_rack_first(round_, racks), hosts)[:count]
        if len(plan[partition]) < count:
            raise WrongArgument(f"{partition.topic} has {count} replicas, more than {len(plan[partition])} hosts")
    return plan


def _on_different_hosts(brokers: Sequence[int], hosts: Hosts) -> list[int]:
    """The first broker of each host."""
    chosen: list[int] = []
    for broker in brokers:
        if not shares_host(broker, chosen, hosts):
            chosen.append(broker)
    return chosen


def _one_of_each_rack_first(brokers: Sequence[int], racks: Mapping[int, str | None]) -> list[int]:
    """Stable order with the first broker of each rack before the others."""
    seen: dict[str, None] = {}
    first, later = [], []
    for broker in brokers:
        rack = racks[broker]
        if rack is not None and rack in seen:
            later.append(broker)
            continue
        if rack is not None:
            seen[rack] = None
        first.append(broker)
    return first + later


def _ring(racks: Mapping[int, str | None], hosts: Hosts) -> list[int]:
    """Brokers in an order whose neighbours are in different racks, and on different hosts, as far as possible."""
    by_rack: dict[str, dict[str | int, list[int]]] = {}
    for broker in sorted(racks):
        by_host = by_rack.setdefault(racks[broker] or "", {})
        by_host.setdefault(hosts.get(broker, broker), []).append(broker)
    return _alternating([_alternating(list(by_host.values())) for by_host in by_rack.values()])


def _alternating(groups: Sequence[Sequence[int]]) -> list[int]:
    """The first of each group, the second of each, and so on."""
    return [each for each in chain.from_iterable(zip_longest(*groups)) if each is not None]


def _read_part(part: Any, name: str) -> tuple[Partition, list[int]]:
    match part:
        case {"topic": str(topic), "partition": int(index), "replicas": list(replicas)} if (
            index >= 0 and replicas and all(type(each) is int and each >= 0 for each in replicas)
        ):
            if len(set(replicas)) < len(replicas):
                raise WrongArgument(f"{name}: {topic}:{index} names a broker twice")
            return Partition(topic, index), replicas
    raise WrongArgument(f"{name}: must have topic, partition and replicas; got {json.dumps(part)[:80]}")
