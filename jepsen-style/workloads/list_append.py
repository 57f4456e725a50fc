"""Partitions as lists: each key is appended to, and read as a whole, from its first record to its end.

| f | value before | value after |
| --- | --- | --- |
| txn | 1 to 4 of ["send", k, v] and ["poll", {"k": []}] | ["send", k, [offset or null, v]], ["poll", {"k": list}] |
| send, poll | one of these, by processes without transactions | the same |
| crash | null | null, always `info` |

A list is [[offset, value], ...]. A poll reads the key from its beginning to the end that the leader names at that
moment; everything that stands there and is committed is in it, so that of two lists one must be the beginning of the
other, in any process.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import trio

from barnabas.runtime.world import Chance
from clients.client import ClientError, ClientSettings, WorkClient
from operations import Completion, Invocation
from workloads.keys import PARTITIONS, Keys
from workloads.lives import CRASH, Lives, crash
from workloads.read_epochs import ReadEpochs
from workloads.workload import WorkloadOptions

POLL_MS = 100
READ_SECONDS = 10.0
"""Maximum time for reading a list."""
MAX_MICRO_OPERATIONS = 4
MAX_WRITES = 128
"""Writes of a key: each list is read as a whole, and often."""
FINAL_TRIES = 3
ON_PURPOSE = "AbortedOnPurpose"


@dataclass(slots=True)
class Process:
    """State of one process."""

    transactions_ready: bool = False


class ListAppend:
    """One run of it; a `Workload`."""

    name = "list-append"

    def __init__(self, options: WorkloadOptions) -> None:
        self._options = options
        self._lives = Lives(options)
        self._keys = Keys(options.keys, min(options.max_writes_per_key, MAX_WRITES), self._lives.named(""))
        self._topics = self._lives.topics(PARTITIONS)
        self._processes: dict[int, Process] = {}
        self._epochs: dict[int, ReadEpochs] = {}
        """Leader epochs of the operation that each process performs."""
        self._to_read: dict[int, int] | None = None
        """In the final phase: keys that nobody has read yet, with the tries that are left."""

    # ---- before

    def client_settings(self, base: ClientSettings, process: int) -> ClientSettings:
        return replace(
            base,
            transactional_id=self._lives.named(f"list-append-{process}") if self._is_transactional(process) else None,
            idempotence=self._options.idempotence,
            isolation=self._options.isolation,
        )

    async def set_up(self, client: WorkClient) -> None:
        await self._topics.need(client, [self._keys.topic_of(0)])

    def _is_transactional(self, process: int) -> bool:
        return self._options.transactions and self._lives.thread(process) % 2 == 0

    # ---- what comes next

    def invoke(self, process: int, chance: Chance, now_ns: int) -> Invocation | None:
        self._processes.setdefault(process, Process())
        if self._to_read is not None:
            return self._invoke_final(self._to_read)
        if self._lives.crashes(process, chance, now_ns):
            return CRASH
        if self._is_transactional(process):
            count = chance.randrange(1, MAX_MICRO_OPERATIONS + 1)
            return Invocation("txn", self._micro_operations(chance, count))
        [micro_operation] = self._micro_operations(chance, 1)
        return Invocation(micro_operation[0], [micro_operation])

    def _micro_operations(self, chance: Chance, count: int) -> list[list[Any]]:
        """Reads no list twice: within one operation a process reads on and never back."""
        chosen: list[list[Any]] = []
        read: dict[int, None] = {}
        for _ in range(count):
            key = self._keys.draw(chance)
            if chance.random() < 0.5 and key not in read:
                read[key] = None
                chosen.append(["poll", {str(key): []}])
            else:
                chosen.append(["send", key, self._keys.next_value(key)])
        return chosen

    def _invoke_final(self, to_read: dict[int, int]) -> Invocation | None:
        for key, tries in to_read.items():
            if tries > 0:
                # The last in line from now on: the others read other keys meanwhile.
                del to_read[key]
                to_read[key] = tries - 1
                return Invocation("poll", [["poll", {str(key): []}]])
        return None

    # ---- doing it

    async def perform(self, process: int, invocation: Invocation, client: WorkClient, chance: Chance) -> Completion:
        if invocation.f == "crash":
            return await crash(client)
        self._epochs[process] = ReadEpochs()
        completion = await self._appended_or_read(process, invocation, client, chance)
        return replace(completion, note=self._epochs.pop(process).note())

    async def _appended_or_read(
        self, process: int, invocation: Invocation, client: WorkClient, chance: Chance
    ) -> Completion:
        value = _unacknowledged(invocation.value)
        try:
            await self._topics.need(client, self._keys.topics_of([_key(each) for each in invocation.value]))
            if invocation.f == "txn":
                return await self._transaction(process, value, client, chance)
            await self._do(process, value, 0, client)
        except ClientError as error:
            definite = error.definite or invocation.f == "poll"
            return _ended("fail" if definite else "info", value, error, ends=error.fatal)
        return Completion("ok", value)

    async def _transaction(self, process: int, value: list[Any], client: WorkClient, chance: Chance) -> Completion:
        state, began = self._processes[process], False
        try:
            if not state.transactions_ready:
                await client.init_transactions()
                state.transactions_ready = True
            await client.begin()
            began = True
            for index in range(len(value)):
                if chance.random() < self._options.abort_probability:
                    raise ClientError(ON_PURPOSE, "this transaction was to be aborted", definite=True)
                await self._do(process, value, index, client)
        except ClientError as error:
            # It can no longer commit; a process that cannot abort it cannot begin another.
            aborted = not began or (not error.fatal and await _could_abort(client))
            return _ended("fail", value, error, ends=error.fatal or not aborted)
        try:
            await client.commit_transaction()
        except ClientError as error:
            aborted = not error.fatal and await _could_abort(client)
            return _ended("fail" if error.definite or aborted else "info", value, error, ends=not aborted)
        return Completion("ok", value)

    async def _do(self, process: int, value: list[Any], index: int, client: WorkClient) -> None:
        key = _key(value[index])
        if value[index][0] == "poll":
            value[index] = ["poll", {str(key): await self._read(key, client, self._epochs[process])}]
        else:
            appended = value[index][2][1]
            sent = await client.send(self._keys.place_of(key), None, b"%d" % appended)
            value[index] = ["send", key, [sent.offset, appended]]

    async def _read(self, key: int, client: WorkClient, epochs: ReadEpochs) -> list[list[int]]:
        place = self._keys.place_of(key)
        end = (await client.end_offsets([place]))[place]
        await client.assign([], from_beginning=True)
        await client.assign([place], from_beginning=True)
        found: list[list[int]] = []
        with trio.move_on_after(READ_SECONDS):
            while (await client.position(place) or 0) < end:
                for read in await client.poll(POLL_MS):
                    found.append([read.offset, int(read.value)])
                    epochs.add(key, read.offset, read.leader_epoch)
            return found
        raise ClientError("ReadTimeout", f"{place} was not read to {end} in {READ_SECONDS:g} s", definite=True)

    # ---- what came of it

    def completed(self, process: int, invocation: Invocation, completion: Completion) -> None:
        if self._to_read is not None and invocation.f == "poll" and completion.type == "ok":
            for key in completion.value[0][1]:
                self._to_read.pop(int(key), None)
        if completion.type == "info" or completion.ends_process:
            self._processes.pop(process, None)

    def begin_final(self) -> None:
        self._to_read = dict.fromkeys(self._keys.written(), FINAL_TRIES)

    def final_is_done(self) -> bool:
        return self._to_read is not None and not self._to_read


async def _could_abort(client: WorkClient) -> bool:
    try:
        await client.abort_transaction()
    except ClientError:
        return False
    return True


def _key(micro_operation: list[Any]) -> int:
    key = micro_operation[1]
    return int(next(iter(key))) if isinstance(key, dict) else int(key)


def _unacknowledged(value: list[Any]) -> list[Any]:
    """The value as it is completed if nothing of it is acknowledged."""
    return [["send", each[1], [None, each[2]]] if each[0] == "send" else list(each) for each in value]


def _ended(type_: Any, value: list[Any], error: ClientError, *, ends: bool) -> Completion:
    return Completion(type_, value, (error.name, error.text), ends_process=ends)
