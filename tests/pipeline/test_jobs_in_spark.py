"""Commands that are restarted, killed in the middle, or given invalid data."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas import sync
from barnabas.cli.main import run
from barnabas.pipeline.files import LocalFiles, SessionFiles
from barnabas.pipeline.generator import Recipe, generate, write_parquet
from barnabas.pipeline.jobs.load import Columns, as_records
from barnabas.pipeline.jobs.rounds import Rounds
from barnabas.pipeline.sink import Sink
from tests.pipeline.typed_commands import Pipeline

pytestmark = pytest.mark.spark

ORDERS = "number BIGINT, customer STRING, item STRING, quantity INT, cents INT, ordered_at TIMESTAMP"


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20,000 orders of this week in three files."""
    folder = tmp_path_factory.mktemp("orders")
    write_parquet(recipe(), folder, 3)
    return folder


def recipe(first: datetime | None = None) -> Recipe:
    began = first or datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=2)
    return Recipe(records=20_000, keys=50, first=began, every=timedelta(seconds=5))


class Killed(BaseException):
    """Stands for the end of the driver."""


@pytest.mark.feature("PL-02", "PL-03", "PL-06")
def test_a_load_resumes_and_takes_only_new_files(
    pipeline: Pipeline, orders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "shop"
    write_parquet(recipe(), source, 3)
    words = ["load", str(source), "--topic", "shop", "--key", "customer", "--timestamp", "ordered_at"]
    words += ["--checkpoint", str(tmp_path / "ck"), "--files-per-transaction", "1"]
    written = Sink.__call__

    def dies_after_the_second(self: Sink, frame: Any, number: int) -> None:
        written(self, frame, number)
        if number == 1:
            # Committed in the cluster, and Spark does not know it.
            raise RuntimeError("the driver died")

    monkeypatch.setattr(Sink, "__call__", dies_after_the_second)
    code, line = pipeline.refused(*words, "--partitions", "3")
    assert code == 1 and "the driver died" in line
    monkeypatch.setattr(Sink, "__call__", written)
    again = pipeline(*words)
    assert again["transactions"] == 1
    whole = Recipe(records=8, seed=9)
    write_parquet(whole, tmp_path / "more")
    (tmp_path / "more" / "orders-00000.parquet").rename(source / "late.parquet")
    assert pipeline(*words)["records"] == 8
    account = pipeline("export", "shop", "--to", str(tmp_path / "lake"), "--value-schema", ORDERS)
    assert account["records"] == 20_008

    code, line = pipeline.refused(*words[:3], "elsewhere", *words[4:])
    assert code == 1 and "is the checkpoint of topic shop, not of elsewhere" in line
    pipeline.remake("shop")
    code, line = pipeline.refused(*words)
    assert code == 1 and "recreated" in line


@pytest.mark.feature("PL-02", "PL-06")
def test_an_export_that_is_killed_between_its_files_is_finished_by_the_next(
    pipeline: Pipeline, spark: Any, orders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = ["load", f"{orders}/orders-00000.parquet", "--topic", "_killed", "--partitions", "2"]
    assert pipeline(*load, "--key", "customer", "--timestamp", "ordered_at")["transactions"] == 1
    lake = tmp_path / "lake"
    words = ["export", "_killed", "--to", str(lake), "--value-schema", ORDERS, "--records-per-file", "1500"]
    move = LocalFiles.move
    moved = 0

    def dies_at_the_third(self: LocalFiles, source: str, target: str) -> None:
        nonlocal moved
        moved += 1
        if moved == 3:
            raise Killed
        move(self, source, target)

    monkeypatch.setattr(LocalFiles, "move", dies_at_the_third)
    with pytest.raises(Killed):
        run(["pipeline", *words, "-b", pipeline.cluster.bootstrap_servers])
    assert len(list(lake.glob("topic=*/**/*.parquet"))) == 2
    monkeypatch.setattr(LocalFiles, "move", move)
    pipeline(*words)
    assert pipeline(*words)["records"] == 0
    rows = spark.read.parquet(str(lake))
    source = spark.read.parquet(f"{orders}/orders-00000.parquet")
    assert rows.count() == source.count()
    assert rows.select("value.*").exceptAll(source).count() == 0
    names = [path.name for path in lake.glob("topic=*/**/*.parquet")]
    # With the underscore of the topic they would be hidden from readers.
    assert all(name.startswith(("killed-0-000", "killed-1-000")) for name in names)
    code, line = pipeline.refused("export", "_killed", "--to", str(lake))
    assert code == 1 and "not without --value-schema" in line
    code, line = pipeline.refused("export", "_killed", "--to", str(lake), "--follow")
    assert code == 1 and "is the output of batches" in line


def test_a_value_that_does_not_match_the_schema_leaves_nothing_visible(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.cluster.create_topic("mixed", partitions=1)
    with sync.Producer(bootstrap_servers=pipeline.cluster.bootstrap_servers) as producer:
        for value in (b'{"year": 2013}', None, b'{"year": "soon"}', b'{"year": 2014}'):
            producer.send("mixed", value, partition=0)
    words = ["export", "mixed", "--to", str(tmp_path / "lake"), "--value-schema"]
    code, line = pipeline.refused(*words, "year INT")
    assert code == 1
    assert "mixed-0@2 does not match --value-schema" in line
    assert not list((tmp_path / "lake").glob("topic=*"))
    assert pipeline.refused(*words, "year FISH")[0] == 2
    assert pipeline("export", "mixed", "--to", str(tmp_path / "raw"))["records"] == 4


@pytest.mark.feature("PL-01", "PL-06")
def test_a_stream_resumes_from_its_checkpoint_which_belongs_to_its_topic(
    pipeline: Pipeline, spark: Any, tmp_path: Path
) -> None:
    pipeline.cluster.create_topic("watched", partitions=2)

    def send(values: range) -> None:
        with sync.Producer(bootstrap_servers=pipeline.cluster.bootstrap_servers) as producer:
            for value in values:
                producer.enqueue("watched", b"%d" % value, partition=value % 2)
            producer.flush()

    words = ["export", "watched", "--to", str(tmp_path / "lake"), "--follow", "--available-now", "--group", "watching"]
    send(range(100))
    assert pipeline(*words)["records"] == 100
    send(range(100, 130))
    lag = ["lag", "--group", "watching", "--checkpoint", str(tmp_path / "lake")]
    assert set(pipeline(*lag)["lag"].values()) == {30}
    assert pipeline(*words)["records"] == 30
    assert set(pipeline(*lag)["lag"].values()) == {0}
    found = spark.read.parquet(str(tmp_path / "lake")).selectExpr("cast(value as string) as value").collect()
    assert sorted(int(row.value) for row in found) == list(range(130))
    pipeline.remake("watched")
    code, line = pipeline.refused(*words)
    assert code == 1 and "recreated" in line
    code, line = pipeline.refused("export", "watched", "--to", str(tmp_path / "lake"))
    assert code == 1 and "is the output of a stream" in line


@pytest.mark.feature("PL-02", "PL-05")
def test_a_replay_that_dies_after_a_commit_replays_nothing_twice(
    pipeline: Pipeline, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.cluster.create_topic("past", partitions=2)
    with sync.Producer(bootstrap_servers=pipeline.cluster.bootstrap_servers) as producer:
        for number in range(60):
            producer.enqueue("past", b"%d" % number, key=b"k%d" % number, partition=number % 2, headers=[("n", b"1")])
        producer.flush()
    words = ["replay", "past", "--ranges", "0:5-25,1:-10", "--into", "past-again", "--checkpoint", str(tmp_path / "ck")]
    words += ["--records-per-file", "4"]
    save = Rounds.save
    saved = 0

    def dies_at_the_second(self: Rounds, plan: Any) -> None:
        nonlocal saved
        saved += 1
        if saved == 2:
            raise Killed
        save(self, plan)

    monkeypatch.setattr(Rounds, "save", dies_at_the_second)
    with pytest.raises(Killed):
        run(["pipeline", *words, "-b", pipeline.cluster.bootstrap_servers])
    monkeypatch.setattr(Rounds, "save", save)
    pipeline(*words)
    assert pipeline(*words)["rounds"] == 0
    pipeline("export", "past-again", "--to", str(tmp_path / "lake"))
    found = spark.read.parquet(str(tmp_path / "lake")).selectExpr(
        "partition", "cast(value as string) as value", "cast(headers[0].value as string) as header"
    )
    expected = [(0, 2 * number, "1") for number in range(5, 25)] + [(1, 2 * number + 1, "1") for number in range(10)]
    assert sorted((row.partition, int(row.value), row.header) for row in found.collect()) == expected
    code, line = pipeline.refused("replay", "past", "--ranges", "0:0-31", "--to", str(tmp_path / "x"))
    assert code == 1 and "past-0 has offsets 0 to 30, but 0 to 31 were requested" in line
    code, line = pipeline.refused("replay", "past", "--ranges", "0:9-5", "--to", str(tmp_path / "x"))
    assert code == 1 and line == "the end of a range must not be below its start; got 9 to 5"
    assert pipeline.refused("replay", "past", "--ranges", "0-31", "--to", "x")[0] == 2
    assert pipeline.refused("replay", "past", "--into", "past", "--checkpoint", "x")[0] == 2


@pytest.mark.feature("PL-02")
def test_a_snapshot_has_the_latest_values(pipeline: Pipeline, spark: Any, tmp_path: Path) -> None:
    pipeline.cluster.create_topic("table", partitions=2)
    state: dict[bytes, bytes] = {}
    with sync.Producer(bootstrap_servers=pipeline.cluster.bootstrap_servers) as producer:
        for number in range(200):
            key, value = b"key-%d" % (number * 7 % 30), b"%d" % number
            gone = number % 11 == 0
            producer.enqueue("table", None if gone else value, key=key)
            state.pop(key, None) if gone else state.update({key: value})
        producer.enqueue("table", b"of nobody", partition=0)
        producer.flush()
    words = ["snapshot", "table", "--to", str(tmp_path / "table")]
    account = pipeline(*words)
    assert (account["records"], account["keys"], account["records without a key"]) == (201, len(state), 1)
    found = {bytes(row.key): bytes(row.value) for row in spark.read.parquet(str(tmp_path / "table")).collect()}
    assert found == state
    code, line = pipeline.refused(*words)
    assert code == 1 and "--overwrite" in line
    assert pipeline(*words, "--overwrite")["keys"] == len(state)
    assert [path.name for path in tmp_path.iterdir()] == ["table"]


def test_invalid_loads_are_errors_before_anything_is_done(
    pipeline: Pipeline, orders: Path, tmp_path: Path
) -> None:
    words = ["load", str(orders), "--topic", "never"]
    assert pipeline.refused(*words, "--key", "nobody") == (
        2,
        "--key must be one of the columns number, customer, item, quantity, cents, ordered_at; got nobody",
    )
    assert pipeline.refused(*words, "--partition", "item")[0] == 2
    assert pipeline.refused(*words, "--timestamp", "item")[0] == 2
    assert pipeline.refused(*words, "--follow")[0] == 2
    code, line = pipeline.refused("load", str(tmp_path / "nowhere"), "--topic", "never")
    assert code == 1 and "Path does not exist" in line
    assert pipeline.refused("export", "never", "--to", str(tmp_path / "lake"))[1].startswith("there is no topic never")
    assert pipeline.refused("export", "never!", "--to", str(tmp_path / "lake"))[1].endswith("got 'never!'")
    code, line = pipeline.refused("export", "never", "--to", "nowhere://lake")
    assert code == 1 and line.startswith("nowhere://lake: ") and "scheme" in line


def test_numbers_out_of_range_are_errors_and_nothing_is_loaded(
    pipeline: Pipeline, spark: Any, tmp_path: Path
) -> None:
    columns = {"far": pa.array([0, 2**32]), "late": pa.array([0, 2**62])}
    pq.write_table(pa.table(columns), tmp_path / "cut.parquet")
    words = ["load", str(tmp_path / "cut.parquet"), "--topic", "uncut"]
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        by_partition = pipeline.refused(*words, "--partition", "far")
        by_time = pipeline.refused(*words, "--timestamp", "late")
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    assert by_partition == (1, "--partition far: a row has 4294967296, which is no partition")
    assert by_time == (1, f"--timestamp late: a row has {2**62}, which is no time")


def test_timestamps_without_a_zone_are_utc(spark: Any) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = spark.sql(
            "SELECT DATE'1960-05-05' AS day, TIMESTAMP_NTZ'2013-01-01 23:30:00' AS wall,"
            " TIMESTAMP'2013-01-01 23:30:00Z' AS moment, 1357083000000 AS millis, CAST(NULL AS DATE) AS never"
        )
        of_each = [
            as_records(frame, Columns(timestamp=name)).selectExpr("unix_millis(timestamp) AS at")
            for name in ("day", "wall", "moment", "millis", "never")
        ]
        found = [row.at for row in reduce(lambda one, other: one.union(other), of_each).collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert found == [-304_819_200_000, *[1_357_083_000_000] * 3, None]


def test_old_records_are_not_loaded_into_a_topic_that_would_delete_them(pipeline: Pipeline, tmp_path: Path) -> None:
    write_parquet(Recipe(records=10), tmp_path / "old")
    pipeline.cluster.create_topic("young", partitions=1, configs={"retention.ms": "86400000"})
    words = ["load", str(tmp_path / "old"), "--timestamp", "ordered_at"]
    code, line = pipeline.refused(*words, "--topic", "young")
    assert code == 1 and "2013-01-01" in line and "configs set topic young retention.ms=-1" in line
    assert pipeline(*words, "--topic", "archive")["records"] == 10
    with sync.Admin(bootstrap_servers=pipeline.cluster.bootstrap_servers) as admin:
        from barnabas.client.admin import ConfigResource, ResourceType

        found = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "archive")])
    assert "retention.ms" in str(found) and "'-1'" in str(found)


@pytest.mark.feature("PL-07")
def test_executors_make_the_same_data(spark: Any) -> None:
    few = recipe(datetime(2013, 1, 1, tzinfo=UTC))
    for slices in (1, 3):
        made = generate(spark, few, slices).orderBy("number").collect()
        assert [row.number for row in made] == list(range(20_000))
        assert made[12_345].customer == few.block(1).to_pylist()[12_345 - 8_192]["customer"]


def test_files_of_the_session_are_as_those_of_this_machine(spark: Any, tmp_path: Path) -> None:
    folder = str(tmp_path / "state")

    def story(files: Any) -> list[Any]:
        calls: list[Callable[[], Any]] = [
            lambda: files.read(f"{folder}/a"),
            lambda: files.write(f"{folder}/a", "one"),
            lambda: files.write(f"{folder}/a", "two, größer"),
            lambda: files.read(f"{folder}/a"),
            lambda: files.write(f"{folder}/b/c", ""),
            lambda: [each for each in files.below(folder) if not each.endswith(".crc")],
            lambda: [each for each in files.names(folder) if not each.endswith(".crc")],
            lambda: files.move(f"{folder}/a", f"{folder}/d/e"),
            lambda: (files.exists(f"{folder}/a"), files.is_file(f"{folder}/d/e"), files.is_file(folder)),
            lambda: files.remove(folder),
            lambda: files.remove(folder),
            lambda: (files.exists(folder), files.names(folder), files.below(folder)),
        ]
        return [each() for each in calls]

    assert story(SessionFiles(spark)) == story(LocalFiles())
