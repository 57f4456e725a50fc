"""Consume, transform, produce: every process is killed in turn, and each input is in the output exactly once.

Two transformers share a group, in Python (librdkafka) and in Java, with both group protocols. Another library than
theirs reads the output, committed records only.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compat.running import QUICK_GROUPS, RunningCluster
from tests.compat.running_programs import Program, compile_java, java_command, python_command

pytestmark = pytest.mark.compat

PARTITIONS = 4
RECORDS = 3_000
RECORDS_PER_SECOND = 150
QUIET_SECONDS = 90.0
INTERNAL = {"group coordinator": "__consumer_offsets", "transaction coordinator": "__transaction_state"}


@pytest.fixture(scope="module")
def cluster_for_transformers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    cluster = RunningCluster.start_new(tmp_path_factory.mktemp("cluster"), QUICK_GROUPS)
    yield cluster
    assert cluster.down() == []


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory, libs: Path) -> Path:
    return compile_java(tmp_path_factory.mktemp("classes"), libs)


Command = Callable[[str], list[str]]
"""How to start the transformer of a name."""


class Pipeline:
    """A source that is written at a steady rate, two transformers, and what comes out."""

    def __init__(self, cluster: RunningCluster, protocol: str, logs: Path) -> None:
        self.cluster = cluster
        self.source = cluster.create_topic("source", PARTITIONS)
        self.target = cluster.create_topic("target", PARTITIONS)
        self.group = f"transformers of {self.source}"
        self.protocol = protocol
        self.logs = logs
        self.programs: list[Program] = []
        self.seen: Counter[str] = Counter()
        self.gaps: dict[str, float] = {}
        self._finishing = False
        self._consumer = self._make_consumer()
        self._producer, self.sent, self._began = self._make_producer(), 0, time.monotonic()

    def _make_consumer(self):  # type: ignore[no-untyped-def]  # confluent-kafka has no types
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap_servers,
                "group.id": f"readers of {self.target}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        consumer.assign([TopicPartition(self.target, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
        return consumer

    def _make_producer(self):  # type: ignore[no-untyped-def]
        from confluent_kafka import Producer

        return Producer(
            {"bootstrap.servers": self.cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 5}
        )

    def words(self, name: str) -> list[str]:
        """The arguments of the transformer `name`."""
        return [self.cluster.bootstrap_servers, self.source, self.target, self.group, name, self.protocol]

    def start(self, command: Command) -> None:
        for number in range(2):
            name = f"{self.source}-transformer-{number}"
            program = Program(name, command(name), self.logs / f"{name}.log")
            self.programs.append(program)
            program.start()
        for program in self.programs:
            program.wait_began()

    def flow(self) -> None:
        """Feeds what is due by now (as long as nodes are killed, there is more), and takes what has come out."""
        due = int((time.monotonic() - self._began) * RECORDS_PER_SECOND) + 1
        while self.sent < due and not (self._finishing and self.sent >= RECORDS):
            self._producer.produce(self.source, f"{self.sent}", partition=self.sent % PARTITIONS)
            self.sent += 1
        self._producer.poll(0)
        for program in self.programs:
            if program.ended:
                program.start()
        for message in self._consumer.consume(500, 0.05):
            assert message.error() is None, message.error()
            self.seen[message.value().decode()] += 1

    def flows_on(self, what: str) -> None:
        """Until something comes out that was not there; tells how long it took."""
        since, before = time.monotonic(), self.seen.total()
        while self.seen.total() <= before:
            self.flow()
            if time.monotonic() - since > QUIET_SECONDS:
                raise AssertionError(f"nothing comes out after {what}: {[each.last_words for each in self.programs]}")
        self.gaps[what] = round(time.monotonic() - since, 2)

    def coordinator(self, role: str) -> str:
        """The broker that is it now for our group, or for the first transformer."""
        from broker.coordinator.coordinator import partition_for

        key = self.group if role == "group coordinator" else self.programs[0].name
        topic = INTERNAL[role]
        return self.cluster.leader_of(topic, partition_for(key, len(self.cluster.partitions(topic))))

    def places_told(self) -> list[str]:
        """What librdkafka said of where it reads, and why there."""
        told = [line for log in sorted(self.logs.glob("*.log")) for line in log.read_text().splitlines()]
        return [line for line in told if re.search(r"\|(OFFSET|OFFSETVALID|VALIDATE|SEEK|CONSUME|BRKDELGT)\|", line)]

    def finish(self) -> None:
        """Until everything that was put in has come out; that are `RECORDS` at least."""
        self._finishing = True
        deadline = time.monotonic() + QUIET_SECONDS
        while len(self.seen) < max(self.sent, RECORDS) and time.monotonic() < deadline:
            self.flow()
        self._producer.flush(10)

    def close(self) -> None:
        """What the killed ones still had open is nobody's business."""
        for program in self.programs:
            program.kill()
        self._producer.purge()
        self._consumer.close()


