"""The queue of one partition against a broker that checks sequences and a network that loses and delays."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.metadata import TopicPartition
from barnabas.client.producer.buffer_pool import BufferPool
from barnabas.client.producer.memory_records_builder import BatchFormat, ProducerId
from barnabas.client.producer.partition_queue import PartitionQueue, QueueSettings
from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.client.producer.record_accumulator import RecordAccumulator
from barnabas.client.producer.record_metadata import Acked, Failed, Outcome, RecordMetadata, Unknown
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import BatchHeader, read_header
from barnabas.protocol.records.record import Record, decode_records
from tests.examples import examples

SETTINGS = QueueSettings(linger_ms=5, delivery_timeout_ms=1000)
PLACE = TopicPartition("t", 0)
LOST = KafkaError(ErrorCode.NETWORK_EXCEPTION, "lost")


@dataclass
class BrokerModel:
    """A log that accepts batches as Kafka does: in sequence, with duplicates of the last five recognised."""

    values: list[bytes] = field(default_factory=list)
    producers: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    limit_bytes: int = 2**31
    is_strict: bool = False
    """A log that never held a record accepts no first sequence but 0 (KAFKA-15591)."""

    def produce(self, encoded: bytes) -> int | ErrorCode:
        """The base offset, or why not."""
        header = read_header(encoded)
        if len(encoded) > self.limit_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE
        epoch = self.epochs.get(header.producer_id, header.producer_epoch)
        if header.producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if header.producer_epoch > epoch:
            if header.base_sequence != 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            del self.producers[header.producer_id]
        known = self.producers.get(header.producer_id)
        if self.is_strict and not self.values and header.base_sequence != 0:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if known is not None:
            for first, last, offset in known[-5:]:
                if (first, last) == (header.base_sequence, header.last_sequence):
                    return offset
            if header.base_sequence != known[-1][1] + 1:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return self._append(encoded, header)

    def _append(self, encoded: bytes, header: BatchHeader) -> int:
        offset = len(self.values)
        self.values += [record.value or b"" for record in decode_records(encoded)]
        self.epochs[header.producer_id] = header.producer_epoch
        entry = (header.base_sequence, header.last_sequence, offset)
        self.producers.setdefault(header.producer_id, []).append(entry)
        return offset


class Client:
    """Feeds a queue and keeps its outcomes."""

    def __init__(self, options: QueueSettings = SETTINGS, batch_size: int = 200) -> None:
        self.accumulator = RecordAccumulator(BatchFormat(batch_size), options, BufferPool(2**30), trio.Event, self)
        self.queue: PartitionQueue = self.accumulator.queue(PLACE)
        self.outcomes: dict[int, Outcome] = {}
        self.appended = 0
        self.ids = 0
        self.now_ms = 0
        self.splits = 0

    def decided(self, batch: ProducerBatch) -> None:
        assert batch.is_done

    def split(self, batch: ProducerBatch) -> None:
        self.splits += 1

    def append(self, size: int = 10) -> int:
        number = self.appended
        self.appended += 1
        value = b"%06d" % number + b"." * size
        record = Record(0, 5, None, value)
        result = self.accumulator.append(PLACE, record, self.now_ms)
        if result is None:
            allocated_bytes = self.accumulator.new_batch_bytes(record)
            assert self.accumulator.pool.try_allocate(allocated_bytes)
            result = self.accumulator.append(PLACE, record, self.now_ms, allocated_bytes)
        assert result is not None
        future = result.future

        def note(metadata: RecordMetadata, error: Exception | None) -> None:
            assert number not in self.outcomes, "a record ends once"
            if error is None:
                self.outcomes[number] = Acked(metadata.partition, metadata.offset, metadata.timestamp_ms)
            else:
                self.outcomes[number] = (Unknown if future.maybe_written else Failed)(error)

        future.callback = note
        return number

    def next(self) -> ProducerBatch | None:
        queue = self.queue
        queue.expire(self.now_ms)
        if queue.producer is None:
            last = queue.last_producer
            if last is None or queue.id_lost:
                self.ids += 1
                queue.assign(ProducerId(self.ids, 0))
            else:
                queue.assign(ProducerId(last.producer_id, last.epoch + 1))
        batch = queue.next_to_send(self.now_ms)
        if batch is not None:
            queue.take(batch, self.now_ms)
        return batch

    def send(self) -> ProducerBatch:
        batch = self.next()
        assert batch is not None
        return batch

    def refuse(self, batch: ProducerBatch, code: ErrorCode) -> None:
        self.queue.refused(batch, KafkaError(code), self.now_ms + 10)


def full_batches(client: Client, count: int) -> None:
    for _ in range(count):
        client.append(150)


def proven() -> Client:
    """A client whose first batch was acked, so that it sends several at once."""
    client = Client()
    client.append(150)
    client.queue.acked(client.send(), 0, -1)
    return client


def test_records_wait_for_linger_or_for_a_full_batch() -> None:
    client = Client()
    client.append()
    client.append()
    assert client.next() is None
    assert client.queue.wake_at_ms() == 5
    client.now_ms = 5
    batch = client.send()
    assert read_header(batch.encoded).records_count == 2
    client.queue.acked(batch, 40, -1)
    assert client.outcomes == {0: Acked(0, 40, 5), 1: Acked(0, 41, 5)}
    assert client.queue.idle
    assert client.queue.wake_at_ms() is None


def test_the_first_batch_of_a_producer_id_goes_alone_and_then_five_at_a_time() -> None:
    client = Client()
    full_batches(client, 8)
    first = client.send()
    assert client.next() is None
    client.queue.acked(first, 0, -1)
    batches = [client.send() for _ in range(5)]
    assert client.next() is None
    assert [read_header(batch.encoded).base_sequence for batch in batches] == [1, 2, 3, 4, 5]


def test_nothing_goes_beyond_what_the_broker_remembers_of_the_first_undecided_batch() -> None:
    client = proven()
    full_batches(client, 8)
    first, *others = [client.send() for _ in range(5)]
    client.refuse(first, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    for offset, batch in enumerate(others):
        client.queue.acked(batch, offset + 2, -1)
    client.now_ms += 10
    assert client.send() is first
    assert client.next() is None, "a sixth batch would push the first out of the broker's memory"
    client.queue.acked(first, 1, -1)
    assert client.next() is not None


def test_after_a_failure_all_that_followed_lands_before_anything_goes_again() -> None:
    client = proven()
    full_batches(client, 3)
    first, second, third = client.send(), client.send(), client.send()
    client.refuse(first, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    client.now_ms += 10
    assert client.next() is None
    client.refuse(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    client.refuse(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert client.next() is None
    assert client.queue.wake_at_ms() == 20
    client.now_ms += 10
    assert [client.send(), client.send(), client.send()] == [first, second, third]
    assert client.ids == 1


@pytest.mark.parametrize(
    ("code", "kind"),
    [(ErrorCode.MESSAGE_TOO_LARGE, Failed), (ErrorCode.UNKNOWN_SERVER_ERROR, Unknown)],
)
def test_a_final_error_fails_its_batch_and_the_others_go_on_in_a_new_epoch(
    code: ErrorCode, kind: type[Outcome]
) -> None:
    client = proven()
    full_batches(client, 2)
    first, second = client.send(), client.send()
    client.refuse(first, code)
    assert isinstance(client.outcomes[1], kind)
    assert client.next() is None, "the second may still be taken under the old id"
    client.refuse(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    client.now_ms += 10
    again = client.send()
    header = read_header(again.encoded)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1, 1, 0)
    client.queue.acked(again, 1, -1)
    assert client.outcomes[2] == Acked(0, 1, 5)


def test_a_topic_that_was_created_again_gets_every_record_once_and_in_order() -> None:
    client, second_topic = Client(), BrokerModel(is_strict=True)
    full_batches(client, 6)
    acked = client.send()
    client.queue.addressed(b"1" * 16)
    client.queue.acked(acked, 0, -1)
    first, *others = [client.send() for _ in range(5)]
    for batch in (first, *others):
        client.refuse(batch, ErrorCode.UNKNOWN_TOPIC_ID)
    client.now_ms += 10
    assert client.send() is first
    client.queue.addressed(b"2" * 16)
    assert client.next() is None, "a log that does not know the producer might accept the next one before it"
    refusal = second_topic.produce(first.encoded)
    assert refusal is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    client.refuse(first, refusal)
    client.now_ms += 10
    while (again := client.next()) is not None:
        client.queue.addressed(b"2" * 16)
        offset = second_topic.produce(again.encoded)
        assert isinstance(offset, int)
        client.queue.acked(again, offset, -1)
    assert [client.outcomes[number] for number in range(1, 6)] == [Acked(0, offset, 5) for offset in range(5)]


def test_a_record_that_was_lost_on_the_way_to_a_deleted_topic_stays_unknown_if_the_new_one_refuses_it() -> None:
    client = proven()
    client.append(150)
    batch = client.send()
    client.queue.lost(batch, LOST, 10, sent=True)
    client.now_ms = 10
    assert client.send() is batch
    client.refuse(batch, ErrorCode.UNKNOWN_TOPIC_ID)
    client.now_ms = 20
    assert client.send() is batch
    client.refuse(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert isinstance(client.outcomes[1], Unknown)


def test_an_answer_that_was_lost_and_never_made_up_for_is_unknown() -> None:
    client = Client()
    client.append(150)
    batch = client.send()
    client.queue.lost(batch, LOST, 10, sent=True)
    client.now_ms = 1000
    client.queue.expire(client.now_ms)
    outcome = client.outcomes[0]
    assert isinstance(outcome, Unknown)
    assert "NETWORK_EXCEPTION: lost" in str(outcome.error)


def test_a_request_that_never_left_is_a_failure() -> None:
    client = Client()
    client.append(150)
    client.queue.lost(client.send(), LOST, 10, sent=False)
    client.append()
    client.now_ms = 1000
    client.queue.expire(client.now_ms)
    assert isinstance(client.outcomes[0], Failed)
    assert isinstance(client.outcomes[1], Failed)


def test_an_ack_after_the_end_changes_nothing() -> None:
    client = Client()
    client.append(150)
    batch = client.send()
    client.queue.abort(LOST)
    client.queue.acked(batch, 7, -1)
    assert client.outcomes == {0: Unknown(LOST)}


class Chaos:
    """A client, a broker, and between them a network that may lose the answer, the request, or only time."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.client = Client()
        self.broker = BrokerModel()
        self.wire: list[ProducerBatch] = []
        self.answers: list[tuple[ProducerBatch, int | ErrorCode]] = []
        self.ghosts: list[bytes] = []
        """Requests of broken connections which are still somewhere on their way."""

    def step(self) -> None:
        actions = [
            self.append,
            self.pump,
            self.pump,
            self.deliver,
            self.answer,
            self.answer,
            self.break_connection,
        ]
        actions += [self.haunt, self.pass_time]
        self.chance.choice(actions)()

    def append(self) -> None:
        for _ in range(self.chance.randrange(1, 6)):
            self.client.append(self.chance.choice([10, 60, 150]))

    def pump(self) -> None:
        while (batch := self.client.next()) is not None:
            self.wire.append(batch)

    def deliver(self) -> None:
        if self.wire:
            batch = self.wire.pop(0)
            fate = self.chance.random()
            result: int | ErrorCode
            if fate < 0.1:
                result = ErrorCode.NOT_ENOUGH_REPLICAS
            elif fate < 0.13:
                result = ErrorCode.MESSAGE_TOO_LARGE
            else:
                result = self.broker.produce(batch.encoded)
                if fate > 0.9:
                    result = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            self.answers.append((batch, result))

    def answer(self) -> None:
        if self.answers:
            batch, result = self.answers.pop(0)
            if isinstance(result, ErrorCode):
                self.client.refuse(batch, result)
            else:
                self.client.queue.acked(batch, result, -1)

    def break_connection(self) -> None:
        if self.chance.random() < 0.4:
            for batch in self.wire:
                self.ghosts.append(batch.encoded)
            for batch in [batch for batch, _ in self.answers] + self.wire:
                self.client.queue.lost(batch, LOST, self.client.now_ms + 10, sent=True)
            self.wire, self.answers = [], []

    def haunt(self) -> None:
        if self.ghosts:
            ghost = self.ghosts.pop(self.chance.randrange(len(self.ghosts)))
            if self.chance.random() < 0.5:
                self.broker.produce(ghost)

    def pass_time(self) -> None:
        self.client.now_ms += self.chance.choice([1, 10, 10, 30, 400])

    def finish(self) -> None:
        """Peace: everything is delivered, and what is left of the old connections arrives."""
        self.chance.random = lambda: 0.5  # type: ignore[method-assign]
        for _ in range(1000):
            self.pump()
            self.deliver()
            self.answer()
            self.client.now_ms += 10
            if self.client.queue.idle and not self.wire:
                break
        for ghost in self.ghosts:
            self.broker.produce(ghost)


