"""Topics into real tables, read back by pyiceberg and DuckDB."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.expressions import AlwaysTrue

from barnabas.dev.embedded import EmbeddedServers
from barnabas.lake.config import read_file
from barnabas.lake.iceberg_writing import write_rows
from barnabas.lake.progress import COMMIT_ID, DEAD_LETTER_FILES, EPOCH, OFFSETS, progress_of
from barnabas.sync import Producer
from tests.barnabas.lake.lakes import Lake, identifier

DAY_MS = 86_400_000
AUGUST = 1_785_542_400_000
"""2026-08-01T00:00:00Z"""


@pytest.mark.barnabas_topic(partitions=3)
def test_records_become_rows_and_later_ones_follow(lake: Lake, barnabas_topic: str) -> None:
    with Producer(bootstrap_servers=lake.bootstrap) as producer:
        for number in range(300):
            producer.send(
                barnabas_topic,
                key=b"key %d" % number,
                value=None if number % 10 == 0 else b"value %d" % number,
                partition=number % 3,
                headers=[("source", b"test"), ("empty", None)] if number % 2 else [],
                timestamp_ms=AUGUST + number * DAY_MS // 150,
            )
    assert lake.up_to_now(barnabas_topic)[identifier(barnabas_topic)]["records"] == 300
    rows = lake.table(barnabas_topic).scan().to_arrow().to_pylist()
    assert lake.places(barnabas_topic) == [(partition, offset) for partition in range(3) for offset in range(100)]
    by_key = {row["key"]: row for row in rows}
    row = by_key[b"key 7"]
    assert row["value"] == b"value 7"
    assert row["metadata"] == {
        "partition": 1,
        "offset": 2,
        "timestamp": datetime.fromtimestamp((AUGUST + 7 * DAY_MS // 150) / 1000, UTC),
        "headers": [{"key": "source", "value": b"test"}, {"key": "empty", "value": None}],
    }
    assert by_key[b"key 10"]["value"] is None
    days = {str(task.file.partition[0]) for task in lake.table(barnabas_topic).scan().plan_files()}
    assert len(days) == 2

    with Producer(bootstrap_servers=lake.bootstrap) as producer:
        producer.send(barnabas_topic, value=b"more", partition=0)
    assert lake.up_to_now(barnabas_topic)[identifier(barnabas_topic)]["records"] == 1
    assert len(lake.places(barnabas_topic)) == 301
    [status] = lake("status", identifier(barnabas_topic))
    assert (status["lag"], status["epoch"], status["offsets"]) == (0, 2, {"0": 101, "1": 100, "2": 100})
    assert lake("check", identifier(barnabas_topic))["findings"] == []


def test_a_run_with_nothing_to_do_adds_no_rows(lake: Lake, barnabas_topic: str) -> None:
    assert lake.up_to_now(barnabas_topic)[identifier(barnabas_topic)]["records"] == 0
    assert lake.up_to_now(barnabas_topic)[identifier(barnabas_topic)]["records"] == 0
    assert lake.places(barnabas_topic) == []
    assert lake("check", identifier(barnabas_topic))["records"] == 0


def test_records_of_aborted_transactions_are_left_out(lake: Lake, barnabas_topic: str) -> None:
    with Producer(bootstrap_servers=lake.bootstrap, transactional_id=f"tx-{barnabas_topic}") as producer:
        for number in range(6):
            producer.begin_transaction()
            producer.send(barnabas_topic, value=b"%d" % number)
            producer.send(barnabas_topic, value=b"%d again" % number)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    lake.up_to_now(barnabas_topic)
    assert [offset for _, offset in lake.places(barnabas_topic)] == [0, 1, 6, 7, 12, 13]
    [status] = lake("status", identifier(barnabas_topic))
    assert (status["offsets"], status["lag"]) == ({"0": 18}, 0)
    assert lake("check", identifier(barnabas_topic))["compared"] == 6


def test_the_summary_says_what_the_table_has(lake: Lake, barnabas_topic: str) -> None:
    with Producer(bootstrap_servers=lake.bootstrap) as producer:
        producer.send(barnabas_topic, value=b"x")
    lake.up_to_now(barnabas_topic)
    properties = lake.table(barnabas_topic).current_snapshot().summary.additional_properties
    assert {OFFSETS, EPOCH, COMMIT_ID} <= set(properties)
    progress = progress_of(properties)
    assert progress is not None and progress.topic == barnabas_topic and progress.offsets == {0: 1}


def test_small_files_become_one_and_the_offsets_stay(lake: Lake, barnabas_topic: str) -> None:
    settings = lake.folder / "lake.toml"
    settings.write_text(f'small_files = 3\n[[tables]]\ntopic = "{barnabas_topic}"\n')
    for number in range(3):
        with Producer(bootstrap_servers=lake.bootstrap) as producer:
            producer.send(barnabas_topic, value=b"%d" % number, timestamp_ms=AUGUST)
        account = lake("run", str(settings), "--available-now")
    assert account[identifier(barnabas_topic)]["compacted files"] == 2
    table = lake.table(barnabas_topic)
    [task] = table.scan().plan_files()
    assert task.file.record_count == 3
    progress = progress_of(table.current_snapshot().summary.additional_properties)
    assert progress is not None and progress.offsets == {0: 3}
    assert lake("check", identifier(barnabas_topic))["findings"] == []
    with Producer(bootstrap_servers=lake.bootstrap) as producer:
        producer.send(barnabas_topic, value=b"after", timestamp_ms=AUGUST)
    lake.up_to_now(barnabas_topic)
    assert [offset for _, offset in lake.places(barnabas_topic)] == [0, 1, 2, 3]


def _config(lake: Lake, topic: str, columns: str) -> str:
    path = lake.folder / "lake.toml"
    path.write_text(f'[[tables]]\ntopic = "{topic}"\nmode = "json"\ncolumns = {{ {columns} }}\n')
    return str(path)


def test_json_becomes_columns_which_grow(lake: Lake, barnabas_topic: str) -> None:
    with Producer(bootstrap_servers=lake.bootstrap) as producer:
        for value in ({"number": 1, "price": 9.9}, {"number": "two"}, {"number": 3, "place": {"lat": 1}}):
            producer.send(barnabas_topic, key=b"k", value=json.dumps(value).encode(), timestamp_ms=AUGUST)
    narrow = _config(lake, barnabas_topic, 'number = "int", price = "decimal(10,2)"')
    account = lake("run", narrow, "--available-now")[identifier(barnabas_topic)]
    assert (account["records"], account["dead letters"]) == (2, 1)
    with Producer(bootstrap_servers=lake.bootstrap) as producer:
        value = {"number": 2**40, "place": {"lat": 2.5}, "day": "2026-08-01"}
        producer.send(barnabas_topic, value=json.dumps(value).encode(), timestamp_ms=AUGUST)
    wide = _config(
        lake, barnabas_topic, 'number = "long", price = "decimal(10,2)", place = { lat = "double" }, day = "date"'
    )
    lake("run", wide, "--available-now")
    table = lake.table(barnabas_topic)
    rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["metadata"]["offset"])
    assert [(row["number"], row["price"], row["place"], row["day"]) for row in rows] == [
        (1, Decimal("9.90"), None, None),
        (3, None, None, None),
        (2**40, None, {"lat": 2.5}, date(2026, 8, 1)),
    ]
    assert rows[0]["metadata"]["key"] == b"k"
    verdict = lake("check", identifier(barnabas_topic))
    assert (verdict["records"], verdict["dead_letters"], verdict["findings"]) == (3, 1, [])
    with_dead = [each for each in table.snapshots() if DEAD_LETTER_FILES in each.summary.additional_properties]
    assert len(with_dead) == 1


def test_a_file_that_contradicts_the_table_is_refused(lake: Lake, barnabas_topic: str) -> None:
    lake("run", _config(lake, barnabas_topic, 'number = "long"'), "--available-now")
    code, line = lake.refused("run", _config(lake, barnabas_topic, 'number = "string"'))
    assert code == 2 and "field number is string, and the table has long" in line
    code, line = lake.refused("run", barnabas_topic)
    assert code == 2 and "made in another mode" in line


def test_a_topic_that_was_created_again_is_never_appended(
    lake: Lake, barnabas_topic: str, barnabas_broker: EmbeddedServers
) -> None:
    from barnabas.sync import Admin

    with Producer(bootstrap_servers=lake.bootstrap) as producer:
        producer.send(barnabas_topic, value=b"old")
    lake.up_to_now(barnabas_topic)
    with Admin(bootstrap_servers=lake.bootstrap) as admin:
        admin.delete_topics([barnabas_topic])
    barnabas_broker.create_topic(barnabas_topic)
    for command, words in (("run", (barnabas_topic,)), ("check", (identifier(barnabas_topic),))):
        code, line = lake.refused(command, *words)
        assert code == 1 and "was deleted and created again" in line
    assert len(lake.places(barnabas_topic)) == 1


def test_records_that_retention_deleted_first_are_named(lake: Lake, barnabas_topic: str) -> None:
    from barnabas import TopicPartition
    from barnabas.sync import Admin

    with Producer(bootstrap_servers=lake.bootstrap) as producer:
        for _ in range(10):
            producer.send(barnabas_topic, value=b"x")
    lake.up_to_now(barnabas_topic)
    with Producer(bootstrap_servers=lake.bootstrap) as producer:
        for _ in range(10):
            producer.send(barnabas_topic, value=b"y")
    with Admin(bootstrap_servers=lake.bootstrap) as admin:
        admin.delete_records({TopicPartition(barnabas_topic, 0): 15})
    code, line = lake.refused("run", barnabas_topic, "--available-now")
    assert code == 1 and "from offset 10 to 14 were deleted before the table had them" in line
    assert len(lake.places(barnabas_topic)) == 10
    lake("run", barnabas_topic, "--available-now", "--skip-lost")
    assert [offset for _, offset in lake.places(barnabas_topic)] == [*range(10), *range(15, 20)]
    progress = progress_of(lake.table(barnabas_topic).current_snapshot().summary.additional_properties)
    assert progress is not None and progress.skipped == {0: ((10, 15),)}
    assert lake("check", identifier(barnabas_topic))["findings"] == []


def test_a_table_of_something_else_is_refused(lake: Lake, barnabas_topic: str) -> None:
    from barnabas.lake.catalogs import CatalogAddress, open_catalog
    from barnabas.lake.rows import KEY_VALUE

    catalog = open_catalog(CatalogAddress(lake.uri, str(lake.folder / "lake")))
    catalog.create_namespace("topics")
    table = catalog.create_table(identifier(barnabas_topic), KEY_VALUE)
    table.append(pa.Table.from_pylist([], schema=KEY_VALUE))
    code, line = lake.refused("run", barnabas_topic)
    assert code == 1 and "none says which offsets it has: it was written by something else" in line


def test_a_damaged_table_is_found(lake: Lake, barnabas_topic: str) -> None:
    with Producer(bootstrap_servers=lake.bootstrap) as producer:
        for _ in range(5):
            producer.send(barnabas_topic, value=b"x")
    lake.up_to_now(barnabas_topic)
    table = lake.table(barnabas_topic)
    rows = table.scan().to_arrow()
    with table.transaction() as transaction:
        with transaction.update_snapshot().delete() as delete:
            delete.delete_by_predicate(AlwaysTrue())
        with transaction.update_snapshot().fast_append() as append:
            for number, part in enumerate((rows.slice(0, 3), rows.slice(0, 1))):
                for file in write_rows(table.io, table.metadata, [part], f"damage-{number}"):
                    append.append_data_file(file)
    code, line = lake.refused("check", identifier(barnabas_topic))
    assert code == 1
    assert "1 records twice or more: offset 0" in line and "2 records missing: offset 3, 4" in line


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("nothing-here",), 1, "there is no topic nothing-here"),
        (("a", "b", "--table", "x.y"), 2, "--table is for a single topic"),
        (("a", "--mode", "xml"), 2, "mode"),
        (("a", "--mode", "json"), 2, "mode json needs the names and types of columns"),
        (("a", "--mode", "json", "--column", "x=text"), 2, "'text' is no type"),
        (("a", "--mode", "avro"), 2, "mode avro needs a schema registry, or a file"),
        (("missing.toml",), 2, "missing.toml: No such file or directory"),
    ],
)
def test_wrong_arguments_are_one_line(lake: Lake, words: tuple[str, ...], code: int, message: str) -> None:
    assert lake.refused("run", *words)[0] == code
    assert message in lake.refused("run", *words)[1]


def test_a_catalogue_that_cannot_be_opened_is_one_line(
    lake: Lake, barnabas_topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from barnabas.cli.main import run

    for uri, message in (
        ("sqlite:////nowhere/at/all.db", "unavailable"),
        ("http://127.0.0.1:9", "unavailable"),
        ("neither", "neither a URL"),
    ):
        words = [
            "lake",
            "run",
            barnabas_topic,
            "--catalog",
            uri,
            "--warehouse",
            "w",
            "--bootstrap-server",
            lake.bootstrap,
        ]
        assert run(words) in (1, 2)
        [line] = capsys.readouterr().err.strip().splitlines()
        assert message in line


def test_each_table_may_have_settings_of_its_own(lake: Lake, tmp_path: Path, barnabas_broker: EmbeddedServers) -> None:
    topics = {"often": 5, "whole": 0}
    with Producer(bootstrap_servers=str(barnabas_broker)) as producer:
        for topic in topics:
            for number in range(5):
                producer.send(topic, value=b"%d" % number, timestamp_ms=AUGUST + number * DAY_MS)
    config = tmp_path / "lake.toml"
    config.write_text(
        "commit_interval_ms = 5000\n"
        "[[tables]]\ntopic = 'often'\ncommit_interval_ms = 100\nsmall_files = 2\n"
        "[[tables]]\ntopic = 'whole'\npartition_by = 'none'\n"
    )
    lake("run", str(config), "--available-now")
    for topic, days in topics.items():
        table = lake.table(topic)
        assert len({str(task.file.partition) for task in table.scan().plan_files()}) == max(days, 1)
        assert table.spec().is_unpartitioned() == (days == 0)
        assert sorted(map(int, table.scan().to_arrow()["value"].to_pylist())) == list(range(5))
    found = read_file(config)
    often, whole = (each.habits(found.habits) for each in found.tables)
    assert (often.rhythm.commit_interval_ms, often.upkeep.compaction.min_files) == (100, 2)
    assert (whole.rhythm.commit_interval_ms, whole.upkeep.compaction.min_files) == (5000, 16)
    config.write_text("[[tables]]\ntopic = 'whole'\npartition_by = 'hour'\n")
    assert "partition_by" in lake.refused("run", str(config), "--available-now")[1]
