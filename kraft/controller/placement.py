"""Placement of new replicas: striped over racks, hosts and brokers (MB-16, MB-17).

Leaders go round the racks and inside a rack round its brokers, from a random start; the followers of a
partition continue round the racks, so they are in other racks while there are any, and spread evenly. Fenced
brokers are used only for followers, when the unfenced ones of a rack are used up. No host gets two replicas of a
partition: brokers of a rack that share hosts are ordered so that neighbours are on different ones. Neither disk space
nor load is weighed.

Works as Kafka's striped placer does, but lets every broker lead where the racks and the brokers in each have
a common factor, for example two racks of two brokers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from math import lcm
from typing import TypeVar

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.world import Chance

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UsableBroker:
    """A broker that may get replicas."""

    id: int
    rack: str | None
    fenced: bool
    host: str | None = None
    """Brokers with the same one fail together; None: it is alone on its host."""


def place_replicas(
    brokers: Sequence[UsableBroker], partitions: int, replication_factor: int, chance: Chance
) -> Iterator[tuple[int, ...]]:
    """Broker ids for each of `partitions` partitions, the preferred leader first; placed one by one.

    Raises KafkaError INVALID_REPLICATION_FACTOR if the cluster cannot hold so many replicas.
    """
    unfenced = sum(not broker.fenced for broker in brokers)
    if replication_factor <= 0:
        raise _refusal(f"replication factor {replication_factor} is not positive")
    if unfenced == 0:
        raise _refusal("all brokers are fenced")
    if replication_factor > len(brokers):
        raise _refusal(f"only {len(brokers)} broker(s) can take replicas, not {replication_factor}")
    hosts = len({broker.host or broker.id for broker in brokers})
    if replication_factor > hosts:
        raise _refusal(f"brokers on only {hosts} host(s) can take replicas, not {replication_factor}")
    stripes = _Stripes(brokers, unfenced, chance)
    return (stripes.next(replication_factor) for _ in range(partitions))


def _refusal(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)


@dataclass(slots=True)
class _Wheel:
    """Brokers of a rack in a ring. Each partition starts one further on than the one before."""

    hosts: dict[int, str]
    """Hosts of brokers that may share them."""
    brokers: list[int] = field(default_factory=list)
    start: int = 0
    turns: int = 1
    """After so many partitions rack and broker would meet in the same pairs again; one more step forward then
    lets the other brokers of the rack lead, too."""
    taken: int = 0
    partition: int = 0

    def spin(self, racks: int, chance: Chance) -> None:
        if self.brokers:
            self.brokers.sort()
            self._part_hosts()
            self.start = chance.randrange(0, len(self.brokers))
            self.turns = lcm(racks, len(self.brokers))

    def shuffle(self, chance: Chance) -> None:
        """Another order. Partitions are counted from 0 again, and the first one uses no broker yet."""
        _shuffle(self.brokers, chance)
        self._part_hosts()
        self.taken = 0

    def next(self, partition: int, used_hosts: set[str]) -> int | None:
        """The next broker that this partition does not use yet, on a host that it does not use; adds the host."""
        if self.partition != partition:
            self.partition = partition
            self.taken = 0
        while self.taken < len(self.brokers):
            position = self.start + partition + partition // self.turns + self.taken
            self.taken += 1
            broker = self.brokers[position % len(self.brokers)]
            host = self.hosts.get(broker)
            if host is None:
                return broker
            if host not in used_hosts:
                used_hosts.add(host)
                return broker
        return None

    def _part_hosts(self) -> None:
        """Keeps brokers of one host as far from each other as there are hosts."""
        by_host: dict[str | int, list[int]] = {}
        for broker in self.brokers:
            by_host.setdefault(self.hosts.get(broker, broker), []).append(broker)
        rounds = zip_longest(*by_host.values())
        self.brokers = [broker for round_ in rounds for broker in round_ if broker is not None]


@dataclass(slots=True)
class _Rack:
    unfenced: _Wheel
    fenced: _Wheel

    def next(self, partition: int, used_hosts: set[str]) -> int | None:
        broker = self.unfenced.next(partition, used_hosts)
        return self.fenced.next(partition, used_hosts) if broker is None else broker


class _Stripes:
    """Yields the assignment of one partition after the other."""

    def __init__(self, brokers: Sequence[UsableBroker], unfenced: int, chance: Chance) -> None:
        hosts = {broker.id: broker.host for broker in brokers if broker.host is not None}
        by_rack: dict[str | None, _Rack] = {}
        for broker in sorted(brokers, key=lambda it: it.id):
            rack = by_rack.setdefault(broker.rack, _Rack(_Wheel(hosts), _Wheel(hosts)))
            (rack.fenced if broker.fenced else rack.unfenced).brokers.append(broker.id)
        names = sorted(by_rack, key=lambda name: (name is not None, name or ""))
        self._racks = [by_rack[name] for name in names]
        for rack in self._racks:
            rack.fenced.spin(len(names), chance)
            rack.unfenced.spin(len(names), chance)
        self._chance = chance
        self._unfenced = unfenced
        self._partition = 0
        self._first_rack = chance.randrange(0, len(self._racks))

    def next(self, replication_factor: int) -> tuple[int, ...]:
        if self._partition == self._unfenced and self._unfenced > 1:
            # Every broker led once: another order keeps the same brokers from sharing partitions again and
            # again.
            self._shuffle()
            self._partition = 0
        racks = self._racks
        if self._first_rack == len(racks):
            self._first_rack = 0
        leader_rack = self._first_rack
        used_hosts: set[str] = set()
        while (leader := racks[leader_rack].unfenced.next(self._partition, used_hosts)) is None:
            leader_rack = (leader_rack + 1) % len(racks)
        replicas = [leader]
        rack = self._first_rack
        skipped_leader_rack = False
        while len(replicas) < replication_factor:
            # The rack of the leader has contributed to the first round already.
            if rack == leader_rack and not skipped_leader_rack:
                skipped_leader_rack = True
            else:
                broker = racks[rack].next(self._partition, used_hosts)
                if broker is not None:
                    replicas.append(broker)
            rack = (rack + 1) % len(racks)
        self._partition += 1
        self._first_rack += 1
        return tuple(replicas)

    def _shuffle(self) -> None:
        _shuffle(self._racks, self._chance)
        for rack in self._racks:
            rack.fenced.shuffle(self._chance)
            rack.unfenced.shuffle(self._chance)


def _shuffle(items: list[T], chance: Chance) -> None:
    for last in range(len(items) - 1, 0, -1):
        other = chance.randrange(0, last + 1)
        items[last], items[other] = items[other], items[last]
