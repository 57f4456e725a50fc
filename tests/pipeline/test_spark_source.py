"""Spark reads topics of a real cluster: batches, streams, restarts, failovers, and one-line errors."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from barnabas import NewTopic, TopicPartition, errors, sync
from barnabas.pipeline.session import refusal
from barnabas.pytest_plugin import BarnabasCluster

pytest.importorskip("pyspark")

pytestmark = pytest.mark.spark

FIRST_MS = 1_750_000_000_000
PARTITIONS = 3
EACH = 60
WAIT_SECONDS = 240
ATTEMPTS = 5
NOT_STARTED = "Python worker failed to connect back"


class Topics:
    """Topics of the shared cluster, and records in them: partition p gets p:0, p:1, and so on, one a second."""

    def __init__(self, cluster: BarnabasCluster) -> None:
        self.cluster = cluster
        self.servers = cluster.bootstrap_servers

    def make(self, name: str, count: int = EACH, partitions: int = PARTITIONS) -> str:
        with sync.Admin(bootstrap_servers=self.servers) as admin:
            # The records are from long ago, and no retention is to take them.
            kept = {"retention.ms": "-1"}
            admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=3, configs=kept)])
        if count:
            self.fill(name, range(count), range(partitions))
        return name

    def fill(self, name: str, numbers: range, partitions: range = range(PARTITIONS)) -> None:
        with sync.Producer(bootstrap_servers=self.servers, compression_type="lz4", linger_ms=5) as producer:
            for partition in partitions:
                for number in numbers:
                    producer.enqueue(
                        name,
                        b"%d:%d" % (partition, number),
                        key=None if number % 10 == 0 else b"%d" % number,
                        partition=partition,
                        timestamp_ms=FIRST_MS + 1000 * number,
                        headers=[("number", b"%d" % number)] if number % 2 else [],
                    )
            producer.flush()

    def admin(self) -> sync.Admin:
        return sync.Admin(bootstrap_servers=self.servers)


@pytest.fixture(scope="module")
def topics(barnabas_shared_cluster: BarnabasCluster) -> Topics:
    return Topics(barnabas_shared_cluster)


@pytest.fixture(scope="module")
def flights(topics: Topics) -> str:
    return topics.make("flights")


@pytest.fixture
def read(spark: Any, barnabas_cluster: BarnabasCluster) -> Callable[..., Any]:
    def frame(**options: Any) -> Any:
        return spark.read.format("barnabas").options(bootstrap=barnabas_cluster.bootstrap_servers, **options).load()

    return frame


class Query:
    """A stream whose batches are recorded. Its runs share a checkpoint."""

    def __init__(self, spark: Any, servers: str, checkpoint: Path) -> None:
        self._spark = spark
        self._servers = servers
        self._checkpoint = checkpoint
        self.batches: list[list[str]] = []
        self.after_batch: Callable[[], None] | None = None
        """Called after each recorded batch."""

    def start(self, *, now: bool = False, **options: Any) -> Any:
        def keep(frame: Any, _number: int) -> None:
            self.batches.append(values_of(frame))
            if self.after_batch is not None:
                self.after_batch()

        reader = self._spark.readStream.format("barnabas").options(bootstrap=self._servers, **options)
        writer = reader.load().writeStream.foreachBatch(keep).option("checkpointLocation", str(self._checkpoint))
        return (writer.trigger(availableNow=True) if now else writer.trigger(processingTime="100 milliseconds")).start()

    def run(self, **options: Any) -> list[list[str]]:
        """Read to the current end; returns the batches."""

        def run_once() -> None:
            running = self.start(now=True, startingOffsets="earliest", **options)
            try:
                running.awaitTermination(WAIT_SECONDS)
            finally:
                running.stop()

        self.batches = []
        self._in_spite_of_a_busy_machine(run_once)
        return self.batches

    def follow(self, values: list[str], **options: Any) -> Any:
        """A running stream, after it has read these records."""

        def start_once() -> Any:
            running = self.start(startingOffsets="earliest", **options)
            self.see(running, values)
            return running

        return self._in_spite_of_a_busy_machine(start_once)

    def see(self, running: Any, values: list[str]) -> None:
        """Wait until exactly these records were read, each once."""
        end = time.monotonic() + WAIT_SECONDS
        while self.values != values and time.monotonic() < end:
            running.awaitTermination(0.2)
        assert self.values == values

    def _in_spite_of_a_busy_machine(self, act: Callable[[], Any]) -> Any:
        """Retry if a busy machine takes longer than Spark's ten seconds to start a Python worker."""
        for _ in range(ATTEMPTS - 1):
            try:
                return act()
            except Exception as error:
                if NOT_STARTED not in str(error) or self.batches:
                    raise
        return act()

    def ended(self, running: Any) -> str:
        """The error line of a stream that had started."""
        with pytest.raises(Exception, match=r".") as caught:
            running.awaitTermination(WAIT_SECONDS)
        return refusal(caught.value).line

    def refused(self, **options: Any) -> str:
        """The error line of a stream that does not start."""
        with pytest.raises(Exception, match=r".") as caught:
            self.run(**options)
        assert self.batches == []
        return refusal(caught.value).line

    @property
    def values(self) -> list[str]:
        return sorted(value for batch in self.batches for value in batch)


