"""Committed offsets as registers: each is written by one thread only, with numbers that grow.

Each thread has a group of its own without members, and commits numbers for a few partitions at a time, for a while,
then for others: what a coordinator forgot is not written over at once. The partitions are empty; nobody reads them.

`commit` `{"group": name, "offsets": [[topic, partition, n], …]}`.
`fetch` `{"group": name, "final": bool}`, completed with `"offsets"`: `[[topic, partition, n], …]` of all that have one.
Before the end it goes by the word of the coordinator that one broker names, each broker in its turn
(`--option one_broker=false`: as consumers find it).
`crash`: the client is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from barnabas.runtime.world import Chance
from clients.client import ClientError, ClientSettings, WorkClient
from operations import Completion, Invocation, Place
from workloads.lives import CRASH, Finale, Lives, crash, failed
from workloads.workload import WorkloadOptions

TOPIC = "offsets"
REGISTERS = 24
"""Registers of each group."""
WINDOW_NS = 4_000_000_000
"""Time after which a thread goes on to its next register; it writes to the one before for as long again."""
_FETCHES = 0.25
_BOTH = 0.3


class Offsets:
    """One run of it; a `Workload`."""

    name = "offsets"

    def __init__(self, options: WorkloadOptions) -> None:
        self._lives = Lives(options)
        registers = int(options.more.get("registers", REGISTERS))
        self._places = [Place(self._lives.named(TOPIC), partition) for partition in range(registers)]
        self._asks_one_broker = options.more.get("one_broker", "true") != "false"
        self._turn = 0
        """Turn of the broker that is asked next for the coordinator."""
        self._finale = Finale(range(options.processes))
        self._numbers: dict[int, int] = {}
        """The last one of each thread."""

    def _group(self, process: int) -> str:
        return self._lives.named(f"offsets-{self._lives.thread(process)}")

    @property
    def coordinated(self) -> Sequence[tuple[Literal["group", "transaction"], str]]:
        """Groups whose coordinators are worth breaking."""
        return [("group", self._group(thread)) for thread in range(self._lives.threads)]

    def client_settings(self, base: ClientSettings, process: int) -> ClientSettings:
        return replace(base, group_id=self._group(process), group_protocol="classic", transactional_id=None)

    async def set_up(self, client: WorkClient) -> None:
        await self._lives.topics(len(self._places)).need(client, [self._places[0].topic])

    # What to do

    def invoke(self, process: int, chance: Chance, now_ns: int) -> Invocation | None:
        thread = self._lives.thread(process)
        if self._finale.begun:
            waits = self._finale.waits_for(thread, now_ns)
            return Invocation("fetch", {"group": self._group(process), "final": True}) if waits else None
        if self._lives.crashes(process, chance, now_ns):
            return CRASH
        if chance.random() < _FETCHES:
            return Invocation("fetch", {"group": self._group(process), "final": False})
        window = now_ns // WINDOW_NS
        chosen = (window, window - 1) if chance.random() < _BOTH else (window - chance.randrange(0, 2),)
        number = self._numbers[thread] = self._numbers.get(thread, 0) + 1
        offsets = [[*self._places[each % len(self._places)], number] for each in chosen]
        return Invocation("commit", {"group": self._group(process), "offsets": offsets})

    # How it is done

    async def perform(self, process: int, invocation: Invocation, client: WorkClient, chance: Chance) -> Completion:
        value = invocation.value
        if invocation.f == "crash":
            return await crash(client)
        if invocation.f == "commit":
            return await _commit(client, value)
        try:
            if value["final"] or not self._asks_one_broker:
                found = await client.committed(self._places)
            else:
                self._turn += 1
                found = await client.committed_by_one(self._places, self._turn)
        except ClientError as error:
            return Completion("fail", value, (error.name, error.text), ends_process=error.fatal)
        note = {
            "group": value["group"],
            "committed_seen": {str(place): found.get(place, -1) for place in self._places},
            "settled": value["final"],
        }
        return Completion("ok", {**value, "offsets": [[*place, offset] for place, offset in found.items()]}, note=note)

    def completed(self, process: int, invocation: Invocation, completion: Completion) -> None:
        if invocation.f == "fetch" and invocation.value["final"] and completion.type == "ok":
            self._finale.has_finished(self._lives.thread(process))

    # The end

    def begin_final(self) -> None:
        self._finale.begin()

    def final_is_done(self) -> bool:
        return self._finale.over


async def _commit(client: WorkClient, value: Any) -> Completion:
    offsets = {Place(topic, partition): number for topic, partition, number in value["offsets"]}
    try:
        await client.assign(list(offsets), from_beginning=False)
        for place, number in offsets.items():
            await client.seek(place, number)
    except ClientError as error:
        return Completion("fail", value, (error.name, error.text), ends_process=error.fatal)
    note = {"group": value["group"], "committed": {str(place): number for place, number in offsets.items()}}
    try:
        committed = await client.commit_offsets()
    except ClientError as error:
        # Where nobody knows it may have taken place, now or later.
        return replace(failed(error, value), note=note)
    assert dict(committed) == offsets, "the client committed something else than its positions"
    return Completion("ok", value, note=note)
