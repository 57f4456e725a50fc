"""Core: plans that balance a cluster: replicas in as many racks as possible, then disks, data rates and leaders.

Greedy and deterministic: the step that gains the most comes next, until nothing gains enough or a limit is reached. A
step either replaces one replica of a partition by one on another broker, or changes the order of the replicas, which
moves no data. The load of a broker is the sum of its replicas; the imbalance is the sum of squares of loads relative to
their mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.cli.offset_reset import Partition
from barnabas.cli.replica_plan import Plan
from barnabas.cli.shared_hosts import NO_HOSTS, Hosts, shares_host

LEAST_GAIN = 0.001
"""A step that lowers the imbalance by less is not worth a move."""


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """The replicas of one partition, the preferred leader first, and what each of them costs."""

    replicas: tuple[int, ...]
    size_bytes: int = 0
    rate: float = 0.0
    """Bytes written per second."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one plan."""

    max_moves: int = 50
    """Replicas that are moved; 0 changes only the order of replicas."""
    max_bytes: int | None = None
    """Bytes that are copied."""


@dataclass(slots=True)
class BrokerLoad:
    """The load of one broker."""

    replicas: int = 0
    leaders: int = 0
    size_bytes: int = 0
    rate: float = 0.0


@dataclass(slots=True)
class Balance:
    """A plan and its effect."""

    plan: Plan = field(default_factory=dict)
    """New replicas of each partition that changes."""
    back: Plan = field(default_factory=dict)
    """Its replicas now: the plan for going back."""
    moved_replicas: int = 0
    moved_bytes: int = 0
    before: dict[int, BrokerLoad] = field(default_factory=dict)
    after: dict[int, BrokerLoad] = field(default_factory=dict)


def balanced(
    partitions: Mapping[Partition, PartitionLoad],
    racks: Mapping[int, str | None],
    limits: Limits | None = None,
    hosts: Hosts = NO_HOSTS,
) -> Balance:
    """A plan for these partitions on the brokers in service, which `racks` names; `hosts`: those that they share.
    Partitions with a replica on another
    broker are left alone: their reassignment would fail."""
    movable = {
        partition: load
        for partition, load in sorted(partitions.items())
        if load.replicas and all(replica in racks for replica in load.replicas)
    }
    return _Search(movable, (racks, hosts), limits or Limits(), loads(partitions, racks)).run()


def loads(partitions: Mapping[Partition, PartitionLoad], racks: Mapping[int, str | None]) -> dict[int, BrokerLoad]:
    """The load of each broker in service."""
    found = {broker: BrokerLoad() for broker in sorted(racks)}
    for load in partitions.values():
        for position, replica in enumerate(load.replicas):
            if replica in found:
                _add(found[replica], load, 1, is_leader=position == 0)
    return found


def imbalance(brokers: Mapping[int, BrokerLoad]) -> float:
    """0 if all brokers have the same load of each kind."""
    total = 0.0
    for values in _kinds(brokers):
        mean = sum(values) / len(values) if values else 0
        if mean:
            total += sum((value / mean - 1) ** 2 for value in values)
    return total


def rack_shortage(replicas: Sequence[int], racks: Mapping[int, str | None]) -> int:
    """Racks that the replicas could be in and are not."""
    known = {rack for rack in racks.values() if rack is not None}
    used = {racks.get(replica) for replica in replicas} - {None}
    return max(0, min(len(known), len(replicas)) - len(used))


def _kinds(brokers: Mapping[int, BrokerLoad]) -> Iterator[list[float]]:
    found = brokers.values()
    yield [float(it.size_bytes) for it in found]
    yield [it.rate for it in found]
    yield [float(it.replicas) for it in found]
    yield [float(it.leaders) for it in found]


def _add(broker: BrokerLoad, load: PartitionLoad, sign: int, *, is_leader: bool) -> None:
    broker.replicas += sign
    broker.leaders += sign * is_leader
    broker.size_bytes += sign * load.size_bytes
    broker.rate += sign * load.rate


@dataclass(frozen=True, slots=True)
class _Step:
    """A possible change of one partition."""

    gain: tuple[int, float]
    """Racks gained, then the imbalance that it removes."""
    partition: Partition
    replicas: tuple[int, ...]
    copies: bool


