"""How far groups are behind: records and seconds, of every partition for which they have committed an offset.

The coordinator of a group tells it, when somebody asks; nobody counts anything meanwhile. What it needs to know of a
partition it reads from its own replica, if that is in sync; else it asks the leader, one request for each leader.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import trio

from broker.coordinator.shard import ShardState
from broker.record_times import (
    CAUGHT_UP,
    TIMES_AT_ONCE,
    TIMES_TAG,
    UNKNOWN,
    PartitionEnds,
    encode_offsets,
    ends_of,
    understood,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.primitives import ZERO_UUID
from runtime.channel import Channel, ChannelError

if TYPE_CHECKING:
    from broker.services import BrokerServices

log = logging.getLogger(__name__)

ASK_TIMEOUT_MS = 2_000
"""A scrape has ten seconds; what a leader did not say by then is left out."""
OFFSETS_IN_A_STRETCH = 100
"""After so many lookups, others get their turn."""
LAGS_IN_A_STRETCH = 2_000

_LATEST = -1
_CONSUMER = -1

TopicPartition = tuple[str, int]
Offsets = dict[TopicPartition, dict[int, None]]
"""What is committed by any group, each offset once."""


class GroupLag(NamedTuple):
    """Of one group in one partition."""

    group_id: str
    topic: str
    partition: int
    offset: int
    """The committed one: of the next record that the group reads."""
    ends: PartitionEnds | None
    """None while nobody can be asked."""

    @property
    def records(self) -> int | None:
        return None if self.ends is None else max(self.ends.high_watermark - self.offset, 0)

    @property
    def records_read_committed(self) -> int | None:
        """Of readers that see only ended transactions; None where open ones hold nobody back."""
        ends = self.ends
        if ends is None or ends.last_stable_offset >= ends.high_watermark:
            return None
        return max(ends.last_stable_offset - self.offset, 0)

    def seconds(self, now_ms: int) -> float | None:
        """Age of the oldest record that the group has not read; 0 if it has read all, None if nobody knows."""
        time_ms = CAUGHT_UP if self.ends is None or not self.records else self.ends.times.get(self.offset, UNKNOWN)
        if self.ends is None or time_ms == UNKNOWN:
            return None
        return 0.0 if time_ms == CAUGHT_UP else max(now_ms - time_ms, 0) / 1000


class GroupLags:
    """Of the groups that are coordinated here."""

    def __init__(self, broker: BrokerServices) -> None:
        self._broker = broker
        self._known: Mapping[TopicPartition, PartitionEnds] = {}
        """As somebody asked last: a group that has not moved is behind the same record."""

    async def look(self) -> list[GroupLag]:
        """As of now. Others get their turn meanwhile."""
        committed: list[tuple[str, str, int, int]] = []
        asked: Offsets = {}
        for shard in self._broker.groups.shards:
            if shard.state is not ShardState.ACTIVE:
                continue
            offsets = shard.machine.offsets.committed
            for group_id in offsets.groups():
                for topic, index, each in offsets.of_group(group_id):
                    if self._is_there(topic, index, each.topic_id):
                        committed.append((group_id, topic, index, each.offset))
                        asked.setdefault((topic, index), {})[each.offset] = None
            await trio.lowlevel.checkpoint()
        ends = await self._ends(asked)
        self._known = ends
        lags: list[GroupLag] = []
        for start in range(0, len(committed), LAGS_IN_A_STRETCH):
            some = committed[start : start + LAGS_IN_A_STRETCH]
            lags += [GroupLag(*each, ends.get((each[1], each[2]))) for each in some]
            await trio.lowlevel.checkpoint()
        return lags

    def _is_there(self, topic: str, index: int, topic_id: bytes) -> bool:
        """Not of a deleted topic, nor of another one that had the same name."""
        image = self._broker.metadata.image.topics.by_name.get(topic)
        return image is not None and index in image.partitions and topic_id in (ZERO_UUID, image.id)

    async def _ends(self, asked: Offsets) -> Mapping[TopicPartition, PartitionEnds]:
        ends: dict[TopicPartition, PartitionEnds] = {}
        elsewhere: dict[int, Offsets] = {}
        looked = 0
        for key, offsets in asked.items():
            here = self._ends_here(key, offsets)
            if here is not None:
                ends[key] = here
                looked += len(offsets)
                if looked >= OFFSETS_IN_A_STRETCH:
                    looked = 0
                    await trio.lowlevel.checkpoint()
                continue
            image = self._broker.metadata.partition(*key)
            if image is not None and image.leader >= 0 and image.leader != self._broker.settings.node_id:
                elsewhere.setdefault(image.leader, {})[key] = offsets
        async with trio.open_nursery() as nursery:
            for leader, offsets_there in elsewhere.items():
                nursery.start_soon(self._ask, leader, offsets_there, ends)
        return ends

    def _ends_here(self, key: TopicPartition, offsets: dict[int, None]) -> PartitionEnds | None:
        """By this broker's own replica, if it is in sync."""
        partition = self._broker.partitions.find(*key)
        image = self._broker.metadata.partition(*key)
        if partition is None or partition.is_offline or image is None:
            return None
        if self._broker.settings.node_id not in image.isr:
            return None
        known = self._known.get(key)
        try:
            return ends_of(partition.log, offsets, {} if known is None else known.times)
        except (KafkaError, OSError) as error:
            log.info("the lag of groups in %s-%d cannot be told: %s", *key, error)
            return None

    async def _ask(self, leader: int, asked: Offsets, ends: dict[TopicPartition, PartitionEnds]) -> None:
        """Adds to `ends` what the leader answers."""
        settings = self._broker.settings
        node = self._broker.metadata.alive_nodes(settings.inter_broker_listener_name).get(leader)
        if node is None:
            return
        async with trio.open_nursery() as nursery:
            channel = Channel(
                self._broker.world, nursery, node.host, node.port, client_id=f"broker-{settings.node_id}-lag-{leader}"
            )
            try:
                for some in _portions(asked):
                    response: ListOffsetsResponse = await channel.call(_question(some), timeout_ms=ASK_TIMEOUT_MS)
                    _take(response, some, ends)
            except ChannelError as error:
                log.info("broker %d does not say how far its partitions go: %s", leader, error)
            finally:
                channel.close()
            nursery.cancel_scope.cancel()


