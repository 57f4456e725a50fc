"""Members of one share group that take numbered records and accept, release, reject, renew or keep them, at random.

A third of the threads produce; some of what they send is poison, which members always release. Every member joins
with a mode of its own. Now and then one holds its records for longer than their lock, leaves, crashes, or breaks the
rules of the protocol under a new member id or that of another member. A second topic comes and goes meanwhile.

`produce` `{"place": [topic, partition], "values": [...]}`, completed with `"sent"`: `[value, offset or null, outcome]`.
`consume` `{"topics": [...]}`, completed with `"member"`, `"exchanges"` of `share_exchanges.py`, `"polled"`:
`[topic, partition, offset, delivery count, value]`, and `"reported"`: results of acknowledgements as the application
got them, `[topic, partition, offsets, error]`.
`leave`: the member leaves in good order. It is completed like `consume`, and so is `crash`.
`breach` `{"breach": name, "member": id, "place": [...]}`, completed with `"exchanges"`.
`renew-topic` `{"delete": topic, "create": topic}`.
`starts` `{"final": bool}`, completed with `"starts"` of the group, `[topic, partition, start offset, lag or null]`, and
`"ends"` of the logs, `[topic, partition, offset]`. The start offset that is stored may be that of the write before, so
the group is at the end of a log if its lag is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, cast

import trio

from barnabas.protocol.acknowledge_type import AcknowledgeType
from barnabas.runtime.world import Chance
from clients.client import ClientError, ClientSettings, ShareMode, Sharing, SharingClient, WorkClient
from clients.rule_breaker import BREACHES
from operations import Completion, Invocation, Outcome, Place
from share_exchanges import LIMIT, LOCK_MS
from workloads.lives import CRASH, Finale, Lives, drawn, failed, one_of
from workloads.workload import WorkloadOptions

TOPIC, PASSING = "share", "share-passing"
GROUP = "share"
PARTITIONS = 2
PRODUCER = 3
"""One thread in this number produces."""
MOST_TOGETHER = 5
"""Records of one `produce`."""
MOST_POLLED = 12
POLL_MS = 300
COMMIT_MS = 3_000
POISON = 0.03
"""Share of the records that no member accepts."""
DRAIN_NS = 90_000_000_000
"""After this time, with nothing broken, all records must be processed: lock, session and a margin."""
MODES = (("explicit", "record_limit"), ("explicit", "batch_optimized"), ("implicit", "batch_optimized"))
SOME_STATE = "{}:AAAAAAAAAAAAAAAAAAAAAQ:0"
"""Key of a share coordinator: that of some share partition of the group, which need not exist."""
_ACTS = (("consume", 0.8), ("starts", 0.05), ("breach", 0.08), ("leave", 0.04), ("renew-topic", 0.03))
_DECISIONS = (
    ("accept", 0.70),
    ("release", 0.11),
    ("reject", 0.04),
    ("renew", 0.06),
    ("never", 0.04),
    ("late", 0.05),
)
_KINDS = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
}


class Share:
    """One run of it; a `Workload`."""

    name = "share"

    def __init__(self, options: WorkloadOptions) -> None:
        if options.processes < 2:
            raise ValueError("share takes one process that produces and one member: --concurrency 2 or more")
        self._options = options
        self._lives = Lives(options)
        self._lock_ms = int(options.more.get("lock_ms", LOCK_MS))
        self._group = self._lives.named(GROUP)
        self._places = [Place(self._lives.named(TOPIC), partition) for partition in range(PARTITIONS)]
        self._topics = self._lives.topics(PARTITIONS)
        self._finale = Finale([0])
        self._values = 0
        self._passing = 0
        """Number of the topic that comes and goes."""
        self._members: dict[int, str] = {}
        """Member ids by process, as far as they are known."""
        self._late: dict[int, list[tuple[Place, int]]] = {}
        """By process: records whose lock was renewed, to be decided later."""
        self._mended_ns: int | None = None

    def _is_producer(self, process: int) -> bool:
        return self._lives.thread(process) % PRODUCER == 0

    @property
    def coordinated(self) -> Sequence[tuple[Literal["group", "transaction", "share"], str]]:
        """Coordinators that are worth breaking."""
        return [("group", self._group), ("share", SOME_STATE.format(self._group))]

    def client_settings(self, base: ClientSettings, process: int) -> ClientSettings:
        return replace(
            base,
            group_id=None,
            transactional_id=None,
            idempotence=self._options.idempotence,
            isolation="read_uncommitted",
        )

    async def set_up(self, client: WorkClient) -> None:
        await self._topics.need(client, [self._places[0].topic, self._passing_name()])
        configs = {
            "share.auto.offset.reset": "earliest",
            "share.record.lock.duration.ms": str(self._lock_ms),
            "share.delivery.count.limit": self._options.more.get("limit", str(LIMIT)),
            "share.isolation.level": self._options.isolation,
        }
        await cast(SharingClient, client).sharing.configure(self._group, configs)

    def _passing_name(self) -> str:
        return self._lives.named(f"{PASSING}-{self._passing}")

    # What to do

    def invoke(self, process: int, chance: Chance, now_ns: int) -> Invocation | None:
        if self._finale.begun:
            return self._invoke_finally(process, now_ns)
        if self._lives.crashes(process, chance, now_ns):
            return CRASH
        if self._is_producer(process):
            return self._produce(chance)
        f = drawn(chance, _ACTS)
        if f == "breach":
            victims = list(self._members.values())
            stolen = one_of(chance, victims) if victims and chance.random() < 0.3 else ""
            member = stolen or f"breaker-{process}-{chance.randrange(0, 1_000_000)}"
            place = one_of(chance, self._places)
            return Invocation(f, {"breach": one_of(chance, list(BREACHES)), "member": member, "place": [*place]})
        if f == "renew-topic":
            before = self._passing_name()
            self._passing += 1
            return Invocation(f, {"delete": before, "create": self._passing_name()})
        if f == "starts":
            return Invocation(f, {"final": False})
        if f == "leave" and process in self._members:
            return Invocation(f)
        return self._consume()

    def _consume(self) -> Invocation:
        return Invocation("consume", {"topics": [self._places[0].topic, self._passing_name()]})

    def _produce(self, chance: Chance) -> Invocation:
        place = one_of(chance, self._places)
        if chance.random() < 0.1:
            place = Place(self._passing_name(), place.partition)
        values = []
        for _ in range(chance.randrange(1, MOST_TOGETHER + 1)):
            self._values += 1
            values.append(f"poison-{self._values}" if chance.random() < POISON else str(self._values))
        return Invocation("produce", {"place": [*place], "values": values})

    def _invoke_finally(self, process: int, now_ns: int) -> Invocation | None:
        if self._mended_ns is None:
            self._mended_ns = now_ns
        if not self._finale.waits_for(0, now_ns):
            return None
        if self._lives.thread(process) == 0:
            return Invocation("starts", {"final": True, "late": now_ns - self._mended_ns > DRAIN_NS})
        return self._consume()

    # How it is done

    async def perform(self, process: int, invocation: Invocation, client: WorkClient, chance: Chance) -> Completion:
        f, value = invocation.f, invocation.value
        sharing = cast(SharingClient, client).sharing
        if f == "crash":
            member = sharing.member_id
            await client.crash()
            return Completion("info", _noted(sharing, member, [], all_of_them=True), ends_process=True)
        if f == "produce":
            return await _send(client, value)
        if f == "leave":
            return await self._leave(sharing)
        if f == "consume":
            return await self._take(process, value["topics"], sharing, chance)
        try:
            if f == "breach":
                place = Place(*value["place"])
                exchanges = await sharing.break_rules(self._group, value["member"], place, value["breach"])
                return Completion("ok", {**value, "exchanges": exchanges})
            if f == "renew-topic":
                await self._topics.need(client, [value["create"]])
                await client.delete_topic(value["delete"])
                return Completion("ok", value)
            return await self._look(client, sharing, value)
        except ClientError as error:
            completion = failed(error, value)
            # Nobody waits for the outcome of these.
            return replace(completion, type="fail") if f != "renew-topic" else replace(completion, type="ok")

    async def _look(self, client: WorkClient, sharing: Sharing, value: dict[str, Any]) -> Completion:
        ends = await client.end_offsets(self._places)
        starts = await sharing.start_offsets(self._group, self._places)
        seen = {
            "starts": [[*place, *at] for place, at in starts.items()],
            "ends": [[*place, end] for place, end in ends.items()],
        }
        is_drained = all(_is_at_end(starts.get(place), ends.get(place, 0)) for place in self._places)
        return Completion("ok", {**value, **seen, "drained": is_drained}, note={"group": self._group})

    async def _leave(self, sharing: Sharing) -> Completion:
        member = sharing.member_id
        await sharing.leave()
        return Completion("ok", _noted(sharing, member, [], all_of_them=True), ends_process=True)

    async def _take(self, process: int, topics: Sequence[str], sharing: Sharing, chance: Chance) -> Completion:
        acknowledges, acquires = MODES[process % len(MODES)]
        polled: list[list[Any]] = []
        error: ClientError | None = None
        try:
            await sharing.join(topics, ShareMode(self._group, acknowledges, acquires))
            polled = await sharing.poll(POLL_MS, chance.randrange(1, MOST_POLLED))
            if not self._finale.begun and chance.random() < 0.04:
                await trio.sleep(self._lock_ms / 1000 * (0.5 + chance.random()))
            if acknowledges == "explicit":
                self._decide_late(process, sharing, chance)
                for topic, partition, offset, _, text in polled:
                    self._decide(process, sharing, chance, (Place(topic, partition), offset, text))
            await sharing.commit(COMMIT_MS)
        except ClientError as raised:
            error = raised
        member = sharing.member_id
        if error is None:
            return Completion("ok", _noted(sharing, member, polled))
        if error.fatal:
            await sharing.leave(0)
        value = _noted(sharing, member, polled, all_of_them=error.fatal)
        return Completion("fail", value, (error.name, error.text), ends_process=error.fatal)

    def _decide(self, process: int, sharing: Sharing, chance: Chance, record: tuple[Place, int, str]) -> None:
        place, offset, text = record
        decision = "accept" if self._finale.begun else drawn(chance, _DECISIONS)
        if text.startswith("poison") and not self._finale.begun:
            decision = "release"
        if decision in _KINDS:
            sharing.decide(place, offset, _KINDS[decision])
            return
        sharing.decide(place, offset, AcknowledgeType.RENEW)
        if decision != "never":
            self._late.setdefault(process, []).append((place, offset))

    def _decide_late(self, process: int, sharing: Sharing, chance: Chance) -> None:
        left = []
        for place, offset in self._late.pop(process, ()):
            if chance.random() < 0.5 and not self._finale.begun:
                left.append((place, offset))
            else:
                sharing.decide(place, offset, AcknowledgeType.ACCEPT)
        if left:
            self._late[process] = left

    def completed(self, process: int, invocation: Invocation, completion: Completion) -> None:
        if completion.type == "info" or completion.ends_process:
            self._members.pop(process, None)
            self._late.pop(process, None)
        elif invocation.f == "consume" and completion.value["member"]:
            self._members[process] = completion.value["member"]
        is_last_look = invocation.f == "starts" and invocation.value["final"] and completion.type == "ok"
        if is_last_look and (completion.value["drained"] or invocation.value["late"]):
            self._finale.has_finished(0)

    def begin_final(self) -> None:
        self._finale.begin()

    def final_is_done(self) -> bool:
        return self._finale.over


def _noted(sharing: Sharing, member: str, polled: list[list[Any]], *, all_of_them: bool = False) -> dict[str, Any]:
    return {
        "member": member,
        "exchanges": sharing.take_exchanges(all_of_them=all_of_them),
        "polled": polled,
        "reported": sharing.take_reported(),
    }


def _is_at_end(start: tuple[int, int | None] | None, end: int) -> bool:
    if start is None:
        return end == 0
    return start[0] >= end or start[1] == 0


async def _send(client: WorkClient, value: dict[str, Any]) -> Completion:
    """The first record alone, then the others together."""
    place = Place(*value["place"])
    values: list[str] = value["values"]
    sent: dict[str, list[Any]] = {}
    errors: list[ClientError] = []

    async def send(each: str) -> None:
        try:
            acked = await client.send(place, None, each.encode())
            sent[each] = [each, acked.offset, "ok"]
        except ClientError as error:
            errors.append(error)
            outcome: Outcome = "fail" if error.definite else "info"
            sent[each] = [each, None, outcome]

    await send(values[0])
    async with trio.open_nursery() as nursery:
        for each in values[1:]:
            nursery.start_soon(send, each)
    value = {**value, "sent": [sent[each] for each in values]}
    if not errors:
        return Completion("ok", value)
    # The client goes on: outcomes are known for each value.
    cause = errors[0]
    is_fatal = any(error.fatal for error in errors)
    return Completion("fail", value, (cause.name, cause.text), ends_process=is_fatal)
