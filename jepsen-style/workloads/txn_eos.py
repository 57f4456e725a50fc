"""Consume, transform, produce: each input is once in the committed output, whatever happens to the transformers.

A third of the threads feed the input topic, every other of them in transactions; the others are one group, each with a
transactional id of its own, which comes back after a crash. An output has the number of its attempt.

`feed` `{"feed": n, "records": [[topic, partition, n], …]}`.
`transform` `{"attempt": n}`, completed with `"parts"`, what was polled, as in `workloads/log_reader.py`, and
`"records": [[topic, partition, [input, n]], …]`, what was sent. What does not succeed is read again: the consumer goes
back.
`committed` (at the end): `{"offsets": [[topic, partition, offset], …]}` of the group.
`read` `{"final": true}` (at the end): both topics, all of them.
`crash`: the client is gone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from barnabas.runtime.world import Chance
from clients.client import ClientError, ClientSettings, Read, WorkClient
from operations import Completion, Invocation, Place
from workloads.lives import CRASH, Drain, Finale, Lives, crash, failed
from workloads.log_reader import LogReaders, json_value
from workloads.transacting import Ending, Pauses, ending_of, in_transaction
from workloads.workload import WorkloadOptions

INPUT = "eos-in"
OUTPUT = "eos-out"
PARTITIONS = 4
FEEDER = 3
"""One thread in this number feeds."""
MOST_INPUTS = 3
"""Maximum number of inputs of a feeding transaction."""
MOST_AT_ONCE = 20
"""Maximum number of inputs of a transforming transaction."""
POLL_MS = 200
_FINAL_READERS = 2


class TxnEos:
    """One run of it; a `Workload`."""

    name = "txn-eos"

    def __init__(self, options: WorkloadOptions) -> None:
        if options.processes < 2:
            raise ValueError("txn-eos takes one process that feeds and one that transforms: --concurrency 2 or more")
        self._options = options
        self._lives = Lives(options)
        self._inputs = [Place(self._lives.named(INPUT), partition) for partition in range(PARTITIONS)]
        self._outputs = [Place(self._lives.named(OUTPUT), partition) for partition in range(PARTITIONS)]
        self._finale = Finale(range(min(_FINAL_READERS, options.processes)))
        self._drain = Drain(options.session_seconds)
        self._fed = self._feeds = self._attempts = 0
        self._initialised: dict[int, None] = {}
        self._subscribed: dict[int, None] = {}
        self._readers = LogReaders(self._lives, [*self._inputs, *self._outputs], json_value)
        self._asked_committed: dict[int, None] = {}

    def _is_feeder(self, process: int) -> bool:
        return self._lives.thread(process) % FEEDER == 0

    def _is_transactional(self, process: int) -> bool:
        return not self._is_feeder(process) or self._lives.thread(process) // FEEDER % 2 == 1

    @property
    def coordinated(self) -> Sequence[tuple[Literal["group", "transaction"], str]]:
        """Groups whose coordinators are worth breaking."""
        return [("group", self._lives.named("eos"))]

    def client_settings(self, base: ClientSettings, process: int) -> ClientSettings:
        transactional_id = self._lives.named(f"eos-{self._lives.thread(process)}")
        return replace(
            base,
            group_id=self._lives.named("eos"),
            group_protocol=self._lives.protocol(process),
            transactional_id=transactional_id if self._is_transactional(process) else None,
            # This workload's promises do not hold for readers of uncommitted records.
            isolation="read_committed",
        )

    async def set_up(self, client: WorkClient) -> None:
        names = [self._inputs[0].topic, self._outputs[0].topic]
        await self._lives.topics(PARTITIONS).need(client, names)

    # What to do

    def invoke(self, process: int, chance: Chance, now_ns: int) -> Invocation | None:
        if self._finale.begun:
            return self._invoke_finally(process, now_ns)
        if self._lives.crashes(process, chance, now_ns):
            return CRASH
        return self._feed(process, chance) if self._is_feeder(process) else self._transform()

    def _feed(self, process: int, chance: Chance) -> Invocation:
        self._feeds += 1
        records: list[list[Any]] = []
        for _ in range(chance.randrange(1, MOST_INPUTS + 1) if self._is_transactional(process) else 1):
            self._fed += 1
            records.append([*self._inputs[chance.randrange(0, PARTITIONS)], self._fed])
        return Invocation("feed", {"feed": self._feeds, "records": records})

    def _transform(self) -> Invocation:
        self._attempts += 1
        return Invocation("transform", {"attempt": self._attempts})

    def _invoke_finally(self, process: int, now_ns: int) -> Invocation | None:
        if not self._drain.is_over(now_ns):
            return None if self._is_feeder(process) else self._transform()
        if not self._finale.waits_for(self._lives.thread(process), now_ns):
            return None
        return Invocation("read" if process in self._asked_committed else "committed", {"final": True})

    # How it is done

    async def perform(self, process: int, invocation: Invocation, client: WorkClient, chance: Chance) -> Completion:
        if invocation.f == "crash":
            return await crash(client)
        if invocation.f == "committed":
            return await self._committed(client)
        if invocation.f == "read":
            return await self._readers.of(process, invocation).read(client)
        if self._is_transactional(process) and process not in self._initialised:
            try:
                await client.init_transactions()
            except ClientError as error:
                return ending_of(error).completion(invocation.value)
            self._initialised[process] = None
        if invocation.f == "feed":
            return await self._send_inputs(process, invocation.value, client, chance)
        return await self._poll_and_transform(process, invocation.value["attempt"], client, chance)

    async def _committed(self, client: WorkClient) -> Completion:
        try:
            offsets = await client.committed(self._inputs)
        except ClientError as error:
            return Completion("fail", None, (error.name, error.text), ends_process=error.fatal)
        return Completion("ok", {"offsets": [[*place, offset] for place, offset in offsets.items()]})

    async def _send_inputs(self, process: int, value: Any, client: WorkClient, chance: Chance) -> Completion:
        async def send() -> None:
            for topic, partition, number in value["records"]:
                if self._is_transactional(process):
                    await pauses.step()
                await client.send(Place(topic, partition), None, json.dumps(number).encode())

        if self._is_transactional(process):
            pauses = Pauses(chance, self._options.abort_probability)
            return (await in_transaction(client, send)).completion(value)
        try:
            await send()
        except ClientError as error:
            return failed(error, value)
        return Completion("ok", value)

    async def _poll_and_transform(self, process: int, attempt: int, client: WorkClient, chance: Chance) -> Completion:
        value: dict[str, Any] = {"attempt": attempt, "parts": [], "records": []}
        try:
            if process not in self._subscribed:
                await client.subscribe([self._inputs[0].topic])
                self._subscribed[process] = None
            polled = await client.poll(POLL_MS)
            taken = await _first_of(client, polled)
        except ClientError as error:
            return Completion("fail", value, (error.name, error.text), ends_process=error.fatal)
        if not polled:
            return Completion("ok", value, note=_rebalances(client))
        value["parts"] = [
            [*place, reads[0].offset, reads[-1].offset + 1, [[read.offset, json.loads(read.value)] for read in reads]]
            for place, reads in taken.items()
        ]
        pauses = Pauses(chance, self._options.abort_probability)

        async def transform() -> None:
            for place, reads in taken.items():
                for read in reads:
                    record = [json.loads(read.value), attempt]
                    output = self._outputs[place.partition]
                    value["records"].append([*output, record])
                    await client.send(output, None, json.dumps(record).encode())
                await pauses.step()
            await client.send_offsets({place: reads[-1].offset + 1 for place, reads in taken.items()})
            await pauses.step()

        ending = await in_transaction(client, transform)
        if ending.type == "fail" and not ending.ends_process:
            ending = await _go_back(client, taken, ending)
        return ending.completion(value, **_rebalances(client))

    def completed(self, process: int, invocation: Invocation, completion: Completion) -> None:
        self._finale.completed(self._lives.thread(process), invocation, completion)
        if invocation.f == "transform" and completion.value and completion.value.get("parts"):
            self._drain.see()
        if invocation.f == "committed" and completion.type == "ok":
            self._asked_committed[process] = None

    # The end

    def begin_final(self) -> None:
        self._finale.begin()

    def final_is_done(self) -> bool:
        return self._finale.over


async def _first_of(client: WorkClient, polled: Sequence[Read]) -> dict[Place, list[Read]]:
    """The records by partition, at most as many as one transaction takes; the others are polled again."""
    taken: dict[Place, list[Read]] = {}
    left: dict[Place, int] = {}
    for number, read in enumerate(polled):
        if number < MOST_AT_ONCE:
            taken.setdefault(read.place, []).append(read)
        else:
            left.setdefault(read.place, read.offset)
    for place, offset in left.items():
        await client.seek(place, offset)
    return taken


async def _go_back(client: WorkClient, taken: dict[Place, list[Read]], ending: Ending) -> Ending:
    """To what was not transformed after all, as far as it is still this member's."""
    owned = client.assignment()
    try:
        for place, reads in taken.items():
            if place in owned:
                await client.seek(place, reads[0].offset)
    except ClientError:
        return replace(ending, ends_process=True)
    return ending


def _rebalances(client: WorkClient) -> dict[str, Any]:
    rebalances = client.take_rebalances()
    return {"rebalances": rebalances} if rebalances else {}