@settings(max_examples=examples(250), deadline=None)
@given(st.integers(0, 2**40), st.integers(10, 250))
def test_the_outcomes_are_true_whatever_the_network_does(seed: int, steps: int) -> None:
    chaos = Chaos(random.Random(seed))
    for _ in range(steps):
        chaos.step()
    chaos.finish()
    log = [int(value[:6]) for value in chaos.broker.values]
    outcomes = chaos.client.outcomes
    assert len(outcomes) == chaos.client.appended, "every record has an outcome"
    assert len(set(log)) == len(log), "nothing is in the log twice"
    offsets = []
    for number in range(chaos.client.appended):
        outcome = outcomes[number]
        if isinstance(outcome, Acked):
            assert log[outcome.offset] == number
            offsets.append(outcome.offset)
        elif isinstance(outcome, Failed):
            assert number not in log
    assert offsets == sorted(offsets), "acked records keep their order"


# ---- too large


@pytest.mark.feature("PR-04")
def test_a_batch_that_is_too_large_is_split_until_its_parts_are_taken() -> None:
    client, broker = Client(batch_size=2000), BrokerModel(limit_bytes=300)
    for _ in range(60):
        client.append()
    for _ in range(200):
        while (batch := client.next()) is not None:
            result = broker.produce(batch.encoded)
            if isinstance(result, ErrorCode):
                client.refuse(batch, result)
            else:
                client.queue.acked(batch, result, -1)
        client.now_ms += 10
        if client.queue.idle:
            break
    assert client.splits >= 3
    assert [int(value[:6]) for value in broker.values] == list(range(60))
    assert client.outcomes == {number: Acked(0, number, 5) for number in range(60)}
    assert client.ids == 1
    pool = client.accumulator.pool
    assert pool.available_bytes == pool.total_bytes
    assert client.accumulator.incomplete == []