@pytest.fixture
def query(spark: Any, barnabas_cluster: BarnabasCluster, tmp_path: Path) -> Iterator[Query]:
    query = Query(spark, barnabas_cluster.bootstrap_servers, tmp_path / "checkpoint")
    yield query
    for running in spark.streams.active:
        running.stop()


def values_of(frame: Any) -> list[str]:
    return sorted(bytes(row.value).decode() for row in frame.select("value").collect())


def every(numbers: range, partitions: range = range(PARTITIONS)) -> list[str]:
    return sorted(f"{partition}:{number}" for partition in partitions for number in numbers)


def offsets(topic: str, *of_partitions: int) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in enumerate(of_partitions)}})


@pytest.mark.feature("PL-02", "PL-04")
def test_a_batch_has_every_record_with_all_that_it_has(flights: str, read: Callable[..., Any]) -> None:
    rows = read(subscribe=flights, includeHeaders=True).orderBy("partition", "offset").collect()
    assert len(rows) == PARTITIONS * EACH
    for index, row in enumerate(rows):
        partition, number = divmod(index, EACH)
        at = datetime.fromtimestamp((FIRST_MS + 1000 * number) / 1000, UTC)
        assert (row.topic, row.partition, row.offset, row.timestampType) == (flights, partition, number, 0)
        assert row.timestamp.astimezone(UTC) == at
        assert row.key == (None if number % 10 == 0 else b"%d" % number)
        assert row.value == b"%d:%d" % (partition, number)
        headers = None if row.headers is None else [(each.key, bytes(each.value)) for each in row.headers]
        assert headers == ([("number", b"%d" % number)] if number % 2 else None)


@pytest.mark.feature("PL-02", "PL-04")
def test_a_batch_is_cut_into_tasks_and_ranges(flights: str, read: Callable[..., Any]) -> None:
    """By offsets and by time; offsets that filters exclude are not even planned."""
    split = read(subscribe=flights, maxRecordsPerPartition=25)
    assert split.rdd.getNumPartitions() == 9
    assert values_of(split) == every(range(EACH))
    assert read(subscribe=flights, minPartitions=7).rdd.getNumPartitions() == 7
    ranges = read(
        subscribe=flights, startingOffsets=offsets(flights, 10, 50, -2), endingOffsets=offsets(flights, 12, -1, 1)
    )
    assert values_of(ranges) == sorted([*every(range(10, 12), range(1)), *every(range(50, EACH), range(1, 2)), "2:0"])
    between = read(subscribePattern="fl.ghts", startingTimestamp=FIRST_MS + 11_000, endingTimestamp=FIRST_MS + 14_000)
    assert values_of(between) == every(range(11, 14))
    one = read(assign=json.dumps({flights: [0, 2]})).where("offset >= 55 and partition = 2")
    assert one.rdd.getNumPartitions() == 1
    assert values_of(one) == every(range(55, EACH), range(2, 3))
    timed = read(subscribe=flights).where(f"timestamp > timestamp_millis({FIRST_MS + 57_000}) and partition in (0, 1)")
    assert timed.rdd.getNumPartitions() == 2
    assert values_of(timed) == every(range(58, EACH), range(2))


