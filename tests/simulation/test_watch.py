"""Which nodes are looked at: those that live, and not what is left of one in the moment of its death."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from unittest import mock

import pytest
import trio

from barnabas import sync
from barnabas.broker.replication.replica import Leading, Offline
from barnabas.cluster.simulated import SimulatedCluster
from barnabas.dev.embedded import embedded
from barnabas.kraft.metadata_replica import MetadataReplica
from barnabas.runtime.simulated import Universe, run_simulation
from barnabas.storage.names import LOG_SUFFIX, METADATA_TOPIC
from simulation.coverage import Coverage
from simulation.findings import Findings
from simulation.probes import observed
from simulation.watch import NodeLog, Watch, watching

BROKER = "broker-1"
SETTINGS = {"controller.quorum.fetch.timeout.ms": "1000", "metadata.max.idle.interval.ms": "20000"}
"""Nothing is written while nothing happens, and a new leader is there before requests to the old one have timed out."""
SEEDS = range(1, 40)
FINDING = "node 1 has a high watermark of"


@pytest.mark.feature("FI-05")
def test_a_living_replica_is_looked_at() -> None:
    findings, _ = play(1, dies=False)
    assert FINDING in findings[0]


@pytest.mark.feature("FI-05")
def test_steps_of_a_dead_replica_are_ignored() -> None:
    """Its power is cut in the middle of a step. The rest of it may step once more, because its request to the former
    leader, which was unreachable, fails.
    """
    for seed in SEEDS:
        findings, steps_after_death = play(seed, dies=True)
        assert findings == []
        if steps_after_death:
            return
    pytest.fail("no seed shows it")


@pytest.mark.feature("FI-05")
def test_nodes_of_other_threads_are_not_watched() -> None:
    """A broker may run in another thread of this process, as the fixture `barnabas_broker` does."""
    observer = mock.Mock()
    with observed(observer), embedded(topics={"t": 1}) as servers, sync.Producer(bootstrap_servers=servers) as producer:
        assert producer.send("t", b"record").offset == 0
    assert observer.mock_calls == []


@pytest.mark.feature("FI-05", "RE-11")
def test_a_leader_whose_disk_fails_in_the_turn_in_which_it_commits() -> None:
    """A producer that waited for the commit writes again at once and meets the failing disk: the leader is offline
    before the watch sees its new high watermark (seed 90518)."""
    broken: list[str] = []
    leading = mock.Mock(spec=Leading, maximal_isr=frozenset({1}))

    async def story(universe: Universe) -> None:
        findings = Findings(lambda: universe.time.now)
        async with trio.open_nursery() as nodes:
            cluster = SimulatedCluster(universe, nodes, SETTINGS, size=(1, 3))
            watch = Watch(universe, findings, cluster, Coverage(universe, ()))
            for high_watermark, role in ((15, leading), (17, Offline()), (18, Offline())):
                state = {"node_id": 1, "leader_epoch": 0, "partition_epoch": 0, "high_watermark": high_watermark}
                watch.partition_changed(mock.Mock(topic="t", index=0, replica=mock.Mock(role=role, **state)))
        broken.extend(findings.broken)

    run_simulation(1, story)
    assert len(broken) == 1
    assert "has the high watermark 18, its leaders have come to 17" in broken[0]


def play(seed: int, *, dies: bool) -> tuple[list[str], int]:
    """A broker takes in a record that is committed already, while nothing of its metadata log is left on its disk: its
    power was cut, or it lives on. Gives what was found, and how often it stepped when it was dead.
    """
    broken: list[str] = []
    steps: list[bool] = []

    async def story(universe: Universe) -> None:
        findings = Findings(lambda: universe.time.now)
        async with trio.open_nursery() as nodes:
            cluster = SimulatedCluster(universe, nodes, SETTINGS, size=(1, 3))
            watch = Watch(universe, findings, cluster, Coverage(universe, ()))
            with watching(watch, NodeLog(universe)), steps_noted(universe, steps):
                cluster.up()
                await cluster.wait_ready()
                await trio.sleep(1)
                assert not findings.broken
                replica = watch.coverage.replicas[1]
                if dies:
                    universe.on_strike = lambda _name, _power_cut: lose_log(universe)
                    universe.kill_at(BROKER, "raft.fetched.written", power_cut=True)
                else:
                    lose_log(universe)
                # Another leads, and its first record is committed when the broker comes for it.
                leader = watch.quorum.leaders[max(watch.quorum.leaders)]
                cluster.power_cut(cluster.node_of(leader).node.name)
                await trio.sleep(5)
                assert universe.is_alive(BROKER) is not dies
                if dies:
                    died_in_a_step(replica)
                broken.extend(findings.broken)
                nodes.cancel_scope.cancel()

    run_simulation(seed, story)
    return broken, steps.count(False)


@contextmanager
def steps_noted(universe: Universe, steps: list[bool]) -> Iterator[None]:
    """Whether the broker lived, at the end of each of its steps."""
    original = MetadataReplica._carry_out

    @wraps(original)
    def carry_out(replica: MetadataReplica, *arguments: object) -> None:
        original(replica, *arguments)  # type: ignore[arg-type]
        if replica.config.node_id == 1:
            steps.append(universe.is_alive(BROKER))

    with mock.patch.object(MetadataReplica, "_carry_out", carry_out):
        yield


def lose_log(universe: Universe) -> bool:
    """Whether it is a power cut that does that: it is."""
    disk = universe.disk(BROKER)
    for path, _ in list(disk.files()):
        if path.endswith(LOG_SUFFIX) and METADATA_TOPIC in path:
            disk.remove(path)
    return True


def died_in_a_step(replica: MetadataReplica) -> None:
    """It has the record, and its core knows that it is committed, which was not carried out any more."""
    assert replica.log.partition_log.high_watermark < replica.high_watermark == replica.log.end_offset
