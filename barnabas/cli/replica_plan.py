"""Which brokers shall have which partitions: read, written and made. A core.

The file is that of Kafka's tool: `{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any

from barnabas.cli.offset_reset import Partition
from barnabas.cluster.errors import WrongArgument

Plan = dict[Partition, list[int]]
"""Replicas of each partition, the preferred leader first."""


def read_plan(text: str, name: str) -> Plan:
    """Raises `WrongArgument`."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise WrongArgument(f"{name}: no JSON: {error}") from None
    parts = found.get("partitions") if isinstance(found, dict) else None
    if not isinstance(parts, list) or found.get("version", 1) != 1:
        raise WrongArgument(f'{name}: no object with "version": 1 and "partitions"')
    plan: Plan = {}
    for part in parts:
        partition, replicas = _read_part(part, name)
        if partition in plan:
            raise WrongArgument(f"{name}: {partition.topic}:{partition.partition} stands there twice")
        plan[partition] = replicas
    if not plan:
        raise WrongArgument(f"{name}: no partition")
    return plan


def write_plan(plan: Mapping[Partition, Sequence[int]]) -> str:
    """What `read_plan` reads."""
    parts = [
        {"topic": each.topic, "partition": each.partition, "replicas": list(replicas)}
        for each, replicas in sorted(plan.items())
    ]
    lines = ",\n  ".join(json.dumps(part) for part in parts)
    return f'{{"version": 1, "partitions": [\n  {lines}\n]}}'


def spread(partitions: Mapping[Partition, int], racks: Mapping[int, str | None]) -> Plan:
    """An even plan for partitions and their numbers of replicas, over brokers and their racks: leaders go round, and
    replicas lie in as many racks as there are. Raises `WrongArgument` if there are too few brokers.
    """
    ring = _ring(racks)
    plan: Plan = {}
    for number, (partition, count) in enumerate(sorted(partitions.items())):
        if count > len(ring):
            raise WrongArgument(f"{partition.topic} has {count} replicas, more than {len(ring)} brokers")
        start = number % len(ring)
        round_ = ring[start:] + ring[:start]
        plan[partition] = _one_of_each_rack_first(round_, racks)[:count]
    return plan


def _one_of_each_rack_first(brokers: Sequence[int], racks: Mapping[int, str | None]) -> list[int]:
    """In their order, but whoever's rack was not there yet comes before the others."""
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


def _ring(racks: Mapping[int, str | None]) -> list[int]:
    """Brokers so that neighbours are in different racks as far as can be."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker] or "", []).append(broker)
    columns = zip_longest(*by_rack.values())
    return [broker for broker in chain.from_iterable(columns) if broker is not None]


def _read_part(part: Any, name: str) -> tuple[Partition, list[int]]:
    match part:
        case {"topic": str(topic), "partition": int(index), "replicas": list(replicas)} if (
            index >= 0 and replicas and all(type(each) is int and each >= 0 for each in replicas)
        ):
            if len(set(replicas)) < len(replicas):
                raise WrongArgument(f"{name}: {topic}:{index} names a broker twice")
            return Partition(topic, index), replicas
    raise WrongArgument(f"{name}: not a topic, a partition and its replicas: {json.dumps(part)[:80]}")