@pytest.mark.feature("PL-04")
def test_it_is_found_without_being_registered_and_filters_need_not_be_pushed(
    spark: Any, flights: str, topics: Topics
) -> None:
    other = spark.newSession()
    assert other.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    other.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    frame = other.read.format("barnabas").option("kafka.bootstrap.servers", topics.servers).option("subscribe", flights)
    assert values_of(frame.load().where("offset < 3 and partition = 1")) == every(range(3), range(1, 2))


@pytest.mark.feature("PL-02")
def test_only_committed_records_are_read(topics: Topics, read: Callable[..., Any]) -> None:
    name = topics.make("settled", 0, 1)
    with sync.Producer(bootstrap_servers=topics.servers, transactional_id="settled") as producer:
        for number in range(4):
            try:
                with producer.transaction():
                    for each in range(3):
                        producer.enqueue(name, b"%d-%d" % (number, each), partition=0)
                    producer.flush()
                    if number % 2:
                        raise RuntimeError("this one is aborted")
            except RuntimeError:
                continue
        with producer.transaction():
            producer.enqueue(name, b"open", partition=0)
            producer.flush()
            committed = values_of(read(subscribe=name, **{"kafka.isolation.level": "read_committed"}))
            assert committed == [f"{number}-{each}" for number in (0, 2) for each in range(3)]
            assert len(values_of(read(subscribe=name))) == 13


@pytest.mark.feature("PL-04", "PL-06")
def test_a_stream_respects_its_limit_and_resumes(topics: Topics, query: Query) -> None:
    name = topics.make("taken-in-turns", 20)
    options = {"subscribe": name, "maxOffsetsPerTrigger": 25, "groupId": "board"}
    batches = query.run(**options)
    assert [len(batch) for batch in batches] == [25, 25, 10]
    assert query.values == every(range(20))
    topics.fill(name, range(20, 30))
    with topics.admin() as admin:
        admin.create_partitions({name: PARTITIONS + 1})
    topics.fill(name, range(5), range(PARTITIONS, PARTITIONS + 1))
    query.run(**options)
    assert query.values == sorted([*every(range(20, 30)), *every(range(5), range(3, 4))])
    with topics.admin() as admin:
        committed = admin.list_consumer_group_offsets("board")["board"]
    offsets_of_group = {partition.partition: each.offset for partition, each in committed.items() if each is not None}
    assert offsets_of_group == {0: 30, 1: 30, 2: 30, 3: 5}, "lag is seen from outside"
    assert query.run(**options) == [], "there is nothing more"


@pytest.mark.feature("PL-04", "PL-06")
def test_a_running_stream_survives_its_leader_and_sees_new_partitions(
    topics: Topics, query: Query, barnabas_cluster: BarnabasCluster
) -> None:
    name = topics.make("running", 10)
    running = query.follow(every(range(10)), subscribe=name)
    with topics.admin() as admin:
        admin.create_partitions({name: PARTITIONS + 1})
    topics.fill(name, range(3), range(PARTITIONS, PARTITIONS + 1))
    barnabas_cluster.kill(barnabas_cluster.leader_of(name, 0))
    topics.fill(name, range(10, 20))
    query.see(running, sorted([*every(range(20)), *every(range(3), range(3, 4))]))


