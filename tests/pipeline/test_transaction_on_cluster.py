"""Batches on a real cluster, by drivers that die at any step, return late, or race each other."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from barnabas.client.transaction_requests import ProducerId
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.errors import Fenced, PipelineError, TransactionError
from barnabas.pipeline.ledger import Ledger, LedgerEntry, Verdict, decide, entries_at
from barnabas.pipeline.partition_writer import ProducingSettings
from barnabas.pipeline.producing import ProduceTask
from barnabas.pipeline.routing import TARGET, Targets
from barnabas.pipeline.task_reports import TaskAttempt
from barnabas.pipeline.transaction import Transaction
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from barnabas.protocol.schema import Message
from barnabas.pytest_plugin import BarnabasCluster
from tests.pipeline.reading_back import await_ended, read_all

pytestmark = pytest.mark.feature("PL-06")

PARTITIONS = 2
NAMES = itertools.count()

STEPS: dict[str, tuple[type[Message], int]] = {
    "InitProducerId": (InitProducerIdRequest, 1),
    "AddOffsetsToTxn before the ledger": (AddOffsetsToTxnRequest, 1),
    "TxnOffsetCommit before the ledger": (TxnOffsetCommitRequest, 1),
    "OffsetFetch of the ledger": (OffsetFetchRequest, 2),
    "AddPartitionsToTxn": (AddPartitionsToTxnRequest, 1),
    "Produce": (ProduceRequest, 1),
    "AddOffsetsToTxn": (AddOffsetsToTxnRequest, 2),
    "TxnOffsetCommit": (TxnOffsetCommitRequest, 2),
    "EndTxn": (EndTxnRequest, 1),
}
"""The requests of a batch in order: (request, its number among those of its kind)."""


class Died(BaseException):
    """The end of a driver: nothing of it runs after this."""


class MortalCluster(BlockingCluster):
    """Dies before a certain request is sent, while it is in flight, or after the response."""

    fatal: tuple[type[Message], str] | None = None
    spared: int = 0
    """This number of requests of the kind succeed."""

    def call(self, node_id: int | None, request: Message, *, version: int | None = None) -> Any:
        if self.fatal is None or not isinstance(request, self.fatal[0]):
            return super().call(node_id, request, version=version)
        if self.spared:
            self.spared -= 1
            return super().call(node_id, request, version=version)
        moment = self.fatal[1]
        if moment == "after":
            super().call(node_id, request, version=version)
        elif moment == "in":
            assert node_id is not None
            connection = self.connection(node_id)
            connection.send(request, 5_000, version=version)
            # The kernel does this for a process that is killed with an unread response.
            connection._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        raise Died


class Driver:
    """The steps of the sink in this process, without Spark."""

    def __init__(self, bootstrap: str, topic: str, query: str) -> None:
        self.cluster = MortalCluster(bootstrap, retry_timeout_ms=20_000)
        self.topic, self.query = topic, query
        self.transaction = Transaction(self.cluster, f"spark-sink-{query}", 60_000)
        self.ledger = Ledger(self.cluster, query, topic)
        self.targets = Targets({topic: PARTITIONS})

    def begin(self, batch_id: int) -> ProducerId | None:
        """None if the batch is already committed."""
        producer = self.transaction.begin()
        last = self.ledger.last_before(self.transaction, [self.topic], LedgerEntry(batch_id, "checkpoint"))
        if decide(last, batch_id, "checkpoint", query=self.query) is Verdict.SKIP:
            self.transaction.abort()
            return None
        self.transaction.add(self.targets)
        return producer

    def produce(self, producer: ProducerId, values: Sequence[bytes]) -> None:
        """Two tasks, each with one partition."""
        settings = ProducingSettings(self.cluster.bootstrap, batch_bytes=400)
        task = ProduceTask(settings, self.targets, self.transaction.transactional_id, producer)
        for number in range(PARTITIONS):
            own = values[number::PARTITIONS]
            rows = pa.RecordBatch.from_pydict({"value": list(own), TARGET: [number] * len(own)})
            task.write([rows], TaskAttempt(number, 0, 0, number))

    def commit(self, batch_id: int, records: int) -> None:
        entry = LedgerEntry(batch_id, "checkpoint", "test", records)
        self.transaction.commit(f"spark-sink-{self.query}", entries_at([self.topic], entry))

    def write(self, batch_id: int) -> None:
        producer = self.begin(batch_id)
        if producer is not None:
            self.produce(producer, batch(batch_id))
            self.commit(batch_id, len(batch(batch_id)))


def batch(batch_id: int, rows: int = 40) -> list[bytes]:
    return [b"%d" % (batch_id * rows + row) for row in range(rows)]


def batches(*numbers: int) -> list[bytes]:
    return sorted(value for number in numbers for value in batch(number))


@pytest.fixture
def place(barnabas_cluster: BarnabasCluster) -> Iterator[tuple[str, str, str]]:
    """(bootstrap servers, topic, query id)"""
    topic = barnabas_cluster.create_topic(f"sink-{next(NAMES)}", partitions=PARTITIONS)
    yield barnabas_cluster.bootstrap_servers, topic, f"query-{topic}"


@pytest.mark.parametrize(
    ("step", "moment"), [*((step, "in") for step in STEPS), ("EndTxn", "before"), ("EndTxn", "after")]
)
def test_a_driver_that_dies_at_any_step_leaves_nothing_half_and_nothing_twice(
    place: tuple[str, str, str], step: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap, topic, _ = place
    first = Driver(*place)
    monkeypatch.setattr("barnabas.pipeline.producing.open_cluster", lambda _: contextlib.nullcontext(first.cluster))
    first.write(0)
    request, number = STEPS[step]
    first.cluster.fatal, first.cluster.spared = (request, moment), number - 1
    with pytest.raises(Died):
        first.write(1)
    first.cluster.close()

    second = Driver(*place)
    monkeypatch.setattr("barnabas.pipeline.producing.open_cluster", lambda _: contextlib.nullcontext(second.cluster))
    second.write(1)
    second.write(2)
    assert sorted(read_all(bootstrap, topic, PARTITIONS)) == batches(0, 1, 2)
    last = second.ledger.last()
    assert last is not None and last.batch_id == 2
    await_ended(bootstrap, topic, PARTITIONS)


def test_a_zombie_is_refused_at_every_step_without_effect_on_its_successor(place: tuple[str, str, str]) -> None:
    bootstrap, topic, _ = place
    zombie, living = Driver(*place), Driver(*place)
    stale = zombie.begin(0)
    assert stale is not None
    zombie.produce(stale, batch(0))
    current = living.begin(0)
    assert current is not None
    living.produce(current, batch(0))

    with pytest.raises(Fenced):
        zombie.transaction.add(zombie.targets)
    with pytest.raises(Exception, match=r"the driver aborted|another driver"):
        zombie.produce(stale, batch(7))
    with pytest.raises(Fenced):
        zombie.commit(0, 40)
    with pytest.raises(Fenced):
        zombie.transaction.abort()
    with pytest.raises(Fenced):
        zombie.begin(0)

    living.commit(0, 40)
    living.write(1)
    assert sorted(read_all(bootstrap, topic, PARTITIONS)) == batches(0, 1)
    zombie.cluster.close()


def test_a_task_that_still_runs_cannot_write_after_an_abort(place: tuple[str, str, str]) -> None:
    """Neither before the next transaction begins nor during it."""
    bootstrap, topic, _ = place
    driver = Driver(*place)
    late = driver.begin(0)
    assert late is not None
    driver.produce(late, batch(8))
    driver.transaction.abort()
    with pytest.raises(Exception, match=r"sink-\d+-0: "):
        driver.produce(late, batch(9))
    await_ended(bootstrap, topic, PARTITIONS)
    producer = driver.begin(0)
    assert producer is not None and producer != late
    with pytest.raises(Exception, match=r"sink-\d+-0: "):
        driver.produce(late, batch(9))
    driver.produce(producer, batch(0))
    driver.commit(0, 40)
    assert sorted(read_all(bootstrap, topic, PARTITIONS)) == batches(0)


def test_the_leader_detects_two_tasks_of_one_epoch(place: tuple[str, str, str]) -> None:
    bootstrap, topic, _ = place
    driver = Driver(*place)
    producer = driver.begin(0)
    assert producer is not None
    driver.produce(producer, batch(0))
    with pytest.raises(PipelineError, match="another task wrote to it"):
        driver.produce(producer, batch(1))
    driver.commit(0, 40)
    assert sorted(read_all(bootstrap, topic, PARTITIONS)) == batches(0)


def test_drivers_that_race_write_each_batch_once(place: tuple[str, str, str]) -> None:
    """Each takes over from the others repeatedly, and does what a restarted query would do."""
    bootstrap, topic, _ = place
    until, lost = 6, [0, 0, 0]

    def race(number: int) -> None:
        batch_id = 0
        while batch_id < until:
            driver = Driver(*place)
            with contextlib.closing(driver.cluster):
                try:
                    last = driver.ledger.last()
                    batch_id = 0 if last is None else last.batch_id + 1
                    if batch_id < until:
                        driver.write(batch_id)
                except Exception as error:
                    assert isinstance(error, (Fenced, TransactionError)) or "sink-" in str(error), error
                    lost[number] += 1

    racers = [threading.Thread(target=race, args=[number]) for number in range(len(lost))]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert sum(lost), "they did not meet"
    assert sorted(read_all(bootstrap, topic, PARTITIONS)) == batches(*range(until))


def test_the_outcome_of_a_commit_is_looked_up(place: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """EndTxn is executed, but its response is lost."""
    bootstrap, topic, _ = place
    driver = Driver(*place)
    producer = driver.begin(0)
    assert producer is not None
    driver.produce(producer, batch(0))
    driver.cluster.fatal = (EndTxnRequest, "in")
    with pytest.raises(Died):
        driver.commit(0, 40)
    driver.cluster.fatal = None
    assert driver.begin(0) in (None, driver.transaction.producer)
    again = driver.transaction.producer
    assert again is not None
    if driver.ledger.last() is None:
        driver.produce(again, batch(0))
        driver.commit(0, 40)
    assert sorted(read_all(bootstrap, topic, PARTITIONS)) == batches(0)


def test_partitions_and_coordinators_that_move_are_followed(
    place: tuple[str, str, str], barnabas_cluster: BarnabasCluster
) -> None:
    bootstrap, topic, _ = place
    driver = Driver(*place)
    driver.write(0)
    for batch_id in (1, 2):
        producer = driver.begin(batch_id)
        assert producer is not None
        killed = barnabas_cluster.leader_of(topic, batch_id - 1)
        barnabas_cluster.kill(killed)
        driver.produce(producer, batch(batch_id))
        driver.commit(batch_id, 40)
        barnabas_cluster.start(killed)
        barnabas_cluster.wait_ready()
    assert sorted(read_all(bootstrap, topic, PARTITIONS)) == batches(0, 1, 2)
