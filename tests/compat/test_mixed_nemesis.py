"""A mixed cluster while its nodes are killed, stopped and frozen at random; afterwards metadata logs and replicas are
the same bytes, and every record is accounted for.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from barnabas.cluster.ports import free_base_port
from tests.compat.mixed import KAFKA, OURS, MixedCluster, MixedNode, differing, segments
from tests.compat.test_migrate import TOPIC, Load
from tests.compat.test_mixed import PARTITIONS, TRANSACTIONAL_IDS, active, consume, create, transact

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.client("java", "confluent-kafka")]

SECONDS = 100.0
"""Time of faults."""
LONGEST_FAULT_SECONDS = 8.0
SLOW_SECONDS = 240.0
THREE = {
    "offsets__topic__replication__factor": "3",
    "transaction__state__log__replication__factor": "3",
    "transaction__state__log__min__isr": "2",
    "initial__broker__registration__timeout__ms": "600000",
}
SEED = os.environ.get("MIXED_SEED", "")
"""Repeats the choices of a run."""


class Nemesis:
    """One fault at a time, of a node that each role can do without."""

    def __init__(self, cluster: MixedCluster, controllers: list[MixedNode], chance: random.Random) -> None:
        self._cluster = cluster
        self._controllers = controllers
        self._chance = chance

    def strike(self, node: MixedNode, brokers: list[MixedNode]) -> None:
        cluster, chance = self._cluster, self._chance
        kind = chance.choice(("kill", "stop", "pause"))
        seconds = chance.uniform(0.5, LONGEST_FAULT_SECONDS)
        print(f"{kind} {node.kind} {node.id} for {seconds:.1f} s", flush=True)
        assert node.process is not None
        if kind == "pause":
            node.process.send_signal(signal.SIGSTOP)
            time.sleep(seconds)
            node.process.send_signal(signal.SIGCONT)
        else:
            cluster.stop(node, signal.SIGKILL if kind == "kill" else signal.SIGTERM)
            time.sleep(seconds)
            cluster.start(node)
        cluster.wait_for_brokers(*brokers, seconds=SLOW_SECONDS)
        cluster.wait(lambda: in_sync(cluster, brokers), "all replicas are in sync", SLOW_SECONDS)
        # A JVM may take half a minute to start. If a second controller went meanwhile, nobody could lead, and no topic
        # could be created.
        cluster.wait(lambda: quorum_is_whole(cluster, self._controllers), "all controllers are back", SLOW_SECONDS)


def in_sync(cluster: MixedCluster, brokers: list[MixedNode]) -> bool:
    """Every broker sees three replicas in sync."""
    return all(
        count == 3 and leader >= 0 for broker in brokers for leader, count in cluster.in_sync(broker, TOPIC).values()
    )


def quorum_is_whole(cluster: MixedCluster, controllers: list[MixedNode]) -> bool:
    """Every controller answers, and the leader knows that all voters have its committed log."""
    described = [cluster.describe_quorum(node) for node in controllers]
    led = [each for each in described if not each.error_code and each.high_watermark >= 0]
    return any(
        len(each.current_voters) == len(controllers)
        and all(voter.log_end_offset >= each.high_watermark for voter in each.current_voters)
        for each in led
    )


@pytest.mark.timeout(1500, method="thread")
@pytest.mark.feature("KR-19", "FI-03", "FI-04")
def test_a_mixed_cluster_survives_random_faults(libs: Path, tmp_path: Path) -> None:
    seed = int(SEED) if SEED else random.SystemRandom().randrange(1 << 30)
    print(f"MIXED_SEED={seed}")
    chance = random.Random(seed)
    with MixedCluster(libs, tmp_path, base_port=free_base_port(range(16))) as cluster:
        of_controllers = (OURS, KAFKA, OURS)
        controllers = [cluster.add(kind, 301 + at, "controller", **THREE) for at, kind in enumerate(of_controllers)]
        voters = cluster.voters(*controllers)
        for node in controllers:
            node.config.write_text(f"{node.config.read_text()}controller.quorum.voters={voters}\n")
        kinds = (KAFKA, OURS, chance.choice((KAFKA, OURS)))
        settings = {**THREE, "controller__quorum__voters": voters}
        brokers = [cluster.add(kind, 1 + at, "broker", **settings) for at, kind in enumerate(kinds)]
        cluster.up(*controllers, *brokers)
        cluster.wait_for_brokers(*brokers, seconds=SLOW_SECONDS)
        create(cluster, TOPIC, 3)
        cluster.wait(lambda: in_sync(cluster, brokers), "the topic is in sync", SLOW_SECONDS)
        transact(cluster, TOPIC)
        load = Load(cluster)
        load.start()
        nemesis = Nemesis(cluster, controllers, chance)
        end = time.monotonic() + SECONDS
        made = 0
        while time.monotonic() < end:
            nemesis.strike(chance.choice((*controllers, *brokers)), brokers)
            made += 1
            create(cluster, f"later-{made}", 2, SLOW_SECONDS)
        load.finish()

        assert load.errors == []
        transact(cluster, TOPIC)
        kept = 2 * PARTITIONS * len(TRANSACTIONAL_IDS)
        values = consume(cluster, TOPIC, "group", len(load.acknowledged) + kept)
        assert values.count(b"kept") == kept and b"aborted" not in values
        assert sorted(map(int, filter(bytes.isdigit, values))) == sorted(map(int, load.acknowledged))

        active(cluster, controllers)
        for node in (*brokers, *controllers):
            cluster.stop(node)
        first, *others = (segments(node, "__cluster_metadata") for node in controllers)
        assert first
        for other in others:
            for name in first.keys() & other.keys():
                length = min(len(first[name]), len(other[name]))
                assert first[name][:length] == other[name][:length], f"{name} differs within {length} bytes"
        for broker in brokers[1:]:
            assert list(differing(segments(brokers[0], TOPIC), segments(broker, TOPIC))) == []
