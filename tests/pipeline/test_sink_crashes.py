"""A query whose driver is killed before, in and after EndTxn, paused and overtaken; whose task is tried twice; under
which a leader dies. Readers of committed records see every row once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from barnabas.pipeline.blocking import BlockingCluster
from barnabas.pipeline.ledger import Ledger
from barnabas_pytest import BarnabasCluster
from tests.pipeline.reading_back import all_ended, read_all

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.feature("PL-03", "PL-06")]

ROWS = 400
BATCHES = 6
PARTITIONS = 3
LIMIT_SECONDS = 300.0
ROOT = Path(__file__).resolve().parents[2]


class Query:
    """One query, and the drivers that run it one after the other."""

    def __init__(self, cluster: BarnabasCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.topic = cluster.create_topic("crashes", partitions=PARTITIONS)
        self.drivers: list[subprocess.Popen[str]] = []

    def start(self, batch: int, moment: str, **more: Any) -> subprocess.Popen[str]:
        place = {
            "bootstrap": self.cluster.bootstrap_servers,
            "topic": self.topic,
            "query": "crashes",
            "checkpoint": str(self.folder / "checkpoint"),
            "rows": ROWS,
            "end": {"batch": batch, "moment": moment},
            **more,
        }
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
        """A driver to its end; what it told."""
        driver = self.start(batch, moment, **more)
        told = self.told(driver)
        assert driver.returncode == -signal.SIGKILL, (told, self.log())
        assert told[-1] == {"ends": moment}
        return told[:-1]

    def told(self, driver: subprocess.Popen[str]) -> list[dict[str, Any]]:
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


def stopped(driver: subprocess.Popen[str]) -> bool:
    return Path(f"/proc/{driver.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_every_row_is_written_once_whatever_dies(barnabas_cluster: BarnabasCluster, tmp_path: Path) -> None:
    query = Query(barnabas_cluster, tmp_path)
    try:
        the_story(query, barnabas_cluster, tmp_path)
    finally:
        query.close()


def the_story(query: Query, cluster: BarnabasCluster, folder: Path) -> None:
    query.run(0, "before")
    assert query.last_batch() == -1, "what was not committed does not count"

    query.run(1, "in")
    assert query.last_batch() in (0, 1), "nobody knows yet which"

    # Its first batch is the one of which the end was unknown; a task of the first that is written is tried twice.
    told = query.run(2, "after", fail_task=str(folder / "failed-once"))
    assert query.last_batch() == 2
    assert {each["attempts"] for each in told if not each["skipped"]} <= {1, 2}
    assert (folder / "failed-once").exists()

    zombie = query.start(3, "pause")
    until(lambda: stopped(zombie), query.log())
    assert query.last_batch() == 2

    living = query.start(5, "after")
    until(lambda: query.last_batch() >= 3, query.log())
    cluster.kill(cluster.leader_of(query.topic, 0))
    told = query.told(living)
    assert living.returncode == -signal.SIGKILL, (told, query.log())
    assert told[0]["batch_id"] == 3 and not any(each.get("skipped") for each in told)
    assert query.last_batch() == BATCHES - 1

    os.killpg(zombie.pid, signal.SIGCONT)
    told = query.told(zombie)
    assert zombie.returncode == 3
    skipped, _, refused = told
    assert (skipped["batch_id"], skipped["skipped"]) == (2, True), "it was committed, and Spark did not know"
    assert refused["kind"] == "Fenced" and "another driver" in refused["refused"]

    cluster.repair()
    bootstrap = cluster.bootstrap_servers
    assert all_ended(bootstrap, query.topic, PARTITIONS)
    counts = Counter(int(value) for value in read_all(bootstrap, query.topic, PARTITIONS))
    assert sorted(counts) == list(range(BATCHES * ROWS))
    assert set(counts.values()) == {1}
    everything = read_all(bootstrap, query.topic, PARTITIONS, isolation="read_uncommitted")
    assert len(everything) > BATCHES * ROWS, "nothing had been written and given up: no crash was in time"
