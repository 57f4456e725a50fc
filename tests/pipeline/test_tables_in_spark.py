"""Spark and `barnabas lake` take turns on one table, and Spark reads the table together with what it does not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.dev.embedded import EmbeddedServers
from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.table_and_tail import table_and_tail
from barnabas.sync import Producer
from tests.barnabas.lake.lakes import Lake, identifier
from tests.pipeline.typed_commands import Typed

pytestmark = pytest.mark.spark


def produce(bootstrap: str, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=bootstrap, transactional_id="writer") as producer:
        for is_kept in (True, False):
            producer.begin_transaction()
            for number in range(count):
                producer.enqueue(topic, b"%d" % number, key=b"%d" % (number % 7), headers=[("a", b"b")])
            if is_kept:
                producer.commit_transaction()
            else:
                producer.abort_transaction()


@pytest.mark.barnabas_topic(partitions=3)
def test_spark_and_the_lake_take_turns(
    spark: Any,
    barnabas_broker: EmbeddedServers,
    barnabas_topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lake, typed = Lake(tmp_path, str(barnabas_broker), capsys), Typed(str(barnabas_broker), capsys)
    place = ("--catalog", lake.uri, "--warehouse", str(tmp_path / "lake"))
    table = identifier(barnabas_topic)

    def by_spark() -> Any:
        words = ("--table", table, *place, "--records-per-task", "40")
        return typed("table", barnabas_topic, *words)

    produce(lake.bootstrap, barnabas_topic, 200)
    assert by_spark()["records"] == 200
    produce(lake.bootstrap, barnabas_topic, 100)
    assert lake.up_to_now(barnabas_topic)[table]["records"] == 100
    produce(lake.bootstrap, barnabas_topic, 150)
    account = by_spark()
    assert (account["records"], account["epoch"]) == (150, 3)
    assert by_spark()["records"] == 0
    assert lake("check", table)["findings"] == []
    assert len(lake.places(barnabas_topic)) == 450

    produce(lake.bootstrap, barnabas_topic, 50)
    rows = table_and_tail(spark, table, lake.bootstrap, catalog=lake.uri)
    # What is committed after the look at the table is still read once.
    lake.up_to_now(barnabas_topic)
    assert rows.count() == 500
    assert rows.select("metadata.partition", "metadata.offset").distinct().count() == 500
    assert rows.where("metadata.headers[0].value = X'62'").count() == 500


def test_a_table_that_is_not_there_is_one_line(spark: Any, barnabas_broker: EmbeddedServers, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"there is no table a\.b"):
        table_and_tail(spark, "a.b", str(barnabas_broker), catalog=f"sqlite:///{tmp_path}/lake.db", warehouse="w")
