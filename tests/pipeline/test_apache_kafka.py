"""The jobs of the pipeline, from load to audit, on Apache Kafka.

Runs one node, whose jars `tests/compat/install.sh` fetches (or `KAFKA_LIBS` names).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.cluster.ports import free_base_port
from barnabas.pipeline.generator import Recipe, write_parquet
from tests.compat.apache import ApacheKafka
from tests.compat.available import kafka_libs
from tests.pipeline.typed_commands import Typed

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.feature("PL-01", "PL-02", "PL-03", "PL-05")]

ORDERS = "number BIGINT, customer STRING, item STRING, quantity INT, cents INT, ordered_at TIMESTAMP"
RECORDS = 20_000


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    libs = kafka_libs()
    if libs is None:
        pytest.skip("no jars of Kafka; tests/compat/install.sh fetches them")
    port = free_base_port((0, 1))
    node = ApacheKafka(libs, tmp_path / "kafka", (port, port + 1), {})
    node.start()
    yield node
    node.stop()


def test_the_jobs_do_the_same_on_apache_kafka(
    spark: Any, kafka: ApacheKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = Typed(f"127.0.0.1:{kafka.port}", capsys)
    shop, lake, stream = tmp_path / "shop", tmp_path / "lake", tmp_path / "stream"
    write_parquet(Recipe(records=RECORDS), shop, 4)
    load = ["load", str(shop), "--topic", "orders", "--key", "customer", "--timestamp", "ordered_at"]
    load += ["--checkpoint", str(tmp_path / "ck"), "--files-per-transaction", "2"]
    loaded = pipeline(*load, "--partitions", "3")
    assert (loaded["records"], loaded["transactions"], loaded["topic made"]) == (RECORDS, 2, True)
    assert pipeline(*load)["records"] == 0

    export = ["export", "orders", "--to", str(lake), "--value-schema", ORDERS]
    assert pipeline(*export)["records"] == RECORDS
    assert pipeline(*export)["records"] == 0
    source = spark.read.parquet(str(shop))
    assert spark.read.parquet(str(lake)).select("value.*").exceptAll(source).count() == 0

    follow = ["export", "orders", "--to", str(stream), "--follow", "--available-now", "--group", "lake"]
    assert pipeline(*follow, "--max-offsets", "2500")["records"] == RECORDS
    assert set(pipeline("lag", "--checkpoint", str(stream), "--group", "lake")["lag"].values()) == {0}

    replay = [
        "replay",
        "orders",
        "--ranges",
        "0:0-500,1:100-200",
        "--into",
        "again",
        "--checkpoint",
        str(tmp_path / "rk"),
    ]
    assert pipeline(*replay)["records"] == 600
    assert pipeline(*replay)["rounds"] == 0
    customers = source.select("customer").distinct().count()
    assert pipeline("snapshot", "orders", "--to", str(tmp_path / "table"))["keys"] == customers

    logs = str(kafka.data / "logs")
    audited = pipeline("audit", logs, "--topic", "orders")
    assert audited["sound"] is True
    assert sum(each["records"] for each in audited["partitions"]) == RECORDS
