"""Formats log directories for a node (`barnabas storage format`): writes the ids of the node and of each
directory.

A directory counts as formatted once it has `meta.properties`, which is therefore written last; before it come
`bootstrap.checkpoint`, the first records of the cluster as a snapshot, and in the metadata directory, if the first
controllers are given, the snapshot with the voters (KIP-853). All are as Kafka 4.3 writes them. Knows no settings file
and no command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from barnabas.kraft.raft.history import OffsetAndEpoch
from barnabas.kraft.raft.voter_history import QuorumRecord
from barnabas.kraft.raft.voters import VoterSet
from barnabas.kraft.snapshots import BOOTSTRAP_CHECKPOINT, BOOTSTRAP_SNAPSHOT, encode_snapshot, snapshot_file_name
from barnabas.protocol.schema import Message
from barnabas.runtime.uuids import random_uuid
from barnabas.runtime.world import Chance, Disk
from barnabas.storage.checkpoints import write_durably
from barnabas.storage.log_directory import (
    LogDirectoryError,
    MetaProperties,
    format_directory,
    make_directory,
    read_meta_properties,
)
from barnabas.storage.names import METADATA_TOPIC, directory_name

_CLUSTER_ID_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


class FormatError(Exception):
    """The directories cannot be formatted; the message is one line."""


@dataclass(frozen=True, slots=True)
class FormatRequest:
    """Directories to format, and the node that they are for."""

    cluster_id: str
    node_id: int
    directories: Sequence[str]
    records: Sequence[Message]
    """The first metadata records of the cluster: `kraft.metadata.bootstrap.bootstrap_records`, then
    `kraft.first_users.first_users`."""
    ignore_formatted: bool = False
    """Skip directories that are formatted for this very node, instead of refusing them."""
    metadata_directory: str = ""
    """The one that gets the snapshot with `voters`."""
    voters: VoterSet | None = None
    """The first controllers of a quorum whose voters can change; None: they come from the configuration, or from the
    quorum that this node joins."""
    metadata_directory_id: bytes | None = None
    """The id that the metadata directory gets; None: that of `voters`, or a new one."""


def format_directories(disk: Disk, request: FormatRequest, chance: Chance, now_ms: int = 0) -> list[str]:
    """Format the directories that are not formatted yet, and return them. Raises `FormatError` before touching
    any.

    A directory of another cluster or node is always refused, one of this node unless `ignore_formatted`. The snapshot
    with the voters is stamped with `now_ms`.
    """
    if not request.cluster_id or not _CLUSTER_ID_CHARACTERS.issuperset(request.cluster_id):
        raise FormatError(f"{request.cluster_id!r} is no cluster id; `barnabas storage random-uuid` makes one")
    fresh = [directory for directory in request.directories if not _is_ours(disk, directory, request)]
    formatted = [directory for directory in request.directories if directory not in fresh]
    if formatted and not request.ignore_formatted:
        raise FormatError(f"{formatted[0]} is formatted already; --ignore-formatted leaves it as it is")
    checkpoint = bootstrap_checkpoint(request.records)
    for directory in fresh:
        voters = request.voters if directory == request.metadata_directory else None
        own = None if voters is None else voters.key(request.node_id)
        own_id = request.metadata_directory_id if directory == request.metadata_directory else None
        if own is not None:
            own_id = own.directory_id
        identity = MetaProperties(request.cluster_id, request.node_id, own_id or random_uuid(chance))
        try:
            make_directory(disk, directory)
            write_durably(disk, f"{directory}/{BOOTSTRAP_CHECKPOINT}", checkpoint)
            if voters is not None:
                _write_voters(disk, directory, voters, now_ms)
            format_directory(disk, directory, identity)
        except OSError as error:
            raise FormatError(f"{directory} cannot be formatted: {error.strerror or error}") from None
    return fresh


def _is_ours(disk: Disk, directory: str, request: FormatRequest) -> bool:
    """True if the directory is formatted for this node. Raises `FormatError` if it belongs to another one."""
    try:
        identity = read_meta_properties(disk, directory)
    except LogDirectoryError as error:
        raise FormatError(str(error)) from None
    if identity is None:
        return False
    if identity.cluster_id != request.cluster_id:
        raise FormatError(f"{directory} belongs to cluster {identity.cluster_id}, not {request.cluster_id}")
    if identity.node_id != request.node_id:
        raise FormatError(f"{directory} belongs to node {identity.node_id}, not {request.node_id}")
    return True


def _write_voters(disk: Disk, directory: str, voters: VoterSet, now_ms: int) -> None:
    """The snapshot that contains no record of the log, only `kraft.version` 1 and the voters."""
    records = (QuorumRecord(offset=-1, kraft_version=1), QuorumRecord(offset=-1, voters=voters))
    log_directory = f"{directory}/{directory_name(METADATA_TOPIC, 0)}"
    make_directory(disk, log_directory)
    content = b"".join(encode_snapshot(BOOTSTRAP_SNAPSHOT, (), now_ms, records))
    write_durably(disk, f"{log_directory}/{snapshot_file_name(BOOTSTRAP_SNAPSHOT)}", content)


def bootstrap_checkpoint(records: Sequence[Message]) -> bytes:
    """The first records of a cluster in the form of a snapshot of nothing (KIP-630); they have no time."""
    return b"".join(encode_snapshot(OffsetAndEpoch(offset=0, epoch=0), records, timestamp_ms=0))
