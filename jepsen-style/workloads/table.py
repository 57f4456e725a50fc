"""Compacted topics that are tiered: processes write and delete few keys, and everybody reads the log from its
beginning, most of which is only in the remote store, and is compacted there again and again.

`write` `{"place": [topic, partition], "key": k, "value": n or null}`: null deletes the key; completed with its
`offset`.
`txn` `{"writes": [...]}`: one to four of these in a transaction, each with the `offset` that was acknowledged, or
without. If it was aborted, the completion is `fail`: none of them may ever be read.
`tier` topic: the topic exists and is compacted, and is tiered from now on (in runs with the option `tiered_after`).
`read` `{"final": bool}`: a piece of the logs, see `workloads/log_reader.py`; a value is `[key, n or null]`.
`crash`: the client is gone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from barnabas.runtime.world import Chance
from clients.client import ClientError, ClientSettings, DeletingClient, Read, WorkClient
from operations import Completion, Invocation, Place
from workloads.lives import CRASH, Finale, Lives, crash, failed, one_of
from workloads.log_reader import LogReaders
from workloads.topics import Topics
from workloads.transacting import Pauses, ending_of, in_transaction
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
ENABLE, TOMBSTONES_STAY_MS = "remote.storage.enable", "delete.retention.ms"
UNTIERED_TOMBSTONES_STAY_MS = "600000"
"""While it is not tiered, tombstones stay: else a replica that was away for longer, as in Kafka, keeps deleted keys."""
_PARTITIONS = 2
_READS = 0.15
_DELETIONS = 0.3
_FINAL_READERS = 2
_MOST_WRITES = 4
"""Writes of one transaction."""


class Table:
    """One run of it; a `Workload`."""

    name = "table"

    def __init__(self, options: WorkloadOptions) -> None:
        self._options = options
        self._lives = Lives(options)
        self._places = [Place(self._lives.named(TOPIC), partition) for partition in range(_PARTITIONS)]
        self._finale = Finale(range(min(_FINAL_READERS, options.processes)))
        self._values = 0
        self._initialised: set[int] = set()
        self._tiered_after = int(options.more.get("tiered_after", "0"))
        """Writes after which the topic becomes tiered; 0 if it is from the beginning."""
        self._is_tiered = self._tiered_after == 0
        self._readers = LogReaders(self._lives, self._places, _decode)

    @property
    def places(self) -> Sequence[Place]:
        return self._places

    def client_settings(self, base: ClientSettings, process: int) -> ClientSettings:
        thread = self._lives.thread(process)
        transactional_id = self._lives.named(f"table-{thread}") if self._is_transactional(process) else None
        settings = replace(self._lives.of_no_group(base), transactional_id=transactional_id)
        return replace(settings, isolation="read_committed")

    def _is_transactional(self, process: int) -> bool:
        return self._options.transactions and self._lives.thread(process) % 2 == 0

    async def set_up(self, client: WorkClient) -> None:
        configs = {**COMPACTED, **self._options.topic_configs}
        if not self._is_tiered:
            del configs[ENABLE]
            configs[TOMBSTONES_STAY_MS] = UNTIERED_TOMBSTONES_STAY_MS
        await Topics(_PARTITIONS, self._lives.replicas, configs).need(client, [self._places[0].topic])

    def invoke(self, process: int, chance: Chance, now_ns: int) -> Invocation | None:
        if self._finale.begun:
            waits = self._finale.waits_for(self._lives.thread(process), now_ns)
            return Invocation("read", {"final": True}) if waits else None
        if self._lives.crashes(process, chance, now_ns):
            return CRASH
        if chance.random() < _READS:
            return Invocation("read", {"final": False})
        if not self._is_tiered and self._values >= self._tiered_after:
            return Invocation("tier", self._places[0].topic)
        if self._is_transactional(process):
            count = chance.randrange(1, _MOST_WRITES + 1)
            return Invocation("txn", {"writes": [self._write(chance) for _ in range(count)]})
        return Invocation("write", self._write(chance))

    def _write(self, chance: Chance) -> dict[str, Any]:
        self._values += 1
        key = chance.randrange(0, max(2, self._options.keys))
        value = None if chance.random() < _DELETIONS else self._values
        return {"place": [*one_of(chance, self._places)], "key": key, "value": value}

    async def perform(self, process: int, invocation: Invocation, client: WorkClient, chance: Chance) -> Completion:
        if invocation.f == "crash":
            return await crash(client)
        asked = invocation.value
        if invocation.f == "read":
            return await self._readers.of(process, invocation).read(client)
        if invocation.f == "tier":
            return await self._tier(client, asked)
        if invocation.f == "txn":
            return await self._transaction(process, asked["writes"], client, chance)
        try:
            return Completion("ok", await self._send(client, asked))
        except ClientError as error:
            return failed(error)

    async def _tier(self, client: WorkClient, topic: str) -> Completion:
        try:
            await client.alter_config(topic, ENABLE, COMPACTED[ENABLE])
            await client.alter_config(topic, TOMBSTONES_STAY_MS, COMPACTED[TOMBSTONES_STAY_MS])
        except ClientError as error:
            return failed(error)
        return Completion("ok", topic)

    async def _transaction(
        self, process: int, writes: list[dict[str, Any]], client: WorkClient, chance: Chance
    ) -> Completion:
        done = [dict(write) for write in writes]
        if process not in self._initialised:
            try:
                await client.init_transactions()
            except ClientError as error:
                return ending_of(error).completion({"writes": done})
            self._initialised.add(process)
        pauses = Pauses(chance, self._options.abort_probability)

        async def body() -> None:
            for number, write in enumerate(writes):
                await pauses.step()
                done[number] = await self._send(client, write)
            await pauses.step()

        ending = await in_transaction(client, body)
        return ending.completion({"writes": done})

    async def _send(self, client: WorkClient, write: dict[str, Any]) -> dict[str, Any]:
        """The write with its offset. Raises ClientError."""
        place, key = Place(*write["place"]), str(write["key"]).encode()
        if write["value"] is None:
            sent = await cast(DeletingClient, client).send_tombstone(place, key)
        else:
            sent = await client.send(place, key, json.dumps(write["value"]).encode())
        return {**write, "offset": sent.offset}

    def completed(self, process: int, invocation: Invocation, completion: Completion) -> None:
        self._is_tiered = self._is_tiered or (invocation.f == "tier" and completion.type == "ok")
        self._finale.completed(self._lives.thread(process), invocation, completion)

    def begin_final(self) -> None:
        self._finale.begin()

    def final_is_done(self) -> bool:
        return self._finale.over


def _decode(read: Read) -> list[int | None]:
    return [int(read.key or b"-1"), json.loads(read.value) if read.value else None]
