"""Batches, writes and streams of Spark into topics."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.producer.partitioner import partition_for_key
from barnabas.pipeline import sink as sinks
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.errors import LedgerError, PipelineError
from barnabas.pipeline.ledger import Ledger
from barnabas.pipeline.producing import ProduceTask
from barnabas.pipeline.sink import Sink, sink_settings
from barnabas.pytest_plugin import BarnabasCluster
from tests.pipeline.reading_back import await_ended, read_all
from tests.pipeline.sink_driver import FailsOnce

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.feature("PL-03", "PL-06")]

PARTITIONS = 3


class Place:
    """A topic, and sinks and readers for it."""

    def __init__(self, cluster: BarnabasCluster) -> None:
        self.bootstrap = cluster.bootstrap_servers
        self.topic = cluster.create_topic(f"sink-{uuid.uuid4().hex[:8]}", partitions=PARTITIONS)

    def sink(self, topic: str | None = "", **options: Any) -> Sink:
        return Sink(sink_settings(self.bootstrap, self.topic if topic == "" else topic, self.topic, **options))

    def values(self, topic: str = "") -> list[int]:
        return [int(value) for value in read_all(self.bootstrap, topic or self.topic, PARTITIONS)]

    def written(self) -> int:
        """Including aborted records."""
        return len(read_all(self.bootstrap, self.topic, PARTITIONS, isolation="read_uncommitted"))

    def last_batch(self) -> int | None:
        with BlockingCluster(self.bootstrap) as cluster:
            last = Ledger(cluster, self.topic).last()
        return None if last is None else last.batch_id


@pytest.fixture
def place(barnabas_cluster: BarnabasCluster) -> Iterator[Place]:
    yield Place(barnabas_cluster)


Rows = Callable[..., Any]


@pytest.fixture
def rows(spark: Any) -> Rows:
    """Numbered rows in two tasks."""

    def made(first: int, last: int, key: bool = True) -> Any:
        number = spark.range(first, last, 1, 2).selectExpr("cast(id as string) as key", "cast(id as string) as value")
        return number if key else number.select("value")

    return made


def test_a_batch_is_written_where_its_keys_belong_and_skipped_when_it_comes_again(place: Place, rows: Rows) -> None:
    sink = place.sink(compression_type="zstd")
    sink(rows(0, 300), 0)
    assert sink.last is not None and (sink.last.records, sink.last.skipped) == (300, False)
    sink(rows(0, 300), 0)
    assert sink.last.skipped
    # A restarted driver finds it, too, and goes on with rows that may go anywhere.
    again = place.sink()
    again(rows(0, 300), 0)
    again(rows(300, 400, key=False), 1)
    assert sorted(place.values()) == list(range(400))
    assert place.last_batch() == 1
    with pytest.raises(LedgerError, match="never committed"):
        again(rows(0, 10), 5)
    from barnabas import TopicPartition, sync

    with sync.Consumer(bootstrap_servers=place.bootstrap, auto_offset_reset="earliest") as reader:
        reader.assign([TopicPartition(place.topic, index) for index in range(PARTITIONS)])
        keyed = []
        while len(keyed) < 400:
            keyed += reader.poll(timeout_ms=1000)
    assert all(partition_for_key(record.key, PARTITIONS) == record.partition for record in keyed if record.key)


def test_a_retried_task_makes_the_batch_be_written_again(
    place: Place, rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = str(tmp_path / "failed-once")
    monkeypatch.setattr(sinks, "ProduceTask", lambda *given: FailsOnce(ProduceTask(*given), marker))
    sink = place.sink()
    sink(rows(0, 200), 0)
    assert sink.last is not None and sink.last.attempts == 2
    assert Counter(place.values()) == Counter(range(200))
    assert place.written() > 200
    await_ended(place.bootstrap, place.topic, PARTITIONS)


def test_partition_timestamp_and_headers_of_a_row_are_kept(place: Place, rows: Rows) -> None:
    frame = rows(0, 4, key=False).selectExpr(
        "value",
        "cast(value as int) % 3 as partition",
        "timestamp_millis(1700000000000 + cast(value as long)) as timestamp",
        "array(named_struct('key', 'gate', 'value', cast('E34' as binary))) as headers",
        "'ignored' as note",
    )
    place.sink()(frame, 0)
    from barnabas import TopicPartition, sync

    with sync.Consumer(bootstrap_servers=place.bootstrap, auto_offset_reset="earliest") as reader:
        reader.assign([TopicPartition(place.topic, index) for index in range(PARTITIONS)])
        found: list[Any] = []
        while len(found) < 4:
            found += reader.poll(timeout_ms=1000)
    assert sorted((int(each.value), each.partition, each.timestamp_ms, each.headers) for each in found) == [
        (number, number % 3, 1_700_000_000_000 + number, (("gate", b"E34"),)) for number in range(4)
    ]


def test_a_row_without_valid_partition_aborts_its_batch(place: Place, rows: Rows) -> None:
    frame = rows(0, 50).selectExpr("key", "value", "cast(value as int) as partition")
    with pytest.raises(PipelineError, match="must be 0 to 2"):
        place.sink()(frame, 0)
    assert place.values() == [] and place.last_batch() is None
    await_ended(place.bootstrap, place.topic, PARTITIONS)


def test_rows_of_many_topics_are_one_transaction(place: Place, rows: Rows, barnabas_cluster: BarnabasCluster) -> None:
    other = barnabas_cluster.create_topic(f"{place.topic}-other", partitions=PARTITIONS)
    frame = rows(0, 100).selectExpr("key", "value", f"if(cast(value as int) < 40, '{place.topic}', '{other}') as topic")
    sink = place.sink(topic=None)
    sink(frame, 0)
    sink(frame, 0)
    assert sorted(place.values()) == list(range(40))
    assert sorted(place.values(other)) == list(range(40, 100))


def test_at_least_once_needs_no_transaction(place: Place, rows: Rows) -> None:
    sink = place.sink(delivery="at-least-once")
    sink(rows(0, 100), 0)
    sink(rows(100, 150, key=False), 1)
    assert sorted(place.values()) == list(range(150))
    assert place.last_batch() is None


# ---- format("barnabas")


def test_a_frame_is_written_by_its_format(place: Place, rows: Rows) -> None:
    from barnabas.pipeline.writer import by_target_partition

    def save(frame: Any, **options: str) -> None:
        writer = frame.write.format("barnabas").mode("append").option("kafka.bootstrap.servers", place.bootstrap)
        writer.options(topic=place.topic, **options).save()

    save(by_target_partition(rows(0, 200), place.bootstrap, place.topic))
    assert Counter(place.values()) == Counter(range(200))

    # Two tasks with rows of the same partitions: all of it or nothing.
    with pytest.raises(Exception, match=r"with by_target_partition\(frame") as refused:
        save(rows(200, 400))
    assert "Traceback" not in str(refused.value)
    assert Counter(place.values()) == Counter(range(200))
    await_ended(place.bootstrap, place.topic, PARTITIONS)

    with pytest.raises(Exception, match=r"the sink has no option querryid; did you mean queryId\?") as refused:
        save(rows(200, 400), querryId="numbers")
    assert "Traceback" not in str(refused.value)

    save(rows(200, 300), delivery="at-least-once")
    assert Counter(place.values()) == Counter(range(300))


def test_a_stream_is_written_by_its_format(place: Place, spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()

    def run(first: int, last: int) -> None:
        (tmp_path / "in" / f"{first}.txt").write_text("".join(f"{number}\n" for number in range(first, last)))
        query = (
            spark.readStream.text(str(tmp_path / "in"))
            .writeStream.format("barnabas")
            .option("kafka.bootstrap.servers", place.bootstrap)
            .option("topic", place.topic)
            .option("queryId", place.topic)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run(0, 50)
    run(50, 120)
    assert Counter(place.values()) == Counter(range(120))
    assert place.last_batch() == 1

    # Spark does not know that it was committed.
    for file in (tmp_path / "checkpoint" / "commits").glob("*1*"):
        file.unlink()
    run(120, 121)
    assert Counter(place.values()) == Counter(range(121))
    assert place.last_batch() == 2
