"""Core: the next step of a migration, decided from what the cluster reports.

No state is kept between steps: a migration that was interrupted continues where it stopped, and the way back is the
same migration with each pair reversed. Replicas move first, then voters of the metadata log one by one (KIP-853), the
leader's last; at the end the old brokers are unregistered once they have been stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from barnabas.cli.offset_reset import Partition
from barnabas.cluster.errors import ClusterError


@dataclass(frozen=True, slots=True)
class Placement:
    """Brokers of a partition, by id."""

    replicas: tuple[int, ...]
    """The preferred leader first."""
    isr: tuple[int, ...]
    leader: int | None


@dataclass(frozen=True, slots=True)
class Quorum:
    """Voters and observers of the metadata log."""

    leader: int
    voters: Mapping[int, str | None]
    """Directory ids by node id; None if the voters of the cluster are fixed (kraft.version 0)."""
    observers: Mapping[int, str | None]
    lags: Mapping[int, int]
    """Records that a voter or observer is behind the leader's log end."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster as it is now."""

    in_service: frozenset[int]
    """Brokers that are registered and not fenced."""
    fenced: frozenset[int]
    """Brokers that are registered, and do not serve."""
    placements: Mapping[Partition, Placement]
    moving: frozenset[Partition]
    """Partitions that are being reassigned."""
    quorum: Quorum
    kraft_version: int = 0


@dataclass(frozen=True, slots=True)
class Migration:
    """The wanted change. Ids of old nodes map to ids of the nodes that take over from them."""

    brokers: Mapping[int, int]
    controllers: Mapping[int, int] = field(default_factory=dict)
    partitions_at_once: int = 20
    max_voter_lag: int = 1_000
    """Records that a new controller may be behind when it becomes a voter."""


@dataclass(frozen=True, slots=True)
class Move:
    """Reassign these partitions, and wait until they have moved."""

    replicas: Mapping[Partition, tuple[int, ...]]

    def __str__(self) -> str:
        return f"move {len(self.replicas)} partitions: {', '.join(map(_name, islice(self.replicas, 3)))}{self._rest()}"

    def _rest(self) -> str:
        return ", …" if len(self.replicas) > 3 else ""


@dataclass(frozen=True, slots=True)
class Elect:
    """Make the preferred replicas leaders."""

    partitions: tuple[Partition, ...]

    def __str__(self) -> str:
        return f"elect the preferred leaders of {len(self.partitions)} partitions"


@dataclass(frozen=True, slots=True)
class AddVoter:
    controller: int
    directory: str

    def __str__(self) -> str:
        return f"add controller {self.controller} to the voters"


@dataclass(frozen=True, slots=True)
class RemoveVoter:
    controller: int
    directory: str

    def __str__(self) -> str:
        return f"remove controller {self.controller} from the voters"


