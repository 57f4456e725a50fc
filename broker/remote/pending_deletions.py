"""The partitions whose remote segments this broker still has to delete, in a file: their topics are gone from the
metadata, so nobody else would know after a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from barnabas.protocol.primitives import uuid_from_string, uuid_to_string
from barnabas.runtime.world import Disk
from barnabas.storage.checkpoints import write_durably
from barnabas.storage.remote.segment import RemotePartitionKey

log = logging.getLogger(__name__)

FILE = "remote-deletions"
"""A line of `topic partition topic-id` for each. Kafka has no such file."""


def write_pending(disk: Disk, directory: str, keys: Iterable[RemotePartitionKey]) -> None:
    """Replace the file. Raises OSError."""
    lines = [f"{key.topic} {key.partition} {uuid_to_string(key.topic_id)}\n" for key in keys]
    write_durably(disk, f"{directory}/{FILE}", "".join(lines).encode())


def read_pending(disk: Disk, directory: str) -> list[RemotePartitionKey]:
    """Lines that are no partition are logged and left out. Raises OSError."""
    path = f"{directory}/{FILE}"
    if not disk.exists(path):
        return []
    found = []
    for line in disk.read_bytes(path).decode(errors="replace").splitlines():
        try:
            topic, partition, topic_id = line.split()
            found.append(RemotePartitionKey(uuid_from_string(topic_id), topic, int(partition)))
        except ValueError:
            log.warning("%s: not a partition with its topic id: %r", path, line[:80])
    return found
