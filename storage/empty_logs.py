"""The logs that had no record at a clean stop, so that the next start need not look into their directories.

`empty-logs-checkpoint` is not in Kafka, which ignores it. It has a version, the broker epoch of `.kafka_cleanshutdown`,
the number of entries, and for each log its topic id and the time in ns at which its directory changed last:

    0
    4711
    1
    orders 0 2rlQ5PmxTPSkVsC4hAgRyw 1750000000000000000

It is written when everything is durable, just before the marker, and removed with it. A start believes it only if it
finds the marker of the same epoch: a file that another owner has left behind is of another one. An entry counts only
while its directory has that very time: a file that was put there since, by hand or from a backup, changes it. After any
other stop, and for any other log, the directory is read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from barnabas.protocol.primitives import uuid_from_string, uuid_to_string
from barnabas.runtime.world import Disk
from barnabas.storage.checkpoints import write_durably

_log = logging.getLogger(__name__)

EMPTY_LOGS_FILE = "empty-logs-checkpoint"
_VERSION = "0"


class EmptyLog(NamedTuple):
    """A log without a record."""

    topic_id: bytes
    changed_ns: int
    """`Disk.changed_ns` of its directory."""


EmptyLogs = Mapping[tuple[str, int], EmptyLog]
"""By (topic, partition)."""


def write_empty_logs(disk: Disk, directory: str, broker_epoch: int, logs: EmptyLogs) -> None:
    """Durable when it returns. Raises OSError."""
    ids = {log.topic_id: uuid_to_string(log.topic_id) for log in logs.values()}
    lines = [
        f"{topic} {partition} {ids[log.topic_id]} {log.changed_ns}" for (topic, partition), log in sorted(logs.items())
    ]
    text = "\n".join([_VERSION, str(broker_epoch), str(len(lines)), *lines, ""])
    write_durably(disk, f"{directory}/{EMPTY_LOGS_FILE}", text.encode())


def take_empty_logs(disk: Disk, directory: str, broker_epoch: int) -> EmptyLogs:
    """Read and remove the file of a clean stop in this broker epoch; -1: the stop was none, or its epoch is unknown.
    The removal is not synced. Raises OSError.
    """
    path = f"{directory}/{EMPTY_LOGS_FILE}"
    if not disk.exists(path):
        return {}
    data = disk.read_bytes(path) if broker_epoch >= 0 else b""
    disk.remove(path)
    if not data:
        return {}
    try:
        return _parse(data.decode(), broker_epoch)
    except ValueError as error:
        _log.warning("%s is ignored: %s", path, error)
        return {}


def _parse(text: str, broker_epoch: int) -> EmptyLogs:
    """Raises ValueError."""
    version, epoch, count, *lines = text.splitlines()
    if version != _VERSION:
        raise ValueError(f"version {version}, expected {_VERSION}")
    if int(epoch) != broker_epoch:
        raise ValueError(f"it is of broker epoch {epoch}, the clean stop was in {broker_epoch}")
    if int(count) != len(lines):
        raise ValueError(f"{len(lines)} entries, the header names {count}")
    ids: dict[str, bytes] = {}
    logs: dict[tuple[str, int], EmptyLog] = {}
    for line in lines:
        topic, partition, topic_id, changed_ns = line.split(" ")
        if topic_id not in ids:
            ids[topic_id] = uuid_from_string(topic_id)
        logs[topic, int(partition)] = EmptyLog(ids[topic_id], int(changed_ns))
    return logs
