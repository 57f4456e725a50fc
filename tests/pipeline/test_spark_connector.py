"""Spark's own Kafka connector (spark-sql-kafka-0-10, on the JVM) works with this cluster as it does with Apache Kafka.

Its jars come with `tests/pipeline/install.sh`; the session of the tests has them on its path.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas import sync
from barnabas.testing.cluster import ClusterForTests

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.feature("PL-01")]

JARS = Path(__file__).resolve().parents[2] / ".cache" / "spark-connector"
FIRST_MS = 1_750_000_000_000
PARTITIONS = 3
EACH = 100

IMPATIENT = {
    "kafka.request.timeout.ms": "10000",
    "kafka.default.api.timeout.ms": "10000",
    "fetchOffset.numRetries": "10",
}
"""The options that docs/pipeline.md recommends. A stream asks Kafka's admin client for the ends of its partitions. If a
leader dies after it was looked up, the admin client waits for it until default.api.timeout.ms (by default a minute) is
over. On Apache Kafka 4.3.1 this happens at nearly every kill, because the dead broker stays the leader for another nine
seconds; here that takes some tens of milliseconds."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterForTests]:
    if not any(JARS.glob("spark-sql-kafka-*.jar")):
        pytest.skip("no connector; tests/pipeline/install.sh fetches it")
    cluster = ClusterForTests.start_new(tmp_path_factory.mktemp("connector"), {"min.insync.replicas": "1"})
    yield cluster
    cluster.down()


@pytest.fixture(scope="module")
def numbers(cluster: ClusterForTests) -> str:
    """Partition p has the values p:0 to p:99, one a second, with a header."""
    return filled(cluster, "numbers", range(EACH))


def filled(cluster: ClusterForTests, topic: str, values: range, *, is_new: bool = True) -> str:
    if is_new:
        cluster.create_topic(topic, PARTITIONS)
    with sync.Producer(bootstrap_servers=cluster.bootstrap_servers, compression_type="lz4", linger_ms=5) as producer:
        for partition in range(PARTITIONS):
            for number in values:
                producer.enqueue(
                    topic,
                    b"%d:%d" % (partition, number),
                    key=b"%d" % number,
                    partition=partition,
                    timestamp_ms=FIRST_MS + 1000 * number,
                    headers=[("number", b"%d" % number)],
                )
        producer.flush()
    return topic


def every(values: range) -> list[str]:
    return sorted(f"{partition}:{number}" for partition in range(PARTITIONS) for number in values)


def offsets(topic: str, *of_partitions: int) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in enumerate(of_partitions)}})


def read(spark: Any, cluster: ClusterForTests, *, stream: bool = False, **options: Any) -> Any:
    reader = spark.readStream if stream else spark.read
    return reader.format("kafka").option("kafka.bootstrap.servers", cluster.bootstrap_servers).options(**options).load()


def values_of(frame: Any) -> list[str]:
    return sorted(row.value for row in frame.selectExpr("CAST(value AS STRING) AS value").collect())


def stream_to(frame: Any, table: Path, checkpoint: Path, **trigger: Any) -> Any:
    values = frame.selectExpr("CAST(value AS STRING) AS value")
    writer = values.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger).start(str(table))


def test_a_batch_is_every_record_of_the_topics_that_are_named(
    spark: Any, cluster: ClusterForTests, numbers: str
) -> None:
    frame = read(spark, cluster, subscribe=numbers, includeHeaders=True)
    rows = frame.orderBy("partition", "offset").collect()
    assert [row.value.decode() for row in rows] == [f"{p}:{n}" for p in range(PARTITIONS) for n in range(EACH)]
    assert {row.topic for row in rows} == {numbers}
    row = rows[EACH + 42]
    assert (row.partition, row.offset, bytes(row.key), row.timestampType) == (1, 42, b"42", 0)
    assert row.timestamp.timestamp() * 1000 == FIRST_MS + 42_000
    assert [(each.key, bytes(each.value)) for each in row.headers] == [("number", b"42")]

    assert values_of(read(spark, cluster, subscribePattern="numb.*")) == every(range(EACH))
    one = read(spark, cluster, assign=json.dumps({numbers: [2]}))
    assert values_of(one) == sorted(f"2:{number}" for number in range(EACH))


def test_a_batch_respects_its_start_and_end(spark: Any, cluster: ClusterForTests, numbers: str) -> None:
    # -2 and -1 are the beginning and the end.
    ranges = {"startingOffsets": offsets(numbers, 90, -2, 50), "endingOffsets": offsets(numbers, -1, 10, 60)}
    values = values_of(read(spark, cluster, subscribe=numbers, **ranges))
    assert values == sorted(
        [f"0:{n}" for n in range(90, 100)] + [f"1:{n}" for n in range(10)] + [f"2:{n}" for n in range(50, 60)]
    )
    between = {"startingTimestamp": FIRST_MS + 10_500, "endingTimestamp": FIRST_MS + 20_500}
    assert values_of(read(spark, cluster, subscribe=numbers, **between)) == every(range(11, 21))
    by_timestamp = {
        "startingOffsetsByTimestamp": json.dumps({numbers: {str(p): FIRST_MS + 95_000 + 1000 * p for p in range(3)}})
    }
    values = values_of(read(spark, cluster, subscribe=numbers, **by_timestamp))
    assert values == sorted(f"{p}:{n}" for p in range(3) for n in range(95 + p, EACH))

    split = read(spark, cluster, subscribe=numbers, minPartitions=6)
    assert split.rdd.getNumPartitions() == 6
    assert values_of(split) == every(range(EACH))


