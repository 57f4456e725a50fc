"""Brokers publish and read remote log metadata while brokers die: nothing acknowledged is lost, and all agree.

Each broker moves segments of its own through their states. An outcome that is not known is tried again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import trio

from barnabas.broker.remote.metadata_topic import RemoteMetadata
from barnabas.protocol.errors import KafkaError
from barnabas.runtime.world import Chance
from barnabas.storage.remote.metadata_records import metadata_partition
from barnabas.storage.remote.segment import MetadataRecord, RemoteSegment, SegmentState
from tests.broker.apis.rig import Rig, on_cluster
from tests.broker.remote.metadata_rig import FEW, TOPIC, attached
from tests.storage.remote.remote_rig import DELETED, DELETING, FINISHED, KEY, STARTED, moved, segment, segment_id

pytestmark = pytest.mark.feature("TS-04", "FI-07")

SEGMENTS_OF_A_BROKER = 12
ORDER = (STARTED, FINISHED, DELETING, DELETED)


@dataclass
class History:
    """The moves that were acknowledged to publishers."""

    states: dict[int, SegmentState] = field(default_factory=dict)

    def agrees_with(self, remote: RemoteMetadata) -> str:
        """A contradiction in the answers of a broker that has read everything; empty if there is none."""
        segments = remote.segments(KEY)
        if segments is None:
            return "not complete"
        for number, state in self.states.items():
            known = segments.state_of(segment_id(number))
            if known is None and state is not DELETED:
                # The deletion may have been written without an answer.
                if state is not DELETING:
                    return f"segment {number} is unknown, but {state.name} was acknowledged"
            elif known is not None and ORDER.index(known) < ORDER.index(state):
                return f"segment {number} is in {known.name}, but {state.name} was acknowledged"
        return ""


class Cluster:
    """The brokers that are up, each with its `RemoteMetadata`."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.remotes: dict[int, RemoteMetadata] = {}

    def look(self) -> None:
        for node in (1, 2, 3):
            broker = self.rig.cluster.node_of(node).broker
            if broker is None:
                self.remotes.pop(node, None)
            elif node not in self.remotes:
                self.remotes[node] = attached(broker)
                self.remotes[node].follow([KEY])


async def publish(cluster: Cluster, node: int, record: MetadataRecord) -> bool:
    """True if it was acknowledged; False if it must be tried again."""
    remote = cluster.remotes.get(node)
    if remote is None:
        return False
    acknowledged = False
    with trio.move_on_after(8):
        try:
            await remote.publish(record)
            acknowledged = cluster.remotes.get(node) is remote
        except KafkaError as error:
            # An earlier attempt without an answer was written.
            acknowledged = "has no effect" in str(error) and "truncated" not in str(error)
    return acknowledged


async def tend(cluster: Cluster, node: int, history: History, chance: Chance) -> None:
    for place in range(SEGMENTS_OF_A_BROKER):
        number = 100 * node + place
        begun: RemoteSegment = segment(number, 10 * place, 10 * place + 9, {node: 10 * place})
        last = 1 + chance.randrange(0, 3)
        for state in ORDER[: last + 1]:
            record = begun if state is STARTED else moved(number, state)
            while not await publish(cluster, node, record):
                await trio.sleep(0.3)
            history.states[number] = state
            await trio.sleep(chance.randrange(0, 200) / 1000)


async def break_things(cluster: Cluster, chance: Chance) -> None:
    rig = cluster.rig
    index = metadata_partition(KEY, 3)
    for _ in range(4):
        await trio.sleep(1 + chance.randrange(0, 3000) / 1000)
        node = rig.leader(TOPIC, index) if chance.randrange(0, 3) else 1 + chance.randrange(0, 3)
        node = max(node, 1)
        if chance.randrange(0, 3):
            rig.cluster.kill(rig.name(node))
        else:
            rig.cluster.power_cut(rig.name(node))
        cluster.look()
        await trio.sleep(chance.randrange(0, 5000) / 1000)
        rig.cluster.start(rig.name(node))
        await rig.cluster.wait_ready()
        cluster.look()


@pytest.mark.parametrize("seed", range(6))
def test_acknowledged_moves_are_known_to_all_brokers_although_some_die(seed: int) -> None:
    @on_cluster(brokers=3, seed=seed, **FEW)
    async def story(rig: Rig) -> None:
        cluster, history, chance = Cluster(rig), History(), rig.world.chance
        cluster.look()
        await rig.until(lambda: TOPIC in rig.broker(1).metadata.image.topics.by_name)
        await rig.until(lambda: rig.leader(TOPIC, metadata_partition(KEY, 3)) > 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(break_things, cluster, chance)
            for node in (1, 2, 3):
                nursery.start_soon(tend, cluster, node, history, chance)
        assert len(history.states) == 3 * SEGMENTS_OF_A_BROKER
        cluster.look()
        await rig.until(lambda: all(not history.agrees_with(remote) for remote in cluster.remotes.values()))
        # A broker that reads everything from the start comes to the same.
        fresh = attached(rig.broker(2))
        fresh.follow([KEY])
        await rig.until(lambda: fresh.segments(KEY) is not None)
        assert history.agrees_with(fresh) == ""
        states = [_states(remote) for remote in (*cluster.remotes.values(), fresh)]
        assert all(each == states[0] for each in states)

    story()


def _states(remote: RemoteMetadata) -> dict[bytes, SegmentState]:
    segments = remote.segments(KEY)
    assert segments is not None
    return {each.segment_id: each.state for each in segments.all()}
