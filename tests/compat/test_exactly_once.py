"""Consume, transform, produce: every process is killed in turn, and each input is in the output exactly once.

Two transformers share a group, in Python (librdkafka) and in Java, with both group protocols. kafka-python writes the
input; librdkafka reads the output, committed records only.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compat.librdkafka import Follower
from tests.compat.load import kafka_python_producer
from tests.compat.running import QUICK_GROUPS, RunningCluster
from tests.compat.running_programs import LOCKED, Program, compile_java, java_command, python_command

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
        self.gaps: dict[str, float] = {}
        self.failures: list[str] = []
        """Inputs that could not be written."""
        self._finishing = False
        committed = {"isolation.level": "read_committed"}
        self.reader = Follower(cluster.bootstrap_servers, self.target, PARTITIONS, committed)
        self.reader.start()
        self._producer, self.sent, self._began = kafka_python_producer(cluster.bootstrap_servers), 0, time.monotonic()

    @property
    def seen(self) -> Counter[str]:
        """How often each output was read."""
        return Counter(record.value for record in self.reader.seen)

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
            sent = self._producer.send(self.source, f"{self.sent}".encode(), partition=self.sent % PARTITIONS)
            sent.add_errback(lambda error, number=self.sent: self.failures.append(f"{number}: {error!r}"))
            self.sent += 1
        for program in self.programs:
            program.revive()
        assert self.reader.failures == []
        self.reader.wait_for_more(0.05)

    def flows_on(self, what: str) -> None:
        """Waits for new output; records how long it took."""
        since, before = time.monotonic(), len(self.reader.seen)
        while len(self.reader.seen) <= before:
            self.flow()
            if time.monotonic() - since > QUIET_SECONDS:
                raise AssertionError(f"nothing comes out after {what}: {[each.last_words for each in self.programs]}")
        self.gaps[what] = round(time.monotonic() - since, 2)

    def coordinator(self, role: str) -> str:
        """The broker that is it now for our group, or for the first transformer."""
        from barnabas.broker.coordinator.coordinator import partition_for

        key = self.group if role == "group coordinator" else self.programs[0].name
        topic = INTERNAL[role]
        return self.cluster.leader_of(topic, partition_for(key, len(self.cluster.partitions(topic))))

    def position_logs(self) -> list[str]:
        """Lines of librdkafka's logs about positions."""
        lines = [line for log in sorted(self.logs.glob("*.log")) for line in log.read_text().splitlines()]
        return [line for line in lines if re.search(r"\|(OFFSET|OFFSETVALID|VALIDATE|SEEK|CONSUME|BRKDELGT)\|", line)]

    def finish(self) -> None:
        """Waits until all records that went in, at least `RECORDS`, have come out."""
        self._finishing = True
        deadline = time.monotonic() + QUIET_SECONDS
        while len(self.reader.seen) < max(self.sent, RECORDS) and time.monotonic() < deadline:
            self.flow()

    def close(self) -> None:
        """Kills all programs, whatever they have open."""
        for program in self.programs:
            program.kill()
        self.reader.stop()
        self._producer.close(timeout=1)


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
    seen = pipeline.seen
    twice = {value for value, times in seen.items() if times > 1}
    lost = expected - seen.keys()
    assert pipeline.failures == []
    assert not lost, f"{len(lost)} lost: {sorted(lost)[:5]}: {[each.last_words for each in pipeline.programs]}"
    assert not twice and seen.keys() == expected, f"{len(twice)} twice: {sorted(twice)[:5]}\n" + "\n".join(
        pipeline.position_logs()
    )
    note(f"exactly once with {client}, {pipeline.protocol} protocol: {pipeline.sent} in and out; seconds until it "
         f"went on: {pipeline.gaps}")  # fmt: skip
    locked = [why for each in (pipeline.reader, *pipeline.programs) for why in each.revivals if why == LOCKED]
    if locked:
        note(f"  {len(locked)} times librdkafka locked itself up, and was restarted")


@pytest.mark.client("confluent-kafka", "kafka-python")
@pytest.mark.feature("TX-08", "TX-09", "TX-13", "CG-10", "CG-12", "CG-21", "TX-01", "TX-02", "TX-04", "TX-06", "TX-07")
@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.slow)])
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


@pytest.mark.client("java", "confluent-kafka", "kafka-python")
@pytest.mark.feature("TX-08", "TX-09", "TX-13", "CG-10", "CG-12", "CG-13", "CG-21", "TX-05")
@pytest.mark.parametrize("protocol", [pytest.param("classic", marks=pytest.mark.slow), "consumer"])
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
