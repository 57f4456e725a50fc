"""Ready partitions: lingering, full batches, backoff, short memory, fairness."""

from __future__ import annotations

import pytest
import trio

from barnabas.client.metadata import TopicPartition
from barnabas.client.producer.buffer_pool import BufferPool
from barnabas.client.producer.memory_records_builder import BatchFormat, ProducerId
from barnabas.client.producer.partition_queue import QueueSettings
from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.client.producer.record_accumulator import RecordAccumulator, RecordAppendResult
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.record import Record

P0, P1, P2 = (TopicPartition("t", index) for index in range(3))


class Desk:
    """An accumulator and its surroundings."""

    def __init__(self, memory: int = 2**20, linger_ms: int = 5, batch_size: int = 200) -> None:
        self.pool = BufferPool(memory)
        settings = QueueSettings(linger_ms=linger_ms, delivery_timeout_ms=1000)
        self.accumulator = RecordAccumulator(BatchFormat(batch_size), settings, self.pool, trio.Event, self)
        self.leaders = {P0: 1, P1: 1, P2: 2}
        self.now_ms = 0
        self.ended: list[ProducerBatch] = []

    def decided(self, batch: ProducerBatch) -> None:
        self.ended.append(batch)

    def split(self, batch: ProducerBatch) -> None:
        raise AssertionError("nothing is too large here")

    def append(self, partition: TopicPartition, size: int = 10) -> RecordAppendResult:
        record = Record(0, 0, None, b"." * size)
        self.accumulator.queue(partition).producer = ProducerId(7, 0)
        result = self.accumulator.append(partition, record, self.now_ms)
        if result is None:
            allocated_bytes = self.accumulator.new_batch_bytes(record)
            assert self.pool.try_allocate(allocated_bytes)
            result = self.accumulator.append(partition, record, self.now_ms, allocated_bytes)
        assert result is not None
        return result

    def ready(self) -> dict[int, list[TopicPartition]]:
        result = self.accumulator.ready(self.leaders.get, self.now_ms)
        return {node: [queue.partition for queue in queues] for node, queues in result.ready.items()}

    def drain(self, node: int, max_size: int = 10_000) -> list[ProducerBatch]:
        queues = self.accumulator.ready(self.leaders.get, self.now_ms).ready.get(node, [])
        return self.accumulator.drain(queues, max_size, self.now_ms)

    def ack(self, batches: list[ProducerBatch]) -> None:
        for batch in batches:
            self.accumulator.queue(batch.partition).acked(batch, 0, -1)


@pytest.mark.feature("PR-03")
def test_only_a_new_or_full_batch_wakes_the_sender() -> None:
    desk = Desk()
    first, second = desk.append(P0), desk.append(P0)
    assert (first.new_batch_created, first.batch_is_full, first.wakes_sender) == (True, False, True)
    assert (second.new_batch_created, second.batch_is_full, second.wakes_sender) == (False, False, False)
    third = desk.append(P0, 200)
    assert third.new_batch_created
    assert third.batch_is_full


@pytest.mark.feature("PR-03")
def test_memory_that_came_too_late_to_be_needed_goes_back() -> None:
    desk = Desk(memory=1000)
    record = Record(0, 0, None, b"mine")
    assert desk.accumulator.append(P0, record, 0) is None, "it needs a batch, and so memory"
    assert desk.pool.try_allocate(200)
    desk.append(P0)
    assert desk.pool.available_bytes == 600
    late = desk.accumulator.append(P0, record, 0, 200)
    assert late is not None
    assert not late.new_batch_created, "somebody else began one meanwhile: two small ones would be a waste"
    assert desk.pool.available_bytes == 800


@pytest.mark.feature("PR-08")
def test_a_node_is_ready_after_the_linger_or_with_a_full_batch() -> None:
    desk = Desk()
    desk.append(P0)
    result = desk.accumulator.ready(desk.leaders.get, 0)
    assert (result.ready, result.next_check_ms) == ({}, 5)
    desk.now_ms = 5
    assert desk.ready() == {1: [P0]}
    desk.append(P2, 300)
    assert desk.ready() == {1: [P0], 2: [P2]}
    desk = Desk()
    desk.append(P0, 120)
    desk.append(P0, 120)
    assert desk.ready() == {1: [P0]}, "a second batch means that the first is as full as it gets"


@pytest.mark.feature("PR-08")
def test_nobody_lingers_when_memory_is_short_or_somebody_waits() -> None:
    desk = Desk(memory=300)
    desk.append(P0)
    assert desk.ready() == {}
    waiter = desk.pool.wait(200, lambda: None)
    assert desk.ready() == {1: [P0]}
    desk.pool.cancel(waiter)
    assert desk.ready() == {}
    desk.accumulator.begin_flush()
    assert desk.ready() == {1: [P0]}
    desk.accumulator.end_flush()
    assert desk.ready() == {}
    for reason in ("closing", "completing"):
        setattr(desk.accumulator, reason, True)
        assert desk.ready() == {1: [P0]}
        setattr(desk.accumulator, reason, False)