@pytest.mark.feature("PR-04")
def test_a_single_record_that_is_too_large_fails() -> None:
    client = Client()
    client.append(150)
    client.refuse(client.send(), ErrorCode.MESSAGE_TOO_LARGE)
    assert isinstance(client.outcomes[0], Failed)


def test_a_batch_that_may_be_written_is_not_split() -> None:
    client = Client()
    client.append()
    client.append()
    client.now_ms = 5
    batch = client.send()
    client.queue.lost(batch, LOST, 10, sent=True)
    client.now_ms = 10
    client.refuse(client.send(), ErrorCode.RECORD_LIST_TOO_LARGE)
    assert client.splits == 0
    assert [type(outcome) for outcome in client.outcomes.values()] == [Unknown, Unknown]


@pytest.mark.feature("PR-04", "PR-11")
def test_batches_sent_behind_one_that_is_split_keep_their_sequence() -> None:
    client, broker = Client(batch_size=400), BrokerModel(limit_bytes=300)
    client.append(10)
    client.now_ms = 5
    first = client.send()
    client.queue.acked(first, broker.produce(first.encoded), -1)  # type: ignore[arg-type]
    for _ in range(36):
        client.append(10)
    large, behind = client.send(), client.send()
    refusals = [broker.produce(batch.encoded) for batch in (large, behind)]
    assert refusals == [ErrorCode.MESSAGE_TOO_LARGE] * 2
    client.refuse(large, ErrorCode.MESSAGE_TOO_LARGE)
    assert client.next() is None, "the one behind has to land first"
    client.refuse(behind, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    for _ in range(100):
        client.now_ms += 10
        while (batch := client.next()) is not None:
            result = broker.produce(batch.encoded)
            if isinstance(result, ErrorCode):
                client.refuse(batch, result)
            else:
                client.queue.acked(batch, result, -1)
    assert [int(value[:6]) for value in broker.values] == list(range(37))


# ---- epochs


@pytest.mark.feature("PR-13")
def test_after_a_batch_was_given_up_a_new_epoch_begins_at_0() -> None:
    client = proven()
    full_batches(client, 1)
    client.queue.lost(client.send(), LOST, client.now_ms, sent=True)
    client.now_ms += 1000
    client.queue.expire(client.now_ms)
    assert isinstance(client.outcomes[1], Unknown)
    full_batches(client, 1)
    header = read_header(client.send().encoded)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1, 1, 0)


