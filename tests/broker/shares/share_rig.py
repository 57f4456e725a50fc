"""Members of share groups on a simulated cluster, which ask leaders as Java's share consumer does, and no coordinator.

The share coordinator is the real one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.broker.parts import BrokerParts
from barnabas.broker.shares.state import UNINITIALIZED_OFFSET, SharePartitionKey
from barnabas.protocol.messages import share_acknowledge, share_fetch
from barnabas.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from barnabas.protocol.messages.share_fetch import (
    AcquiredRecords,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)
from barnabas.protocol.records.record import decode_records
from tests.broker.apis.rig import Rig

GROUP_RESOURCE = 32
Ack = tuple[int, int, list[int]]
"""(first offset, last offset, types)"""

ALONE = {
    "share__coordinator__state__topic__num__partitions": "1",
    "share__coordinator__state__topic__replication__factor": "1",
    "share__coordinator__state__topic__min__isr": "1",
    "group__share__min__record__lock__duration__ms": "1000",
}


async def begin(rig: Rig, topic_id: bytes, partitions: int = 1, group: str = "work", start: int = 0) -> None:
    """Begin the states, as the group coordinator does for a new subscription."""
    up = next(node.broker for node in rig.cluster.brokers if node.broker is not None)
    for index in range(partitions):
        await up.coordination.share_states.initialize(SharePartitionKey(group, topic_id, index), 1, start)


async def begin_anywhere(rig: Rig, topic_id: bytes, group: str = "work") -> None:
    """The leader chooses the start offset."""
    await begin(rig, topic_id, group=group, start=UNINITIALIZED_OFFSET)


class Member:
    """One member, over a connection of its own. Its session epochs count up."""

    def __init__(self, rig: Rig, name: str, topic_id: bytes, *, node: int = 1, group: str = "work") -> None:
        self.rig = rig
        self.name = name
        self.topic_id = topic_id
        self.group = group
        self.epoch = 0
        self.channel = rig.channel(node)

    async def ask(
        self, acks: Sequence[Ack] = (), partitions: Sequence[int] = (0,), version: int = 2, **fields: Any
    ) -> ShareFetchResponse:
        """One ShareFetch. `acks` are those of the first partition."""
        forgotten: Sequence[int] = fields.pop("forgotten", ())
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self.epoch,
            **{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500, **fields},
        )
        request.topics = [FetchTopic(topic_id=self.topic_id, partitions=[])]
        for index in partitions:
            batches = [
                share_fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                for first, last, types in (acks if index == partitions[0] else ())
            ]
            request.topics[0].partitions.append(FetchPartition(partition_index=index, acknowledgement_batches=batches))
        if forgotten:
            request.forgotten_topics_data = [ForgottenTopic(topic_id=self.topic_id, partitions=list(forgotten))]
        response = await self.channel.call(request, timeout_ms=60_000, version=version)
        assert isinstance(response, ShareFetchResponse)
        if not response.error_code:
            self.epoch += 1
        return response

    async def take(self, acks: Sequence[Ack] = (), **fields: Any) -> list[tuple[int, int, int]]:
        """The acquired ranges of the only partition: (first offset, last offset, delivery count)."""
        response = await self.ask(acks, **fields)
        assert response.error_code == 0, response
        data = only(response)
        if data is None:
            return []
        assert (data.error_code, data.acknowledge_error_code) == (0, 0), data
        return ranges(data)

    async def until_taken(self, **fields: Any) -> list[tuple[int, int, int]]:
        """The first records that are acquired."""
        while True:
            taken = await self.take(max_wait_ms=500, **fields)
            if taken:
                return taken

    async def acknowledge(
        self, *acks: Ack, index: int = 0, version: int = 2, **fields: Any
    ) -> ShareAcknowledgeResponse:
        batches = [
            share_acknowledge.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            for first, last, types in acks
        ]
        partition = share_acknowledge.AcknowledgePartition(partition_index=index, acknowledgement_batches=batches)
        topic = share_acknowledge.AcknowledgeTopic(topic_id=self.topic_id, partitions=[partition])
        request = ShareAcknowledgeRequest(
            group_id=self.group, member_id=self.name, share_session_epoch=self.epoch, topics=[topic], **fields
        )
        response = await self.channel.call(request, timeout_ms=60_000, version=version)
        assert isinstance(response, ShareAcknowledgeResponse)
        if not response.error_code:
            self.epoch += 1
        return response

    async def acknowledged(self, *acks: Ack, **fields: Any) -> int:
        """The error code of the only partition."""
        response = await self.acknowledge(*acks, **fields)
        assert response.error_code == 0, response
        (data,) = response.responses[0].partitions
        return data.error_code

    def hang_up(self) -> None:
        self.channel.close()


def only(response: ShareFetchResponse) -> PartitionData | None:
    """The only partition in a response."""
    found = [data for topic in response.responses for data in topic.partitions]
    assert len(found) <= 1
    return found[0] if found else None


def ranges(data: PartitionData) -> list[tuple[int, int, int]]:
    records: list[AcquiredRecords] = data.acquired_records
    return [(it.first_offset, it.last_offset, it.delivery_count) for it in records]


def values(data: PartitionData | None) -> list[str]:
    """The values of the acquired records, as a consumer finds them in the batches."""
    assert data is not None
    found: dict[int, str] = {}
    rest = bytes(data.records or b"")
    while rest:
        size = 12 + int.from_bytes(rest[8:12], "big")
        found |= {it.offset: (it.value or b"").decode() for it in decode_records(rest[:size])}
        rest = rest[size:]
    wanted = [each for first, last, _ in ranges(data) for each in range(first, last + 1)]
    return [found[each] for each in wanted if each in found]


def start_offset(node: BrokerParts, topic_id: bytes, group: str = "work", index: int = 0) -> int:
    """The start offset of a share partition in its leader's memory."""
    led = node.shares.partitions.find(SharePartitionKey(group, topic_id, index))
    assert led is not None and led.core is not None
    return led.core.start_offset
