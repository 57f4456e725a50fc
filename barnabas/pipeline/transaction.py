"""One transaction for one batch: the steps of the driver, over a blocking cluster. Knows neither rows nor Spark.

    InitProducerId ─► AddOffsetsToTxn ─► TxnOffsetCommit, OffsetFetch (the ledger is read after a write)
                   ─► AddPartitionsToTxn ─► (tasks produce) ─► AddOffsetsToTxn ─► TxnOffsetCommit ─► EndTxn

The partitions are added here, before any task writes, in whatever transaction version the cluster has: a driver that
was fenced hears of it before Spark works for it, and each partition that a late task could write to gets the marker. So
the calls are those of clients that add partitions themselves (version 1 of KIP-890), with one exception: where
transaction.version 2 is finalised, EndTxn is sent in version 5, whose markers carry the next epoch. After such an abort
no leader takes anything from a task that still runs.

Every transaction has an epoch of its own, since its tasks count their sequences from 0: InitProducerId gives it. The
first one asks without an id, which fences whoever had the transactional id and aborts what was open. All later ones
name the id and epoch they have (KIP-360), so that a driver that was replaced hears so, and fences nobody.

How a commit ended may be unknown, when no answer came. Then `begin` waits for its end, whichever that is, and the
ledger tells: nothing here guesses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from barnabas.client.metadata import TopicPartition, by_topic
from barnabas.pipeline.blocking_cluster import BlockingCluster, CoordinatorKind, CoordinatorRequest
from barnabas.pipeline.errors import BlockingError, Fenced, OutcomeUnknown, TookTooLong, TransactionError
from protocol.errors import ErrorCode, KafkaError, error_code
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.schema import Message

FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING})

INIT_PRODUCER_ID_VERSION = 4
"""The first that says PRODUCER_FENCED; its ids and epochs of before are those of version 3 (KIP-360, KIP-588)."""
ADD_PARTITIONS_VERSION = 3
"""The last that clients send."""
ADD_OFFSETS_VERSION = 3
TXN_OFFSET_COMMIT_VERSION = 3
"""From 5 on it adds the group by itself."""
END_TXN_VERSION = 3
END_TXN_VERSION_WITH_BUMP = 5
BUMPS_EPOCH = 2
"""The transaction.version from which on."""

Offsets = Mapping[tuple[str, int], tuple[int, str]]
"""(topic, partition) to offset and metadata."""


class ProducerStamp(NamedTuple):
    """Who produces: tasks are given it."""

    producer_id: int
    epoch: int


class Transaction:
    """The transactions of one transactional id, one after the other."""

    def __init__(self, cluster: BlockingCluster, transactional_id: str, timeout_ms: int) -> None:
        """`timeout_ms` is transaction.timeout.ms: a batch that takes longer is aborted by the coordinator."""
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer: ProducerStamp | None = None
        """Whom the coordinator knows, as far as we have heard."""
        self._cluster = cluster
        self._version: int | None = None
        self._began: float | None = None

    # ---- the steps

    def begin(self) -> ProducerStamp:
        """An epoch for the next transaction. What is open is aborted, what is being ended is waited for. Raises Fenced
        if another one took the transactional id over since the last time; TimedOut."""
        had = self.producer or ProducerStamp(-1, -1)
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=had.producer_id,
            producer_epoch=had.epoch,
        )
        response = self._ask(request, _code, INIT_PRODUCER_ID_VERSION)
        code = _code(response)
        if code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise TransactionError(
                f"transaction.timeout.ms {self.timeout_ms} is more than the brokers allow: give less, or raise their"
                " transaction.max.timeout.ms"
            )
        self._check(code, "InitProducerId")
        self._began = None
        self.producer = ProducerStamp(response.producer_id, response.producer_epoch)
        return self.producer

    def add(self, partitions: Iterable[tuple[str, int]]) -> None:
        """These may be written to from now on; the transaction's time runs. Fenced, TransactionError, TimedOut."""
        topics = by_topic(TopicPartition(*partition) for partition in partitions)
        producer = self._current()
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in topics.items()
            ],
        )
        if self._began is None:
            self._began = time.monotonic()
        response = self._ask(request, _added_code, ADD_PARTITIONS_VERSION)
        self._check(_added_code(response), "AddPartitionsToTxn")

    def commit(self, group_id: str, offsets: Offsets) -> None:
        """Everything takes effect: what was written, and these offsets of a group. Fenced, TookTooLong,
        TransactionError: nothing did; OutcomeUnknown."""
        self._commit_offsets(group_id, offsets)
        self._end(committed=True)

    def read_after_write(self, group_id: str, offsets: Offsets, question: CoordinatorRequest) -> Any:
        """The answer of the group's coordinator to `question`, in which nothing is missing that was committed by this
        transactional id before `begin` returned. Fenced, TookTooLong, TransactionError, TimedOut.

        A coordinator that was cut off and replaced does not know it. It would answer with what it knew, and no lease by
        clocks rules that out. So the question goes with a write, in this order, which makes an old answer impossible:

        1. `begin` (InitProducerId) fences every other driver, and returns after the end of the transaction before: its
           markers M are replicated, also the one in the group's log.
        2. `offsets` are written into the group's log (W), pending in this transaction. W is acknowledged only when all
           in-sync replicas have it, which a deposed leader cannot bring about: they follow another one.
        3. The same broker is asked. M was acknowledged before W was sent, and replicas have one log, so M is before W
           in the log of whoever has acknowledged W. The broker answers from its log up to W, and perhaps more.

        If it is deposed between W and the answer, the answer is still right: a later entry would be another driver's,
        which has fenced this one, whose EndTxn fails then. If it answers that it is not the coordinator, or not at all,
        the whole begins again with a W at the next one: the answer of a broker that did not acknowledge W counts for
        nothing.

        The offsets take effect if the transaction is committed without others for the same partitions. The question
        must not ask for stable offsets: these are pending.
        """
        self._add_group(group_id)
        writing = CoordinatorRequest(self._committing(group_id, offsets), _committed_code, TXN_OFFSET_COMMIT_VERSION)
        answers = self._cluster.coordinator_calls(group_id, CoordinatorKind.GROUP, [writing, question])
        self._check(_committed_code(answers[0]), "TxnOffsetCommit")
        return answers[1]

    def abort(self) -> None:
        """Nothing takes effect. Fenced if it was replaced; TransactionError, TimedOut: the next `begin` sees to it."""
        if self._began is not None:
            self._end(committed=False)

    @property
    def open_ms(self) -> int:
        """Since the first partition was added; 0 while there is none."""
        return 0 if self._began is None else int((time.monotonic() - self._began) * 1000)

    def check_time(self) -> None:
        """TookTooLong if the coordinator has aborted it by now, or is about to."""
        if self.open_ms >= self.timeout_ms:
            raise TookTooLong(
                f"the batch took {self.open_ms} ms, and transaction.timeout.ms is {self.timeout_ms}: it was aborted;"
                " raise the timeout, or make batches smaller (maxOffsetsPerTrigger)"
            )

    def resume(self, producer: ProducerStamp) -> None:
        """Go on with a transaction that another object of the same driver began, and added partitions to."""
        self.producer = producer
        self._began = time.monotonic()

    # ---- inside

    def _commit_offsets(self, group_id: str, offsets: Offsets) -> None:
        self._add_group(group_id)
        committing = self._committing(group_id, offsets)
        response = self._cluster.coordinator_call(
            group_id, CoordinatorKind.GROUP, committing, _committed_code, version=TXN_OFFSET_COMMIT_VERSION
        )
        self._check(_committed_code(response), "TxnOffsetCommit")

    def _add_group(self, group_id: str) -> None:
        producer = self._current()
        adding = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=group_id,
        )
        if self._began is None:
            self._began = time.monotonic()
        self._check(_code(self._ask(adding, _code, ADD_OFFSETS_VERSION)), "AddOffsetsToTxn")

    def _committing(self, group_id: str, offsets: Offsets) -> TxnOffsetCommitRequest:
        producer = self._current()
        topics = by_topic(TopicPartition(*partition) for partition in offsets)
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic, partitions=[_committed(index, *offsets[topic, index]) for index in indexes]
                )
                for topic, indexes in topics.items()
            ],
        )

    def _end(self, *, committed: bool) -> None:
        producer = self._current()
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=committed,
        )
        version = END_TXN_VERSION_WITH_BUMP if self._transaction_version() >= BUMPS_EPOCH else END_TXN_VERSION
        try:
            response = self._ask(request, _code, version)
        except BlockingError as error:
            raise OutcomeUnknown(
                f"no answer to EndTxn of {self.transactional_id}; run it again, which looks up how it ended: {error}"
            ) from None
        self._check(_code(response), "EndTxn")
        self._began = None
        if response.producer_id >= 0:
            self.producer = ProducerStamp(response.producer_id, response.producer_epoch)

    def _transaction_version(self) -> int:
        """What the cluster has finalised; asked once, since it only grows, and every version ends either way."""
        if self._version is None:
            ask = ApiVersionsRequest(client_software_name="barnabas-pipeline", client_software_version="0.1.0")
            features = self._ask(ask, _code, None).finalized_features
            levels = [each.max_version_level for each in features if each.name == "transaction.version"]
            self._version = levels[0] if levels else 0
        return self._version

    def _ask(self, request: Message, code_of: Callable[[Any], ErrorCode], version: int | None) -> Any:
        return self._cluster.coordinator_call(
            self.transactional_id, CoordinatorKind.TRANSACTION, request, code_of, version=version
        )

    def _current(self) -> ProducerStamp:
        assert self.producer is not None, "a transaction begins with begin()"
        return self.producer

    def _check(self, code: ErrorCode, step: str) -> None:
        if code is ErrorCode.NONE:
            return
        if code in FENCED or code is ErrorCode.INVALID_TXN_STATE:
            self.check_time()
        if code in FENCED:
            raise Fenced(
                f"another driver writes as {self.transactional_id} now ({code.name} to {step}): this one ends; if no"
                " other was started on purpose, two queries have the same name"
            )
        raise TransactionError(f"{step} of {self.transactional_id}: {KafkaError(code)}")


def _code(response: Any) -> ErrorCode:
    return error_code(response.error_code)


def _added_code(response: Any) -> ErrorCode:
    """All are added, or none; "not attempted" says less than the error of another one."""
    codes = [
        error_code(answer.partition_error_code)
        for topic in response.results_by_topic_v3_and_below
        for answer in topic.results_by_partition
    ]
    failures = [code for code in codes if code is not ErrorCode.NONE]
    telling = [code for code in failures if code is not ErrorCode.OPERATION_NOT_ATTEMPTED]
    return (telling or failures or [ErrorCode.NONE])[0]


def _committed_code(response: Any) -> ErrorCode:
    codes = [error_code(answer.error_code) for topic in response.topics for answer in topic.partitions]
    return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)


def _committed(index: int, offset: int, metadata: str) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
