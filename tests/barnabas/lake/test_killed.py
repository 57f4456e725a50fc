"""Processes of `barnabas lake` are killed again and again while transactions are written and a broker dies."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.pytest_plugin import BarnabasCluster
from barnabas.sync import Producer
from tests.barnabas.lake.lakes import Lake, identifier

TOPIC = "orders"
KILLS = 8


class Writing:
    """Transactions of a producer, some of them aborted."""

    def __init__(self, bootstrap: str) -> None:
        self.committed: set[bytes] = set()
        self._bootstrap = bootstrap
        self._ends = threading.Event()
        self._failure: BaseException | None = None

    @contextmanager
    def going_on(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._ends.set()
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with Producer(bootstrap_servers=self._bootstrap, transactional_id="writer") as producer:
                number = 0
                while not self._ends.is_set():
                    values = [b"%d" % each for each in range(number, number + 20)]
                    number += 20
                    producer.begin_transaction()
                    for value in values:
                        producer.enqueue(TOPIC, value)
                    if number % 80:
                        producer.commit_transaction()
                        self.committed.update(values)
                    else:
                        producer.abort_transaction()
        except BaseException as error:
            self._failure = error


def _start(lake: Lake, log: Path) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "barnabas.cli.main",
        "lake",
        "run",
        TOPIC,
        "--commit-interval",
        "0.3",
        *lake.options,
    ]
    with log.open("ab") as stream:
        return subprocess.Popen(command, stdout=stream, stderr=stream)


@pytest.mark.slow
def test_every_committed_record_is_there_once(
    barnabas_cluster: BarnabasCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = barnabas_cluster
    cluster.create_topic(TOPIC, partitions=3)
    lake = Lake(tmp_path, cluster.bootstrap_servers, capsys)
    chance = random.Random(7)
    writing = Writing(cluster.bootstrap_servers)
    log = tmp_path / "lake.log"
    with writing.going_on():
        for kill in range(KILLS):
            # A second process takes over; the first one is fenced, or killed at any moment.
            logged = len(log.read_bytes()) if log.exists() else 0
            processes = [_start(lake, log) for _ in range(1 + kill % 2)]
            try:
                _wait_for_claim(log, logged, processes)
                time.sleep(chance.uniform(0.0, 2.0))
                if kill == KILLS // 2:
                    cluster.kill(leader := cluster.leader_of(TOPIC, 0))
                    time.sleep(1.0)
            finally:
                for process in processes:
                    process.kill()
                    process.wait()
            if kill == KILLS // 2:
                cluster.start(leader)
                cluster.wait_ready()
    lake.up_to_now(TOPIC)
    rows = lake.table(TOPIC).scan().to_arrow()
    values = rows["value"].to_pylist()
    assert len(values) == len(set(values)) and set(values) == writing.committed, log.read_text()[-3000:]
    places = lake.places(TOPIC)
    assert len(places) == len(set(places)) == len(values)
    verdict = lake("check", identifier(TOPIC))
    assert verdict["findings"] == [] and verdict["compared"] == len(values) > 100
    [status] = lake("status", identifier(TOPIC))
    assert status["epoch"] > KILLS and status["lag"] == 0


def _wait_for_claim(log: Path, logged: int, processes: list[subprocess.Popen[bytes]]) -> None:
    """Until a process of this round writes the table."""
    deadline = time.monotonic() + 60
    while b"writing from" not in (text := log.read_bytes()[logged:]):
        assert time.monotonic() < deadline and any(process.poll() is None for process in processes), text
        time.sleep(0.05)
