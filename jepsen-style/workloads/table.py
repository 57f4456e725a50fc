"""Compacted topics that are tiered: processes write and delete few keys, and everybody reads the log from its
beginning, most of which is only in the remote store, and is compacted there again and again.

`write` `{"place": [topic, partition], "key": k, "value": n or null}`: null deletes the key; completed with its
`offset`.
`read` `{"final": bool}`: a piece of the logs, see `workloads/log_reader.py`; a value is `[key, n or null]`.
`crash`: the client is gone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

from barnabas.runtime.world import Chance
from clients.client import ClientError, ClientSettings, DeletingClient, Read, WorkClient
from operations import Completion, Invocation, Place
from workloads.lives import CRASH, Finale, Lives, crash, failed, one_of
from workloads.log_reader import LogReaders
from workloads.topics import Topics
from workloads.workload import WorkloadOptions

TOPIC = "table"
COMPACTED = {
    "cleanup.policy": "compact",
    "remote.storage.enable": "true",
    "local.retention.ms": "1000",
    "internal.segment.bytes": "1500",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "6000",
    "file.delete.delay.ms": "500",
}
"""Everything is cleaned and copied soon, and tombstones go within the run."""
_PARTITIONS = 2
_READS = 0.15
_DELETIONS = 0.3
_FINAL_READERS = 2


class Table:
    """One run of it; a `Workload`."""

    name = "table"

    def __init__(self, options: WorkloadOptions) -> None:
        self._options = options
        self._lives = Lives(options)
        self._places = [Place(self._lives.named(TOPIC), partition) for partition in range(_PARTITIONS)]
        self._finale = Finale(range(min(_FINAL_READERS, options.processes)))
        self._values = 0
        self._readers = LogReaders(self._lives, self._places, _decode)

    @property
    def places(self) -> Sequence[Place]:
        return self._places

    def client_settings(self, base: ClientSettings, process: int) -> ClientSettings:
        return self._lives.of_no_group(base)

    async def set_up(self, client: WorkClient) -> None:
        configs = {**COMPACTED, **self._options.topic_configs}
        await Topics(_PARTITIONS, self._lives.replicas, configs).need(client, [self._places[0].topic])

    def invoke(self, process: int, chance: Chance, now_ns: int) -> Invocation | None:
        if self._finale.begun:
            waits = self._finale.waits_for(self._lives.thread(process), now_ns)
            return Invocation("read", {"final": True}) if waits else None
        if self._lives.crashes(process, chance, now_ns):
            return CRASH
        if chance.random() < _READS:
            return Invocation("read", {"final": False})
        self._values += 1
        key = chance.randrange(0, max(2, self._options.keys))
        value = None if chance.random() < _DELETIONS else self._values
        return Invocation("write", {"place": [*one_of(chance, self._places)], "key": key, "value": value})

    async def perform(self, process: int, invocation: Invocation, client: WorkClient, chance: Chance) -> Completion:
        if invocation.f == "crash":
            return await crash(client)
        asked = invocation.value
        if invocation.f == "read":
            return await self._readers.of(process, invocation).read(client)
        place, key = Place(*asked["place"]), str(asked["key"]).encode()
        try:
            if asked["value"] is None:
                sent = await cast(DeletingClient, client).send_tombstone(place, key)
            else:
                sent = await client.send(place, key, json.dumps(asked["value"]).encode())
        except ClientError as error:
            return failed(error)
        return Completion("ok", {**asked, "offset": sent.offset})

    def completed(self, process: int, invocation: Invocation, completion: Completion) -> None:
        self._finale.completed(self._lives.thread(process), invocation, completion)

    def begin_final(self) -> None:
        self._finale.begin()

    def final_is_done(self) -> bool:
        return self._finale.over


def _decode(read: Read) -> list[int | None]:
    return [int(read.key or b"-1"), json.loads(read.value) if read.value else None]
