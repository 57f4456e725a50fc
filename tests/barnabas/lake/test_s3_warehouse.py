"""Tables whose files are in a bucket: the same commands, also while the server of the bucket is away."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.dev.embedded import EmbeddedServers
from barnabas.lake.catalogs import CatalogAddress
from barnabas.sync import Producer
from tests.barnabas.lake.lakes import Lake, identifier
from tests.s3_servers import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server, create_bucket, moto_server

PAUSE_SECONDS = 4.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    server = moto_server(tmp_path)
    server.start()
    try:
        create_bucket(server)
        yield server
    finally:
        server.kill()


@pytest.fixture
def lake(
    server: S3Server, barnabas_broker: EmbeddedServers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Lake:
    properties = {
        "s3.endpoint": server.url,
        "s3.access-key-id": ACCESS_KEY,
        "s3.secret-access-key": SECRET_KEY,
        "s3.region": "us-east-1",
        "s3.connect-timeout": "2",
        "s3.request-timeout": "2",
    }
    address = CatalogAddress(f"sqlite:///{tmp_path}/lake.db", f"s3://{BUCKET}/lake", properties)
    return Lake(tmp_path, str(barnabas_broker), capsys, address)


def produce(lake: Lake, topic: str, first: int, count: int) -> None:
    with Producer(bootstrap_servers=lake.bootstrap) as producer:
        for number in range(first, first + count):
            producer.send(topic, value=b"%d" % number, partition=number % 3)


def values(lake: Lake, topic: str) -> list[int]:
    return sorted(map(int, lake.table(topic).scan().to_arrow()["value"].to_pylist()))


@pytest.mark.barnabas_topic(partitions=3)
def test_records_become_rows_in_a_bucket(lake: Lake, barnabas_topic: str) -> None:
    produce(lake, barnabas_topic, 0, 300)
    lake.up_to_now(barnabas_topic)
    table = lake.table(barnabas_topic)
    assert table.location().startswith(f"s3://{BUCKET}/lake/")
    assert values(lake, barnabas_topic) == list(range(300))
    for first in range(300, 320):
        produce(lake, barnabas_topic, first, 1)
        lake.up_to_now(barnabas_topic)
    verdict = lake("check", identifier(barnabas_topic))
    assert (verdict["findings"], verdict["compared"]) == ([], 320)
    assert len(list(lake.table(barnabas_topic).scan().plan_files())) < 21, "small files are made one"


@pytest.mark.barnabas_topic(partitions=3)
def test_a_bucket_that_is_away_for_a_while_delays_and_nothing_else(
    server: S3Server, lake: Lake, barnabas_topic: str
) -> None:
    produce(lake, barnabas_topic, 0, 100)
    lake.up_to_now(barnabas_topic)
    produce(lake, barnabas_topic, 100, 100)
    server.pause()

    def come_back() -> None:
        time.sleep(PAUSE_SECONDS)
        server.resume()

    back = threading.Thread(target=come_back)
    back.start()
    try:
        lake.up_to_now(barnabas_topic)
    finally:
        back.join()
    assert values(lake, barnabas_topic) == list(range(200))
    assert lake("check", identifier(barnabas_topic))["findings"] == []
