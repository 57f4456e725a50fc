"""The generic coordinator, tested with a state machine that only counts, on a topic of its own and a cluster that loses
nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from barnabas.broker.coordinator.coordinator import (
    CoordinatedKind,
    CoordinatedTopic,
    Coordinator,
    java_hash,
    partition_for,
)
from barnabas.broker.coordinator.outcome import CoordinatorRecord, Now, Outcome, ProducerStamp, Reply
from barnabas.broker.coordinator.shard import ANSWERS_IN_ONE_STEP, ShardState
from barnabas.broker.coordinator.shard_timers import ShardTimers
from barnabas.broker.replication.partition import Partition
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import group_log
from barnabas.protocol.messages.group_log import OffsetCommitKey, OffsetCommitValue
from barnabas.protocol.records.control import EndTxn
from barnabas.protocol.schema import Message
from barnabas.runtime.late import Late
from barnabas.storage.producers import Verification
from tests.broker.apis.rig import Rig, on_cluster

TOPIC = "counts"


class Counter:
    """Counts each name; counts of a transaction take effect with its marker."""

    def __init__(self, timers: ShardTimers) -> None:
        self.timers = timers
        self.counts: dict[str, int] = {}
        self.pending: dict[int, list[str]] = {}
        self.waiting: list[Reply] = []
        self.changes = 0

    def count_in(
        self, name: str, reply: Reply, producer: ProducerStamp, verification: Verification | None, now: Now
    ) -> Outcome:
        outcome = self.count(name, reply, producer, now)
        outcome.verification = verification
        return outcome

    def count(self, name: str, reply: Reply, producer: ProducerStamp | None, now: Now) -> Outcome:
        if name == "refused":
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        record = CoordinatorRecord(
            OffsetCommitKey(group=name, topic="t", partition=0),
            OffsetCommitValue(offset=now.wall_ms, metadata="", commit_timestamp=now.wall_ms),
            3,
        )
        return Outcome([record], [(reply, self.counts.get(name, 0) + 1)], producer)

    def look(self, name: str, reply: Reply, _now: Now) -> Outcome:
        return Outcome(answers=[(reply, self.counts.get(name, 0))])

    def wait(self, reply: Reply, _now: Now) -> Outcome:
        self.waiting.append(reply)
        return Outcome()

    def answer_all(self, replies: Sequence[Reply], _now: Now) -> Outcome:
        return Outcome(answers=[(reply, number) for number, reply in enumerate(replies)])

    def count_later(self, name: str, reply: Reply, delay_ms: int, now: Now) -> Outcome:
        self.timers.schedule(name, now.monotonic_ms + delay_ms, partial(self.count, name, reply, None))
        return Outcome()

    def replay(self, key: Message, value: Message | None, producer: ProducerStamp | None, offset: int) -> None:
        assert isinstance(key, OffsetCommitKey) and isinstance(value, OffsetCommitValue)
        if producer is None:
            self.counts[key.group] = self.counts.get(key.group, 0) + 1
        else:
            self.pending.setdefault(producer.producer_id, []).append(key.group)

    def replay_marker(self, producer: ProducerStamp, committed: bool) -> None:
        for name in self.pending.pop(producer.producer_id, []):
            if committed:
                self.counts[name] = self.counts.get(name, 0) + 1

    def loaded(self, now: Now) -> Outcome:
        return Outcome()

    def metadata_changed(self, delta: MetadataDelta, now: Now) -> Outcome:
        self.changes += 1
        return Outcome()

    def give_up(self) -> list[Reply]:
        return self.waiting


KIND = "barnabas.broker.coordinator.coordinator:CoordinatedKind"


class Answers:
    """Responses by a name for each request."""

    def __init__(self) -> None:
        self.got: dict[str, Any] = {}

    def has(self, name: str) -> bool:
        return name in self.got

    def reply(self, name: str) -> Reply:
        def keep(answer: Any) -> None:
            assert name not in self.got, f"{name} was answered twice"
            self.got[name] = answer

        return Reply(keep, keep)


def coordinate(
    rig: Rig, node: int, commit_timeout_ms: int = 5_000, *, is_loaded: bool = True
) -> Coordinator[Counter]:
    broker = rig.broker(node)

    def make_machine(_partition: Partition, timers: ShardTimers) -> Counter:
        return Counter(timers)

    kind: Late[CoordinatedKind[Counter]] = Late(KIND, group_log, make_machine)
    if is_loaded:
        kind.load()
    coordinator = Coordinator(
        CoordinatedTopic(TOPIC, lambda: commit_timeout_ms),
        broker.world,
        broker.background,
        broker.wheel,
        lambda: broker.metadata.image,
        kind,
    )
    broker.coordination.all.append(coordinator)
    return coordinator


@pytest.mark.feature("CG-02", "TX-01")
@pytest.mark.parametrize(
    ("text", "value", "partition"),
    [("", 0, 0), ("a", 97, 47), ("hello", 99162322, 22), ("polygenelubricants", -(2**31), 0), ("日本", 835047, 47)],
)
def test_keys_hash_as_in_java(text: str, value: int, partition: int) -> None:
    assert java_hash(text) == value
    assert partition_for(text, 50) == partition


@on_cluster()
async def test_an_empty_partition_gets_its_shard_with_the_first_request(rig: Rig) -> None:
    coordinator = coordinate(rig, 1, is_loaded=False)
    await rig.create(TOPIC, partitions=1, replicas=1)
    await rig.until(lambda: rig.leader(TOPIC) == 1)
    with pytest.raises(KafkaError) as refused:
        coordinator.shard("anything")
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not coordinator.may_be_deposed and not coordinator.may_have_lost(0)
    await rig.until(lambda: bool(coordinator.shards))
    assert coordinator.shard("anything").state is ShardState.ACTIVE


@on_cluster()
async def test_a_room_that_opens_has_active_shards_at_once(rig: Rig) -> None:
    coordinator = coordinate(rig, 1, is_loaded=False)
    await rig.create(TOPIC, partitions=3, replicas=1)
    await rig.until(lambda: rig.leader(TOPIC) == 1)
    assert coordinator.shards == []
    coordinator.open()
    assert [shard.state for shard in coordinator.shards] == [ShardState.ACTIVE] * 3


@on_cluster()
async def test_a_partition_with_records_is_loaded_without_a_request(rig: Rig) -> None:
    before = coordinate(rig, 1)
    await rig.create(TOPIC, partitions=1, replicas=1)
    await rig.until(lambda: bool(before.shards) and before.shards[0].state is ShardState.ACTIVE)
    answers = Answers()
    reply = answers.reply("count")
    before.shards[0].run(partial(before.shards[0].machine.count, "a", reply, None), reply)
    await rig.until(partial(answers.has, "count"))

    after = coordinate(rig, 1, is_loaded=False)
    after.leadership_changed(before.shards[0].partition)
    assert after.shards == []
    await rig.until(lambda: bool(after.shards) and after.shards[0].state is ShardState.ACTIVE)
    assert after.shards[0].machine.counts == {"a": 1}


@on_cluster()
async def test_a_lost_partition_is_not_opened(rig: Rig) -> None:
    coordinator = coordinate(rig, 1, is_loaded=False)
    await rig.create(TOPIC, partitions=1, replicas=1)
    await rig.until(lambda: rig.leader(TOPIC) == 1)
    coordinator.stop()
    coordinator.open()
    assert coordinator.shards == []
    with pytest.raises(KafkaError) as refused:
        coordinator.shard_at(0)
    assert refused.value.code is ErrorCode.NOT_COORDINATOR


@pytest.mark.feature("CG-12")
@on_cluster(brokers=3)
async def test_answered_commands_are_known_to_the_next_coordinator(rig: Rig) -> None:
    coordinators = {node: coordinate(rig, node) for node in (1, 2, 3)}
    await rig.create(TOPIC, partitions=1, replicas=3)
    await rig.until(lambda: rig.leader(TOPIC) > 0)
    leader = rig.leader(TOPIC)
    await rig.until(lambda: coordinators[leader].shards)
    await rig.until(lambda: coordinators[leader].shards[0].state is ShardState.ACTIVE)
    answers = Answers()
    shard = coordinators[leader].shard("anything")
    for number in range(3):
        name = f"count {number}"
        reply = answers.reply(name)
        shard.run(partial(shard.machine.count, "a", reply, None), reply)
        assert name not in answers.got, "nothing is replicated yet"
        await rig.until(partial(answers.has, name))
    reply = answers.reply("refused")
    shard.run(partial(shard.machine.count, "refused", reply, None), reply)
    waits = answers.reply("waits")
    shard.run(partial(shard.machine.wait, waits), waits)
    later = answers.reply("later")
    shard.run(partial(shard.machine.count_later, "a", later, 500), later)
    await rig.until(lambda: "later" in answers.got)
    assert answers.got == {
        "count 0": 1, "count 1": 2, "count 2": 3, "refused": ErrorCode.UNKNOWN_MEMBER_ID, "later": 4
    }  # fmt: skip

    # The transaction stays open over the change of the coordinator, and ends at the new one.
    stamp = ProducerStamp(7, 0)
    reply = answers.reply("in a transaction")
    verification = shard.begin_verification(stamp, supports_epoch_bump=False)
    shard.run(partial(shard.machine.count_in, "a", reply, stamp, verification), reply)
    await rig.until(lambda: "in a transaction" in answers.got)
    assert shard.machine.counts == {"a": 4}

    rig.cluster.kill(rig.name(leader))
    await rig.until(lambda: rig.leader(TOPIC) not in (leader, -1))
    successor = coordinators[rig.leader(TOPIC)]
    await rig.until(lambda: successor.shards and successor.shards[0].state is ShardState.ACTIVE)
    shard = successor.shard("anything")
    assert shard.machine.counts == {"a": 4}
    assert shard.machine.pending == {7: ["a"]}
    ended = answers.reply("ended")
    shard.end_transaction(stamp, EndTxn(True, 0), ended, "done")
    reply = answers.reply("look")
    shard.run(partial(shard.machine.look, "a", reply), reply)
    await rig.until(lambda: "look" in answers.got)
    assert (answers.got["ended"], answers.got["look"]) == ("done", 5)


@pytest.mark.feature("CG-12")
@on_cluster(brokers=3)
async def test_waiting_requests_are_refused_when_the_partition_moves(rig: Rig) -> None:
    coordinators = {node: coordinate(rig, node) for node in (1, 2, 3)}
    await rig.create(TOPIC, partitions=1, replicas=3)
    await rig.until(lambda: rig.leader(TOPIC) > 0 and coordinators[rig.leader(TOPIC)].shards)
    leader = rig.leader(TOPIC)
    shard = coordinators[leader].shards[0]
    await rig.until(lambda: shard.state is ShardState.ACTIVE)
    answers = Answers()
    waits = answers.reply("waits")
    shard.run(partial(shard.machine.wait, waits), waits)
    await rig.cluster.stop(rig.name(leader))
    await rig.until(lambda: rig.leader(TOPIC) not in (leader, -1))
    await rig.until(lambda: shard.state is ShardState.GONE)
    assert answers.got == {"waits": ErrorCode.NOT_COORDINATOR}
    late = answers.reply("late")
    shard.run(partial(shard.machine.look, "a", late), late)
    assert answers.got["late"] == ErrorCode.NOT_COORDINATOR


@pytest.mark.feature("CG-03", "RP-02")
@pytest.mark.parametrize("moves", [False, True])
@on_cluster(brokers=1)
async def test_the_answers_to_a_large_group_are_sent_in_steps(rig: Rig, moves: bool) -> None:
    """They are sent even if the shard is given up after the first step: what they say is committed."""
    coordinator = coordinate(rig, 1)
    await rig.create(TOPIC, partitions=1, replicas=1)
    await rig.until(lambda: coordinator.shards and coordinator.shards[0].state is ShardState.ACTIVE)
    shard = coordinator.shards[0]
    answers = Answers()
    count = 3 * ANSWERS_IN_ONE_STEP - 1
    replies = [answers.reply(f"member {number}") for number in range(count)]
    shard.run(partial(shard.machine.answer_all, replies), answers.reply("all"))
    assert len(answers.got) == ANSWERS_IN_ONE_STEP
    shard.machine.waiting = [answers.reply(f"waits {number}") for number in range(ANSWERS_IN_ONE_STEP + 1)]
    if moves:
        shard.give_up()
        assert len(answers.got) == 2 * ANSWERS_IN_ONE_STEP
        await rig.until(lambda: len(answers.got) == count + ANSWERS_IN_ONE_STEP + 1)
        assert answers.got[f"waits {ANSWERS_IN_ONE_STEP}"] is ErrorCode.NOT_COORDINATOR
    await rig.until(lambda: f"member {count - 1}" in answers.got)
    assert [answers.got[f"member {number}"] for number in range(count)] == list(range(count))


@pytest.mark.feature("CG-03")
@on_cluster(brokers=3, min__insync__replicas="2")
async def test_an_answer_waits_for_the_replicas_for_a_limited_time(rig: Rig) -> None:
    coordinators = {node: coordinate(rig, node, commit_timeout_ms=700) for node in (1, 2, 3)}
    await rig.create(TOPIC, partitions=1, replicas=3)
    await rig.until(lambda: rig.leader(TOPIC) > 0 and coordinators[rig.leader(TOPIC)].shards)
    leader = rig.leader(TOPIC)
    shard = coordinators[leader].shards[0]
    await rig.until(lambda: shard.state is ShardState.ACTIVE)
    for node in sorted({1, 2, 3} - {leader}):
        rig.universe.wires.cut_between([rig.name(node)], [rig.name(leader)])
    answers = Answers()
    written = answers.reply("written")
    shard.run(partial(shard.machine.count, "a", written, None), written)
    read = answers.reply("read")
    shard.run(partial(shard.machine.look, "a", read), read)
    await rig.until(lambda: len(answers.got) == 2)
    # State that is not replicated is visible to no client, not even in reads.
    assert answers.got == {"written": 15, "read": 15}
    assert answers.got["read"] == ErrorCode.COORDINATOR_NOT_AVAILABLE
