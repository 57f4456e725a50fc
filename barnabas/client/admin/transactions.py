"""Transactions and producers: listed, described, fenced, and hanging ones aborted (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from barnabas.client.admin.calls import Part, Question
from barnabas.client.admin.results import Results, changed, refusal
from barnabas.client.admin.routes import (
    CertainBrokers,
    Leaders,
    ask_all_brokers,
    names_in,
    partitions_in,
    transaction_coordinators,
)
from barnabas.client.metadata import Node, TopicPartition, by_topic
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import describe_producers as producing
from barnabas.protocol.messages import describe_transactions as describing
from barnabas.protocol.messages import list_transactions as listing
from barnabas.protocol.messages import write_txn_markers as marking
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.open_enums import OpenStrEnum

NOBODY = -1
NOT_LED_HERE = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class TransactionState(OpenStrEnum):
    UNKNOWN = "Unknown"
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


@dataclass(frozen=True, slots=True)
class TransactionListing:
    transactional_id: str
    producer_id: int
    state: TransactionState


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    coordinator_id: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int | None
    """None without an open transaction."""
    topic_partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer's state in a replica of a partition."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None
    """From the last transaction that ended; None if there was none."""
    current_transaction_start_offset: int | None
    """None without an open transaction in this partition."""


@dataclass(frozen=True, slots=True)
class AbortTransactionSpec:
    """One transaction in one partition, with values from `describe_producers`."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class ProducerIdAndEpoch:
    producer_id: int
    epoch: int


