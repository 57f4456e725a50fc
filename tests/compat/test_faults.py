"""Nodes are killed, paused and stopped under load, each chosen by the part it plays at that moment; nothing is lost.

Three client libraries write, one partition each; another library than its writer's reads each partition back.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from barnabas.cluster.errors import ClusterError
from tests.compat.foreign import Client, Confluent, KafkaPython
from tests.compat.history import in_partition, judge
from tests.compat.librdkafka import ConfluentWriter, Follower
from tests.compat.load import AioKafkaWriter, KafkaPythonWriter, Stored, Writer
from tests.compat.running import RunningCluster

pytestmark = pytest.mark.compat

ROUNDS = {
    ("kill", "leader"): 4,
    ("kill", "controller"): 3,
    ("kill", "follower"): 2,
    ("pause", "leader"): 3,
    ("pause", "controller"): 3,
    ("pause", "follower"): 2,
    ("stop", "leader"): 3,
    ("stop", "controller"): 2,
    ("stop", "follower"): 2,
    ("kill", "leader+controller"): 2,
    ("pause", "leader+controller"): 1,
    ("kill", "everything"): 1,
}
LEAST_ACKS = 1_000
"""Fewer prove nothing."""
RECORDS_PER_SECOND = 150
SESSION_MS = 3_000
"""After this silence a paused broker is fenced: Kafka's 9 seconds would be most of the test."""
OVERRIDES = {"broker.session.timeout.ms": str(SESSION_MS), "broker.heartbeat.interval.ms": "500"}
RECOVERY_SECONDS = 60.0
ACK_SECONDS = 150.0
"""Twice as long, and more, as the most patient client waits for a node that is silent (aiokafka: 60 s)."""


@dataclass(frozen=True, slots=True)
class Round:
    """One fault, and what it cost the writers."""

    kind: str
    role: str
    targets: list[str]
    gap_seconds: float
    """The longest time that the partition at stake (else: any) was without an ack."""
    seconds: float


class Rounds:
    """Plays faults on a cluster under load."""

    def __init__(self, cluster: RunningCluster, topic: str, writers: list[Writer], chance: random.Random) -> None:
        self._cluster = cluster
        self._topic = topic
        self._writers = writers
        self._chance = chance
        self.played: list[Round] = []

    def play(self, kind: str, role: str) -> None:
        # aiokafka waits for a silent node as long as for a record: a paused leader would hold it up to the end.
        patient = [writer for writer in self._writers if kind != "pause" or writer.client != "aiokafka"]
        if role == "everything":
            self._play_everything()
            return
        written = self._chance.choice(patient)
        at_stake = [written] if "leader" in role else self._writers
        targets = [self._target(part, written.partition) for part in role.split("+")]
        began = time.monotonic()
        for target in targets:
            match kind:
                case "kill":
                    self._cluster.kill(target)
                case "pause":
                    self._cluster.pause(target)
                case "stop":
                    assert self._cluster.stop(target), f"{target} did not leave in good order"
        for target in targets:
            self._wait_until_moved(target)
        self.wait_for_acks([written], f"after {kind} of {targets} ({role})")
        for target in targets:
            if kind == "pause":
                self._cluster.resume(target)
            else:
                self._cluster.start(target)
        self._cluster.wait_for(f"all is as before the {kind} of {targets}", self._is_whole, RECOVERY_SECONDS)
        self.wait_for_acks(self._writers, f"when {targets} were back")
        gap = max(writer.longest_gap(began) for writer in at_stake)
        self.played.append(Round(kind, role, targets, gap, time.monotonic() - began))
        print(self.played[-1], flush=True)

    def _play_everything(self) -> None:
        """All six are killed, and started again: what was acked is in the page caches of three brokers."""
        began = time.monotonic()
        for node in self._cluster.nodes:
            self._cluster.kill(node.name)
        self._cluster.up()
        self._cluster.wait_for("all is as before all were killed", self._is_whole, RECOVERY_SECONDS)
        self.wait_for_acks(self._writers, "when all were back")
        gap = max(writer.longest_gap(began) for writer in self._writers)
        self.played.append(Round("kill", "everything", ["all six"], gap, time.monotonic() - began))
        print(self.played[-1], flush=True)

    def _target(self, role: str, partition: int) -> str:
        if role == "controller":
            return self._cluster.active_controller()
        partitions = self._cluster.partitions(self._topic)
        status = partitions[partition]
        if role == "leader":
            return f"broker-{status.leader}"
        leading = [each.leader for each in partitions]
        followers = [node for node in status.isr if node != status.leader]
        return f"broker-{min(followers, key=lambda node: (leading.count(node), node))}"

    def _wait_until_moved(self, target: str) -> None:
        """Until others do the target's work; a paused one is not let go before."""
        role, _, number = target.partition("-")

        def controller_moved() -> bool:
            quorum = self._cluster.status().quorum
            return quorum is not None and f"controller-{quorum.leader}" != target

        def broker_is_out() -> bool:
            status = self._cluster.status()
            own = int(number)
            parts = [each for each in status.partitions if each.topic == self._topic]
            return bool(parts) and all(own not in each.isr and each.leader not in (own, -1) for each in parts)

        moved = controller_moved if role == "controller" else broker_is_out
        self._cluster.wait_for(f"others do what {target} did", moved, RECOVERY_SECONDS)

    def wait_for_acks(self, writers: list[Writer], when: str) -> None:
        """Until records sent from now on are safe."""
        since = time.monotonic()
        for writer in writers:
            what = f"{writer.client} writes {when}"
            try:
                self._cluster.wait_for(what, lambda writer=writer: self._writes(writer, since), ACK_SECONDS)
            except ClusterError as error:
                raise AssertionError(f"{error}; {writer.how_it_is()}") from error

    @staticmethod
    def _writes(writer: Writer, since: float) -> bool:
        assert writer.failures == [], f"{writer.client} has failed"
        return writer.has_ack_of(since)

    def _is_whole(self) -> bool:
        """Every node serves, and every partition has all its replicas."""
        status = self._cluster.status()
        return (
            status.quorum is not None
            and status.brokers == [node.id for node in self._cluster.layout.brokers]
            and all(len(each.isr) == 3 and each.leader >= 0 for each in status.partitions)
            and all(self._cluster.is_answering(node.name) for node in self._cluster.layout.controllers)
        )


