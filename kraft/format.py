"""Makes log directories ready for a node (`barnabas storage format`): who it is, and which log directory this
is.

A directory counts as formatted once it has `meta.properties`, which is therefore written last; before it
comes `bootstrap.checkpoint`, the first records of the cluster as a snapshot. Both are as Kafka 4.3 writes
them. Knows no settings file and no command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kraft.raft.history import OffsetAndEpoch
from kraft.snapshots import BOOTSTRAP_CHECKPOINT, encode_snapshot
from protocol.messages.metadata_log import FeatureLevelRecord
from protocol.primitives import uuid_to_string
from runtime.uuids import random_uuid
from runtime.world import Chance, Disk
from settings.errors import SettingsError
from settings.properties import parse_properties
from storage.checkpoints import write_durably

META_PROPERTIES = "meta.properties"

_CLUSTER_ID_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


class FormatError(Exception):
    """The directories cannot be formatted; the message is one line."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The identity that a log directory carries (version 1)."""

    cluster_id: str
    node_id: int
    directory_id: str

    def render(self) -> bytes:
        lines = [
            f"cluster.id={self.cluster_id}",
            f"directory.id={self.directory_id}",
            f"node.id={self.node_id}",
            "version=1",
        ]
        return "\n".join([*lines, ""]).encode()


@dataclass(frozen=True, slots=True)
class FormatRequest:
    """Which directories become whose."""

    cluster_id: str
    node_id: int
    directories: Sequence[str]
    records: Sequence[FeatureLevelRecord]
    """What the cluster's metadata starts with: `kraft.metadata.bootstrap.bootstrap_records`."""
    ignore_formatted: bool = False
    """Leave directories alone that are formatted for this very node, instead of refusing."""


def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """The identity of a directory; None if it is not formatted. Raises `FormatError` for a file that says
    nothing."""
    path = f"{directory}/{META_PROPERTIES}"
    if not disk.exists(path):
        return None
    try:
        found = parse_properties(disk.read_bytes(path).decode(), path)
        values = {key: value for key, (value, _line) in found.items()}
        node_id = values["node.id"] if "node.id" in values else values["broker.id"]
        return MetaProperties(values["cluster.id"], int(node_id), values.get("directory.id", ""))
    except KeyError as error:
        raise FormatError(f"{path} has no {error.args[0]}") from None
    except (SettingsError, ValueError) as error:
        raise FormatError(f"{path} cannot be read: {error}") from None


def format_directories(disk: Disk, request: FormatRequest, chance: Chance) -> list[str]:
    """Formats what is not formatted yet and gives those directories. Raises `FormatError` before touching
    any.

    A directory of another cluster or node is always refused, one of this node unless `ignore_formatted`.
    """
    if not request.cluster_id or not _CLUSTER_ID_CHARACTERS.issuperset(request.cluster_id):
        raise FormatError(
            f"{request.cluster_id!r} is no cluster id; `barnabas storage random-uuid` makes one"
        )
    fresh = [directory for directory in request.directories if not _is_ours(disk, directory, request)]
    formatted = [directory for directory in request.directories if directory not in fresh]
    if formatted and not request.ignore_formatted:
        raise FormatError(f"{formatted[0]} is formatted already; --ignore-formatted leaves it as it is")
    checkpoint = bootstrap_checkpoint(request.records)
    for directory in fresh:
        identity = MetaProperties(request.cluster_id, request.node_id, uuid_to_string(random_uuid(chance)))
        try:
            _make_directory(disk, directory)
            write_durably(disk, f"{directory}/{BOOTSTRAP_CHECKPOINT}", checkpoint)
            write_durably(disk, f"{directory}/{META_PROPERTIES}", identity.render())
        except OSError as error:
            raise FormatError(f"{directory} cannot be formatted: {error.strerror or error}") from None
    return fresh


def _make_directory(disk: Disk, directory: str) -> None:
    """With its parents, durably: a power cut must not take a whole voter away by an entry that was not synced."""
    missing = []
    path = directory.rstrip("/")
    while path and not disk.exists(path):
        missing.append(path)
        path = path.rpartition("/")[0]
    disk.make_directories(directory)
    for made in missing:
        disk.sync_directory(made.rpartition("/")[0] or ("/" if made.startswith("/") else "."))


def _is_ours(disk: Disk, directory: str, request: FormatRequest) -> bool:
    """Whether the directory is formatted for this node. Raises `FormatError` if it is another's."""
    identity = read_meta_properties(disk, directory)
    if identity is None:
        return False
    if identity.cluster_id != request.cluster_id:
        raise FormatError(f"{directory} is of cluster {identity.cluster_id}, not {request.cluster_id}")
    if identity.node_id != request.node_id:
        raise FormatError(f"{directory} is of node {identity.node_id}, not {request.node_id}")
    return True


def bootstrap_checkpoint(records: Sequence[FeatureLevelRecord]) -> bytes:
    """The first records of a cluster in the form of a snapshot of nothing (KIP-630); they have no time."""
    return b"".join(encode_snapshot(OffsetAndEpoch(offset=0, epoch=0), records, timestamp_ms=0))