@pytest.mark.feature("PR-13")
@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER])
def test_a_sequence_that_the_broker_refuses_restarts(code: ErrorCode) -> None:
    client = proven()
    full_batches(client, 1)
    client.refuse(client.send(), code)
    client.now_ms += 10
    header = read_header(client.send().encoded)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1, 1, 0)


@pytest.mark.feature("PR-13")
def test_an_epoch_that_the_broker_does_not_take_needs_another_id() -> None:
    client = proven()
    full_batches(client, 1)
    client.refuse(client.send(), ErrorCode.INVALID_PRODUCER_EPOCH)
    client.now_ms += 10
    header = read_header(client.send().encoded)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2, 0, 0)


# ---- without idempotence


def plain(**settings: int) -> Client:
    return Client(QueueSettings(delivery_timeout_ms=1000, idempotent=False, **settings))


@pytest.mark.feature("PR-10")
def test_without_idempotence_nothing_is_numbered_and_all_go_at_once() -> None:
    client = plain(max_in_flight=7)
    full_batches(client, 9)
    batches = [client.send() for _ in range(7)]
    assert client.next() is None
    headers = [read_header(batch.encoded) for batch in batches]
    assert {(header.producer_id, header.producer_epoch, header.base_sequence) for header in headers} == {(-1, -1, -1)}


@pytest.mark.feature("PR-09")
def test_with_one_in_flight_the_partition_is_muted_until_the_answer() -> None:
    client = plain(max_in_flight=1)
    full_batches(client, 2)
    first = client.send()
    assert client.queue.muted
    client.refuse(first, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert not client.queue.muted
    assert client.next() is None, "it backs off, and nothing may overtake it"
    client.now_ms += 10
    assert client.send() is first


@pytest.mark.feature("PR-10")
def test_retries_are_counted_but_for_requests_that_never_left() -> None:
    client = plain(retries=2, max_in_flight=1)
    full_batches(client, 1)
    for _ in range(5):
        client.queue.lost(client.send(), LOST, client.now_ms, sent=False)
    for _ in range(2):
        client.refuse(client.send(), ErrorCode.NOT_ENOUGH_REPLICAS)
        client.now_ms += 10
        assert client.outcomes == {}
    client.refuse(client.send(), ErrorCode.NOT_ENOUGH_REPLICAS)
    assert isinstance(client.outcomes[0], Failed)
