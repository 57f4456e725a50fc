"""A payment is a row if and only if it is a record, wherever the program is killed."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

psycopg = pytest.importorskip("psycopg")

from payments import TOPIC, amount_of, run  # noqa: E402
from postgres import Postgres, programs  # noqa: E402

from barnabas import TopicPartition  # noqa: E402
from barnabas.sync import Consumer  # noqa: E402

PARTITIONS = 3
TESTS = Path(__file__).parent
STEPS = ["recovering", "recovered", "sent", "prepared", "written", "decided", "completed"]


@pytest.fixture(scope="session")
def barnabas_settings() -> dict[str, str]:
    return {"transaction.two.phase.commit.enable": "true"}


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    if programs() is None:
        pytest.skip("there is no PostgreSQL here: apt-get install postgresql")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)  # another user has to reach it
        server = Postgres(Path(folder) / "postgres")
        yield server
        server.stop()


def rows(dsn: str) -> list[tuple[int, int]]:
    with psycopg.connect(dsn) as database:
        return database.execute("SELECT id, amount FROM payments ORDER BY id").fetchall()


def records(bootstrap_servers: str) -> Counter[tuple[int, int]]:
    """All committed records, and how often each is there."""
    seen: Counter[tuple[int, int]] = Counter()
    with Consumer(
        bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        consumer.assign(partitions)
        # For this isolation level the end is the last stable offset: an open transaction would hide what is behind it.
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for record in consumer.poll(timeout_ms=500):
                payment = json.loads(record.value)
                seen[payment["id"], payment["amount"]] += 1
    return seen


def test_row_if_and_only_if_record_wherever_it_is_killed(barnabas_cluster, postgres: Postgres) -> None:
    cluster, dsn = barnabas_cluster, postgres.dsn
    cluster.create_topic(TOPIC, partitions=PARTITIONS)
    last = 0
    for number, step in enumerate(STEPS):
        # The first kill is in the first transaction or recovery; then further ones of a run that goes on for longer.
        for count in (1, 2) if step not in ("recovering", "recovered") else (1,):
            last += 30
            words = [cluster.bootstrap_servers, dsn, str(last), step, str(count)]
            killed = subprocess.run(
                [sys.executable, str(TESTS / "killed_at.py"), *words],
                env={"PYTHONPATH": str(TESTS.parent), "PATH": "/usr/bin:/bin"},
                capture_output=True,
                check=False,
                timeout=120,
            )
            assert killed.returncode == -9, (step, killed.stderr.decode())
            if number % 3 == 1:
                cluster.kill(cluster.leader_of(TOPIC, number % PARTITIONS))
            run(cluster.bootstrap_servers, dsn, last)
            cluster.repair()
            expected = [(payment, amount_of(payment)) for payment in range(1, last + 1)]
            assert rows(dsn) == expected, step
            assert records(cluster.bootstrap_servers) == Counter(expected), step