@pytest.mark.feature("PR-08")
def test_a_partition_without_a_leader_is_reported_and_waits() -> None:
    desk = Desk()
    del desk.leaders[P0]
    desk.append(P0)
    desk.now_ms = 5
    result = desk.accumulator.ready(desk.leaders.get, desk.now_ms)
    assert result.ready == {}
    assert list(result.unknown_leader_topics) == ["t"]
    desk.leaders[P0] = 2
    assert desk.ready() == {2: [P0]}


@pytest.mark.feature("PR-08", "PR-11")
def test_a_partition_without_a_producer_id_is_reported_and_waits() -> None:
    desk = Desk()
    desk.append(P0)
    desk.accumulator.queue(P0).producer = None
    desk.now_ms = 5
    result = desk.accumulator.ready(desk.leaders.get, desk.now_ms)
    assert result.ready == {}
    assert [queue.partition for queue in result.without_producer] == [P0]
    assert result.next_check_ms == 1000, "all that can come is the end of its delivery timeout"


@pytest.mark.feature("PR-08")
def test_queues_that_back_off_or_are_muted_are_not_ready() -> None:
    desk = Desk()
    desk.append(P0, 300)
    desk.append(P0, 300)
    [batch] = desk.drain(1)
    assert desk.ready() == {}, "the first batch of a producer id goes alone"
    desk.accumulator.queue(P0).refused(batch, KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS), 40)
    assert desk.ready() == {}
    assert desk.accumulator.ready(desk.leaders.get, 0).next_check_ms == 40
    desk.now_ms = 40
    assert desk.drain(1) == [batch]


@pytest.mark.feature("PR-09")
def test_a_request_takes_one_batch_of_each_partition_of_its_node() -> None:
    desk = Desk()
    for partition in (P0, P0, P1, P2):
        desk.append(partition, 300)
    assert [batch.partition for batch in desk.drain(1)] == [P0, P1]
    assert [batch.partition for batch in desk.drain(2)] == [P2]


@pytest.mark.feature("PR-09")
def test_no_partition_starves_however_small_requests_are() -> None:
    desk = Desk()
    desk.leaders = dict.fromkeys((P0, P1, P2), 1)
    served = []
    for _ in range(6):
        for partition in (P0, P1, P2):
            desk.append(partition, 300)
        batches = desk.drain(1, max_size=100)
        assert len(batches) == 1, "one always goes, whatever its size"
        served.append(batches[0].partition)
        desk.ack(batches)
    assert served == [P0, P1, P2] * 2


@pytest.mark.feature("PR-09")
def test_a_request_is_filled_up_to_its_limit() -> None:
    desk = Desk()
    desk.leaders = dict.fromkeys((P0, P1, P2), 1)
    for partition in (P0, P1, P2):
        desk.append(partition, 300)
    size = desk.accumulator.queue(P0).last.size_bytes  # type: ignore[union-attr]
    assert len(desk.drain(1, max_size=2 * size)) == 2


@pytest.mark.feature("PR-14")
def test_the_end_decides_everything_and_gives_all_memory_back() -> None:
    desk = Desk()
    for partition in (P0, P1, P1, P2):
        desk.append(partition, 300)
    drained = desk.drain(1)
    assert len(desk.accumulator.incomplete) == 4
    desk.accumulator.abort_incomplete(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    assert desk.accumulator.incomplete == []
    assert desk.pool.available_bytes == desk.pool.total_bytes
    assert {batch: batch.futures[0].maybe_written for batch in desk.ended} == {
        batch: batch in drained for batch in desk.ended
    }
    assert len(desk.ended) == 4


@pytest.mark.feature("PR-10")
def test_old_batches_expire_even_without_a_leader() -> None:
    desk = Desk()
    desk.leaders = {}
    result = desk.append(P0)
    desk.now_ms = 1000
    desk.ready()
    assert isinstance(result.future.exception(), KafkaError)
    assert desk.pool.available_bytes == desk.pool.total_bytes


@pytest.mark.feature("TX-12")
def test_unsent_batches_may_end_before_sent_ones() -> None:
    desk = Desk()
    for partition in (P0, P1, P1, P2):
        desk.append(partition, 300)
    [first, second] = desk.drain(1)
    desk.accumulator.abort_undrained(KafkaError(ErrorCode.PRODUCER_FENCED))
    assert [batch.partition for batch in desk.ended] == [P1, P2]
    assert not any(batch.futures[0].maybe_written for batch in desk.ended)
    desk.ack([first, second])
    assert desk.accumulator.incomplete == []
