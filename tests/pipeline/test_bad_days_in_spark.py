"""Failures in the middle of a job: one line, nothing incomplete is visible, and the same command resumes."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from barnabas import NewTopic, TopicPartition, sync
from barnabas.pipeline import sink as sinks
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.generator import Recipe, write_parquet
from barnabas.pipeline.jobs import lake_rows
from barnabas.pipeline.jobs.rounds import Rounds
from barnabas.pipeline.sink import Sink
from tests.pipeline.typed_commands import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.feature("PL-02", "PL-06")]

IMPATIENT_MS = 1_500
RECORDS = 20_000
"""Number of orders, in three files."""
VALUE_BYTES = 8_000
SMALL_BYTES = 512 * 1024
LARGE_BYTES = 64 * 1024 * 1024
FULL = "free some space and run the same command again, it resumes"


class Disk:
    """A small file system."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def grow(self) -> None:
        _mount("-o", f"remount,size={LARGE_BYTES}", str(self.path))

    def fill(self) -> None:
        """Fill it to the last byte."""
        with (self.path / "filler").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                return

    def free(self) -> None:
        (self.path / "filler").unlink()


def _mount(*words: str) -> bool:
    return subprocess.run(["mount", *words], capture_output=True, check=False).returncode == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    path = tmp_path / "disk"
    path.mkdir()
    if not _mount("-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "tmpfs", str(path)):
        pytest.skip("nobody but root mounts a small disk")
    yield Disk(path)
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def send(pipeline: Pipeline, topic: str, values: list[bytes]) -> None:
    """A topic with one partition."""
    pipeline.cluster.create_topic(topic, partitions=1)
    with sync.Producer(bootstrap_servers=pipeline.cluster.bootstrap_servers) as producer:
        for value in values:
            producer.enqueue(topic, value, partition=0)
        producer.flush()


def after_round(monkeypatch: pytest.MonkeyPatch, number: int, act: Callable[[], None]) -> None:
    """Once, after this number of rounds."""
    save = Rounds.save

    def saves(self: Rounds, plan: Any) -> None:
        save(self, plan)
        if plan.done == number and plan.rounds[number:]:
            monkeypatch.setattr(Rounds, "save", save)
            act()

    monkeypatch.setattr(Rounds, "save", saves)


def after_batch(monkeypatch: pytest.MonkeyPatch, number: int, act: Callable[[], None]) -> None:
    """Once, after this batch is committed in the cluster."""
    write = Sink.__call__

    def writes(self: Sink, frame: Any, batch_id: int) -> None:
        write(self, frame, batch_id)
        if batch_id == number:
            monkeypatch.setattr(Sink, "__call__", write)
            act()

    monkeypatch.setattr(Sink, "__call__", writes)


def offsets_in(lake: Path) -> list[int]:
    """The number of visible records. Every file must be complete."""
    files = [path for path in lake.glob("topic=*/**/*.parquet") if not path.name.startswith((".", "_"))]
    return sorted(offset for path in files for offset in pq.read_table(path, columns=["offset"])["offset"].to_pylist())


def test_a_topic_loses_records_and_then_itself_while_it_is_exported(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(pipeline, "fading", [b"%d" % number for number in range(100)])
    words = ["export", "fading", "--records-per-file", "5", "--to"]
    lake = tmp_path / "lake"
    with sync.Admin(bootstrap_servers=pipeline.cluster.bootstrap_servers) as admin:
        after_round(monkeypatch, 1, lambda: admin.delete_records({TopicPartition("fading", 0): 60}) and None)
        code, line = pipeline.refused(*words, str(lake))
        assert code == 1 and line.startswith("fading-0: offsets 40 to ")
        assert offsets_in(lake) == list(range(40)), "the first round"
        again = pipeline.refused(*words, str(lake))
        assert again[0] == 1 and again[1].startswith("fading-0: offsets 40 to ")
        assert offsets_in(lake) == list(range(40))

        # Elsewhere it begins with what there is, until the topic is another one.
        def remake() -> None:
            admin.delete_topics(["fading"])
            admin.create_topics([NewTopic("fading", num_partitions=1, replication_factor=3)])

        other = tmp_path / "other"
        after_round(monkeypatch, 1, remake)
        words[3] = "1"
        code, line = pipeline.refused(*words, str(other))
    assert code == 1 and "fading" in line and "recreated" in line
    assert offsets_in(other) == list(range(60, 68)), "the first round"
    code, line = pipeline.refused(*words, str(other))
    assert code == 1 and "recreated" in line
    assert offsets_in(other) == list(range(60, 68))


def test_the_disk_of_a_lake_is_full(pipeline: Pipeline, spark: Any, disk: Disk) -> None:
    chance = random.Random(7)
    send(pipeline, "heavy", [chance.randbytes(VALUE_BYTES) for _ in range(160)])
    lake, stream = disk.path / "lake", disk.path / "stream"
    batch = ["export", "heavy", "--to", str(lake), "--records-per-file", "5"]
    code, line = pipeline.refused(*batch)
    assert code == 1 and FULL in line
    seen = offsets_in(lake)
    assert seen == list(range(len(seen))) and len(seen) == 40, "one round"
    follow = ["export", "heavy", "--to", str(stream), "--follow", "--available-now", "--max-offsets", "20"]
    code, line = pipeline.refused(*follow)
    assert code == 1 and FULL in line

    disk.grow()
    pipeline(*batch)
    assert offsets_in(lake) == list(range(160))
    pipeline(*follow)
    found = spark.read.parquet(str(stream)).select("offset").collect()
    assert sorted(row.offset for row in found) == list(range(160))


def test_the_disk_of_a_checkpoint_is_full(
    pipeline: Pipeline, spark: Any, disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet(Recipe(records=RECORDS), tmp_path / "source", 3)
    words = ["load", str(tmp_path / "source"), "--topic", "kept", "--checkpoint", str(disk.path / "ck")]
    words += ["--files-per-transaction", "1"]
    after_batch(monkeypatch, 0, disk.fill)
    code, line = pipeline.refused(*words)
    assert code == 1 and FULL in line
    disk.free()
    # Spark does not know that the batch was committed.
    pipeline(*words)
    assert numbers_in(spark, pipeline, "kept") == list(range(RECORDS))


def test_the_cluster_is_away_for_longer_than_a_job_waits(
    pipeline: Pipeline, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet(Recipe(records=RECORDS), tmp_path / "source", 3)
    load = ["load", str(tmp_path / "source"), "--topic", "patient", "--partitions", "1"]
    load += ["--checkpoint", str(tmp_path / "ck"), "--files-per-transaction", "1"]
    export = ["export", "patient", "--to", str(tmp_path / "lake"), "--records-per-file", "1000"]
    brokers = pipeline.cluster.brokers
    with pytest.MonkeyPatch.context() as impatient:
        be_impatient(impatient)
        after_batch(monkeypatch, 0, lambda: pipeline.cluster.kill(*brokers))
        code, line = pipeline.refused(*load)
        assert code == 1 and "check that the cluster at" in line
    pipeline.cluster.start(*brokers)
    pipeline(*load)

    with pytest.MonkeyPatch.context() as impatient:
        be_impatient(impatient)
        after_round(monkeypatch, 1, lambda: pipeline.cluster.kill(*brokers))
        code, line = pipeline.refused(*export)
        assert code == 1 and "check that the cluster at" in line
    assert offsets_in(tmp_path / "lake") == list(range(8000)), "one round"
    pipeline.cluster.start(*brokers)
    pipeline(*export)
    assert len(set(offsets_in(tmp_path / "lake"))) == len(offsets_in(tmp_path / "lake")) == RECORDS
    assert numbers_in(spark, pipeline, "patient") == list(range(RECORDS))


def be_impatient(patch: pytest.MonkeyPatch) -> None:
    """Set short timeouts instead of a minute: for the driver, read tasks and write tasks."""
    opened, reader = BlockingCluster.__init__, lake_rows._reader

    def opens(self: BlockingCluster, bootstrap: str, **options: Any) -> None:
        opened(self, bootstrap, **{**options, "retry_timeout_ms": IMPATIENT_MS})

    patch.setattr(BlockingCluster, "__init__", opens)
    patch.setattr(sinks, "RETRY_TIMEOUT_MS", IMPATIENT_MS)
    patch.setattr(
        lake_rows, "_reader", lambda *given: reader(*given).option("kafka.default.api.timeout.ms", str(IMPATIENT_MS))
    )


def numbers_in(spark: Any, pipeline: Pipeline, topic: str) -> list[int]:
    """The number of committed orders."""
    options = {"bootstrap": pipeline.cluster.bootstrap_servers, "subscribe": topic}
    frame = spark.read.format("barnabas").options(**options).option("kafka.isolation.level", "read_committed").load()
    return sorted(row.n for row in frame.selectExpr("get_json_object(string(value), '$.number') :: int AS n").collect())
