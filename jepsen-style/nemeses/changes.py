"""Changes that an operator makes while the cluster lives: voters of the metadata log, replicas, feature levels.

Each may be refused, and an answer may be lost: the outcome of each request is in the value of its fault. A change that
is under way when the fault ends goes on; every promise holds through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import trio

from barnabas.cluster.errors import ClusterError
from barnabas.kraft.raft.voters import ReplicaKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    ReplicaState,
    RequestPartitionData,
    RequestTopicData,
)
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.protocol.schema import Message
from barnabas.storage.names import METADATA_TOPIC
from nemeses.choosing import between, happens, one_of, some_of
from nemeses.nemesis import Fault, Story
from operations import Place

FEWEST_VOTERS = 3
"""A voter may lose its disk if there are so many, and single changes keep so many: a leader that dies has a successor.
"""
LEVELS: Mapping[str, tuple[int, ...]] = {
    "transaction.version": (1, 2),
    "metadata.version": (28, 29, 30),
    "eligible.leader.replicas.version": (0, 1),
}
"""Levels that `feature` draws from."""
UPGRADE, UNSAFE_DOWNGRADE = 1, 3
CANCELLED_SHARE = 0.3
"""Share of reassignments that are cancelled."""
ELECTION_SECONDS = 5.0
INSISTS_SECONDS = 0.001
OUTCOMES_IN_TURN = 3
"""Requests that are made in turn; an outcome that comes again and again is noted once."""
REQUEST_MS = 2_000
RETRY_SECONDS = 0.5
LISTENER = "CONTROLLER"


@dataclass(frozen=True, slots=True)
class Quorum:
    """The quorum as its leader describes it."""

    voters: tuple[ReplicaKey, ...]
    observers: tuple[ReplicaKey, ...]
    """Controllers that could become voters."""


@dataclass(slots=True)
class Operator:
    """The operator of one fault: asks nodes, and notes what became of each request."""

    fault: Fault

    async def change(self, what: str, request: Message, node: str | None = None) -> bool:
        """Asks `node`, or the active controller; True if the change was made."""
        cluster = self.fault.cluster
        try:
            name = node or await cluster.active_controller()
            if name is None:
                raise ClusterError("there is no active controller")
            answer = await cluster.ask(name, request)
            outcome = ErrorCode(answer.error_code).name
        except ClusterError as error:
            outcome = str(error)
        outcomes = self.fault.value.setdefault("outcomes", [])
        if (line := f"{what}: {outcome}") not in outcomes[-OUTCOMES_IN_TURN:]:
            outcomes.append(line)
        return outcome == ErrorCode.NONE.name

    async def add(self, key: ReplicaKey, node: str | None = None) -> bool:
        host, port = self.fault.living.voter_address(_name(key))
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=REQUEST_MS,
            voter_id=key.id,
            voter_directory_id=key.directory_id,
            listeners=[Listener(name=LISTENER, host=host, port=port)],
        )
        return await self.change(f"add {key.id}", request, node)

    async def remove(self, key: ReplicaKey, node: str | None = None) -> bool:
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=key.id, voter_directory_id=key.directory_id)
        return await self.change(f"remove {key.id}", request, node)

    async def quorum(self) -> Quorum | None:
        """None if nobody leads."""
        cluster = self.fault.cluster
        leader = await cluster.active_controller()
        if leader is None:
            return None
        log = RequestTopicData(topic_name=METADATA_TOPIC, partitions=[RequestPartitionData()])
        try:
            answer = await cluster.ask(leader, DescribeQuorumRequest(topics=[log]))
        except ClusterError:
            return None
        for topic in answer.topics:
            for partition in topic.partitions:
                if not partition.error_code:
                    return Quorum(self._keys(partition.current_voters), self._keys(partition.observers))
        return None

    def _keys(self, replicas: Iterable[ReplicaState]) -> tuple[ReplicaKey, ...]:
        keys = (ReplicaKey(each.replica_id, each.replica_directory_id) for each in replicas)
        return tuple(key for key in keys if _name(key) in self.fault.cluster.controllers)


async def voters(fault: Fault) -> None:
    """Voters are added and removed, also when they must not: two at once, and by a leader that was just elected."""
    operator = Operator(fault)
    quorum = await operator.quorum()
    if quorum is None or not quorum.voters:
        fault.give_up()
    await _FORMS[one_of(fault.chance, list(_FORMS))](fault, operator, quorum)


async def _one_change(fault: Fault, operator: Operator, quorum: Quorum) -> None:
    fault.counts_as("one")
    through = one_of(fault.chance, [None, None, *fault.cluster.brokers])
    async with fault.acting("voters", form="one", targets=[]):
        await _some_change(fault, operator, quorum, through)


async def _some_change(fault: Fault, operator: Operator, quorum: Quorum, node: str | None = None) -> None:
    observers, removable = list(quorum.observers), await _removable(fault, quorum)
    if observers and (not removable or len(quorum.voters) <= FEWEST_VOTERS or happens(fault.chance, 0.5)):
        await operator.add(one_of(fault.chance, observers), node)
    elif removable:
        await operator.remove(one_of(fault.chance, removable), node)


async def _two_at_once(fault: Fault, operator: Operator, quorum: Quorum) -> None:
    fault.counts_as("at once")
    async with fault.acting("voters", form="at once", targets=[]), trio.open_nursery() as nursery:
        for key in some_of(fault.chance, await _removable(fault, quorum), 2):
            nursery.start_soon(operator.remove, key)
        for key in some_of(fault.chance, list(quorum.observers), 2):
            nursery.start_soon(operator.add, key)


async def _at_an_election(fault: Fault, operator: Operator, quorum: Quorum) -> None:
    """The active controller dies, and its successor is asked at once, again and again, to remove a voter:
    it may do so when it has committed something, and no earlier."""
    cluster = fault.cluster
    leader = await cluster.active_controller()
    if leader is None or fault.nemesis.is_held(leader):
        fault.give_up()
    fault.counts_as("at an election")
    fault.nodes.append(leader)
    await fault.may_end([leader])
    removable = some_of(fault.chance, await _removable(fault, quorum), OUTCOMES_IN_TURN)
    async with fault.acting("voters", form="at an election", targets=[leader]):
        await cluster.kill(leader)
        successor = await fault.living.next_active_controller(leader, ELECTION_SECONDS)
        if successor is not None and removable:
            with trio.move_on_after(ELECTION_SECONDS):
                await _remove_one(operator, removable, successor)
    await trio.sleep(between(fault.chance, 0.0, fault.seconds))
    await fault.start_again()


async def _remove_one(operator: Operator, removable: Sequence[ReplicaKey], node: str) -> None:
    """Asks in turn for the removal of each, until one is removed."""
    while True:
        for key in removable:
            if await operator.remove(key, node):
                return
        await trio.sleep(INSISTS_SECONDS)


async def _lost_disk(fault: Fault, operator: Operator, quorum: Quorum) -> None:
    """A voter comes back with an empty disk, and so as another replica: its old self is removed, then it is added."""
    cluster = fault.cluster
    if len(quorum.voters) < FEWEST_VOTERS or not await fault.living.may_lose_a_voter():
        fault.give_up()
    [name] = [*await fault.choose_nodes([_name(key) for key in quorum.voters], single=True)]
    old = next(key for key in quorum.voters if _name(key) == name)
    fault.counts_as("lost disk")
    await fault.may_end([name])
    async with fault.acting("voters", form="lost disk"):
        await cluster.kill(name)
        await cluster.wipe(name)
    await trio.sleep(between(fault.chance, 0.0, fault.seconds))
    await fault.start_again()
    with trio.move_on_after(fault.seconds * 2):
        while not await operator.remove(old):
            await trio.sleep(RETRY_SECONDS)
        while not await add_again(operator, name):
            await trio.sleep(RETRY_SECONDS)


async def add_again(operator: Operator, name: str, old: ReplicaKey | None = None) -> bool:
    """Adds a controller that observes; True if it votes. Its old self, which was removed, is still listed for a while,
    and a leader takes it for a replica that has all records, as Apache Kafka's does: it is added, too, unless it is
    named as `old`."""
    quorum = await operator.quorum()
    for key in quorum.observers if quorum is not None else ():
        if _name(key) == name and key != old:
            return await operator.add(key)
    return quorum is not None and any(_name(key) == name and key != old for key in quorum.voters)


_FORMS = {
    "one": _one_change,
    "at once": _two_at_once,
    "at an election": _at_an_election,
    "lost disk": _lost_disk,
}


async def _removable(fault: Fault, quorum: Quorum) -> list[ReplicaKey]:
    """A voter that has lost its disk goes first: a quorum survives no more."""
    if len(quorum.voters) < 2:
        return []
    lost = await fault.living.lost_voters()
    return [key for key in quorum.voters if not lost or key in lost]


def _name(key: ReplicaKey) -> str:
    return f"controller-{key.id}"


async def reassign(fault: Fault) -> None:
    """A partition moves to other brokers, or its replicas change their order; some moves are cancelled."""
    chance, cluster = fault.chance, fault.cluster
    memberships = await cluster.memberships()
    replicas = {each.place: each.replicas for each in memberships}
    if not replicas:
        fault.give_up()
    place: Place = one_of(chance, sorted(replicas))
    wanted = some_of(chance, list(cluster.brokers), len(replicas[place]))
    operator = Operator(fault)
    async with fault.acting("reassign", partition=f"{place.topic}-{place.partition}", targets=wanted):
        await operator.change("reassign", _reassignment(place, wanted))
    if happens(chance, CANCELLED_SHARE):
        await trio.sleep(between(chance, 0.0, fault.seconds))
        async with fault.acting("cancel"):
            await operator.change("cancel", _reassignment(place, None))
    else:
        await fault.hold()


def _reassignment(place: Place, brokers: Iterable[str] | None) -> AlterPartitionReassignmentsRequest:
    ids = None if brokers is None else [int(name.rpartition("-")[2]) for name in brokers]
    partition = ReassignablePartition(partition_index=place.partition, replicas=ids)
    return AlterPartitionReassignmentsRequest(
        timeout_ms=REQUEST_MS, topics=[ReassignableTopic(name=place.topic, partitions=[partition])]
    )


async def move_log(fault: Fault) -> None:
    """A replica moves to a log directory of its broker, perhaps to the one in which it is: that cancels a move."""
    chance, cluster = fault.chance, fault.cluster
    memberships = [each for each in await cluster.memberships() if each.node in each.replicas]
    if not memberships:
        fault.give_up()
    replica = one_of(chance, sorted(memberships, key=lambda each: (each.place, each.node)))
    path = one_of(chance, list(fault.simulated.log_dirs(replica.node)))
    topic = AlterReplicaLogDirTopic(name=replica.place.topic, partitions=[replica.place.partition])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
    name = f"{replica.place.topic}-{replica.place.partition}"
    async with fault.acting("move-log", partition=name, path=path, targets=[replica.node]):
        try:
            answer = await cluster.ask(replica.node, request)
            codes = [each.error_code for result in answer.results for each in result.partitions]
            outcome = ", ".join(ErrorCode(code).name for code in codes)
        except ClusterError as error:
            outcome = str(error)
        fault.value["outcomes"] = [outcome]


async def feature(fault: Fault) -> None:
    """A feature goes to another level, and back when the fault is over."""
    chance = fault.chance
    operator = Operator(fault)
    name = one_of(chance, list(LEVELS))
    level = one_of(chance, LEVELS[name])
    async with fault.acting("feature", feature=name, level=level, targets=[]):
        await operator.change(f"{name} {level}", _level(name, level))
    await fault.hold()
    async with fault.acting("feature-back"):
        await operator.change(f"{name} {LEVELS[name][-1]}", _level(name, LEVELS[name][-1], UPGRADE))


def _level(name: str, level: int, upgrade_type: int = UNSAFE_DOWNGRADE) -> UpdateFeaturesRequest:
    update = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
    return UpdateFeaturesRequest(timeout_ms=REQUEST_MS, feature_updates=[update])


CHANGES: dict[str, Story] = {"voters": voters, "reassign": reassign, "move-log": move_log, "feature": feature}