def kill_each_in_turn(pipeline: Pipeline) -> None:
    cluster = pipeline.cluster
    pipeline.flows_on("the start")
    for program in pipeline.programs:
        program.kill()
        program.start()
        pipeline.flows_on("kill of a transformer")
    for role in ("group coordinator", "transaction coordinator", "leader of the output", "active controller"):
        target = {
            "leader of the output": lambda: cluster.leader_of(pipeline.target, 0),
            "active controller": cluster.active_controller,
        }.get(role, lambda role=role: pipeline.coordinator(role))()
        cluster.kill(target)
        pipeline.flows_on(f"kill of the {role}")
        cluster.start(target)
        cluster.wait_for("every partition has all its replicas", lambda: is_whole(cluster), 60)
        pipeline.flows_on("a restart")
    pipeline.finish()


def is_whole(cluster: RunningCluster) -> bool:
    status = cluster.status()
    return status.quorum is not None and all(len(each.isr) == 3 for each in status.partitions)


def judge(pipeline: Pipeline, note: Callable[[str], None], client: str) -> None:
    expected = {f"did {number}" for number in range(pipeline.sent)}
    twice = {value for value, times in pipeline.seen.items() if times > 1}
    lost = expected - pipeline.seen.keys()
    assert not lost, f"{len(lost)} lost: {sorted(lost)[:5]}: {[each.last_words for each in pipeline.programs]}"
    assert not twice and pipeline.seen.keys() == expected, (
        f"{len(twice)} twice: {sorted(twice)[:5]}\n" + "\n".join(pipeline.places_told())
    )
    note(f"exactly once with {client}, {pipeline.protocol} protocol: {pipeline.sent} in and out; seconds until it "
         f"went on: {pipeline.gaps}")  # fmt: skip


@pytest.mark.client("confluent-kafka")
@pytest.mark.feature("TX-08", "TX-09", "TX-13", "CG-10", "CG-12", "CG-21", "TX-01", "TX-02", "TX-04", "TX-06", "TX-07")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_exactly_once_in_python(
    cluster_for_transformers: RunningCluster, protocol: str, tmp_path: Path, note: Callable[[str], None]
) -> None:
    pipeline = Pipeline(cluster_for_transformers, protocol, tmp_path)
    pipeline.start(lambda name: python_command("transform.py", *pipeline.words(name)))
    try:
        kill_each_in_turn(pipeline)
    finally:
        pipeline.close()
    judge(pipeline, note, "confluent-kafka")


@pytest.mark.client("java")
@pytest.mark.feature("TX-08", "TX-09", "TX-13", "CG-10", "CG-12", "CG-13", "CG-21", "TX-05")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_exactly_once_in_java(
    cluster_for_transformers: RunningCluster,
    protocol: str,
    libs: Path,
    classes: Path,
    tmp_path: Path,
    note: Callable[[str], None],
) -> None:
    pipeline = Pipeline(cluster_for_transformers, protocol, tmp_path)
    pipeline.start(lambda name: java_command(classes, libs, "Transform", *pipeline.words(name)))
    try:
        kill_each_in_turn(pipeline)
    finally:
        pipeline.close()
    judge(pipeline, note, "java")
