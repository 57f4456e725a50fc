"""Recovers the logs of a stopped broker as its start would, and lists where each ends (`barnabas storage log-ends`).

Afterwards the logs are on stable storage and the broker counts as stopped cleanly, so the next start finds them as they
were listed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from barnabas.broker.internal_topics import NEVER_TIERED
from barnabas.kraft.metadata.image import BROKER_RESOURCE, EMPTY_IMAGE, TOPIC_RESOURCE, MetadataImage
from barnabas.kraft.restore import RestoreError, read_metadata
from barnabas.runtime.world import Chance, Disk
from barnabas.settings.describe import BrokerLayers
from barnabas.settings.node import NodeSettings
from barnabas.settings.topic import TopicConfig
from barnabas.storage.directories import LogDirectories
from barnabas.storage.log_directory import LogDirectoryError
from barnabas.storage.log_ends import BrokerLogEnds, LogEnd


def list_log_ends(disk: Disk, settings: NodeSettings, chance: Chance, now_ms: int) -> BrokerLogEnds:
    """Raises `LogDirectoryError`, also if a log directory fails: its logs may be the longest.

    The end of a log counts with its leader epochs, also if all its records are remote and no file here has one.
    """
    image = _last_metadata(disk, settings.metadata_directory)
    layers = BrokerLayers(
        static=settings.raw,
        cluster_default=image.config(BROKER_RESOURCE, ""),
        per_broker=image.config(BROKER_RESOURCE, str(settings.node_id)),
    )

    @cache
    def config_of(topic: str) -> TopicConfig:
        config = TopicConfig.resolve(image.config(TOPIC_RESOURCE, topic), layers.merged())
        if topic not in image.topics.by_name and topic not in NEVER_TIERED:
            # A log that is taken for a tiered one forgets nothing.
            return replace(config, remote_storage_enable=True)
        if config.remote_storage_enable and not config.remote_log_storage_system_enable and topic not in NEVER_TIERED:
            raise LogDirectoryError(
                f"topic {topic} is tiered, and remote.log.storage.system.enable is false in the configuration: what is "
                "remote would be forgotten"
            )
        return config

    def home_of(topic: str, index: int) -> bytes | None:
        placed, node_id = image.topics.partition(topic, index), settings.node_id
        return None if placed is None or node_id not in placed.replicas else placed.directory_of(node_id)

    directories = LogDirectories.open(
        disk, settings.log_dirs, settings.node_id, chance, metadata_path=settings.metadata_directory
    )
    try:
        # The controllers are to get the same epoch, so that the broker keeps its place.
        epoch = max(directories.previous_broker_epoch, 0)
        for work in directories.load_work(config_of, now_ms):
            directories.adopt(work, work())
        directories.settle_copies(home_of, now_ms)
        directories.note_failures(directories.note_boot())
        ends = tuple(_ends_of(directories, image))
        directories.close(epoch)
        for directory in directories.directories:
            if directory.failure is not None:
                raise LogDirectoryError(f"{directory.path} is offline: {directory.failure}")
        return BrokerLogEnds(directories.cluster_id, settings.node_id, epoch, ends)
    finally:
        directories.abandon()


def _last_metadata(disk: Disk, directory: str) -> MetadataImage:
    """The metadata that the broker saw last, for the configs of its topics; empty if it has none."""
    try:
        return read_metadata(disk, directory).image
    except RestoreError:
        return EMPTY_IMAGE


def _ends_of(directories: LogDirectories, image: MetadataImage) -> list[LogEnd]:
    ends = []
    for key, log in sorted(directories.logs.items()):
        place = directories.directory_of(*key)
        assert place is not None and place.directory_id is not None, f"{log} is in no directory"
        is_tiered = log.config.is_tiered and log.topic in image.topics.by_name
        ends.append(LogEnd(*key, log.topic_id, place.directory_id, log.latest_epoch, log.log_end_offset, is_tiered))
    return ends
