"""Transactions whose fate an external coordinator decides (KIP-939): prepared ones outlive their producers.

The decisions are kept beside the clients, as a database would: they survive every crash. A client records a decision to
commit under the state of the prepared transaction, and then completes it; its next life finds what was prepared, and
completes it by the decision.

`transact` `{"id": n, "records": [[topic, partition, n], …], "commit": bool, "crash": where}`: `crash` is where the
client is gone without a goodbye: "open", "prepared", "decided", or "" for never.
`recover` `{"crash": bool}`: a client completes what its thread has prepared; with `crash` it is gone after it has found
that. The value of the answer has the numbers that its thread decided to commit: `{"committed": [n, …]}`.
`read` `{"final": bool}`: a piece of the committed logs, see `workloads/log_reader.py`.
`crash`: the client is gone.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import trio

from barnabas.runtime.world import Chance
from clients.client import ClientError, ClientSettings, PreparingClient, WorkClient
from operations import Completion, Invocation, Place
from workloads.lives import CRASH, Finale, Lives, crash, one_of
from workloads.log_reader import LogReaders, json_value
from workloads.transacting import AbortedOnPurpose, Pauses
from workloads.workload import WorkloadOptions

TOPIC = "two-phase"
PAUSES_S = (0.0, 0.0, 0.2, 1.0, 4.0)
"""Before a decision. The longest is longer than any transaction of the other workloads may take."""
RETRY_S = 0.2
"""Time until the next life, if a client could not complete what it found."""
CRASHES = ("open", "prepared", "prepared", "decided", "decided")
_CRASHES = 0.25
_CRASHES_RECOVERING = 0.25
_COMMITS = 0.7
_READS = 0.2
_FINAL_READERS = 2


class _Decisions:
    """The decisions that the external coordinator of one thread has stored."""

    def __init__(self) -> None:
        self.committed: list[int] = []
        self.state = ""
        """The prepared transaction that was decided last, as text."""

    def commit(self, number: int, state: str) -> None:
        self.committed.append(number)
        self.state = state


class TwoPhase:
    """One run of it; a `Workload`."""

    name = "two-phase"

    def __init__(self, options: WorkloadOptions) -> None:
        self._options = options
        self._lives = Lives(options)
        self._places = [Place(self._lives.named(TOPIC), partition) for partition in range(max(2, options.keys // 2))]
        self._finale = Finale(range(min(_FINAL_READERS, options.processes)))
        self._transactions = 0
        self._decisions = [_Decisions() for _ in range(options.processes)]
        self._found: set[int] = set()
        """Processes that have completed what they found at their start."""
        self._unfinished = set(range(options.processes))
        """Threads that are to complete what they have prepared, at the end."""
        self._readers = LogReaders(self._lives, self._places, json_value)

    def client_settings(self, base: ClientSettings, process: int) -> ClientSettings:
        return replace(
            base,
            group_id=None,
            transactional_id=self._lives.named(f"two-phase-{self._lives.thread(process)}"),
            two_phase=True,
            isolation=self._options.isolation,
        )

    async def set_up(self, client: WorkClient) -> None:
        await self._lives.topics(len(self._places)).need(client, [self._places[0].topic])

    def invoke(self, process: int, chance: Chance, now_ns: int) -> Invocation | None:
        if self._finale.begun:
            return self._invoke_finally(process, now_ns)
        if self._lives.crashes(process, chance, now_ns):
            return CRASH
        if process not in self._found:
            return Invocation("recover", {"crash": chance.random() < _CRASHES_RECOVERING})
        if chance.random() < _READS:
            return Invocation("read", {"final": False})
        self._transactions += 1
        number, count = self._transactions, len(self._places)
        first = chance.randrange(0, count)
        second = (first + chance.randrange(1, count)) % count
        asked = {
            "id": number,
            "records": [[*self._places[index], number] for index in (first, second)],
            "commit": chance.random() < _COMMITS,
            "crash": one_of(chance, CRASHES) if chance.random() < _CRASHES else "",
        }
        return Invocation("transact", asked)

    def _invoke_finally(self, process: int, now_ns: int) -> Invocation | None:
        """An open transaction hides what is behind it, so all are completed before anyone reads."""
        thread = self._lives.thread(process)
        if thread in self._unfinished:
            return Invocation("recover", {"crash": False})
        waits = self._finale.waits_for(thread, now_ns)
        return Invocation("read", {"final": True}) if waits and not self._unfinished else None

    # -- what a client does

    async def perform(self, process: int, invocation: Invocation, client: WorkClient, chance: Chance) -> Completion:
        if invocation.f == "crash":
            return await crash(client)
        if invocation.f == "read":
            return await self._readers.of(process, invocation).read(client)
        decisions = self._decisions[self._lives.thread(process)]
        preparing = cast(PreparingClient, client)
        if invocation.f == "recover":
            return await self._recover(process, invocation.value, preparing, decisions)
        return await self._transact(invocation.value, preparing, decisions, chance)

    async def _recover(self, process: int, asked: Any, client: PreparingClient, decisions: _Decisions) -> Completion:
        if process not in self._found:
            try:
                state = await client.find_prepared()
                if asked["crash"]:
                    return await self._gone(client, {**asked, "found": state})
                await client.complete(decisions.state)
            except ClientError as error:
                await trio.sleep(RETRY_S)
                return Completion("info", asked, (error.name, error.text), ends_process=True)
            self._found.add(process)
        return Completion("ok", {**asked, "committed": list(decisions.committed)})

    async def _transact(self, asked: Any, client: PreparingClient, decisions: _Decisions, chance: Chance) -> Completion:
        pauses = Pauses(chance, self._options.abort_probability)
        decided = False
        try:
            await client.begin()
            try:
                for topic, partition, number in asked["records"]:
                    await pauses.step()
                    await client.send(Place(topic, partition), None, json.dumps(number).encode())
                if asked["crash"] == "open":
                    return await self._gone(client, asked)
                state = await client.prepare()
            except (AbortedOnPurpose, ClientError):
                await client.abort_transaction()
                return Completion("fail", asked, ("Aborted", "before it was prepared"))
            await trio.sleep(one_of(chance, PAUSES_S))
            if asked["crash"] == "prepared":
                return await self._gone(client, asked)
            if asked["commit"]:
                decisions.commit(asked["id"], state)
                decided = True
            if asked["crash"] == "decided":
                return await self._gone(client, asked)
            await client.complete(decisions.state)
        except ClientError as error:
            # The next life of this thread completes it by the decision.
            return Completion("info" if decided else "fail", asked, (error.name, error.text), ends_process=True)
        return Completion("ok" if decided else "fail", asked)

    async def _gone(self, client: WorkClient, value: Any) -> Completion:
        await client.crash()
        return Completion("info", value, ends_process=True)

    # -- the end

    def completed(self, process: int, invocation: Invocation, completion: Completion) -> None:
        thread = self._lives.thread(process)
        if self._finale.begun and invocation.f == "recover" and completion.type == "ok":
            self._unfinished.discard(thread)
        self._finale.completed(thread, invocation, completion)

    def begin_final(self) -> None:
        self._finale.begin()

    def final_is_done(self) -> bool:
        return self._finale.over
