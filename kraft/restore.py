"""Restores the metadata of a node (`barnabas storage restore`) from a snapshot, or from the log of another node.

The node gets a metadata log that begins at one snapshot. Other nodes may have seen more than the snapshot holds. So it
is placed at a later offset in a later epoch, and they fetch it instead of the records after their own end; leader
epochs and producer ids are raised, so that none is given out twice. Knows no settings file and no command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from barnabas.kraft.format import bootstrap_checkpoint
from barnabas.kraft.metadata.image import (
    EMPTY_IMAGE,
    MetadataImage,
    PartitionImage,
    ProducerIdsImage,
    TopicImage,
    TopicsImage,
)
from barnabas.kraft.metadata.loader import MetadataLoader
from barnabas.kraft.metadata.replay import ReplayError
from barnabas.kraft.metadata.snapshot import image_to_records
from barnabas.kraft.raft.history import OffsetAndEpoch
from barnabas.kraft.raft.voter_history import QuorumRecord
from barnabas.kraft.raft.voters import VoterSet
from barnabas.kraft.snapshots import (
    BOOTSTRAP_CHECKPOINT,
    BOOTSTRAP_SNAPSHOT,
    CorruptSnapshotFile,
    encode_snapshot,
    load_snapshot,
    parse_snapshot_file_name,
    read_quorum_records,
    snapshot_file_name,
)
from barnabas.kraft.voter_records import quorum_records_in
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages.metadata_log import FeatureLevelRecord
from barnabas.protocol.records.batch import CorruptBatch, crc_is_valid, iterate_batches
from barnabas.protocol.records.metadata import decode_metadata_record
from barnabas.protocol.records.record import decode_records
from barnabas.protocol.schema import Message
from barnabas.runtime.world import Disk
from barnabas.storage.checkpoints import write_durably

METADATA_DIRECTORY = "__cluster_metadata-0"
OFFSETS_PER_EPOCH = 1_000_000
PRODUCER_IDS_PER_EPOCH = 1_000_000
"""Offsets and producer ids that are passed over for each epoch that is."""


class RestoreError(Exception):
    """The metadata cannot be restored; the message is one line."""


@dataclass(frozen=True, slots=True)
class Restored:
    """The metadata that a node was given."""

    path: str
    """The snapshot file."""
    end: OffsetAndEpoch
    image: MetadataImage
    put_aside: str | None
    """The directory that the node's previous metadata log was renamed to."""


@dataclass(frozen=True, slots=True)
class FoundMetadata:
    """The metadata in a file or directory."""

    image: MetadataImage
    voters: VoterSet | None
    """The voters of a quorum that can change (KIP-853); None: they were in the settings of the nodes."""


def read_metadata(disk: Disk, path: str) -> FoundMetadata:
    """The metadata in a snapshot file, or in a directory with a metadata log: its newest snapshot and all that follows.
    Raises `RestoreError`.

    The end of a log may not have been committed; a quorum that lost all its controllers cannot say.
    """
    loader = MetadataLoader()
    quorum: list[QuorumRecord] = []
    try:
        if not disk.is_directory(path):
            quorum += _load_snapshot(disk, path, loader)
        else:
            quorum += _load_directory(disk, path, loader)
    except (CorruptSnapshotFile, CorruptBatch, MalformedMessage, ReplayError) as error:
        raise RestoreError(f"{path} is damaged: {error}") from None
    except OSError as error:
        raise RestoreError(f"{path} cannot be read: {error.strerror or error}") from None
    if loader.image is EMPTY_IMAGE:
        raise RestoreError(f"{path} has no metadata")
    voters = next((it.voters for it in reversed(quorum) if it.voters is not None), None)
    return FoundMetadata(loader.image, voters)


def _load_snapshot(disk: Disk, path: str, loader: MetadataLoader) -> list[QuorumRecord]:
    end = parse_snapshot_file_name(path.rpartition("/")[2])
    if end is None or end.offset == 0:
        raise RestoreError(f"{path}: must be a metadata snapshot, <20 digits>-<10 digits>.checkpoint, or a directory")
    timestamp_ms, records = load_snapshot(disk, path)
    loader.handle_snapshot(records, end.offset - 1, end.epoch, timestamp_ms)
    return read_quorum_records(disk, path, end)


def _load_directory(disk: Disk, path: str, loader: MetadataLoader) -> list[QuorumRecord]:
    names = disk.list(path)
    if METADATA_DIRECTORY in names:
        path, names = f"{path}/{METADATA_DIRECTORY}", disk.list(f"{path}/{METADATA_DIRECTORY}")
    snapshots = [(found, name) for name in names if (found := parse_snapshot_file_name(name)) and found.offset > 0]
    begin = max((it[0].offset for it in snapshots), default=0)
    if snapshots:
        quorum = _load_snapshot(disk, f"{path}/{max(snapshots, key=lambda it: it[0].offset)[1]}", loader)
    else:
        # The one that `storage format` wrote has nothing but the first voters.
        quorum = read_quorum_records(disk, f"{path}/{snapshot_file_name(BOOTSTRAP_SNAPSHOT)}", BOOTSTRAP_SNAPSHOT)
    for name in sorted(name for name in names if name.endswith(".log")):
        content = disk.read_bytes(f"{path}/{name}")
        for base_offset, last_offset, epoch, timestamp_ms, records in _batches(content):
            if base_offset <= loader.last_offset:
                continue
            if base_offset > loader.last_offset + 1:
                raise RestoreError(f"{path}: lacks the records from {loader.last_offset + 1} to {base_offset - 1}")
            loader.handle_commit(base_offset, epoch, timestamp_ms, records, last_offset=last_offset)
        quorum += quorum_records_in(_whole(content), begin)
    return quorum


