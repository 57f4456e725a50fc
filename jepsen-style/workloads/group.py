"""Members of one group that come, go, crash and come again, and each time read on from what was committed.

A quarter of the threads feed; of the others every third is a static member.

`feed` `{"value": n, "place": [topic, partition]}`, completed with its `"offset"`.
`work` `{"member": name}`: one poll and a commit of the positions, completed with `"parts"`, what was polled, as in
`workloads/log_reader.py`, and `"committed"`: `[[topic, partition, offset], …]`, or null where nothing was. The note
has the rebalances that happened meanwhile. `info`: the commit was requested, and its outcome is unknown.
`leave`: the client is closed in good order.
`committed` (at the end): `{"offsets": [[topic, partition, offset], …]}` of the group.
`read` `{"final": true}` (at the end): the topic, all of it.
`crash`: the client is gone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from barnabas.runtime.world import Chance
from clients.client import ClientError, ClientSettings, WorkClient
from operations import Completion, Invocation, Place
from workloads.lives import CRASH, Drain, Finale, Lives, crash, failed
from workloads.log_reader import LogReaders, json_value
from workloads.workload import WorkloadOptions

TOPIC = "group"
PARTITIONS = 6
FEEDER = 4
"""One thread in this number feeds."""
STATIC = 3
"""One of the other threads in this number is a static member."""
POLL_MS = 200
_LEAVES = 0.02
_FINAL_READERS = 2


class Group:
    """One run of it; a `Workload`."""

    name = "group"

    def __init__(self, options: WorkloadOptions) -> None:
        if options.processes < 3:
            raise ValueError("group takes one process that feeds and two members: --concurrency 3 or more")
        self._options = options
        self._lives = Lives(options)
        self._places = [Place(self._lives.named(TOPIC), partition) for partition in range(PARTITIONS)]
        self._finale = Finale(range(min(_FINAL_READERS, options.processes)))
        self._drain = Drain(options.session_seconds)
        self._values = 0
        self._subscribed: dict[int, None] = {}
        self._readers = LogReaders(self._lives, self._places, json_value)
        self._knows_committed: dict[int, None] = {}

    def _is_feeder(self, process: int) -> bool:
        return self._lives.thread(process) % FEEDER == 0

    def _instance(self, process: int) -> str | None:
        thread = self._lives.thread(process)
        is_static = not self._is_feeder(process) and thread % STATIC == 2
        return self._lives.named(f"group-{thread}") if is_static else None

    @property
    def coordinated(self) -> Sequence[tuple[Literal["group", "transaction"], str]]:
        """Groups whose coordinators are worth breaking."""
        return [("group", self._lives.named("group"))]

    def client_settings(self, base: ClientSettings, process: int) -> ClientSettings:
        return replace(
            base,
            group_id=self._lives.named("group"),
            group_protocol=self._lives.protocol(process),
            group_instance_id=self._instance(process),
            transactional_id=None,
            idempotence=self._options.idempotence,
            isolation=self._options.isolation,
        )

    async def set_up(self, client: WorkClient) -> None:
        await self._lives.topics(PARTITIONS).need(client, [self._places[0].topic])

    # What to do

    def invoke(self, process: int, chance: Chance, now_ns: int) -> Invocation | None:
        if self._finale.begun:
            return self._invoke_finally(process, now_ns)
        if self._lives.crashes(process, chance, now_ns):
            return CRASH
        if self._is_feeder(process):
            self._values += 1
            return Invocation(
                "feed", {"value": self._values, "place": [*self._places[chance.randrange(0, PARTITIONS)]]}
            )
        if process in self._subscribed and chance.random() < _LEAVES:
            return Invocation("leave")
        return self._work(process)

    def _work(self, process: int) -> Invocation:
        # A static member is the same one in its next life.
        return Invocation("work", {"member": self._instance(process) or f"process-{process}"})

    def _invoke_finally(self, process: int, now_ns: int) -> Invocation | None:
        if not self._drain.is_over(now_ns):
            return None if self._is_feeder(process) else self._work(process)
        if not self._finale.waits_for(self._lives.thread(process), now_ns):
            return None
        return Invocation("read" if process in self._knows_committed else "committed", {"final": True})

    # How it is done

    async def perform(self, process: int, invocation: Invocation, client: WorkClient, chance: Chance) -> Completion:
        f, value = invocation.f, invocation.value
        if f == "crash":
            return await crash(client)
        if f == "leave":
            return Completion("ok", ends_process=True)
        if f == "feed":
            return await _feed(client, value)
        if f == "work":
            return await self._poll_and_commit(process, value["member"], client)
        if f == "read":
            return await self._readers.of(process, invocation).read(client)
        try:
            offsets = await client.committed(self._places)
        except ClientError as error:
            return Completion("fail", None, (error.name, error.text), ends_process=error.fatal)
        note = {
            "group": self._lives.named("group"),
            "committed_seen": {str(place): offsets.get(place, -1) for place in self._places},
            "settled": True,
        }
        return Completion("ok", {"offsets": [[*place, offset] for place, offset in offsets.items()]}, note=note)

    async def _poll_and_commit(self, process: int, member: str, client: WorkClient) -> Completion:
        value: dict[str, Any] = {"member": member, "parts": [], "committed": None}
        try:
            if process not in self._subscribed:
                await client.subscribe([self._places[0].topic])
                self._subscribed[process] = None
            polled = await client.poll(POLL_MS)
        except ClientError as error:
            cause = (error.name, error.text)
            return Completion("fail", value, cause, note=_rebalances(client), ends_process=error.fatal)
        taken: dict[Place, list[list[int]]] = {}
        for read in polled:
            taken.setdefault(read.place, []).append([read.offset, json.loads(read.value)])
        value["parts"] = [[*place, reads[0][0], reads[-1][0] + 1, reads] for place, reads in taken.items()]
        note = _rebalances(client)
        if not polled:
            return Completion("ok", value, note=note)
        try:
            committed = await client.commit_offsets()
        except ClientError as error:
            # The records were polled, whatever becomes of the commit; its error is in the note.
            note |= {"commit": [error.name, error.text]}
            return Completion("ok" if error.definite else "info", value, note=note, ends_process=error.fatal)
        value["committed"] = [[*place, offset] for place, offset in committed.items()]
        note["group"] = self._lives.named("group")
        note["committed"] = {str(place): offset for place, offset in committed.items()}
        return Completion("ok", value, note=note)

    def completed(self, process: int, invocation: Invocation, completion: Completion) -> None:
        self._finale.completed(self._lives.thread(process), invocation, completion)
        if invocation.f == "work" and completion.value.get("parts"):
            self._drain.see()
        if invocation.f == "committed" and completion.type == "ok":
            self._knows_committed[process] = None

    # The end

    def begin_final(self) -> None:
        self._finale.begin()

    def final_is_done(self) -> bool:
        return self._finale.over


async def _feed(client: WorkClient, value: Any) -> Completion:
    try:
        sent = await client.send(Place(*value["place"]), None, json.dumps(value["value"]).encode())
    except ClientError as error:
        return failed(error)
    return Completion("ok", {**value, "offset": sent.offset})


def _rebalances(client: WorkClient) -> dict[str, Any]:
    rebalances = client.take_rebalances()
    return {"rebalances": rebalances} if rebalances else {}
