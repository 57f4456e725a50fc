"""Producers send records that are to be delivered later, at once, or at a time; readers read what is delivered.

`send` `{"value": n, "place": [topic, partition], "delay_ms": d, "by": "after" | "at" | "none"}`. It is completed when
the leader has the record, which may be long before it is delivered.
`read` `{"final": bool}`: a piece of the logs, see `workloads/log_reader.py`.
`crash`: the client is gone.
"""

from __future__ import annotations

import json
from typing import cast

from barnabas.runtime.world import Chance
from clients.client import ClientError, ClientSettings, DelayingClient, WorkClient
from operations import Completion, Invocation, Place
from workloads.lives import CRASH, Finale, Lives, crash, failed, one_of
from workloads.log_reader import LogReaders, json_value
from workloads.topics import Topics
from workloads.workload import WorkloadOptions

TOPIC = "delayed"
ENABLED = {"barnabas.delayed.delivery.enable": "true"}
DELAYS_MS = (0, 50, 300, 1_000, 1_500, 3_000, 6_000, 12_000)
MARGIN_NS = 5_000_000_000
"""Time for a delivery, beyond the longest delay, before the last readings begin."""
_READS = 0.25
_FINAL_READERS = 2


class Delayed:
    """One run of it; a `Workload`."""

    name = "delayed"

    def __init__(self, options: WorkloadOptions) -> None:
        self._options = options
        self._lives = Lives(options)
        self._places = [Place(self._lives.named(TOPIC), partition) for partition in range(max(1, options.keys // 3))]
        self._finale = Finale(range(min(_FINAL_READERS, options.processes)))
        self._values = 0
        self._readers = LogReaders(self._lives, self._places, json_value)
        self._mended_ns: int | None = None

    def client_settings(self, base: ClientSettings, process: int) -> ClientSettings:
        return self._lives.of_no_group(base)

    async def set_up(self, client: WorkClient) -> None:
        configs = {**self._options.topic_configs, **ENABLED}
        await Topics(len(self._places), self._lives.replicas, configs).need(client, [self._places[0].topic])

    def invoke(self, process: int, chance: Chance, now_ns: int) -> Invocation | None:
        if self._finale.begun:
            return self._read_finally(process, now_ns)
        if self._lives.crashes(process, chance, now_ns):
            return CRASH
        if chance.random() < _READS:
            return Invocation("read", {"final": False})
        self._values += 1
        asked = {
            "value": self._values,
            "place": [*one_of(chance, self._places)],
            "delay_ms": one_of(chance, DELAYS_MS),
            "by": one_of(chance, ("after", "after", "at", "none")),
        }
        return Invocation("send", asked)

    def _read_finally(self, process: int, now_ns: int) -> Invocation | None:
        if self._mended_ns is None:
            self._mended_ns = now_ns
        if now_ns < self._mended_ns + max(DELAYS_MS) * 1_000_000 + MARGIN_NS:
            return None
        waits = self._finale.waits_for(self._lives.thread(process), now_ns)
        return Invocation("read", {"final": True}) if waits else None

    async def perform(self, process: int, invocation: Invocation, client: WorkClient, chance: Chance) -> Completion:
        if invocation.f == "crash":
            return await crash(client)
        value = invocation.value
        if invocation.f == "read":
            return await self._readers.of(process, invocation).read(client)
        try:
            delay_ms = None if value["by"] == "none" else value["delay_ms"]
            data = json.dumps(value["value"]).encode()
            await cast(DelayingClient, client).send_later(Place(*value["place"]), data, delay_ms, value["by"])
        except ClientError as error:
            return failed(error)
        return Completion("ok", value)

    def completed(self, process: int, invocation: Invocation, completion: Completion) -> None:
        self._finale.completed(self._lives.thread(process), invocation, completion)

    def begin_final(self) -> None:
        self._finale.begin()

    def final_is_done(self) -> bool:
        return self._finale.over
