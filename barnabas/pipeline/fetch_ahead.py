"""Fetches of one partition: the question, what its answer brought, and one that is asked while others are worked on.

Knows which address it is told, and no leaders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from barnabas.client.metadata import TopicPartition
from barnabas.client.offset_lookup import Isolation
from barnabas.pipeline.addresses import Address
from barnabas.pipeline.blocking_connection import BlockingConnection, Posted
from protocol.errors import ErrorCode, KafkaError, error_code
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic


class FetchedPartition(NamedTuple):
    """What one fetch brought."""

    records: memoryview
    """Batches, from the one that has the asked offset on; the last may be cut short. Nobody else's memory."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]
    """(producer id, first offset) of aborted transactions that reach into `records`; only for READ_COMMITTED."""


class FetchAhead(NamedTuple):
    """A fetch whose answer is on its way."""

    partition: TopicPartition
    offset: int
    connection: BlockingConnection
    posted: Posted


@dataclass(frozen=True, slots=True)
class FetchParameters:
    """Batches from an offset on."""

    partition: TopicPartition
    offset: int
    max_bytes: int
    isolation: Isolation
    max_wait_ms: int
    """How long the leader may wait for some."""

    def request(self, topic_id: bytes, leader_epoch: int) -> FetchRequest:
        """To a leader of that epoch."""
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
    """The connection over which fetches are asked ahead: what waits for its answer there must not stand in the way of
    other calls. One fetch at a time."""

    def __init__(self, client_id: str, timeout_ms: int) -> None:
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._connection: BlockingConnection | None = None

    def post(self, address: Address, question: FetchParameters, request: FetchRequest) -> FetchAhead:
        """Sends it. BlockingError."""
        connection = self._connection
        if connection is None or connection.is_lost or connection.address != address:
            self.close()
            connection = self._connection = BlockingConnection(address, self._client_id, self._timeout_ms)
        posted = connection.post(request, self._timeout_ms)
        return FetchAhead(question.partition, question.offset, connection, posted)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def fetched_partition(response: FetchResponse, partition: TopicPartition) -> FetchedPartition:
    """The part of an answer. KafkaError if it has an error, or is not there."""
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
    raise KafkaError(code or ErrorCode.UNKNOWN_SERVER_ERROR, f"{partition}: an answer that does not name it")