def _whole(data: bytes) -> memoryview:
    """The batches of a segment up to the first that is not whole."""
    end = 0
    for position, header in iterate_batches(data):
        if not crc_is_valid(data, position, header):
            break
        end = position + header.size_bytes
    return memoryview(data)[:end]


def _batches(data: bytes) -> Iterator[tuple[int, int, int, int, list[Message]]]:
    """(base offset, last offset, epoch, time, records) of the batches of a segment, up to the first that is not whole;
    control batches have no records."""
    for position, header in iterate_batches(data):
        if not crc_is_valid(data, position, header):
            return
        records: list[Message] = []
        if not header.is_control:
            batch = data[position : position + header.size_bytes]
            records = [decode_metadata_record(it.value or b"")[0] for it in decode_records(batch)]
        yield header.base_offset, header.last_offset, header.partition_leader_epoch, header.max_timestamp, records


def raised(image: MetadataImage, epochs: int) -> MetadataImage:
    """The image in a later epoch and at a later offset, with later leader epochs and producer ids."""
    by_name: dict[str, TopicImage] = {}
    for name, topic in image.topics.by_name.items():
        partitions: dict[int, PartitionImage] = {
            index: replace(partition, leader_epoch=partition.leader_epoch + epochs)
            for index, partition in topic.partitions.items()
        }
        by_name[name] = TopicImage(name, topic.id, partitions)
    next_id = image.producer_ids.next_producer_id + epochs * PRODUCER_IDS_PER_EPOCH
    return replace(
        image,
        offset=image.offset + epochs * OFFSETS_PER_EPOCH,
        epoch=image.epoch + epochs,
        topics=TopicsImage(by_name, {topic.id: topic for topic in by_name.values()}),
        producer_ids=ProducerIdsImage(next_id),
    )


def restore(
    disk: Disk, log_directory: str, image: MetadataImage, suffix: str, voters: VoterSet | None = None
) -> Restored:
    """Give a node this metadata; a metadata log that it has is renamed, with `suffix` in its name. Raises
    `RestoreError`.

    `voters` are those of the restored quorum; None: they are in the settings of the nodes.

    The directory gets its name when it is whole, so an interrupted restore has changed nothing that a node reads.
    """
    target = f"{log_directory}/{METADATA_DIRECTORY}"
    fresh = f"{log_directory}/{METADATA_DIRECTORY}.{suffix}-delete"
    end = OffsetAndEpoch(offset=image.offset + 1, epoch=image.epoch)
    put_aside = None
    try:
        disk.make_directories(fresh)
        records = image_to_records(image)
        path = f"{fresh}/{snapshot_file_name(end)}"
        quorum: tuple[QuorumRecord, ...] = ()
        if voters is not None:
            quorum = (
                QuorumRecord(offset=image.offset, kraft_version=1),
                QuorumRecord(offset=image.offset, voters=voters),
            )
        write_durably(disk, path, b"".join(encode_snapshot(end, records, image.timestamp_ms, quorum)))
        if disk.exists(target):
            put_aside = f"{log_directory}/{METADATA_DIRECTORY}.{suffix}-stray"
            disk.rename(target, put_aside)
        disk.rename(fresh, target)
        disk.sync_directory(log_directory)
        # Apache Kafka's nodes need the file. It comes last: with it, but without the log, a node starts a new cluster.
        write_durably(disk, f"{log_directory}/{BOOTSTRAP_CHECKPOINT}", bootstrap_checkpoint(_levels(image)))
    except OSError as error:
        raise RestoreError(f"{log_directory} cannot be written: {error.strerror or error}") from None
    return Restored(f"{target}/{snapshot_file_name(end)}", end, image, put_aside)


def _levels(image: MetadataImage) -> list[Message]:
    return [record for record in image_to_records(image) if isinstance(record, FeatureLevelRecord)]


def described(image: MetadataImage) -> str:
    """The content of the metadata in a phrase."""
    partitions = sum(len(topic.partitions) for topic in image.topics.by_name.values())
    return (
        f"{_counted(image.topics.by_name, 'topic')} with {partitions} partitions,"
        f" {_counted(image.cluster.brokers, 'broker')}"
    )


def _counted(things: Iterable[object], noun: str) -> str:
    count = len(list(things))
    return f"{count} {noun}{'' if count == 1 else 's'}"