class _Search:
    def __init__(
        self,
        partitions: Mapping[Partition, PartitionLoad],
        places: tuple[Mapping[int, str | None], Hosts],
        limits: Limits,
        brokers: dict[int, BrokerLoad],
    ) -> None:
        self._partitions = partitions
        self._racks, self._hosts = places
        self._limits = limits
        self._brokers = brokers
        self._current = {partition: load.replicas for partition, load in partitions.items()}
        self._moved: dict[Partition, None] = {}
        self._means = [sum(values) / len(values) if values else 0.0 for values in _kinds(brokers)]
        self._result = Balance(before=_copied(brokers))

    def run(self) -> Balance:
        result = self._result
        while (step := self._best()) is not None:
            self._take(step)
        for partition, replicas in self._current.items():
            before = self._partitions[partition].replicas
            if replicas != before:
                result.plan[partition], result.back[partition] = list(replicas), list(before)
        result.after = self._brokers
        return result

    def _best(self) -> _Step | None:
        best: _Step | None = None
        for partition in self._current:
            for step in self._steps(partition):
                if (step.gain[0] > 0 or step.gain[1] >= LEAST_GAIN) and (best is None or step.gain > best.gain):
                    best = step
        return best

    def _steps(self, partition: Partition) -> Iterator[_Step]:
        """Each change of the partition that makes no rack worse."""
        current, load = self._current[partition], self._partitions[partition]
        for position in range(1, len(current)):
            other = (current[position], *current[:position], *current[position + 1 :])
            yield _Step((0, self._leader_gain(current[0], current[position])), partition, other, copies=False)
        if not self._may_move(partition, load):
            return
        shortage = rack_shortage(current, self._racks)
        for position, source in enumerate(current):
            for target in self._brokers:
                if target in current or shares_host(target, (it for it in current if it != source), self._hosts):
                    continue
                other = (*current[:position], target, *current[position + 1 :])
                racks_gained = shortage - rack_shortage(other, self._racks)
                if racks_gained >= 0:
                    gain = self._gain(load, source, target, is_leader=position == 0)
                    yield _Step((racks_gained, gain), partition, other, copies=True)

    def _may_move(self, partition: Partition, load: PartitionLoad) -> bool:
        """Within the limits; a partition is moved once, as one replica after the other could be without end."""
        result, limits = self._result, self._limits
        if partition in self._moved or result.moved_replicas >= limits.max_moves:
            return False
        return limits.max_bytes is None or result.moved_bytes + load.size_bytes <= limits.max_bytes

    def _gain(self, load: PartitionLoad, source: int, target: int, *, is_leader: bool) -> float:
        """The imbalance that a move of this load removes."""
        weights = (load.size_bytes, load.rate, 1.0, 1.0 if is_leader else 0.0)
        return sum(map(self._gain_of_kind, range(4), weights, (source,) * 4, (target,) * 4))

    def _leader_gain(self, source: int, target: int) -> float:
        return self._gain_of_kind(3, 1.0, source, target)

    def _gain_of_kind(self, kind: int, weight: float, source: int, target: int) -> float:
        mean = self._means[kind]
        if not mean or not weight:
            return 0.0
        more, less = self._value(kind, source), self._value(kind, target)
        return 2 * weight * (more - less - weight) / mean**2

    def _value(self, kind: int, broker: int) -> float:
        load = self._brokers[broker]
        return (load.size_bytes, load.rate, load.replicas, load.leaders)[kind]

    def _take(self, step: _Step) -> None:
        load, before = self._partitions[step.partition], self._current[step.partition]
        for sign, replicas in ((-1, before), (1, step.replicas)):
            for position, replica in enumerate(replicas):
                _add(self._brokers[replica], load, sign, is_leader=position == 0)
        self._current[step.partition] = step.replicas
        if step.copies:
            self._moved[step.partition] = None
            self._result.moved_replicas += 1
            self._result.moved_bytes += load.size_bytes


def _copied(brokers: Mapping[int, BrokerLoad]) -> dict[int, BrokerLoad]:
    return {broker: BrokerLoad(it.replicas, it.leaders, it.size_bytes, it.rate) for broker, it in brokers.items()}
