"""Segments and audits in Spark, over a real cluster. Other tests cover the parts without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas import RecordMetadata, sync
from barnabas.cli.main import run
from barnabas.pipeline.jobs import audit as audit_jobs
from barnabas.pipeline.jobs import segments as segment_jobs
from barnabas.pipeline.segment_plan import SegmentOptions
from barnabas.testing.cluster import ClusterForTests
from histories.history import encode
from histories.synthetic import Story

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.feature("PL-05")]

TOPIC, PARTITIONS = "audited", 2
PREFIX = f"{TOPIC}-"
OF_RUN = f"{PREFIX}t0"
"""The name of a fault injection run's first topic on a shared cluster."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterForTests]:
    """Three brokers, two of which were killed while a producer was writing. Its acks are in `acks.jsonl`."""
    directory = tmp_path_factory.mktemp("audited")
    cluster = ClusterForTests.start_new(directory)
    cluster.create_topic(TOPIC, PARTITIONS, configs={"segment.bytes": "1048576", "min.insync.replicas": "1"})
    acks = []
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "transactional_id": "writes"}
    cluster.create_topic(OF_RUN, PARTITIONS)
    with sync.Producer(**options) as producer:
        producer.begin_transaction()
        sent = [producer.enqueue(OF_RUN, b"%d" % number, partition=number % 2) for number in range(10)]
        producer.commit_transaction()
        keep_run(directory / "run", [future.result() for future in sent])
        for turn in range(12):
            producer.begin_transaction()
            # In different segments, whose size cannot be less than 1 MiB.
            values = [f"{turn}:{number}".ljust(2500, ".") for number in range(100)]
            sent = [producer.enqueue(TOPIC, each.encode(), partition=number % 2) for number, each in enumerate(values)]
            producer.flush()
            if turn % 4 == 3:
                producer.abort_transaction()
                continue
            producer.commit_transaction()
            for value, future in zip(values, sent, strict=True):
                ack = future.result()
                acks.append({"topic": TOPIC, "partition": ack.partition, "offset": ack.offset, "value": value})
            if turn in (2, 6):
                killed = cluster.leader_of(TOPIC, turn % 2)
                cluster.kill(killed)
                cluster.start(killed)
                cluster.wait_ready()
    (directory / "acks.jsonl").write_text("".join(json.dumps(ack) + "\n" for ack in acks))
    yield cluster
    cluster.down()


def keep_run(store: Path, acks: Sequence[RecordMetadata]) -> None:
    """The directory of a run with these sends of 0, 1, 2, … and one with an unknown outcome."""
    store.mkdir()
    (store / "run.json").write_text(json.dumps({"workload": "queue", "options": {"more": {"prefix": PREFIX}}}))
    history = Story()
    for number, each in enumerate(acks):
        history.send(0, each.partition, number, each.offset)
    history.send(0, 0, 77, 1_000, "info")
    (store / "history.jsonl").write_bytes(b"".join(map(encode, history.operations)))


@pytest.fixture(scope="module")
def acks(cluster: ClusterForTests) -> Path:
    return Path(cluster.layout.data).parent / "acks.jsonl"


def options_of(cluster: ClusterForTests) -> SegmentOptions:
    return SegmentOptions((str(cluster.layout.data),), subscribe=TOPIC, bootstrap=cluster.bootstrap_servers)


def test_a_running_cluster_is_read_from_its_files(
    spark: Any, cluster: ClusterForTests, acks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = sorted(json.loads(line)["value"] for line in acks.read_text().splitlines())
    frame = segment_jobs.frame_of(spark, options_of(cluster))
    assert sorted(row.value.decode() for row in frame.select("value").collect()) == wanted
    words = ["pipeline", "segments", str(cluster.layout.data), "--topic", TOPIC]
    assert run([*words, "--bootstrap", cluster.bootstrap_servers, "--json"]) == 0
    account = json.loads(capsys.readouterr().out)
    assert account["records"] == len(wanted) == 900 and account["faults"] == []
    assert all(row["tasks"] > 1 for row in account["partitions"])
    assert sum(row["aborted"] for row in account["partitions"]) == 300


def test_a_cluster_is_sound_after_kills_and_has_all_acknowledged_records(
    spark: Any, cluster: ClusterForTests, acks: Path
) -> None:
    found = audit_jobs.audit(spark, options_of(cluster), str(acks))
    assert found.findings == () and found.is_sound
    assert found.acks == audit_jobs.Acks(acknowledged=900, found=900)
    for account in found.accounts:
        total = account.records + account.aborted + account.markers + account.compacted + account.lost
        assert total == account.end_offset - account.start_offset > 0


def test_a_missing_acknowledged_record_is_found(
    spark: Any, cluster: ClusterForTests, acks: Path, tmp_path: Path
) -> None:
    rows = [json.loads(line) for line in acks.read_text().splitlines()[:50]]
    rows[10]["value"] = "another"
    rows[20]["offset"] = 5000
    lying = tmp_path / "lying.jsonl"
    lying.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = audit_jobs.audit(spark, options_of(cluster), str(lying))
    assert found.acks == audit_jobs.Acks(acknowledged=50, found=48, lost=1, changed=1) and not found.is_sound
    assert {(finding.kind, finding.offset) for finding in found.findings} == {
        ("changed", rows[10]["offset"]),
        ("lost", 5000),
    }


def test_the_files_of_a_stopped_cluster_are_enough(
    spark: Any, cluster: ClusterForTests, acks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.down()
    options = replace(options_of(cluster), bootstrap="", subscribe=f"{TOPIC},{OF_RUN}")
    found = audit_jobs.audit(spark, options, str(acks.with_name("run")))
    assert found.is_sound and found.acks == audit_jobs.Acks(acknowledged=10, found=10)

    broken = next(Path(cluster.layout.data).glob(f"broker-2/data/{TOPIC}-0/*.log"))
    data = bytearray(broken.read_bytes())
    data[15] ^= 1
    broken.write_bytes(data)
    assert run(["pipeline", "audit", str(cluster.layout.data), "--topic", TOPIC, "--json"]) == 1
    account = json.loads(capsys.readouterr().out)
    assert not account["sound"] and account["found"] == {"divergent": 1}
