"""Tables in Iceberg's own REST catalogue (Java), with their files in S3: nothing is lost or doubled while the catalogue
is killed and its answers get lost."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.dev.embedded import EmbeddedServers
from barnabas.lake.catalogs import CatalogAddress
from barnabas.sync import Producer
from tests.barnabas.lake.lakes import Lake, identifier
from tests.compat.rest_catalogue import JARS, LossyNetwork, processes_end, rest_catalogue
from tests.s3_servers import ACCESS_KEY, SECRET_KEY, S3Server, create_bucket, moto_server

pytestmark = [
    pytest.mark.compat,
    pytest.mark.slow,
    pytest.mark.client("java"),
    pytest.mark.skipif(not any(JARS.glob("iceberg-open-api-*.jar")), reason="tests/compat/install.sh fetches the jars"),
]

KILLS = 3
LOST_IN_A_LIFE = 2
"""Answers that are lost before the catalogue is killed, and then the process."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[S3Server]:
    server = moto_server(tmp_path)
    server.start()
    try:
        create_bucket(server)
        yield server
    finally:
        server.kill()


@pytest.fixture
def catalogue(store: S3Server, tmp_path: Path) -> Iterator[S3Server]:
    server = rest_catalogue(tmp_path, store)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture
def lake(
    catalogue: S3Server,
    store: S3Server,
    barnabas_broker: EmbeddedServers,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Lake:
    properties = {
        "s3.endpoint": store.url,
        "s3.access-key-id": ACCESS_KEY,
        "s3.secret-access-key": SECRET_KEY,
        "s3.region": "us-east-1",
    }
    return Lake(tmp_path, str(barnabas_broker), capsys, CatalogAddress(catalogue.url, "", properties))


def values(lake: Lake, topic: str) -> list[int]:
    return sorted(map(int, lake.table(topic).scan().to_arrow()["value"].to_pylist()))


def until(condition: Callable[[], bool], log: Path, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.1)


def produce(lake: Lake, topic: str, first: int, count: int) -> None:
    with Producer(bootstrap_servers=lake.bootstrap) as producer:
        for number in range(first, first + count):
            producer.send(topic, value=b"%d" % number, partition=number % 3)


@pytest.mark.barnabas_topic(partitions=3)
def test_a_rest_catalogue_serves_all_commands(lake: Lake, barnabas_topic: str) -> None:
    produce(lake, barnabas_topic, 0, 300)
    assert lake.up_to_now(barnabas_topic)[identifier(barnabas_topic)]["records"] == 300
    for first in range(300, 320):
        produce(lake, barnabas_topic, first, 1)
        lake.up_to_now(barnabas_topic)
    assert values(lake, barnabas_topic) == list(range(320))
    table = lake.table(barnabas_topic)
    assert table.location().startswith("s3://")
    assert len(list(table.scan().plan_files())) < 21, "small files are made one"
    assert [str(field.transform) for field in table.spec().fields] == ["day"]
    [status] = lake("status", identifier(barnabas_topic))
    assert (status["lag"], status["epoch"]) == (0, 21)
    assert lake("check", identifier(barnabas_topic))["findings"] == []
    assert lake.refused("status", "topics.nothing")[1].endswith("there is no table topics.nothing in the catalogue")


@pytest.mark.barnabas_topic(partitions=3)
def test_each_record_is_there_once_although_answers_are_lost_and_the_catalogue_is_killed(
    lake: Lake, catalogue: S3Server, barnabas_topic: str, tmp_path: Path
) -> None:
    chance, log, sent, ends = random.Random(5), tmp_path / "lake.log", [0], threading.Event()

    def write() -> None:
        while not ends.is_set():
            produce(lake, barnabas_topic, sent[0], 30)
            sent[0] += 30
            time.sleep(0.05)

    produce(lake, barnabas_topic, 0, 30)
    sent[0] = 30
    lake.up_to_now(barnabas_topic)
    writer = threading.Thread(target=write)
    with LossyNetwork(catalogue.port) as network:
        assert lake.elsewhere is not None
        lossy = replace(lake, elsewhere=replace(lake.elsewhere, uri=network.url))
        words = ["lake", "run", barnabas_topic, "--commit-interval", "0.3", *lossy.options]
        writer.start()
        try:
            for kill in range(KILLS):
                with log.open("ab") as stream:
                    command = [sys.executable, "-m", "barnabas.cli.main", *words]
                    processes = [subprocess.Popen(command, stdout=stream, stderr=stream) for _ in range(1 + kill % 2)]
                try:
                    until(lambda before=network.lost: network.lost >= before + LOST_IN_A_LIFE, log)  # type: ignore[misc]
                    catalogue.kill()
                    time.sleep(chance.random())
                    catalogue.start()
                    time.sleep(3 * chance.random())
                finally:
                    processes_end(processes)
        finally:
            ends.set()
            writer.join()
    lake.up_to_now(barnabas_topic)
    assert values(lake, barnabas_topic) == list(range(sent[0])), log.read_text()[-3000:]
    verdict = lake("check", identifier(barnabas_topic))
    assert (verdict["findings"], verdict["compared"]) == ([], sent[0])
    [status] = lake("status", identifier(barnabas_topic))
    assert status["epoch"] > KILLS
