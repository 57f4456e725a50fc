"""Replicas move to other brokers and other disks while nodes are killed: every promise holds, no record is lost."""

from __future__ import annotations

import pytest
import trio

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.producer import Acked, Producer
from barnabas.cluster.fault_points import FAULT_POINTS
from barnabas.kraft.metadata.image import NO_LEADER
from barnabas.protocol.records.record import decode_records
from barnabas.runtime.simulated import Universe, make_world, run_simulation
from barnabas.runtime.simulated.chance import Stream
from simulation.cluster import SimCluster, SimSettings
from simulation.moving_logs import LOG_DIRS, SWAPS, watching_moves
from simulation.watch import NodeLog, watching
from tests.simulation.moving_replicas import CLIENT, MovingReplicas

PARTITIONS = 2
PHASE_SECONDS = 90.0
HEAL_SECONDS = 60.0
POINTS = [each for each in FAULT_POINTS["broker"] if each.startswith("log_dir_move.")]


class Story:
    def __init__(self, sim: SimCluster, chance: Stream) -> None:
        self.sim = sim
        self.chance = chance
        self.acked: dict[bytes, int] = {}
        """Value to its partition."""
        self.crashes = 0

    async def produce(self) -> None:
        world = make_world("writer", self.sim.universe)
        servers = [f"{host}:{port}" for host, port in self.sim.cluster.bootstrap]
        number = 0
        async with Producer(world=world, bootstrap_servers=servers, linger_ms=5, request_timeout_ms=3_000) as producer:
            while True:
                number += 1
                value, index = b"record %d " % number + b"x" * self.chance.randrange(3_000), number % PARTITIONS
                future = await producer.enqueue("t", value, partition=index)
                if isinstance(await future.outcome(), Acked):
                    self.acked[value] = index
                await trio.sleep(self.chance.uniform(0.0, 0.05))

    async def crash(self) -> None:
        """One broker at a time, where its moves are or anywhere; the next when all replicas are in sync again."""
        sim = self.sim
        while True:
            await trio.sleep(self.chance.uniform(2.0, 6.0))
            name = self.chance.choice(list(sim.brokers))
            node, power_cut = sim.cluster.nodes[name], self.chance.random() < 0.4
            if self.chance.random() < 0.7:
                await sim.kill_at(name, self.chance.choice(POINTS), power_cut=power_cut)
                with trio.move_on_after(8):
                    await node.ended.wait()
                await sim.disarm(name)
            elif power_cut:
                await sim.power_cut(name)
            else:
                await sim.kill(name)
            if not node.running:
                self.crashes += 1
                await trio.sleep(self.chance.uniform(0.0, 4.0))
                await sim.start(name)
            await sim.cluster.wait_until(self.not_whole, HEAL_SECONDS)

    def not_whole(self) -> str:
        missing = self.sim.cluster.not_ready()
        for topic in self.sim.watch.quorum.image.topics.by_name.values() if not missing else ():
            for index, each in topic.partitions.items():
                if each.leader == NO_LEADER or set(each.isr) != set(each.replicas):
                    return f"{topic.name}-{index}: {each}"
        return missing

    def check(self) -> None:
        """Every acknowledged record is in each replica, and no broker has two logs of a partition."""
        image = self.sim.watch.quorum.image
        for index in range(PARTITIONS):
            placed = image.topics.by_name["t"].partitions[index]
            for broker_id in placed.replicas:
                node = self.sim.cluster.node_of(broker_id).broker
                assert node is not None
                partition = node.partitions.find("t", index)
                assert partition is not None
                found = {
                    record.value for batch in partition.log.batches(0) for record in decode_records(batch)
                }
                lost = [value for value, where in self.acked.items() if where == index and value not in found]
                assert not lost, f"broker {broker_id} lost {len(lost)} of t-{index}"
                home = node.store.directories.directory_of("t", index)
                assert home is not None and home.directory_id == placed.directory_of(broker_id)


@pytest.mark.feature("RE-19", "MB-19", "FI-05")
@pytest.mark.parametrize("seed", [1, 2, 10])
def test_records_survive_moves_and_crashes(seed: int) -> None:
    async def run(universe: Universe) -> None:
        node_log = NodeLog(universe)
        async with trio.open_nursery() as nodes:
            settings = {"log.dirs": LOG_DIRS, "min.insync.replicas": "2"}
            sim = SimCluster(universe, nodes, SimSettings(settings, with_messages=False))
            story = Story(sim, universe.stream("story"))
            with watching(sim.watch, node_log), watching_moves(sim.watch, sim.findings):
                sim.cluster.up()
                await sim.cluster.wait_until(sim.cluster.not_ready, HEAL_SECONDS)
                async with sim.cluster.client(make_world("maker", universe), CLIENT) as client:
                    await Admin.over(client).create_topics(NewTopic("t", PARTITIONS, 3))
                mover = MovingReplicas(sim, {"t": PARTITIONS}, pause_seconds=1.0)
                with trio.move_on_after(PHASE_SECONDS):
                    async with trio.open_nursery() as clients:
                        for task in (story.produce, story.crash, mover.run):
                            clients.start_soon(task)
                for name, node in sim.cluster.nodes.items():
                    await sim.disarm(name)
                    if not node.running:
                        await sim.start(name)
                await sim.cluster.wait_until(story.not_whole, HEAL_SECONDS)
                await trio.sleep(HEAL_SECONDS)
                story.check()
                assert sim.findings.broken == []
                assert story.crashes >= 3 and len(story.acked) > 200
                assert mover.acts["reassign"] > 3 and sim.findings.counts[SWAPS] > 3
                nodes.cancel_scope.cancel()

    run_simulation(seed, run)
