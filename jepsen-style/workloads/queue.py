"""Partitions as queues: everybody sends and polls, in and out of transactions, assigned and subscribed.

| f | value before | value after |
| --- | --- | --- |
| send | [["send", k, v]] | [["send", k, [offset or null, v]]] |
| poll | [["poll"]] | [["poll", {"k": [[offset, v], ...]}]] |
| txn | 1 to 4 of both | the same |
| assign, subscribe | [k, ...] | the same; an assignment's note has `from_beginning` |
| debug | [k, ...] | {"k": end offset} |
| crash | null | null, always `info` |

In a completion that is not ok a send that was not acknowledged is ["send", k, [null, v]], and a poll that was not done
is ["poll"] as before; what was polled before the failure is there, as a poller must never be given what is not safe.
Notes besides those of `operations`: `commit` (why a commit of offsets failed), `aborted` (the name of what made a
transaction abort), `abort`, `rewind` (why that failed).

Half of the processes have transactions (if there are any), and do all their work in them. A process that is subscribed
commits what it polled; one that assigned by hand has nothing to do with the group. A transaction that polled a
partition and then lost it in a rebalance is aborted: the next owner may have read its committed offset already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import trio

from barnabas.runtime.world import Chance
from clients.client import ClientError, ClientSettings, WorkClient
from operations import Completion, Invocation, Place, place_of
from workloads.final_reading import FinalReading
from workloads.keys import PARTITIONS, Keys, some_of
from workloads.lives import CRASH, Lives, crash
from workloads.read_epochs import ReadEpochs
from workloads.workload import WorkloadOptions

POLL_MS = 100
FINAL_POLL_MS = 500
REASSIGN_PROBABILITY = 1 / 64
MAX_MICRO_OPERATIONS = 4
MAX_SLEEP_SECONDS = 0.1
"""Between micro-operations, in half of the transactions."""
ON_PURPOSE = "AbortedOnPurpose"
TAKEN_AWAY = "PartitionsTakenAway"


@dataclass(slots=True)
class Process:
    """State of one process."""

    assigned: bool = False
    subscribed: bool = False
    transactions_ready: bool = False
    generation: int = -1
    """Generation of the group in its last rebalance."""


@dataclass(slots=True)
class Attempt:
    """An operation under way: what of it is done."""

    value: list[Any]
    note: dict[str, Any] = field(default_factory=dict)
    first: dict[Place, int] = field(default_factory=dict)
    """The first offset that it polled of each partition."""
    behind: dict[Place, int] = field(default_factory=dict)
    """The offset behind the last one that it polled."""
    epochs: ReadEpochs = field(default_factory=ReadEpochs)
    rebalances: list[dict[str, Any]] = field(default_factory=list)


class Queue:
    """One run of it; a `Workload`."""

    name = "queue"
    reassign_probability = REASSIGN_PROBABILITY
    reads_again = False
    """Every process that assigns partitions reads them from the beginning, and not only its first time."""

    def __init__(self, options: WorkloadOptions) -> None:
        self._options = options
        self._lives = Lives(options)
        self._group = self._lives.named("queue")
        self._keys = Keys(options.keys, options.max_writes_per_key, self._lives.named(""))
        self._topics = self._lives.topics(PARTITIONS)
        self._processes: dict[int, Process] = {}
        self._highest: dict[int, int] = {}
        """The highest offset of each key that surely exists."""
        self._unpolled: dict[int, dict[int, None]] = {}
        """Values of each key that were acknowledged and not polled yet."""
        self._final: FinalReading | None = None

    @property
    def coordinated(self) -> Sequence[tuple[Literal["group", "transaction"], str]]:
        """Groups whose coordinators are worth breaking."""
        return [("group", self._group)] if self._options.subscribe else []

    # ---- before

    def client_settings(self, base: ClientSettings, process: int) -> ClientSettings:
        options = self._options
        return replace(
            base,
            group_id=self._group,
            transactional_id=self._lives.named(f"queue-{process}") if self._is_transactional(process) else None,
            idempotence=options.idempotence,
            isolation=options.isolation,
            group_protocol=self._lives.protocol(process),
        )

    async def set_up(self, client: WorkClient) -> None:
        await self._topics.need(client, [self._keys.topic_of(0)])

    def _is_transactional(self, process: int) -> bool:
        return self._options.transactions and self._lives.thread(process) % 2 == 0

    # ---- what comes next

    def invoke(self, process: int, chance: Chance, now_ns: int) -> Invocation | None:
        state = self._processes.setdefault(process, Process())
        if self._final is not None:
            return self._invoke_final(self._final, process, now_ns)
        if self._lives.crashes(process, chance, now_ns):
            return CRASH
        if not state.assigned or chance.random() < self.reassign_probability:
            return self._reassign(chance)
        if self._is_transactional(process):
            count = chance.randrange(1, MAX_MICRO_OPERATIONS + 1)
            return Invocation("txn", [self._micro_operation(chance) for _ in range(count)])
        micro_operation = self._micro_operation(chance)
        return Invocation(micro_operation[0], [micro_operation])

    def _reassign(self, chance: Chance) -> Invocation:
        keys = some_of(self._keys.recent(), chance)
        if chance.random() < 1 / 3:
            behind = [key for key in sorted(self._unpolled) if self._unpolled[key]]
            keys = sorted(dict.fromkeys([*keys, *behind]))
        subscribes = self._options.subscribe and chance.random() < 0.5
        return Invocation("subscribe" if subscribes else "assign", keys)

    def _micro_operation(self, chance: Chance) -> list[Any]:
        if chance.random() < 0.5:
            return ["poll"]
        key = self._keys.draw(chance)
        return ["send", key, self._keys.next_value(key)]

    def _invoke_final(self, final: FinalReading, process: int, now_ns: int) -> Invocation | None:
        match final.next_step(process, now_ns):
            case None:
                return None
            case "poll":
                return Invocation("poll", [["poll"]])
            case "crash":
                return CRASH
            case step:
                return Invocation(step, final.keys)

    # ---- doing it

    async def perform(self, process: int, invocation: Invocation, client: WorkClient, chance: Chance) -> Completion:
        state = self._processes[process]
        match invocation.f:
            case "crash":
                return await crash(client)
            case "debug":
                return await self._debug(invocation.value, client)
            case "assign" | "subscribe":
                return await self._change_assignment(state, invocation, client)
            case "txn":
                return await self._transaction(state, invocation.value, client, chance)
            case "send":
                return await self._send(invocation.value, client)
            case "poll":
                return await self._poll(state, invocation.value, client)
        raise ValueError(f"queue: there is no operation {invocation.f}")

    async def _debug(self, keys: list[int], client: WorkClient) -> Completion:
        try:
            ends = await client.end_offsets([self._keys.place_of(key) for key in keys])
        except ClientError as error:
            return Completion("fail", keys, (error.name, error.text), ends_process=error.fatal)
        return Completion("ok", {str(self._keys.key_of(place)): offset for place, offset in ends.items()})

    async def _change_assignment(self, state: Process, invocation: Invocation, client: WorkClient) -> Completion:
        keys = invocation.value
        # A process that begins reads from the beginning; later on it would only read again what it has.
        is_new = self._final is not None or not state.assigned
        from_beginning = invocation.f == "assign" and (is_new or self.reads_again)
        note = {"from_beginning": from_beginning} if invocation.f == "assign" else {}
        try:
            await self._topics.need(client, self._keys.topics_of(keys))
            if invocation.f == "subscribe":
                await client.subscribe(self._keys.topics_of(keys))
            else:
                await client.assign([self._keys.place_of(key) for key in keys], from_beginning=from_beginning)
        except ClientError as error:
            return Completion("fail", keys, (error.name, error.text), ends_process=error.fatal)
        state.assigned, state.subscribed = True, invocation.f == "subscribe"
        return Completion("ok", keys, note=note)

    async def _send(self, value: list[Any], client: WorkClient) -> Completion:
        attempt = Attempt(_unacknowledged(value))
        try:
            await self._topics.need(client, self._keys.topics_of([value[0][1]]))
            await self._do_send(attempt, 0, client)
        except ClientError as error:
            return _failed(attempt, error, "fail" if error.definite else "info")
        return Completion("ok", attempt.value)

    async def _poll(self, state: Process, value: list[Any], client: WorkClient) -> Completion:
        attempt = Attempt(_unacknowledged(value))
        try:
            await self._do_poll(attempt, 0, client)
        except ClientError as error:
            self._note_rebalances(state, attempt, client)
            return _failed(attempt, error, "fail")
        self._note_rebalances(state, attempt, client)
        if state.subscribed and self._final is None and attempt.behind:
            # Its reads are real, whatever becomes of this.
            try:
                self._note_commit(state, attempt, await client.commit_offsets())
            except ClientError as error:
                attempt.note["commit"] = error.name
        return Completion("ok", attempt.value, note=attempt.note)

    async def _transaction(self, state: Process, value: list[Any], client: WorkClient, chance: Chance) -> Completion:
        attempt = Attempt(_unacknowledged(value))
        began = False
        try:
            await self._topics.need(client, self._keys.topics_of([each[1] for each in value if each[0] == "send"]))
            if not state.transactions_ready:
                await client.init_transactions()
                state.transactions_ready = True
            await client.begin()
            began = True
            await self._do_all(state, attempt, client, chance)
        except ClientError as error:
            self._note_rebalances(state, attempt, client)
            return await self._aborted(attempt, error, client, began=began)
        self._note_rebalances(state, attempt, client)
        try:
            await client.commit_transaction()
        except ClientError as error:
            return await self._not_committed(attempt, error, client)
        if state.subscribed and attempt.behind:
            self._note_commit(state, attempt, attempt.behind)
        return Completion("ok", attempt.value, note=attempt.note)

    async def _do_all(self, state: Process, attempt: Attempt, client: WorkClient, chance: Chance) -> None:
        """Everything of a transaction but its beginning and end."""
        sleeps = chance.random() < 0.5
        for index, micro_operation in enumerate(attempt.value):
            self._maybe_abort(chance)
            if micro_operation[0] == "send":
                await self._do_send(attempt, index, client)
            else:
                await self._do_poll(attempt, index, client)
            if sleeps:
                await trio.sleep(chance.random() * MAX_SLEEP_SECONDS)
        self._maybe_abort(chance)
        if state.subscribed and attempt.behind:
            await client.send_offsets(attempt.behind)

    def _maybe_abort(self, chance: Chance) -> None:
        if chance.random() < self._options.abort_probability:
            raise ClientError(ON_PURPOSE, "this transaction was to be aborted", definite=True)

    async def _aborted(self, attempt: Attempt, error: ClientError, client: WorkClient, *, began: bool) -> Completion:
        """Aborts a transaction that can no longer commit; a process that cannot abort it cannot begin another."""
        ends = error.fatal
        attempt.note["aborted"] = error.name
        if began and not error.fatal:
            try:
                await client.abort_transaction()
            except ClientError as failure:
                attempt.note["abort"] = failure.name
                ends = True
        return await self._rewound(attempt, error, client, ends=ends)

    async def _not_committed(self, attempt: Attempt, error: ClientError, client: WorkClient) -> Completion:
        """The commit did not succeed. It surely has not only if it was not tried, or if an abort succeeds after it."""
        definite, ends = error.definite, error.fatal
        if not error.fatal:
            try:
                await client.abort_transaction()
                definite = True
            except ClientError as failure:
                attempt.note["abort"] = failure.name
                ends = True
        if definite:
            attempt.note["aborted"] = error.name
            return await self._rewound(attempt, error, client, ends=ends)
        return _failed(attempt, error, "info")

    async def _rewound(self, attempt: Attempt, error: ClientError, client: WorkClient, *, ends: bool) -> Completion:
        """The next poll gives again what this operation polled. What the group has taken away is not the client's."""
        if not ends:
            mine = dict.fromkeys(client.assignment())
            for place, offset in attempt.first.items():
                if place in mine:
                    try:
                        await client.seek(place, offset)
                    except ClientError as failure:
                        attempt.note["rewind"] = failure.name
                        ends = True
        return Completion("fail", attempt.value, (error.name, error.text), note=attempt.note, ends_process=ends)

    async def _do_send(self, attempt: Attempt, index: int, client: WorkClient) -> None:
        _f, key, (_offset, value) = attempt.value[index]
        sent = await client.send(self._keys.place_of(key), None, b"%d" % value)
        attempt.value[index] = ["send", key, [sent.offset, value]]

    async def _do_poll(self, attempt: Attempt, index: int, client: WorkClient) -> None:
        reads = await client.poll(POLL_MS if self._final is None else FINAL_POLL_MS)
        taken_away = _take_away(attempt, client.take_rebalances())
        found: dict[str, list[list[int]]] = {}
        for read in reads:
            key = self._keys.key_of(read.place)
            found.setdefault(str(key), []).append([read.offset, int(read.value)])
            attempt.epochs.add(key, read.offset, read.leader_epoch)
            attempt.first.setdefault(read.place, read.offset)
            attempt.behind[read.place] = read.offset + 1
        attempt.value[index] = ["poll", found]
        attempt.note.update(attempt.epochs.note())
        if taken_away:
            text = f"a rebalance took {len(taken_away)} partitions that this operation had polled"
            raise ClientError(TAKEN_AWAY, text, definite=True)

    def _note_rebalances(self, state: Process, attempt: Attempt, client: WorkClient) -> None:
        rebalances = attempt.rebalances + client.take_rebalances()
        if rebalances:
            state.generation = rebalances[-1]["generation"]
            for each in rebalances:
                # Whatever topics are called here, readers of the history know them by their keys.
                each["places"] = [list(place_of(self._keys.key_of(Place(*place)))) for place in each["places"]]
            attempt.note["rebalances"] = rebalances

    def _note_commit(self, state: Process, attempt: Attempt, offsets: Mapping[Place, int]) -> None:
        attempt.note["committed"] = {str(self._keys.key_of(place)): offset for place, offset in offsets.items()}
        attempt.note["group"], attempt.note["generation"] = self._group, state.generation

    # ---- what came of it

    def completed(self, process: int, invocation: Invocation, completion: Completion) -> None:
        final = self._final
        if final is not None:
            final.done(process, invocation.f, ok=completion.type == "ok")
        if invocation.f in ("send", "poll", "txn"):
            for micro_operation in completion.value:
                if micro_operation[0] == "poll" and len(micro_operation) > 1:
                    self._polled(process, micro_operation[1])
                elif micro_operation[0] == "send" and completion.type == "ok":
                    self._sent(micro_operation[1], *micro_operation[2])
        if completion.type == "info" or completion.ends_process:
            self._processes.pop(process, None)
            if final is not None:
                final.lost_client(process)

    def _sent(self, key: int, offset: int | None, value: int) -> None:
        self._unpolled.setdefault(key, {})[value] = None
        if offset is not None:
            self._highest[key] = max(offset, self._highest.get(key, -1))

    def _polled(self, process: int, found: dict[str, list[list[int]]]) -> None:
        for name, records in found.items():
            key = int(name)
            unpolled = self._unpolled.get(key, {})
            for offset, value in records:
                unpolled.pop(value, None)
                self._highest[key] = max(offset, self._highest.get(key, -1))
                if self._final is not None:
                    self._final.read(process, key, offset)

    # ---- the end

    def begin_final(self) -> None:
        self._final = FinalReading(self._options.processes, self._keys.written(), self._highest)

    def final_is_done(self) -> bool:
        return self._final is not None and self._final.is_done


def _take_away(attempt: Attempt, rebalances: list[dict[str, Any]]) -> set[Place]:
    """Removes the partitions that the operation polled and that were another member's since, and returns them."""
    attempt.rebalances += rebalances
    revoked = {Place(*place) for each in rebalances if each["kind"] != "assigned" for place in each["places"]}
    taken_away = revoked & attempt.first.keys()
    for place in taken_away:
        del attempt.first[place], attempt.behind[place]
    return taken_away


def _unacknowledged(value: list[Any]) -> list[Any]:
    """The value as it is completed if nothing of it is acknowledged."""
    return [["send", each[1], [None, each[2]]] if each[0] == "send" else ["poll"] for each in value]


def _failed(attempt: Attempt, error: ClientError, type_: Any) -> Completion:
    return Completion(type_, attempt.value, (error.name, error.text), note=attempt.note, ends_process=error.fatal)
