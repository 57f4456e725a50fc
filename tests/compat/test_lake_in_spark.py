"""Spark with Iceberg's own runtime reads the tables of `barnabas lake`: each committed record once."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from barnabas.dev.embedded import EmbeddedServers
from barnabas.sync import Producer
from tests.barnabas.lake.lakes import Lake, identifier

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / ".cache" / "iceberg-spark"
PYTHON = ROOT / ".cache" / "compat" / "iceberg-spark" / "bin" / "python"
PROGRAM = ROOT / "tests" / "compat" / "programs" / "read_iceberg.py"
PATIENCE = 300.0

pytestmark = [
    pytest.mark.compat,
    pytest.mark.slow,
    pytest.mark.client("java"),
    pytest.mark.skipif(not PYTHON.exists() or not any(JARS.glob("*.jar")), reason="tests/compat/install.sh nightly"),
]


def by_spark(lake: Lake, *statements: str) -> list[list[dict[str, Any]]]:
    """The rows of each statement."""
    address = lake.address
    where = (str(JARS), address.uri.removeprefix("sqlite:///"), lake.catalog().name, address.warehouse)
    # Nothing of this environment, not even its idea of which Python Spark starts.
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK", "SPARK", "PYTHON"))}
    words = [str(PYTHON), str(PROGRAM), *where, *statements]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False, env=clean)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["spark"].startswith("4.")
    return list(found["answers"])


def produce(lake: Lake, topic: str, numbers: range) -> None:
    """Committed records, and as many aborted ones between them."""
    with Producer(bootstrap_servers=lake.bootstrap, transactional_id=f"{topic}-writer") as producer:
        for is_kept in (False, True):
            producer.begin_transaction()
            for number in numbers:
                value = json.dumps({"number": number, "price": number + 0.5}).encode()
                producer.enqueue(topic, value, key=b"%d" % (number % 7), headers=[("source", b"web")])
            if is_kept:
                producer.commit_transaction()
            else:
                producer.abort_transaction()


@pytest.mark.barnabas_topic(partitions=3)
def test_spark_reads_each_committed_record_once(
    barnabas_broker: EmbeddedServers, barnabas_topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake(tmp_path, str(barnabas_broker), capsys)
    began = datetime.now(UTC)
    for number in range(3):
        produce(lake, barnabas_topic, range(100 * number, 100 * (number + 1)))
        lake.up_to_now(barnabas_topic)
    table = f"{lake.catalog().name}.{identifier(barnabas_topic)}"
    [counted], places, [first], snapshots, days = by_spark(
        lake,
        f"select count(*) as n, count(distinct value) as v, max(metadata.timestamp) as t from {table}",
        f"select metadata.partition as p, metadata.offset as o from {table} order by 1, 2",
        f"select metadata.headers as h, cast(key as string) as k, cast(value as string) as v from {table}"
        " where value like '{\"number\": 0,%'",
        f"select summary['barnabas.offsets'] as offsets from {table}.snapshots order by committed_at",
        f"select partition from {table}.partitions",
    )
    assert (counted["n"], counted["v"]) == (300, 300)
    assert datetime.fromisoformat(counted["t"]).replace(tzinfo=UTC) >= began.replace(microsecond=0)
    assert [(row["p"], row["o"]) for row in places] == lake.places(barnabas_topic)
    assert first["k"] == "0"
    assert json.loads(first["v"])["price"] == 0.5
    assert len(first["h"]) == 1
    assert sum(row["offsets"] is not None for row in snapshots) >= 3
    assert days


@pytest.mark.barnabas_topic(partitions=1)
def test_spark_reads_typed_columns_after_the_schema_has_grown(
    barnabas_broker: EmbeddedServers, barnabas_topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake(tmp_path, str(barnabas_broker), capsys)
    few = ("--mode", "json", "--column", "number=long")
    produce(lake, barnabas_topic, range(10))
    lake("run", barnabas_topic, "--available-now", *few)
    produce(lake, barnabas_topic, range(10, 20))
    lake("run", barnabas_topic, "--available-now", *few, "--column", "price=decimal(10,2)")
    table = f"{lake.catalog().name}.{identifier(barnabas_topic)}"
    rows, [earlier] = by_spark(
        lake,
        f"select number, price from {table} order by number",
        f"select count(*) as n from {table} version as of"
        f" {lake.table(barnabas_topic).history()[1].snapshot_id}",
    )
    assert [row["number"] for row in rows] == list(range(20))
    assert [row["price"] for row in rows] == [None] * 10 + [f"{number}.50" for number in range(10, 20)]
    assert earlier["n"] == 10