@pytest.fixture(autouse=True)
def _clients_keep_to_themselves_what_they_cannot_reach() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("kafka", "aiokafka")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture
def faulty_cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    cluster = RunningCluster.start_new(tmp_path / "cluster", OVERRIDES)
    yield cluster
    cluster.down()


def read_back(client: Client, topic: str, partition: int, count: int) -> list[Stored]:
    seen = client.consume(topic, count, partition)
    return [Stored(partition, record.offset, record.value) for record in seen]


@pytest.mark.client("confluent-kafka", "kafka-python", "aiokafka")
@pytest.mark.feature(
    "FI-03", "FI-04", "FI-09", "FI-10", "RE-01", "RE-03", "RE-08", "RE-09", "RE-10", "RE-11", "RE-13", "RE-14",
    "MB-02", "MB-03", "MB-05", "MB-12", "MB-13", "AD-05", "PR-11", "PR-12", "PF-20", "KR-03",
)  # fmt: skip
@pytest.mark.parametrize("most_of_a_kind", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_no_acked_record_is_lost_while_nodes_fail(
    faulty_cluster: RunningCluster, note: Callable[[str], None], most_of_a_kind: int
) -> None:
    from confluent_kafka import ElectionType
    from confluent_kafka.admin import AdminClient

    cluster = faulty_cluster
    seed = int(os.environ.get("COMPAT_SEED") or time.time_ns() % 1_000_000)
    chance = random.Random(seed)
    schedule = [fault for fault, times in ROUNDS.items() for _ in range(min(times, most_of_a_kind))]
    chance.shuffle(schedule)
    print(f"COMPAT_SEED={seed}: {schedule}")

    kinds = (ConfluentWriter, KafkaPythonWriter, AioKafkaWriter)
    topic = cluster.create_topic("survivor", partitions=len(kinds))
    bootstrap = cluster.bootstrap_servers
    writers: list[Writer] = [
        kind(bootstrap, topic, partition, RECORDS_PER_SECOND) for partition, kind in enumerate(kinds)
    ]
    follower = Follower(bootstrap, topic, len(kinds))
    rounds = Rounds(cluster, topic, writers, chance)
    try:
        for thread in (*writers, follower):
            thread.start()
        # To get its id is the one thing that kafka-python does not try twice.
        rounds.wait_for_acks(writers, "at first")
        for kind, role in schedule:
            rounds.play(kind, role)
    finally:
        for writer in writers:
            writer.stopped.set()
    for writer in writers:
        writer.stop()
    note(f"{len(rounds.played)} faults under load, seed {seed}:")
    for fault in sorted(ROUNDS):
        gaps = [played.gap_seconds for played in rounds.played if (played.kind, played.role) == fault]
        note(f"  {fault[0]:<5} {fault[1]:<17} {len(gaps)} times, longest time without an ack {max(gaps):.2f} s")

    # Faults have left the leaders where they are; the preferred ones are all well.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.elect_leaders(ElectionType.PREFERRED).result(30)
    cluster.wait_for(
        "the preferred leaders lead, and know what is committed",
        lambda: all(
            each.leader == each.replicas[0] and each.high_watermark is not None for each in cluster.partitions(topic)
        ),
    )
    readers = {"confluent-kafka": KafkaPython, "kafka-python": Confluent, "aiokafka": Confluent}
    ends = {each.partition: each.high_watermark for each in cluster.partitions(topic)}
    for writer in writers:
        end = ends[writer.partition]
        assert end is not None
        stored = read_back(readers[writer.client](bootstrap), topic, writer.partition, end)
        note(
            f"  {writer.client}: sent {writer.sent}, acked {len(writer.acks)}, failed {len(writer.failures)}, "
            f"read back {len(stored)}{''.join(f'; {why}: restarted' for why in writer.revivals)}"
        )
        assert len(writer.acks) >= LEAST_ACKS
        assert writer.failures == []
        verdict = judge(writer.acks, stored, writer.unsure)
        assert not verdict, verdict
        cluster.wait_for(
            "the reader has come to the end",
            lambda p=writer.partition, n=end: len(in_partition(follower.seen, p)) >= n,
        )
        assert in_partition(follower.seen, writer.partition) == stored, "seen while it was written, and after"
    follower.stop()
    assert follower.failures == []
    for why in follower.revivals:
        note(f"  the reader {why}: restarted")

    assert cluster.down() == []
    for partition in range(len(kinds)):
        replicas = [bytes_of(cluster, node.name, topic, partition) for node in cluster.layout.brokers]
        assert replicas[0] and replicas == [replicas[0]] * 3, f"replicas of {topic}-{partition} differ"


def bytes_of(cluster: RunningCluster, broker: str, topic: str, partition: int) -> bytes:
    directory = cluster.partition_directory(broker, topic, partition)
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
