"""Names of partition directories and of the files in them. Knows no disk.

A partition lives in `<topic>-<partition>`. A directory to be removed ends in `-delete` or `-stray`, one that is being
moved between log dirs in `-future`, each with a uuid before it so that names never clash. The files of a segment start
with its base offset in twenty digits.
"""

from __future__ import annotations

from typing import NamedTuple

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"

DELETED_SUFFIX = ".deleted"
EXPIRED_SUFFIX = ".expired.deleted"
"""Suffix of a segment that retention removed from the front: its files and all segments before it must be removed."""
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
SCRATCH_SUFFIX = ".remote.tmp"
"""Not in Kafka: of a segment that is made for the remote store. A start removes it, as all that ends in .tmp."""

EPOCH_FILE = ".broker_epoch"
"""Not in Kafka, in a log directory: boot id of the machine, and the broker epoch in which the node is registered. If
the process is killed and the machine is not booted, everything that it wrote is still there, as after a clean stop."""
SYNC_FAILED_FILE = ".sync_failed"
"""Not in Kafka: a marker in a log's directory; a sync of its files has failed since the log was last recovered."""

SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
"""The files of one segment. The log comes first: without it the others are useless."""

DELETE_DIRECTORY_SUFFIX = "-delete"
STRAY_DIRECTORY_SUFFIX = "-stray"
FUTURE_DIRECTORY_SUFFIX = "-future"
_KINDS = {
    DELETE_DIRECTORY_SUFFIX: "delete",
    STRAY_DIRECTORY_SUFFIX: "stray",
    FUTURE_DIRECTORY_SUFFIX: "future",
}

LONGEST_NAME = 255
"""Bytes in the name of a file or directory."""
_OFFSET_DIGITS = 20

METADATA_TOPIC = "__cluster_metadata"


class PartitionDirectory(NamedTuple):
    """A parsed name of a partition directory."""

    topic: str
    partition: int
    kind: str
    """`current`, `delete`, `stray` or `future`."""


def offset_file_name(offset: int, suffix: str) -> str:
    """`00000000000000000042.log`"""
    return f"{offset:0{_OFFSET_DIGITS}d}{suffix}"


def parse_offset_file_name(name: str) -> tuple[int, str] | None:
    """(offset, everything after it), or None if the name does not begin with an offset."""
    digits, dot, rest = name.partition(".")
    if len(digits) != _OFFSET_DIGITS or not digits.isascii() or not digits.isdigit() or not dot:
        return None
    return int(digits), dot + rest


def directory_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def marked_directory_name(topic: str, partition: int, uuid_hex: str, suffix: str) -> str:
    """`<topic>-<partition>.<uuid><suffix>`; a topic name too long for the file system is truncated."""
    tail = f"-{partition}.{uuid_hex}{suffix}"
    return topic[: LONGEST_NAME - len(tail)] + tail


def parse_directory_name(name: str) -> PartitionDirectory | None:
    """None for other names: a log dir may contain unrelated files."""
    kind = "current"
    for suffix, meaning in _KINDS.items():
        if name.endswith(suffix) and "." in name:
            stem, _, _ = name[: -len(suffix)].rpartition(".")
            if stem:
                name, kind = stem, meaning
            break
    topic, dash, digits = name.rpartition("-")
    if not topic or not dash or not digits.isascii() or not digits.isdigit():
        return None
    return PartitionDirectory(topic, int(digits), kind)
