"""Transfers between accounts on several partitions; money is neither made nor lost.

`transfer` `{"id": n, "legs": [[topic, partition, [n, account, amount]], …]}`: the amounts of one transfer sum to zero,
and its legs are one transaction. Some are aborted on purpose.
`read` `{"final": bool}`: a piece of the committed logs, see `workloads/log_reader.py`.
`crash`: the client is gone, and comes again under its transactional id.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from barnabas.runtime.world import Chance
from clients.client import ClientError, ClientSettings, WorkClient
from operations import Completion, Invocation, Place
from workloads.lives import CRASH, Finale, Lives, crash
from workloads.log_reader import LogReaders, json_value
from workloads.transacting import Pauses, ending_of, in_transaction
from workloads.workload import WorkloadOptions

TOPIC = "bank"
ACCOUNTS_PER_PARTITION = 3
MOST = 10
"""Largest transfer."""
_READS = 0.15
_FINAL_READERS = 2


class Bank:
    name = "bank"

    def __init__(self, options: WorkloadOptions) -> None:
        self._options = options
        self._lives = Lives(options)
        self._places = [Place(self._lives.named(TOPIC), partition) for partition in range(max(2, options.keys // 2))]
        self._finale = Finale(range(min(_FINAL_READERS, options.processes)))
        self._transfers = 0
        self._initialised: set[int] = set()
        self._readers = LogReaders(self._lives, self._places, json_value)

    def client_settings(self, base: ClientSettings, process: int) -> ClientSettings:
        transactional_id = self._lives.named(f"bank-{self._lives.thread(process)}")
        return replace(base, group_id=None, transactional_id=transactional_id, isolation=self._options.isolation)

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
        self._transfers += 1
        return Invocation("transfer", {"id": self._transfers, "legs": self._legs(self._transfers, chance)})

    def _legs(self, number: int, chance: Chance) -> list[list[Any]]:
        count = len(self._places)
        source = chance.randrange(0, count)
        target = (source + chance.randrange(1, count)) % count
        amount = chance.randrange(1, MOST + 1)
        return [
            [*self._places[index], [number, index + count * chance.randrange(0, ACCOUNTS_PER_PARTITION), change]]
            for index, change in ((source, -amount), (target, amount))
        ]

    async def perform(self, process: int, invocation: Invocation, client: WorkClient, chance: Chance) -> Completion:
        if invocation.f == "crash":
            return await crash(client)
        if invocation.f == "read":
            return await self._readers.of(process, invocation).read(client)
        return await self._transfer(process, invocation.value, client, chance)

    async def _transfer(self, process: int, value: Any, client: WorkClient, chance: Chance) -> Completion:
        if process not in self._initialised:
            try:
                await client.init_transactions()
            except ClientError as error:
                return ending_of(error).completion(value)
            self._initialised.add(process)
        pauses = Pauses(chance, self._options.abort_probability)

        async def body() -> None:
            for topic, partition, leg in value["legs"]:
                await pauses.step()
                await client.send(Place(topic, partition), str(leg[1]).encode(), json.dumps(leg).encode())
            await pauses.step()

        ending = await in_transaction(client, body)
        return ending.completion(value)

    def completed(self, process: int, invocation: Invocation, completion: Completion) -> None:
        self._finale.completed(self._lives.thread(process), invocation, completion)

    def begin_final(self) -> None:
        self._finale.begin()

    def final_is_done(self) -> bool:
        return self._finale.over
