"""Shell: writes the dead letters of share groups, wherever the leader of their topic is (KIP-1191).

A letter is written before its record is archived for good. If the broker fails in between, it is written again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.partitions import Partitions
from barnabas.broker.shares.dead_letter_records import Letters, Origin, build_letters, source_records
from barnabas.broker.shares.share_configs import ShareConfigs
from barnabas.broker.shares.share_partition import DeadLetters
from barnabas.broker.topic_writer import TopicWriter
from barnabas.kraft.metadata.image import MetadataImage, TopicImage
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.channel import Channel
from barnabas.runtime.world import World
from barnabas.settings.broker import BrokerSettings
from barnabas.settings.topic import TopicConfig
from barnabas.storage.log import PartitionLog
from barnabas.storage.segment_list import LogSlice

READ_BYTES = 1 << 20
"""Bytes of the log that are read for the letters of one batch, and those of one batch of the log."""


class DeadLetterWriter(Protocol):
    async def copy(
        self, group_id: str, source: Partition, wanted: Sequence[DeadLetters], configs: ShareConfigs
    ) -> list[DeadLetters]:
        """Write letters for the first of these records; returns which, once they are replicated. Raises KafkaError:
        the topic is missing or not meant for dead letters, cannot be written to, or did not answer in time."""


@dataclass(frozen=True, slots=True)
class DeadLetterPorts:
    world: World
    node_id: int
    image: Callable[[], MetadataImage]
    topic_config: Callable[[MetadataImage, str], TopicConfig]
    partitions: Partitions
    channel_to: Callable[[int], Channel | None]
    """The channel to a broker; None if it has no address."""
    create: Callable[[str], None]
    """Begins to create a dead-letter topic."""
    settings: Callable[[], BrokerSettings]


class DeadLetterTopics:
    """Implements `DeadLetterWriter`."""

    def __init__(self, ports: DeadLetterPorts) -> None:
        self._ports = ports
        self._writer = TopicWriter(ports.node_id, ports.partitions, ports.channel_to)

    async def copy(
        self, group_id: str, source: Partition, wanted: Sequence[DeadLetters], configs: ShareConfigs
    ) -> list[DeadLetters]:
        topic = self._topic(configs.dead_letter_topic)
        index = source.index % len(topic.partitions)
        config = self._ports.topic_config(self._ports.image(), topic.name)
        slices = _slices(source.log, wanted) if configs.copies_records else None
        work = partial(
            _letters,
            Origin(group_id, source.topic, source.index),
            wanted,
            slices,
            min(config.max_message_bytes, READ_BYTES),
            self._ports.world.wall_clock.now_ms(),
        )
        letters: Letters = await self._ports.world.run_blocking(work)
        await self._writer.write(topic, index, letters.batch, self._ports.settings().request_timeout_ms)
        return letters.covered

    def _topic(self, name: str) -> TopicImage:
        """Raises KafkaError."""
        settings, image = self._ports.settings(), self._ports.image()
        prefix = settings.errors_deadletterqueue_topic_name_prefix
        if not name.startswith(prefix):
            key = "errors.deadletterqueue.topic.name.prefix"
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"the dead-letter topic {name} must begin with {prefix} ({key})"
            )
        topic = image.topics.by_name.get(name)
        if topic is None or not topic.partitions:
            if settings.errors_deadletterqueue_auto_create_topics_enable:
                self._ports.create(name)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the dead-letter topic {name} does not exist")
        config = self._ports.topic_config(image, name)
        if not config.errors_deadletterqueue_group_enable:
            key = "errors.deadletterqueue.group.enable"
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} must be true for the dead-letter topic {name}")
        if config.barnabas_delayed_delivery_enable:
            # Controllers refuse that; an earlier version may have stored it.
            key = "barnabas.delayed.delivery.enable"
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} must be false for the dead-letter topic {name}")
        return topic


def _slices(source: PartitionLog, wanted: Sequence[DeadLetters]) -> list[LogSlice]:
    """The first batches of the log with these records. Raises KafkaError."""
    slices: list[LogSlice] = []
    offset, end = max(wanted[0].first_offset, source.log_start_offset), wanted[-1].last_offset + 1
    left_bytes = READ_BYTES
    while offset < end and left_bytes > 0:
        # The last batch may reach beyond the last record.
        part = source.read(offset, left_bytes, end) or source.read(offset, 1, source.log_end_offset)
        if part is None:
            break
        slices.append(part)
        left_bytes -= part.size_bytes
        offset = max(part.upper_offset, offset + 1)
    return slices


def _letters(
    origin: Origin, wanted: Sequence[DeadLetters], slices: list[LogSlice] | None, limit_bytes: int, now_ms: int
) -> Letters:
    if slices is None:
        return build_letters(origin, wanted, None, limit_bytes, now_ms)
    stretches = [part.file.pread(part.size_bytes, part.position) for part in slices]
    # Records behind what was read come with the next batch of letters.
    upper_offset = slices[-1].upper_offset if slices else wanted[-1].last_offset + 1
    near = [
        each._replace(last_offset=min(each.last_offset, upper_offset - 1))
        for each in wanted
        if each.first_offset < upper_offset
    ]
    return build_letters(origin, near or wanted[:1], source_records(stretches, wanted), limit_bytes, now_ms)
