"""Adds unique elements, reads all: Jepsen's `set`.

`add` `{"element": n, "place": [topic, partition]}`, completed with its `"offset"`.
`read` `{"final": bool}`: a piece of the logs, see `workloads/log_reader.py`.
`crash`: the client is gone.
"""

from __future__ import annotations

import json

from barnabas.runtime.world import Chance
from clients.client import ClientError, ClientSettings, WorkClient
from operations import Completion, Invocation, Place
from workloads.lives import CRASH, Finale, Lives, crash, failed
from workloads.log_reader import LogReaders, json_value
from workloads.workload import WorkloadOptions

TOPIC = "set"
_READS = 0.1
_FINAL_READERS = 3


class Set:
    name = "set"

    def __init__(self, options: WorkloadOptions) -> None:
        self._options = options
        self._lives = Lives(options)
        self._places = [Place(self._lives.named(TOPIC), partition) for partition in range(max(1, options.keys // 2))]
        self._finale = Finale(range(min(_FINAL_READERS, options.processes)))
        self._elements = 0
        self._readers = LogReaders(self._lives, self._places, json_value)

    def client_settings(self, base: ClientSettings, process: int) -> ClientSettings:
        return self._lives.of_no_group(base)

    async def set_up(self, client: WorkClient) -> None:
        await self._lives.topics(len(self._places)).need(client, [self._places[0].topic])

    def invoke(self, process: int, chance: Chance, now_ns: int) -> Invocation | None:
        if self._finale.begun:
            waits = self._finale.waits_for(self._lives.thread(process), now_ns)
            return Invocation("read", {"final": True}) if waits else None
        if self._lives.crashes(process, chance, now_ns):
            return CRASH
        if chance.random() < _READS:
            return Invocation("read", {"final": False})
        self._elements += 1
        place = self._places[chance.randrange(0, len(self._places))]
        return Invocation("add", {"element": self._elements, "place": [*place]})

    async def perform(self, process: int, invocation: Invocation, client: WorkClient, chance: Chance) -> Completion:
        if invocation.f == "crash":
            return await crash(client)
        value = invocation.value
        if invocation.f == "read":
            return await self._readers.of(process, invocation).read(client)
        try:
            sent = await client.send(Place(*value["place"]), None, json.dumps(value["element"]).encode())
        except ClientError as error:
            return failed(error)
        return Completion("ok", {**value, "offset": sent.offset})

    def completed(self, process: int, invocation: Invocation, completion: Completion) -> None:
        self._finale.completed(self._lives.thread(process), invocation, completion)

    def begin_final(self) -> None:
        self._finale.begin()

    def final_is_done(self) -> bool:
        return self._finale.over