def _portions(asked: Offsets) -> Iterator[dict[TopicPartition, list[int]]]:
    """As many offsets as are looked up for one request."""
    portion: dict[TopicPartition, list[int]] = {}
    count = 0
    for key, offsets in asked.items():
        some = list(offsets)[:TIMES_AT_ONCE]
        if count + len(some) > TIMES_AT_ONCE:
            yield portion
            portion, count = {}, 0
        portion[key] = some
        count += len(some)
    if portion:
        yield portion


def _question(asked: Mapping[TopicPartition, list[int]]) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for (topic, index), offsets in asked.items():
        partition = ListOffsetsPartition(partition_index=index, timestamp=_LATEST)
        partition.unknown_tagged_fields = {TIMES_TAG: encode_offsets(offsets)}
        topics.setdefault(topic, ListOffsetsTopic(name=topic)).partitions.append(partition)
    return ListOffsetsRequest(replica_id=_CONSUMER, topics=list(topics.values()))


def _take(
    response: ListOffsetsResponse, asked: Mapping[TopicPartition, list[int]], ends: dict[TopicPartition, PartitionEnds]
) -> None:
    for topic in response.topics:
        for answer in topic.partitions:
            key = topic.name, answer.partition_index
            if answer.error_code == ErrorCode.NONE and answer.offset >= 0 and key in asked:
                told = (answer.unknown_tagged_fields or {}).get(TIMES_TAG, b"")
                ends[key] = understood(answer.offset, told, asked[key])
