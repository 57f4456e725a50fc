"""Shell: appends batches of this broker to a partition of a topic, wherever its leader is, with acks=all."""

from __future__ import annotations

from collections.abc import Callable

import trio

from barnabas.broker.replication.partitions import Partitions
from barnabas.broker.replication.replica import ACKS_ALL
from barnabas.kraft.metadata.image import TopicImage
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.records.batch import read_header
from barnabas.runtime.channel import Channel, ChannelError


class TopicWriter:
    def __init__(
        self, node_id: int, partitions: Partitions, channel_to: Callable[[int], Channel | None]
    ) -> None:
        """`channel_to` opens a channel to a broker; None if it has no address."""
        self._node_id = node_id
        self._partitions = partitions
        self._channel_to = channel_to
        self._channels: dict[int, Channel] = {}

    async def write(self, topic: TopicImage, index: int, batch: bytes, timeout_ms: int) -> int:
        """Offset of the first record, once the batch is replicated. Raises KafkaError; the batch may be in the log
        nevertheless."""
        placed = topic.partitions.get(index)
        if placed is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {index}")
        with trio.move_on_after(timeout_ms / 1000):
            if placed.leader == self._node_id:
                return await self._append(topic, index, batch)
            return await self._send(placed.leader, topic, index, batch, timeout_ms)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{topic.name}-{index} did not answer within {timeout_ms} ms")

    def hang_up(self, broker_id: int) -> None:
        """The broker may never answer: calls to it fail now."""
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.close()

    async def _append(self, topic: TopicImage, index: int, batch: bytes) -> int:
        partition = self._partitions.find(topic.id, index)
        if partition is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic.name}-{index} is not on this broker")
        buffer = bytearray(batch)
        result = partition.append(buffer, [(0, read_header(buffer))], ACKS_ALL)
        outcome: list[ErrorCode | None] = []
        replicated = trio.Event()

        def done(error: ErrorCode | None) -> None:
            outcome.append(error)
            replicated.set()

        waiting = partition.when_replicated(result.last_offset + 1, done)
        try:
            await replicated.wait()
        finally:
            if waiting is not None:
                waiting.cancel()
        if outcome[0] is not None:
            raise KafkaError(outcome[0], f"{topic.name}-{index} did not replicate a batch")
        return result.first_offset

    async def _send(self, leader: int, topic: TopicImage, index: int, batch: bytes, timeout_ms: int) -> int:
        channel = self._channels.get(leader) or self._channel_to(leader)
        if channel is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic.name}-{index} has no leader")
        self._channels[leader] = channel
        data = PartitionProduceData(index=index, records=batch)
        request = ProduceRequest(
            acks=ACKS_ALL,
            timeout_ms=timeout_ms,
            topic_data=[TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=[data])],
            transactional_id=None,
        )
        try:
            response = await channel.call(request, timeout_ms=timeout_ms)
        except ChannelError as error:
            if self._channels.get(leader) is channel:
                self.hang_up(leader)
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"broker {leader}: {error}") from error
        (answer,) = response.responses[0].partition_responses
        code = error_code(answer.error_code)
        if code is not ErrorCode.NONE:
            message = answer.error_message or f"broker {leader} refuses a batch for {topic.name}-{index}"
            raise KafkaError(code, message)
        offset: int = answer.base_offset
        return offset