@dataclass(frozen=True, slots=True)
class Unregister:
    broker: int

    def __str__(self) -> str:
        return f"unregister broker {self.broker}"


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be done before this has changed."""

    reason: str
    by_operator: bool = False
    """True if it does not change unless a person does something."""

    def __str__(self) -> str:
        return self.reason


Step = Move | Elect | AddVoter | RemoveVoter | Unregister | Wait


class CannotMigrate(ClusterError):
    """The migration must not begin, or not go on; the message is one line."""


class HasBothReplicas(CannotMigrate):
    """A partition has replicas on an old broker and on the one that takes over from it. For a moment this is how a
    broker sees a move that is complete: it has not replayed that yet.
    """


def check(cluster: Cluster, wanted: Migration) -> None:
    """Raises `CannotMigrate` if the migration cannot work at all."""
    for kind, pairs in (("broker", wanted.brokers), ("controller", wanted.controllers)):
        if len({*pairs.values()}) < len(pairs):
            raise CannotMigrate(f"each new {kind} must take over from one old {kind}; got {_pairs(pairs)}")
        if both := pairs.keys() & pairs.values():
            raise CannotMigrate(f"{kind} {min(both)} is both an old and a new {kind}: {_pairs(pairs)}")
    registered = cluster.in_service | cluster.fenced
    if wanted.controllers and cluster.kraft_version < 1:
        raise CannotMigrate(
            "the voters of this cluster are fixed (kraft.version 0): upgrade first, "
            "kafka-features.sh upgrade --feature kraft.version=1"
        )
    for old, new in wanted.brokers.items():
        if new not in registered and any(old in each.replicas for each in cluster.placements.values()):
            raise CannotMigrate(f"broker {new} is not registered: start it before broker {old} is replaced")
    for new in wanted.controllers.values():
        if new not in cluster.quorum.voters and new not in cluster.quorum.observers:
            raise CannotMigrate(f"controller {new} does not fetch the metadata log: start it as an observer")


def next_step(cluster: Cluster, wanted: Migration) -> Step | None:
    """The next step; None if the migration is complete. Raises as `check`."""
    check(cluster, wanted)
    return (
        _next_move(cluster, wanted)
        or _next_election(cluster, wanted)
        or _next_voter(cluster, wanted)
        or _next_farewell(cluster, wanted)
    )


def all_steps(cluster: Cluster, wanted: Migration) -> Iterator[str]:
    """The plan in words, as it looks from here. Raises as `check`."""
    check(cluster, wanted)
    moves = targets(cluster, wanted)
    for old, new in wanted.brokers.items():
        count = sum(old in cluster.placements[each].replicas for each in moves)
        if count:
            yield f"move {count} replicas from broker {old} to broker {new}, {wanted.partitions_at_once} at a time"
    for old, new in _in_turn(cluster.quorum, wanted):
        if new not in cluster.quorum.voters:
            yield f"add controller {new} to the voters"
        if old in cluster.quorum.voters:
            yield f"remove controller {old} from the voters"
    for old in sorted(wanted.brokers.keys() & (cluster.in_service | cluster.fenced)):
        yield f"unregister broker {old}, after you have stopped it"


def targets(cluster: Cluster, wanted: Migration) -> dict[Partition, tuple[int, ...]]:
    """Partitions that have replicas on old brokers, and their new replicas in the same order."""
    found = {}
    for partition, placement in sorted(cluster.placements.items()):
        replicas = tuple(wanted.brokers.get(each, each) for each in placement.replicas)
        if replicas != placement.replicas:
            # A new broker may have a replica already, from before the migration.
            found[partition] = tuple(dict.fromkeys(replicas))
    return found


def _next_move(cluster: Cluster, wanted: Migration) -> Step | None:
    if cluster.moving:
        return Wait(f"{len(cluster.moving)} partitions are being reassigned")
    left = targets(cluster, wanted)
    if not left:
        return None
    arriving = {each for replicas in left.values() for each in replicas} & {*wanted.brokers.values()}
    if missing := arriving - cluster.in_service:
        return Wait(f"broker {min(missing)} does not serve", by_operator=True)
    for partition, replicas in left.items():
        if len(replicas) < len(cluster.placements[partition].replicas):
            both = sorted({*replicas} & {*wanted.brokers.values()})
            raise HasBothReplicas(
                f"{_name(partition)} has replicas on an old broker and on the new one that takes over from it "
                f"({', '.join(map(str, both))}): reassign it by hand"
            )
    return Move(dict(islice(left.items(), wanted.partitions_at_once)))


def _next_election(cluster: Cluster, wanted: Migration) -> Step | None:
    """Old brokers lead nothing by now. Leaders move to the replicas that took over from preferred ones."""
    arrived = {*wanted.brokers.values()}
    led_elsewhere = [
        partition
        for partition, placement in sorted(cluster.placements.items())
        if placement.replicas[0] in arrived
        and placement.leader != placement.replicas[0]
        and placement.replicas[0] in placement.isr
    ]
    return Elect(tuple(led_elsewhere)) if led_elsewhere else None


def _next_voter(cluster: Cluster, wanted: Migration) -> Step | None:
    quorum = cluster.quorum
    for old, new in _in_turn(quorum, wanted):
        directory = quorum.observers.get(new)
        if new not in quorum.voters:
            if directory is None:
                return Wait(f"controller {new} does not report its directory id")
            if quorum.lags.get(new, 0) > wanted.max_voter_lag:
                return Wait(f"controller {new} is {quorum.lags[new]} records behind")
            return AddVoter(new, directory)
        directory = quorum.voters.get(old)
        if old in quorum.voters:
            if quorum.lags.get(new, 0) > wanted.max_voter_lag:
                return Wait(f"controller {new} is {quorum.lags[new]} records behind")
            assert directory is not None, "kraft.version is 1"
            return RemoveVoter(old, directory)
    return None


def _in_turn(quorum: Quorum, wanted: Migration) -> Sequence[tuple[int, int]]:
    """Pairs of controllers; that of the leader comes last, so that leadership changes once."""
    return sorted(wanted.controllers.items(), key=lambda pair: (pair[0] == quorum.leader, pair))


def _next_farewell(cluster: Cluster, wanted: Migration) -> Step | None:
    old = wanted.brokers.keys()
    if fenced := cluster.fenced & old:
        return Unregister(min(fenced))
    if serving := cluster.in_service & old:
        numbers = ", ".join(map(str, sorted(serving)))
        return Wait(f"brokers {numbers} have no replicas any longer: stop them", by_operator=True)
    return None


def _name(partition: Partition) -> str:
    return f"{partition.topic}-{partition.partition}"


def _pairs(pairs: Mapping[int, int]) -> str:
    return ", ".join(f"{old}={new}" for old, new in pairs.items())
