"""Consumer lag: records and seconds by which groups are behind, for every partition with a committed offset.

Computed by the group's coordinator when `/metrics` is read. Ends of a partition are read from this broker's own replica
if it is in sync, otherwise from its leader, with one request for each leader.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import trio

from barnabas.broker.broker_channels import BrokerChannels
from barnabas.broker.coordinator.coordinator import Coordinator
from barnabas.broker.coordinator.shard import ShardState
from barnabas.broker.current_settings import CurrentSettings
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.record_times import ends_of
from barnabas.broker.replication.partitions import Partitions
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.offset_times import (
    CAUGHT_UP,
    TIMES_AT_ONCE,
    TIMES_TAG,
    UNKNOWN,
    PartitionEnds,
    decode_times,
    encode_offsets,
)
from barnabas.protocol.primitives import ZERO_UUID
from barnabas.runtime.channel import ChannelError
from barnabas.runtime.world import World

if TYPE_CHECKING:
    from barnabas.broker.groups.machine import GroupMachine

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 2_000
"""Prometheus times a scrape out after ten seconds; leaders that do not answer in time are left out."""
OFFSETS_IN_A_STEP = 100
"""Lookups before the event loop runs."""
LAGS_IN_A_STEP = 2_000

_LATEST = -1
_CONSUMER = -1

TopicPartition = tuple[str, int]
Offsets = dict[TopicPartition, dict[int, None]]
"""Offsets that any group has committed, each once."""
LookUp = Callable[[TopicPartition, dict[int, None]], PartitionEnds | None]


class GroupLag(NamedTuple):
    """The lag of one group in one partition."""

    group_id: str
    topic: str
    partition: int
    offset: int
    """The committed offset: that of the next record to read."""
    ends: PartitionEnds | None
    """None while no replica can be asked."""

    @property
    def records(self) -> int | None:
        return None if self.ends is None else max(self.ends.high_watermark - self.offset, 0)

    @property
    def records_read_committed(self) -> int | None:
        """The lag of read_committed consumers; None if no open transaction holds them back."""
        ends = self.ends
        if ends is None or ends.last_stable_offset >= ends.high_watermark:
            return None
        return max(ends.last_stable_offset - self.offset, 0)

    def seconds(self, now_ms: int) -> float | None:
        """Age of the oldest record that the group has not read; 0 if it has read all, None if unknown."""
        time_ms = CAUGHT_UP if self.ends is None or not self.records else self.ends.times.get(self.offset, UNKNOWN)
        if self.ends is None or time_ms == UNKNOWN:
            return None
        return 0.0 if time_ms == CAUGHT_UP else max(now_ms - time_ms, 0) / 1000


@dataclass(frozen=True, slots=True)
class GroupLagPorts:
    world: World
    groups: Coordinator[GroupMachine]
    metadata: MetadataCache
    partitions: Partitions
    settings: CurrentSettings
    channels: BrokerChannels


class GroupLags:
    """Lags of the groups that this broker coordinates."""

    def __init__(self, ports: GroupLagPorts) -> None:
        self._ports = ports
        self._known: Mapping[TopicPartition, PartitionEnds] = {}
        """The last result: a group that has not moved is behind the same record."""

    async def measure(self) -> list[GroupLag]:
        """The lags as of now. The event loop runs meanwhile."""
        committed: list[tuple[str, str, int, int]] = []
        asked: Offsets = {}
        for shard in self._ports.groups.shards:
            if shard.state is not ShardState.ACTIVE:
                continue
            offsets = shard.machine.offsets.committed
            for group_id in offsets.groups():
                for topic, index, each in offsets.of_group(group_id):
                    if self._is_there(topic, index, each.topic_id):
                        committed.append((group_id, topic, index, each.offset))
                        asked.setdefault((topic, index), {})[each.offset] = None
            await trio.lowlevel.checkpoint()
        ends = await self._ends(asked, self._ends_here)
        self._known = ends
        lags: list[GroupLag] = []
        for start in range(0, len(committed), LAGS_IN_A_STEP):
            some = committed[start : start + LAGS_IN_A_STEP]
            lags += [GroupLag(*each, ends.get((each[1], each[2]))) for each in some]
            await trio.lowlevel.checkpoint()
        return lags

    async def ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, PartitionEnds]:
        """The ends of these partitions as their leaders know them; those whose leader cannot be asked are left out."""
        return await self._ends({partition: {} for partition in partitions}, self._ends_led)

    def _is_there(self, topic: str, index: int, topic_id: bytes) -> bool:
        """True if this very topic exists, and not another one of the same name."""
        image = self._ports.metadata.image.topics.by_name.get(topic)
        return image is not None and index in image.partitions and topic_id in (ZERO_UUID, image.id)

    async def _ends(self, asked: Offsets, look_up: LookUp) -> Mapping[TopicPartition, PartitionEnds]:
        """`look_up` returns ends that this broker knows itself."""
        ends: dict[TopicPartition, PartitionEnds] = {}
        elsewhere: dict[int, Offsets] = {}
        ports = self._ports
        looked = 0
        for key, offsets in asked.items():
            here = look_up(key, offsets)
            if here is not None:
                ends[key] = here
                looked += len(offsets)
                if looked >= OFFSETS_IN_A_STEP:
                    looked = 0
                    await trio.lowlevel.checkpoint()
                continue
            image = ports.metadata.partition(*key)
            if image is not None and image.leader >= 0 and image.leader != ports.settings().node_id:
                elsewhere.setdefault(image.leader, {})[key] = offsets
        async with trio.open_nursery() as nursery:
            for leader, offsets_there in elsewhere.items():
                nursery.start_soon(self._ask, leader, offsets_there, ends)
        return ends

    def _ends_led(self, key: TopicPartition, offsets: dict[int, None]) -> PartitionEnds | None:
        """The ends of this broker's own replica, if it is the leader."""
        image = self._ports.metadata.partition(*key)
        is_led = image is not None and image.leader == self._ports.settings().node_id
        return self._ends_here(key, offsets) if is_led else None

    def _ends_here(self, key: TopicPartition, offsets: dict[int, None]) -> PartitionEnds | None:
        """The ends of this broker's own replica, if it is in sync."""
        ports = self._ports
        partition = ports.partitions.find(*key)
        image = ports.metadata.partition(*key)
        if partition is None or partition.is_offline or image is None:
            return None
        if ports.settings().node_id not in image.isr:
            return None
        known = self._known.get(key)
        try:
            return ends_of(partition.log, offsets, {} if known is None else known.times)
        except (KafkaError, OSError) as error:
            log.info("group lag in %s-%d is unknown: %s", *key, error)
            return None

    async def _ask(self, leader: int, asked: Offsets, ends: dict[TopicPartition, PartitionEnds]) -> None:
        """Adds the leader's answers to `ends`."""
        ports = self._ports
        node = ports.channels.alive_node(leader)
        if node is None:
            return
        async with trio.open_nursery() as nursery:
            channel = ports.channels.open(node, nursery, "lag")
            try:
                for some in _portions(asked):
                    response: ListOffsetsResponse = await channel.call(_request(some), timeout_ms=REQUEST_TIMEOUT_MS)
                    _take(response, some, ends)
            except ChannelError as error:
                log.info("broker %d did not report the ends of its partitions: %s", leader, error)
            finally:
                channel.close()
            nursery.cancel_scope.cancel()


def _portions(asked: Offsets) -> Iterator[dict[TopicPartition, list[int]]]:
    """Portions of at most TIMES_AT_ONCE offsets, one for each request."""
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


def _request(asked: Mapping[TopicPartition, list[int]]) -> ListOffsetsRequest:
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
                times = (answer.unknown_tagged_fields or {}).get(TIMES_TAG, b"")
                ends[key] = decode_times(answer.offset, times, asked[key])