class Transactions(Part):
    """Methods for transactions and producers."""

    async def list_transactions(
        self,
        *,
        states: Iterable[TransactionState | str] = (),
        producer_ids: Iterable[int] = (),
        duration_ms: int = -1,
        transactional_id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Transactions of all coordinators, by id; only those in the given states, of the given producers, open for
        longer than `duration_ms`, or with an id that an RE2 pattern matches as a whole. UnsupportedVersionException if
        an old broker has no such filter; InvalidRegularExpression. If one broker does not answer, that is the error.
        """
        named = [str(state) for state in ([states] if isinstance(states, str) else states)]
        ids = list(producer_ids)

        def ask(_: list[int], __: int) -> listing.ListTransactionsRequest:
            return listing.ListTransactionsRequest(
                state_filters=named,
                producer_id_filters=ids,
                duration_filter=duration_ms,
                transactional_id_pattern=transactional_id_pattern,
            )

        def read(
            response: listing.ListTransactionsResponse, keys: list[int]
        ) -> Iterator[tuple[int, list[TransactionListing] | KafkaError]]:
            for broker in keys:
                yield (
                    broker,
                    refusal(response.error_code, None, f"the transactions of broker {broker}")
                    or [
                        TransactionListing(it.transactional_id, it.producer_id, TransactionState(it.transaction_state))
                        for it in response.transaction_states
                    ],
                )

        answers = await ask_all_brokers(self._calls, Question("the transactions of broker", ask, read))
        found = {it.transactional_id: it for answer in answers.values() for it in answer}
        return sorted(found.values(), key=lambda it: it.transactional_id)

    async def describe_transactions(
        self, transactional_ids: Iterable[str] | str
    ) -> Results[str, TransactionDescription]:
        """State, producer and partitions, by transactional id. TransactionalIdNotFoundException."""
        route = transaction_coordinators(self._calls)

        def ask(some: list[str], _: int) -> describing.DescribeTransactionsRequest:
            return describing.DescribeTransactionsRequest(transactional_ids=some)

        def read(
            response: describing.DescribeTransactionsResponse, _: object
        ) -> Iterator[tuple[str, TransactionDescription | KafkaError]]:
            for it in response.transaction_states:
                error = refusal(it.error_code, None, f"transactional id {it.transactional_id}")
                yield it.transactional_id, error or _described(it, route.found.get(it.transactional_id))

        return await self._calls.ask(names_in(transactional_ids), route, Question("transactional id", ask, read))

    async def describe_producers(
        self, partitions: Iterable[TopicPartition] | TopicPartition, *, broker_id: int | None = None
    ) -> Results[TopicPartition, tuple[ProducerState, ...]]:
        """Producers of partitions, as their leaders know them, or `broker_id`, which must have a replica
        (NotLeaderOrFollowerException).
        """

        def ask(some: list[TopicPartition], _: int) -> producing.DescribeProducersRequest:
            topics = [
                producing.TopicRequest(name=name, partition_indexes=indexes) for name, indexes in by_topic(some).items()
            ]
            return producing.DescribeProducersRequest(topics=topics)

        def read(
            response: producing.DescribeProducersResponse, _: object
        ) -> Iterator[tuple[TopicPartition, tuple[ProducerState, ...] | KafkaError]]:
            for topic in response.topics:
                for it in topic.partitions:
                    key = TopicPartition(topic.name, it.partition_index)
                    error = refusal(it.error_code, it.error_message, f"partition {key}")
                    yield key, tuple(map(_producer, it.active_producers)) if error is None else error

        wanted = partitions_in(partitions)
        if broker_id is None:
            return await self._calls.ask(wanted, Leaders(self._calls), Question("partition", ask, read))
        there = CertainBrokers[TopicPartition](self._calls, lambda _: broker_id)
        return await self._calls.ask(wanted, there, Question("partition", ask, read, final=NOT_LED_HERE))

    async def abort_transaction(self, spec: AbortTransactionSpec) -> None:
        """Write an abort marker to one partition for a hanging transaction, one that no coordinator knows any longer.
        InvalidProducerEpochException, TransactionCoordinatorFencedException if it does not match `spec`.
        """

        def ask(_: list[TopicPartition], __: int) -> marking.WriteTxnMarkersRequest:
            topic, index = spec.topic_partition
            marker = marking.WritableTxnMarker(
                producer_id=spec.producer_id,
                producer_epoch=spec.producer_epoch,
                coordinator_epoch=spec.coordinator_epoch,
                transaction_result=False,
                topics=[marking.WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
            )
            return marking.WriteTxnMarkersRequest(markers=[marker])

        def read(
            response: marking.WriteTxnMarkersResponse, _: object
        ) -> Iterator[tuple[TopicPartition, KafkaError | None]]:
            for marker in response.markers:
                for topic in marker.topics:
                    for it in topic.partitions:
                        key = TopicPartition(topic.name, it.partition_index)
                        yield key, refusal(it.error_code, None, f"partition {key}, producer {spec.producer_id}")

        question = Question[TopicPartition, None]("partition", ask, read)
        results = await self._calls.ask([TopicPartition(*spec.topic_partition)], Leaders(self._calls), question)
        results.all()

    async def force_terminate_transaction(self, transactional_id: str) -> None:
        """Abort the open transaction of a transactional id, and fence its producer."""
        await self.fence_producers([transactional_id])

    async def fence_producers(
        self, transactional_ids: Iterable[str] | str, *, raise_errors: bool = True
    ) -> Results[str, ProducerIdAndEpoch]:
        """Fence the producers of these ids: open transactions are aborted, and a producer has to be initialized again.
        Returns the producer id and epoch of the fence.
        """

        def ask(some: list[str], timeout_ms: int) -> InitProducerIdRequest:
            return InitProducerIdRequest(transactional_id=some[0], transaction_timeout_ms=timeout_ms)

        def read(
            response: InitProducerIdResponse, keys: list[str]
        ) -> Iterator[tuple[str, ProducerIdAndEpoch | KafkaError]]:
            error = refusal(response.error_code, None, f"transactional id {keys[0]}")
            yield keys[0], error or ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

        question = Question("transactional id", ask, read, one_by_one=True)
        results = await self._calls.ask(names_in(transactional_ids), transaction_coordinators(self._calls), question)
        return changed(results, raise_errors)


def _described(it: describing.TransactionState, coordinator: Node | None) -> TransactionDescription:
    return TransactionDescription(
        NOBODY if coordinator is None else coordinator.node_id,
        TransactionState(it.transaction_state),
        it.producer_id,
        it.producer_epoch,
        it.transaction_timeout_ms,
        it.transaction_start_time_ms if it.transaction_start_time_ms >= 0 else None,
        tuple(sorted(TopicPartition(topic.topic, index) for topic in it.topics for index in topic.partitions)),
    )


def _producer(it: producing.ProducerState) -> ProducerState:
    return ProducerState(
        it.producer_id,
        it.producer_epoch,
        it.last_sequence,
        it.last_timestamp,
        it.coordinator_epoch if it.coordinator_epoch >= 0 else None,
        it.current_txn_start_offset if it.current_txn_start_offset >= 0 else None,
    )
