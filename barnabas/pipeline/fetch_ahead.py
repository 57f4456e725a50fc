"""Fetches of one partition: request, result, and one fetch sent ahead while the batches before it are decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from barnabas.client.metadata import TopicPartition
from barnabas.client.offset_lookup import Isolation
from barnabas.pipeline.addresses import Address
from barnabas.pipeline.blocking_connection import BlockingConnection, PendingRequest
from barnabas.pipeline.blocking_security import BlockingSecurity
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic


class FetchedPartition(NamedTuple):
    """The result of one fetch."""

    records: memoryview
    """Batches, the first of which has the fetched offset; the last may be cut short. Not shared with anything else."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]
    """(producer id, first offset) of aborted transactions that overlap `records`; only for READ_COMMITTED."""


class FetchAhead(NamedTuple):
    """A fetch whose response is pending."""

    partition: TopicPartition
    offset: int
    connection: BlockingConnection
    pending: PendingRequest


@dataclass(frozen=True, slots=True)
class FetchParameters:
    partition: TopicPartition
    offset: int
    max_bytes: int
    isolation: Isolation
    max_wait_ms: int
    """Maximum time that the leader may wait for records."""

    def request(self, topic_id: bytes, leader_epoch: int) -> FetchRequest:
        wanted = FetchPartition(
            partition=self.partition.partition,
            current_leader_epoch=leader_epoch,
            fetch_offset=self.offset,
            partition_max_bytes=self.max_bytes,
        )
        return FetchRequest(
            max_wait_ms=self.max_wait_ms,
            min_bytes=1,
            max_bytes=self.max_bytes,
            isolation_level=self.isolation,
            topics=[FetchTopic(topic=self.partition.topic, topic_id=topic_id, partitions=[wanted])],
        )


class AheadConnection:
    """A connection for fetches ahead, separate so that a waiting fetch does not delay other calls. One fetch at a
    time."""

    def __init__(self, client_id: str, timeout_ms: int, security: BlockingSecurity | None = None) -> None:
        self._client_id = client_id
        self._security = security
        self._timeout_ms = timeout_ms
        self._connection: BlockingConnection | None = None

    def send(self, address: Address, parameters: FetchParameters, request: FetchRequest) -> FetchAhead:
        """BlockingError."""
        connection = self._connection
        if connection is None or connection.is_lost or connection.address != address:
            self.close()
            connection = self._connection = BlockingConnection(
                address, self._client_id, self._timeout_ms, self._security
            )
        pending = connection.send(request, self._timeout_ms)
        return FetchAhead(parameters.partition, parameters.offset, connection, pending)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def fetched_partition(response: FetchResponse, partition: TopicPartition) -> FetchedPartition:
    """The partition's part of a response. KafkaError if it has an error, or is missing."""
    code = error_code(response.error_code)
    for topic in response.responses:
        for each in topic.partitions:
            if each.partition_index != partition.partition:
                continue
            code = code or error_code(each.error_code)
            if code is not ErrorCode.NONE:
                raise KafkaError(code, str(partition))
            return FetchedPartition(
                memoryview(each.records or b""),
                each.high_watermark,
                each.last_stable_offset,
                each.log_start_offset,
                [(aborted.producer_id, aborted.first_offset) for aborted in each.aborted_transactions or ()],
            )
    raise KafkaError(code or ErrorCode.UNKNOWN_SERVER_ERROR, f"{partition}: the Fetch response does not contain it")