@pytest.mark.feature("PL-04", "PL-06")
def test_lost_offsets_are_an_error_or_skipped(topics: Topics, query: Query) -> None:
    """Nothing is read twice."""
    name = topics.make("short", 30, 1)

    def lose() -> None:
        with topics.admin() as admin:
            admin.delete_records({TopicPartition(name, 0): 15})

    query.after_batch = lose
    with pytest.raises(Exception, match=r".") as caught:
        query.run(subscribe=name, maxOffsetsPerTrigger=10)
    query.after_batch = None
    assert query.values == every(range(10), range(1))
    line = refusal(caught.value).line
    assert line.startswith("short-0: offsets 10 to 14 were deleted, the log begins at 15")
    assert "failOnDataLoss" in line
    query.run(subscribe=name, failOnDataLoss="false")
    assert query.values == every(range(15, 30), range(1))


@pytest.mark.feature("PL-04", "PL-06")
def test_a_deleted_or_recreated_topic_is_an_error(topics: Topics, query: Query) -> None:
    name = topics.make("recreated", 10, 1)
    running = query.follow(every(range(10), range(1)), subscribe=name)
    with topics.admin() as admin:
        admin.delete_topics([name])
    line = query.ended(running)
    # Which one depends on the request that met it first.
    assert "topic recreated was deleted before" in line or "there is no recreated-0" in line
    line = query.refused(subscribe="flights")
    assert line == (
        "the checkpoint belongs to a query that reads recreated, but this one reads flights; give it another"
        " checkpointLocation"
    )
    wait_until_gone(topics, name)
    topics.make(name, 3, 1)
    line = query.refused(subscribe=name)
    assert "topic recreated was deleted and recreated" in line and "checkpointLocation" in line
    query.run(subscribe=name, failOnDataLoss="false")
    assert query.values == every(range(3), range(1)), "the new one, from its beginning"


def wait_until_gone(topics: Topics, name: str) -> None:
    end = time.monotonic() + WAIT_SECONDS
    with topics.admin() as admin:
        while time.monotonic() < end:
            try:
                admin.describe_topics([name])[name]
            except errors.UnknownTopicOrPartitionException:
                return
    pytest.fail(f"{name} is still there")


def test_no_worker_could_import_an_event_loop(spark: Any) -> None:
    """Proves that no other test of this session uses one."""

    def tried(_: int) -> str:
        try:
            import trio  # noqa: F401 - whether it can be is the question
        except ImportError as error:
            return str(error)
        return "imported"

    assert spark.sparkContext.parallelize([0], 1).map(tried).collect() == ["a worker of Spark imports trio"]


@pytest.mark.feature("PL-04")
def test_an_invalid_read_is_one_line(
    read: Callable[..., Any], flights: str, spark: Any, query: Query
) -> None:
    for options, message in (
        ({"subscribe": "nope"}, "topic nope cannot be read: it does not exist; check the name, or create it"),
        (
            {"subscribe": flights, "startingOffsets": offsets(flights, 0, 0, EACH + 5)},
            f"flights-2: offsets up to {EACH + 5} were requested, but the log ends at {EACH}; check the offsets, or set"
            " option failOnDataLoss to false to read the offsets that exist",
        ),
        ({"subscribe": flights, "maxRecordPerPartition": 5}, "the source has no option maxrecordperpartition"),
    ):
        with pytest.raises(Exception, match=r".") as caught:
            read(**options).collect()
        assert refusal(caught.value).line.startswith(message)
        assert message in str(caught.value).splitlines()[0], "it is in the first line of Spark's error"
    # For a stream, Spark would report that it cannot stop the reader that was never created.
    line = query.refused(subscribe=flights, maxOffsetsPerTrigger=0)
    assert line == "option maxOffsetsPerTrigger must be at least 1; got 0"
    away = {"bootstrap": "127.0.0.1:1", "subscribe": flights, "kafka.default.api.timeout.ms": "300"}
    with pytest.raises(Exception, match=r".") as caught:
        spark.read.format("barnabas").options(**away).load().collect()
    assert "check that the cluster at 127.0.0.1:1 is up" in refusal(caught.value).line
