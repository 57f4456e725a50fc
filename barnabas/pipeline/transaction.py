"""One transaction for each batch: the steps of the driver, over a blocking cluster. Knows neither rows nor Spark.

    InitProducerId ─► AddOffsetsToTxn ─► TxnOffsetCommit, OffsetFetch (the ledger is read after a write)
                   ─► AddPartitionsToTxn ─► (tasks produce) ─► AddOffsetsToTxn ─► TxnOffsetCommit ─► EndTxn

Partitions are added here, before any task writes, whatever transaction.version the cluster has: a fenced driver learns
of it before Spark works for it, and each partition that a late task could write to gets the marker. So the requests are
those of a client that adds partitions itself (version 1), with one exception: if transaction.version 2 is finalized,
EndTxn is sent in version 5, whose markers carry the next epoch (KIP-890). After such an abort no leader accepts
anything from a task that still runs.

Every transaction has its own epoch, from InitProducerId, because its tasks count their sequences from 0. The first
InitProducerId has no producer id: it fences every other producer and aborts an open transaction. Later ones name the
current producer id and epoch (KIP-360): a driver that was replaced gets an error, and fences nobody.

The outcome of a commit is unknown if EndTxn got no response. Then the next `begin` waits until the transaction has
ended, either way, and the ledger shows the outcome.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from barnabas.client.coordinator_lookup import CoordinatorType
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import OffsetAndMetadata
from barnabas.client.transaction_requests import (
    BROKERS_ADD_FROM,
    LAST_ADD_OF_CLIENTS,
    NO_PRODUCER,
    ProducerId,
    TransactionRequests,
    add_error,
    added_codes,
    commit_error,
    transaction_version,
)
from barnabas.pipeline.blocking_cluster import BlockingCluster, CoordinatorRequest
from barnabas.pipeline.blocking_connection import CLIENT_SOFTWARE_NAME
from barnabas.pipeline.errors import BlockingError, Fenced, OutcomeUnknown, TookTooLong, TransactionError
from barnabas.pipeline.response_errors import response_error
from barnabas.protocol.client_exchange import CLIENT_SOFTWARE_VERSION
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from barnabas.protocol.schema import Message

FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING})

INIT_PRODUCER_ID_VERSION = 4
"""The first version that reports PRODUCER_FENCED; in 3 it already takes producer id and epoch (KIP-360, KIP-588)."""
ADD_OFFSETS_VERSION = 3
TXN_OFFSET_COMMIT_VERSION = 3
END_TXN_VERSION = 3
END_TXN_VERSION_WITH_BUMP = 5
"""The markers carry the next epoch."""

Offsets = Mapping[tuple[str, int], tuple[int, str]]
"""(topic, partition) to offset and metadata."""


class Transaction:
    """The transactions of one transactional id, one after another."""

    def __init__(self, cluster: BlockingCluster, transactional_id: str, timeout_ms: int) -> None:
        """`timeout_ms` is transaction.timeout.ms: the coordinator aborts a batch that takes longer."""
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer: ProducerId | None = None
        """The last producer id and epoch that the coordinator returned."""
        self._cluster = cluster
        self._version: int | None = None
        self._began: float | None = None

    # Steps

    def begin(self) -> ProducerId:
        """Get an epoch for the next transaction. Aborts an open transaction, and waits for one that is ending. Fenced
        if another producer has taken the transactional id; TimedOut."""
        requests = TransactionRequests(self.transactional_id, self.producer or NO_PRODUCER)
        request = requests.init_producer_id(self.timeout_ms)
        response = self._call(request, response_error, INIT_PRODUCER_ID_VERSION)
        code = response_error(response)
        if code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise TransactionError(
                f"transaction.timeout.ms must be at most transaction.max.timeout.ms of the brokers; got"
                f" {self.timeout_ms}"
            )
        self._check(code, "InitProducerId")
        self._began = None
        self.producer = ProducerId(response.producer_id, response.producer_epoch)
        return self.producer

    def add(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Add partitions that may be written to from now on. Starts the transaction timeout. Fenced, TransactionError,
        TimedOut."""
        request = self._requests.add_partitions(TopicPartition(*partition) for partition in partitions)
        if self._began is None:
            self._began = time.monotonic()
        response = self._call(request, _add_error, LAST_ADD_OF_CLIENTS)
        self._check(_add_error(response), "AddPartitionsToTxn")

    def commit(self, group_id: str, offsets: Offsets) -> None:
        """Commit the written records and these offsets of a group. After Fenced, TookTooLong and TransactionError
        nothing was committed; OutcomeUnknown."""
        self._commit_offsets(group_id, offsets)
        self._end(committed=True)

    def read_after_write(self, group_id: str, offsets: Offsets, reading: CoordinatorRequest) -> Any:
        """The group coordinator's response to `reading`, with everything that this transactional id committed before
        `begin` returned. Fenced, TookTooLong, TransactionError, TimedOut.

        A coordinator that was cut off and replaced does not have the newest offsets. It would return old ones, and no
        lease by clocks rules that out. So the read goes with a write, in this order, which makes an old response
        impossible:

        1. `begin` (InitProducerId) fences every other driver, and returns after the previous transaction has ended: its
           markers M are replicated, including the one in the group's log.
        2. `offsets` are written to the group's log (W), pending in this transaction. W is acknowledged only when all
           in-sync replicas have it, which a deposed leader cannot achieve: they follow another leader.
        3. The same broker gets the read. M was acknowledged before W was sent, and replicas have one log, so M is
           before W in the log of a broker that has acknowledged W. The broker responds from its log up to W, or more.

        If the broker is deposed between W and the response, the response is still right: a later entry would be
        another driver's, which has fenced this one, whose EndTxn then fails. If it responds that it is not the
        coordinator, or not at all, everything starts again with a W at the next coordinator: a response of a broker
        that did not acknowledge W does not count.

        The offsets take effect if the transaction commits without others for the same partitions. The read must not
        require stable offsets, because these are pending.
        """
        self._add_group(group_id)
        writing = CoordinatorRequest(self._offset_commit(group_id, offsets), commit_error, TXN_OFFSET_COMMIT_VERSION)
        responses = self._cluster.coordinator_calls(group_id, CoordinatorType.GROUP, [writing, reading])
        self._check(commit_error(responses[0]), "TxnOffsetCommit")
        return responses[1]

    def abort(self) -> None:
        """Abort the transaction. After Fenced, TransactionError and TimedOut the next `begin` aborts it."""
        if self._began is not None:
            self._end(committed=False)

    @property
    def open_ms(self) -> int:
        """Time since the first partition was added; 0 before that."""
        return 0 if self._began is None else int((time.monotonic() - self._began) * 1000)

    def check_time(self) -> None:
        """TookTooLong if the transaction timeout is over."""
        if self.open_ms >= self.timeout_ms:
            raise TookTooLong(
                f"the batch took {self.open_ms} ms and was aborted, because transaction.timeout.ms is"
                f" {self.timeout_ms}; raise the timeout, or make batches smaller (maxOffsetsPerTrigger)"
            )

    def resume(self, producer: ProducerId) -> None:
        """Continue a transaction that another object of the same driver began and added partitions to."""
        self.producer = producer
        self._began = time.monotonic()

    # Requests

    def _commit_offsets(self, group_id: str, offsets: Offsets) -> None:
        self._add_group(group_id)
        response = self._cluster.coordinator_call(
            group_id,
            CoordinatorType.GROUP,
            self._offset_commit(group_id, offsets),
            commit_error,
            version=TXN_OFFSET_COMMIT_VERSION,
        )
        self._check(commit_error(response), "TxnOffsetCommit")

    def _add_group(self, group_id: str) -> None:
        request = self._requests.add_offsets(group_id)
        if self._began is None:
            self._began = time.monotonic()
        self._check(response_error(self._call(request, response_error, ADD_OFFSETS_VERSION)), "AddOffsetsToTxn")

    def _offset_commit(self, group_id: str, offsets: Offsets) -> TxnOffsetCommitRequest:
        committed = {
            TopicPartition(*partition): OffsetAndMetadata(offset, metadata=metadata)
            for partition, (offset, metadata) in offsets.items()
        }
        return self._requests.commit_offsets(group_id, committed)

    def _end(self, *, committed: bool) -> None:
        request = self._requests.end(committed=committed)
        version = END_TXN_VERSION_WITH_BUMP if self._finalized_version() >= BROKERS_ADD_FROM else END_TXN_VERSION
        try:
            response = self._call(request, response_error, version)
        except BlockingError as error:
            raise OutcomeUnknown(
                f"no response to EndTxn of {self.transactional_id}; run the job again, which finds the outcome: {error}"
            ) from None
        self._check(response_error(response), "EndTxn")
        self._began = None
        if response.producer_id >= 0:
            self.producer = ProducerId(response.producer_id, response.producer_epoch)

    def _finalized_version(self) -> int:
        """The finalized transaction.version. Asked once: it only grows, and EndTxn works in either version."""
        if self._version is None:
            request = ApiVersionsRequest(
                client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=CLIENT_SOFTWARE_VERSION
            )
            features = self._call(request, response_error, None).finalized_features
            self._version = transaction_version((each.name, each.max_version_level) for each in features)
        return self._version

    def _call(self, request: Message, code_of: Callable[[Any], ErrorCode], version: int | None) -> Any:
        return self._cluster.coordinator_call(
            self.transactional_id, CoordinatorType.TRANSACTION, request, code_of, version=version
        )

    @property
    def _requests(self) -> TransactionRequests:
        assert self.producer is not None, "a transaction begins with begin()"
        return TransactionRequests(self.transactional_id, self.producer)

    def _check(self, code: ErrorCode, step: str) -> None:
        if code is ErrorCode.NONE:
            return
        if code in FENCED or code is ErrorCode.INVALID_TXN_STATE:
            self.check_time()
        if code in FENCED:
            raise Fenced(
                f"another driver has taken over {self.transactional_id} ({step} returned {code.name}), so this one"
                " ends; if none was started on purpose, two queries have the same name"
            )
        raise TransactionError(f"{step} of {self.transactional_id}: {KafkaError(code)}")


def _add_error(response: Any) -> ErrorCode:
    return add_error(added_codes(response).values())
