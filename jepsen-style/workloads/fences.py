"""Producers that take each other's transactional id: the earlier producer is a zombie from then on.

Threads share ids, and each of their processes has a client of its own, so that the newer one fences the older, which
goes on until it gets an error.

`init` `{"id": id}`: takes the id.
`append` `{"id": id, "transaction": n, "records": [[topic, partition, [process, n, k]], …]}`: begins a transaction and
sends; where that fails the transaction is aborted.
`commit`, `abort` `{"id": id, "transaction": n}`.
`read` `{"final": bool, "isolation": …}`: a piece of the logs, committed or as they are; `workloads/log_reader.py`.
`crash`: the client is gone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from barnabas.runtime.world import Chance
from clients.client import ClientError, ClientSettings, WorkClient
from operations import Completion, Invocation, Place
from workloads.lives import CRASH, Finale, Lives, crash
from workloads.log_reader import LogReaders, json_value
from workloads.transacting import aborted, committed, ending_of
from workloads.workload import WorkloadOptions

TOPIC = "fences"
PARTITIONS = 3
MOST_RECORDS = 3
ISOLATIONS = ("read_committed", "read_uncommitted")
"""Isolation levels of the last two threads, which only read."""
_TAKES = 0.1
"""Chance at each turn that a new process takes its id: long enough for the other one to get something done."""


@dataclass(slots=True)
class _Life:
    """State of one process."""

    step: str = "new"
    """new, ready or written."""
    transaction: int = 0


class Fences:
    """One run of it; a `Workload`."""

    name = "fences"

    def __init__(self, options: WorkloadOptions) -> None:
        if options.processes < 4:
            raise ValueError(
                "fences takes two processes to fence each other and two that read: --concurrency 4 or more"
            )
        self._options = options
        self._lives = Lives(options)
        self._places = [Place(self._lives.named(TOPIC), partition) for partition in range(PARTITIONS)]
        self._writers = options.processes - len(ISOLATIONS)
        self._finale = Finale(range(self._writers, options.processes))
        self._processes: dict[int, _Life] = {}
        self._readers = LogReaders(self._lives, self._places, json_value)
        self._transactions = 0

    def _isolation(self, process: int) -> str | None:
        """Isolation level of a process that reads; None for the others."""
        index = self._lives.thread(process) - self._writers
        return ISOLATIONS[index] if index >= 0 else None

    def _id(self, process: int) -> str:
        return self._lives.named(f"fences-{self._lives.thread(process) % max(1, self._writers // 2)}")

    def client_settings(self, base: ClientSettings, process: int) -> ClientSettings:
        if isolation := self._isolation(process):
            return replace(base, group_id=None, transactional_id=None, isolation=isolation)
        return replace(base, group_id=None, transactional_id=self._id(process))

    async def set_up(self, client: WorkClient) -> None:
        await self._lives.topics(PARTITIONS).need(client, [self._places[0].topic])

    # What to do

    def invoke(self, process: int, chance: Chance, now_ns: int) -> Invocation | None:
        if isolation := self._isolation(process):
            final = self._finale.begun
            if final and not self._finale.waits_for(self._lives.thread(process), now_ns):
                return None
            return Invocation("read", {"final": final, "isolation": isolation})
        if self._finale.begun:
            return None
        if self._lives.crashes(process, chance, now_ns):
            return CRASH
        return self._produce(process, chance)

    def _produce(self, process: int, chance: Chance) -> Invocation | None:
        life = self._processes.setdefault(process, _Life())
        if life.step == "new":
            return Invocation("init", {"id": self._id(process)}) if chance.random() < _TAKES else None
        if life.step == "written":
            f = "abort" if chance.random() < self._options.abort_probability else "commit"
            return Invocation(f, {"id": self._id(process), "transaction": life.transaction})
        self._transactions += 1
        records = [
            [*self._places[chance.randrange(0, PARTITIONS)], [process, self._transactions, number]]
            for number in range(chance.randrange(1, MOST_RECORDS + 1))
        ]
        asked = {"id": self._id(process), "transaction": self._transactions, "records": records}
        return Invocation("append", asked)

    # How it is done

    async def perform(self, process: int, invocation: Invocation, client: WorkClient, chance: Chance) -> Completion:
        f, value = invocation.f, invocation.value
        if f == "crash":
            return await crash(client)
        if f == "read":
            return await self._readers.of(process, invocation).read(client)
        if f == "append":
            return await self._append(value, client)
        if f == "commit":
            return (await committed(client)).completion(value)
        try:
            await (client.init_transactions() if f == "init" else client.abort_transaction())
        except ClientError as error:
            # An id may be taken by a request whose answer was lost. An abort that failed did not commit.
            ending = replace(ending_of(error), type="info" if f == "init" else "fail", ends_process=True)
            return ending.completion(value)
        return Completion("ok", value)

    async def _append(self, value: Any, client: WorkClient) -> Completion:
        try:
            await client.begin()
        except ClientError as error:
            return ending_of(error).completion(value)
        try:
            for topic, partition, record in value["records"]:
                await client.send(Place(topic, partition), None, json.dumps(record).encode())
        except ClientError as error:
            return (await aborted(client, error)).completion(value)
        return Completion("ok", value)

    def completed(self, process: int, invocation: Invocation, completion: Completion) -> None:
        self._finale.completed(self._lives.thread(process), invocation, completion)
        life = self._processes.get(process)
        if life is None:
            return
        if completion.type == "info" or completion.ends_process:
            del self._processes[process]
        elif invocation.f == "append" and completion.type == "ok":
            life.step, life.transaction = "written", invocation.value["transaction"]
        elif invocation.f in ("commit", "abort", "init"):
            life.step = "ready"

    # The end

    def begin_final(self) -> None:
        self._finale.begin()

    def final_is_done(self) -> bool:
        return self._finale.over
