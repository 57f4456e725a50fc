"""A query whose driver is killed before, during and after EndTxn, or paused and replaced; whose task is retried; whose
leader dies. Consumers of committed records see every row once.

Drivers that crash during or after EndTxn are separate processes, killed with their JVM. The one that dies before it and
the one that pauses are queries in the session of the tests: the cluster sees no difference, and each process takes some
ten seconds to start.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.ledger import Ledger
from barnabas.pipeline.transaction import Transaction
from barnabas.pytest_plugin import BarnabasCluster
from tests.pipeline.reading_back import await_ended, read_all
from tests.pipeline.sink_driver import sink_of, start

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.feature("PL-03", "PL-06")]

ROWS = 400
BATCHES = 6
PARTITIONS = 3
LIMIT_SECONDS = 300.0
ROOT = Path(__file__).resolve().parents[2]


class Query:
    """One query, and the drivers that run it one after another."""

    def __init__(self, cluster: BarnabasCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.topic = cluster.create_topic("crashes", partitions=PARTITIONS)
        self.drivers: list[subprocess.Popen[str]] = []

    @property
    def place(self) -> dict[str, Any]:
        return {
            "bootstrap": self.cluster.bootstrap_servers,
            "topic": self.topic,
            "query": "crashes",
            "checkpoint": str(self.folder / "checkpoint"),
            "rows": ROWS,
        }

    def start(self, batch: int, moment: str, **more: Any) -> subprocess.Popen[str]:
        place = {**self.place, "end": {"batch": batch, "moment": moment}, **more}
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.sink_driver", json.dumps(place)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=(self.folder / f"driver-{len(self.drivers)}.log").open("w"),
            text=True,
            start_new_session=True,
        )
        self.drivers.append(driver)
        return driver

    def run(self, batch: int, moment: str, **more: Any) -> list[dict[str, Any]]:
        """Wait for a driver's end; returns its lines."""
        driver = self.start(batch, moment, **more)
        lines = self.lines_of(driver)
        assert driver.returncode == -signal.SIGKILL, (lines, self.log())
        assert lines[-1] == {"ends": moment}
        return lines[:-1]

    def lines_of(self, driver: subprocess.Popen[str]) -> list[dict[str, Any]]:
        output, _ = driver.communicate(timeout=LIMIT_SECONDS)
        return [json.loads(line) for line in output.splitlines() if line.startswith("{")]

    def log(self) -> str:
        return (self.folder / f"driver-{len(self.drivers) - 1}.log").read_text()[-2000:]

    def last_batch(self) -> int:
        with BlockingCluster(self.cluster.bootstrap_servers) as cluster:
            last = Ledger(cluster, "crashes").last()
        return -1 if last is None else last.batch_id

    def close(self) -> None:
        for driver in self.drivers:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.communicate()


def until(reached: Any, what: str) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


class DriverHere:
    """A driver in the session of the tests that ends or pauses right before EndTxn of a batch."""

    def __init__(self, spark: Any, query: Query, batch: int, *, dies: bool) -> None:
        self.lines: list[dict[str, Any]] = []
        self.paused, self.goes_on = threading.Event(), threading.Event()
        self._sink = sink_of(query.place)
        commit = Transaction.commit

        def arrives(transaction: Transaction, group_id: str, offsets: Any) -> None:
            [(number, _)] = offsets.values()
            if number == batch and dies:
                raise RuntimeError("the driver is dead")
            if number == batch:
                self.paused.set()
                assert self.goes_on.wait(LIMIT_SECONDS)
            commit(transaction, group_id, offsets)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Transaction, "commit", arrives)
            self._running = start(spark, self._sink, query.place, lambda **line: self.lines.append(line))
            if dies:
                self.ended()
            else:
                assert self.paused.wait(LIMIT_SECONDS), self._running.exception()

    def ended(self) -> str:
        """The error. Closes the connections, as the death of a process does."""
        with pytest.raises(Exception, match=r".") as caught:
            self._running.awaitTermination()
        self._sink.close()
        return str(caught.value)

    def close(self) -> None:
        self.goes_on.set()
        self._running.stop()


def test_every_row_is_written_once_whatever_dies(spark: Any, barnabas_cluster: BarnabasCluster, tmp_path: Path) -> None:
    query = Query(barnabas_cluster, tmp_path)
    try:
        the_story(spark, query, tmp_path)
    finally:
        query.close()


def the_story(spark: Any, query: Query, folder: Path) -> None:
    cluster = query.cluster
    DriverHere(spark, query, 0, dies=True)
    assert query.last_batch() == -1, "what was not committed does not count"

    query.run(1, "in")
    assert query.last_batch() in (0, 1), "nobody knows yet which"

    # Its first batch is the one of which the end was unknown; a task of the first that is written is tried twice.
    lines = query.run(2, "after", fail_task=str(folder / "failed-once"))
    assert query.last_batch() == 2
    assert {each["attempts"] for each in lines if not each["skipped"]} <= {1, 2}
    assert (folder / "failed-once").exists()

    zombie = DriverHere(spark, query, 3, dies=False)
    try:
        overtaken(query, zombie)
    finally:
        zombie.close()

    cluster.repair()
    bootstrap = cluster.bootstrap_servers
    await_ended(bootstrap, query.topic, PARTITIONS)
    counts = Counter(int(value) for value in read_all(bootstrap, query.topic, PARTITIONS))
    assert sorted(counts) == list(range(BATCHES * ROWS))
    assert set(counts.values()) == {1}
    everything = read_all(bootstrap, query.topic, PARTITIONS, isolation="read_uncommitted")
    assert len(everything) > BATCHES * ROWS, "nothing had been written and given up: no crash was in time"


def overtaken(query: Query, zombie: DriverHere) -> None:
    cluster = query.cluster
    assert query.last_batch() == 2

    living = query.start(5, "after")
    until(lambda: query.last_batch() >= 3, query.log())
    cluster.kill(cluster.leader_of(query.topic, 0))
    lines = query.lines_of(living)
    assert living.returncode == -signal.SIGKILL, (lines, query.log())
    assert lines[0]["batch_id"] == 3 and not any(each.get("skipped") for each in lines)
    assert query.last_batch() == BATCHES - 1

    zombie.goes_on.set()
    zombie.ended()
    skipped, refused = zombie.lines
    assert (skipped["batch_id"], skipped["skipped"]) == (2, True), "it was committed, and Spark did not know"
    assert refused["kind"] == "Fenced" and "another driver" in refused["refused"]