def test_only_committed_records_are_read(spark: Any, cluster: ClusterForTests) -> None:
    cluster.create_topic("settled")
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "transactional_id": "settles"}
    with sync.Producer(**options) as producer:
        for is_kept, name in ((True, "first"), (False, "dropped"), (True, "second")):
            producer.begin_transaction()
            for number in range(5):
                producer.enqueue("settled", f"{name}-{number}".encode(), partition=0)
            producer.flush()
            if is_kept:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        producer.begin_transaction()
        producer.send("settled", b"open", partition=0)

        committed = values_of(read(spark, cluster, subscribe="settled", **{"kafka.isolation.level": "read_committed"}))
        assert committed == sorted(f"{name}-{n}" for name in ("first", "second") for n in range(5))
        assert len(values_of(read(spark, cluster, subscribe="settled"))) == 16
        producer.abort_transaction()


def test_a_stream_resumes_from_its_checkpoint(spark: Any, cluster: ClusterForTests, tmp_path: Path) -> None:
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    topic = filled(cluster, "streamed", range(50))
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 60}

    first = stream_to(read(spark, cluster, stream=True, **options), table, checkpoint, availableNow=True)
    first.awaitTermination()
    assert first.exception() is None
    assert [progress["numInputRows"] for progress in first.recentProgress if progress["numInputRows"]] == [60, 60, 30]
    assert values_of(spark.read.parquet(str(table))) == every(range(50))

    filled(cluster, topic, range(50, 70), is_new=False)
    again = stream_to(read(spark, cluster, stream=True, **options), table, checkpoint, availableNow=True)
    again.awaitTermination()
    assert sum(progress["numInputRows"] for progress in again.recentProgress) == 60
    assert values_of(spark.read.parquet(str(table))) == every(range(70))


def test_a_batch_and_a_stream_are_written_to_a_topic(
    spark: Any, cluster: ClusterForTests, numbers: str, tmp_path: Path
) -> None:
    cluster.create_topic("copied", PARTITIONS)
    cluster.create_topic("doubled", PARTITIONS)
    servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    frame = read(spark, cluster, subscribe=numbers, includeHeaders=True)
    columns = ("key", "value", "headers", "partition")
    frame.select(*columns).write.format("kafka").options(**servers, topic="copied", includeHeaders=True).save()
    rows = read(spark, cluster, subscribe="copied", includeHeaders=True).collect()
    assert sorted(row.value.decode() for row in rows) == every(range(EACH))
    assert all(row.value.startswith(b"%d:" % row.partition) for row in rows)
    assert all(bytes(row.headers[0].value) == bytes(row.key) for row in rows)

    stream = read(spark, cluster, stream=True, subscribe="copied", startingOffsets="earliest")
    writer = stream.selectExpr("key", "value", "'doubled' AS topic").writeStream.format("kafka").options(**servers)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    assert values_of(read(spark, cluster, subscribe="doubled")) == every(range(EACH))


def test_a_broker_dies_while_a_stream_runs(spark: Any, cluster: ClusterForTests, tmp_path: Path) -> None:
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    topic = filled(cluster, "shaken", range(30))
    frame = read(spark, cluster, stream=True, subscribe=topic, startingOffsets="earliest", **IMPATIENT)
    query = stream_to(frame, table, checkpoint, processingTime="0 seconds")
    try:
        until_read(query, 30 * PARTITIONS)
        killed = cluster.leader_of(topic, 0)
        cluster.kill(killed)
        filled(cluster, topic, range(30, 60), is_new=False)
        until_read(query, 60 * PARTITIONS)
        cluster.start(killed)
        cluster.wait_ready()
        filled(cluster, topic, range(60, 90), is_new=False)
        until_read(query, 90 * PARTITIONS)
    finally:
        query.stop()
    assert values_of(spark.read.parquet(str(table))) == every(range(90))


def until_read(query: Any, rows: int) -> None:
    """Wait until the stream has committed this number of rows."""
    deadline = time.monotonic() + 150
    while True:
        read = {progress["batchId"]: progress["numInputRows"] for progress in query.recentProgress}
        if sum(read.values()) >= rows:
            return
        assert query.exception() is None and time.monotonic() < deadline, f"{sum(read.values())} of {rows} rows"
        time.sleep(0.1)
