"""Answers to readers and groups: scenarios 4, 7, 14, 15 and 22."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from unittest.mock import patch

import trio

from barnabas import Consumer, OffsetAndMetadata, TopicPartition
from barnabas.broker.coordinator.shard import Shard
from barnabas.broker.internal_topics import GROUP_TOPIC
from barnabas.client.producer import Acked, Unknown
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.runtime.channel import ChannelError
from scenarios.intercepted_messages import Letter
from scenarios.stage import Stage, came_about, fetch_request, holds, values_in

TOPIC = "t"
PLACE = TopicPartition(TOPIC, 0)
RACKS = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
NOBODY_IS_STUCK_SECONDS = 20.0
"""Maximum time after the begin of a fault until a reader has what was acknowledged."""


async def _read_until(consumer: Consumer, count: int, seconds: float) -> list[bytes]:
    read: list[bytes] = []
    with trio.move_on_after(seconds):
        while len(read) < count:
            read += [record.value for record in await consumer.poll(500)]
    return read


# ---- 4


async def stale_replica(stage: Stage) -> None:
    """A reader is sent to the replica in its rack, which is then cut off from its leader, and from nobody else."""
    await stage.create_topic(TOPIC)
    leader = stage.leader(TOPIC)
    stale = stage.followers(TOPIC)[0]
    rack = stage.broker(stale).settings.broker_rack
    asked = stage.mail.read(ApiKey.FETCH, receiver=stale, sender="consumer")
    async with stage.producer() as producer, stage.consumer(client_rack=rack, max_poll_records=100) as consumer:
        consumer.assign([PLACE])
        for number in range(5):
            await producer.send(TOPIC, b"%d" % number)
        read = await _read_until(consumer, 5, 10)
        came_about(asked.letters, "the reader reads from its rack")
        stage.universe.wires.cut_between([stale], [leader])
        for number in range(5, 10):
            await producer.send(TOPIC, b"%d" % number)
        came_about(stage.log_of(stale, TOPIC).log_end_offset < 10, "the replica lags")
        read += await _read_until(consumer, 5, NOBODY_IS_STUCK_SECONDS)
    holds(read == [b"%d" % number for number in range(10)], f"a reader stands still at {len(read)} of 10 records")
    data = await stage.fetch(stale, fetch_request(TOPIC, stage.log_of(stale, TOPIC).high_watermark, rack_id=str(rack)))
    holds(data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, f"a replica that lags answers {data.error_code}")


# ---- 7


async def cut_off_leader(stage: Stage) -> None:
    """A leader loses the controllers and the other brokers, but not its readers: it is deposed and does not know it."""
    await stage.create_topic(TOPIC)
    old = stage.leader(TOPIC)
    async with stage.producer() as producer, stage.consumer(metadata_max_age_ms=300_000) as consumer:
        consumer.assign([PLACE])
        await producer.send(TOPIC, b"0")
        read = await _read_until(consumer, 1, 10)
        stage.world_of("zombie")
        stage.isolate(old, but=["zombie", "consumer"])
        for number in range(1, 6):
            await producer.send(TOPIC, b"%d" % number)
        came_about(stage.leader(TOPIC) != old, "another leads")
        came_about(stage.replica_of(old, TOPIC).is_leader, "the old one still believes that it does")
        read += await _read_until(consumer, 5, NOBODY_IS_STUCK_SECONDS)
        holds(read == [b"%d" % number for number in range(6)], f"a reader stands still at {len(read)} of 6 records")
    await trio.sleep(5)
    came_about(stage.replica_of(old, TOPIC).is_leader, "it does not know it")
    data = await stage.fetch(old, fetch_request(TOPIC, 1))
    holds(data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, f"it answers {data.error_code}")
    data = await stage.fetch(old, fetch_request(TOPIC, 0))
    holds(values_in(data) in ([b"0"], []), f"what it knows to be committed, or nothing: {values_in(data)}")
    latest = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[latest])])
    answer = (await stage.ask(old, request)).topics[0].partitions[0]
    holds(answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, f"it answers that the end is at {answer.offset}")
    stage.mend()
    await stage.whole(TOPIC)


async def writer_of_a_cut_off_leader(stage: Stage) -> None:
    """The same for a producer: nobody could acknowledge what it sends to the leader that it knows."""
    await stage.create_topic(TOPIC)
    old = stage.leader(TOPIC)
    async with stage.producer(metadata_max_age_ms=300_000, delivery_timeout_ms=120_000) as producer:
        await producer.send(TOPIC, b"0")
        stage.isolate(old, but=["producer"])
        began = trio.current_time()
        future = await producer.enqueue(TOPIC, b"1")
        await stage.until(lambda: stage.leader(TOPIC) not in ("", old), "another leads")
        came_about(not future.done, "it waits at the old leader")
        await stage.must(lambda: future.done, "it finds the new leader", 2 * NOBODY_IS_STUCK_SECONDS)
        came_about(stage.replica_of(old, TOPIC).is_leader, "the old one does not know it")
        holds((await future).offset == 1, "acked")
        came_about(trio.current_time() - began > 1, "it took an election")
    stage.mend()
    await stage.whole(TOPIC)
    found = await stage.read(TOPIC)
    holds(found == [b"0", b"1"], f"there are {found}")


async def controllers_are_gone(stage: Stage) -> None:
    """The near miss: without any controller nobody can be deposed, and readers and writers go on as before."""
    await stage.create_topic(TOPIC)
    leader = stage.leader(TOPIC)
    async with stage.producer(delivery_timeout_ms=10_000) as producer, stage.consumer() as consumer:
        consumer.assign([PLACE])
        await producer.send(TOPIC, b"0")
        read = await _read_until(consumer, 1, 10)
        stage.kill(*stage.controllers)
        await trio.sleep(15)
        refused = stage.mail.read(ApiKey.FETCH, "response", sender=leader, receiver="consumer", when=_has_error)
        for number in range(1, 6):
            outcome = await (await producer.enqueue(TOPIC, b"%d" % number)).outcome()
            holds(isinstance(outcome, Acked), f"without controllers nobody writes: {outcome}")
            read += await _read_until(consumer, 1, 5)
            await trio.sleep(1)
    holds(read == [b"%d" % number for number in range(6)], f"read {read}")
    holds(not refused.letters, "readers are sent away from a leader whose followers still fetch")
    stage.start(*stage.controllers)
    await stage.whole(TOPIC)


def _has_error(letter: Letter) -> bool:
    return any(part.error_code for topic in letter.message.responses for part in topic.partitions)


# ---- 14


async def clients_close_in_time(stage: Stage) -> None:
    """No node answers, in the midst of commits, transactions and deliveries: closing takes a bounded time."""
    await stage.create_topic(TOPIC)
    took: dict[str, float] = {}

    async def timed(name: str, close: Callable[[], Awaitable[None]]) -> None:
        began = trio.current_time()
        with trio.move_on_after(120):
            await close()
        took[name] = trio.current_time() - began

    group: dict[str, Any] = {"group_id": "g", "enable_auto_commit": True, "session_timeout_ms": 6_000}
    patience: dict[str, Any] = {"delivery_timeout_ms": 8_000, "max_block_ms": 8_000}
    modern_group: dict[str, Any] = {"group_id": "h", "group_protocol": "consumer", "enable_auto_commit": True}
    async with (
        stage.consumer(TOPIC, host="classic", **group) as classic,
        stage.consumer(TOPIC, host="modern", **modern_group) as modern,
        stage.producer("plain", **patience) as producer,
        stage.producer("transactional", transactional_id="tx", **patience) as transactional,
    ):
        await producer.send(TOPIC, b"0")
        for consumer in (classic, modern):
            came_about(await _read_until(consumer, 1, 20) == [b"0"], "members read")
        transactional.begin_transaction()
        await transactional.send(TOPIC, b"1")
        for name in stage.brokers:
            for host in ("classic", "modern", "plain", "transactional"):
                stage.universe.wires.link(name, host).set(stalled=True)
        future = await producer.enqueue(TOPIC, b"2")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timed, "classic", lambda: classic.close(timeout_ms=2_000))
            nursery.start_soon(timed, "modern", lambda: modern.close(timeout_ms=2_000))
            nursery.start_soon(timed, "plain", lambda: producer.close(timeout_ms=2_000))
            nursery.start_soon(timed, "transactional", lambda: transactional.close(timeout_ms=2_000))
    late = {name: round(seconds, 1) for name, seconds in took.items() if seconds > 2.5}
    holds(not late, f"asked to close within 2 s: {late}")
    outcome = await future.outcome()
    holds(isinstance(outcome, Unknown), f"a record that may be in the log ended as {outcome}")
    stage.mend()
    # Nothing of them is left: another one may have it all at once.
    async with stage.consumer(TOPIC, host="heir", **group) as heir:
        holds(len(await _read_until(heir, 1, 30)) >= 1, "the group goes on")


# ---- 15


async def position_after_abort(stage: Stage) -> None:
    """An abort takes back what was written and committed, and not where the reader stands: that is done by hand."""
    await stage.create_topic("in")
    await stage.create_topic("out")
    place = TopicPartition("in", 0)
    async with (
        stage.producer() as writer,
        stage.producer("transactional", transactional_id="tx") as producer,
        stage.consumer("in", group_id="g", isolation_level="read_committed", max_poll_records=5) as consumer,
    ):
        for number in range(10):
            await writer.send("in", b"%d" % number)
        first: list[bytes] = []
        with trio.fail_after(30):
            while len(first) < 5:
                first += [record.value for record in await consumer.poll(500)]
        producer.begin_transaction()
        for value in first:
            await producer.send("out", b"aborted/" + value)
        await producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
        position = await consumer.position(place)
        await producer.abort_transaction()
        holds(await consumer.position(place) == position == 5, "an abort does not move the reader")
        committed = (await consumer.committed([place]))[place]
        holds(committed is None, f"what was aborted is committed: {committed}")
        going_on = await _read_until(consumer, 1, 10)
        holds(going_on[0] == b"5", f"without a seek it reads on: {going_on}")
        consumer.seek(place, committed or OffsetAndMetadata(0))
        again = await _read_until(consumer, 10, 20)
        holds(again == [b"%d" % number for number in range(10)], f"after a seek it reads {again}")
        producer.begin_transaction()
        for value in again:
            await producer.send("out", value)
        await producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
        await producer.commit_transaction()
        after = (await consumer.committed([place]))[place]
        holds(after is not None and after.offset == 10, f"the commit counts: {after}")
    found = await stage.read("out")
    holds(found == [b"%d" % number for number in range(10)], f"each input once: {found}")


# ---- 22

NOT_READY = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


class _Offsets:
    """Commits and asks without a client's patience."""

    def __init__(self, stage: Stage, group_id: str) -> None:
        self.stage = stage
        self.group_id = group_id
        self.acked = -1
        self.tried = -1
        self.answers: list[tuple[str, ErrorCode, int]] = []
        """(broker, error, offset) of each answer."""

    @property
    def coordinator(self) -> str:
        for node in self.stage.cluster.brokers:
            if node.broker is not None and (placed := node.broker.groups.placed(self.group_id)) is not None:
                return "" if placed.leader < 0 else self.stage.name_of(placed.leader)
        return ""

    async def commit(self, offset: int, node: str) -> ErrorCode:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
        self.tried = max(self.tried, offset)
        request = OffsetCommitRequest(group_id=self.group_id, generation_id_or_member_epoch=-1, topics=topics)
        answer = await self.stage.ask(node, request, at_most=9, timeout_ms=3_000)
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
        if code is ErrorCode.NONE:
            self.acked = max(self.acked, offset)
        return code

    async def commit_again(self, offset: int) -> None:
        with trio.fail_after(60):
            while True:
                with suppress(ChannelError):
                    if (node := self.coordinator) and await self.commit(offset, node) is ErrorCode.NONE:
                        return
                await trio.sleep(0.05)

    async def ask(self, node: str, host: str) -> tuple[ErrorCode, int]:
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.group_id, topics=topics)])
        answer = await self.stage.ask(node, request, host=host, at_most=9, timeout_ms=1_000)
        group = answer.groups[0]
        if group.error_code:
            return ErrorCode(group.error_code), -1
        partition = group.topics[0].partitions[0]
        return ErrorCode(partition.error_code), partition.committed_offset

    async def ask_everybody(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Again and again; each answer is held to what was acknowledged when it was asked for."""
        task_status.started()
        while True:
            for name in self.stage.brokers:
                if not self.stage.node(name).is_up:
                    continue
                acked = self.acked
                with suppress(ChannelError):
                    code, offset = await self.ask(name, f"asks/{name}")
                    self.answers.append((name, code, offset))
                    holds(
                        code in NOT_READY or (code is ErrorCode.NONE and acked <= offset <= self.tried),
                        f"{name} answers {code.name} {offset}, when {acked} was acknowledged and {self.tried} tried",
                    )
            await trio.sleep(0.01)


async def coordinator_moves(stage: Stage) -> None:
    """Coordinators die in the midst of commits: the next one answers nothing before it has read everything."""
    await stage.create_topic(TOPIC)
    async with stage.consumer(group_id="g") as consumer:
        came_about((await consumer.committed([PLACE]))[PLACE] is None, "from now on there are coordinators")
    offsets = _Offsets(stage, "g")
    filler = _Offsets(stage, "filler")
    came_about(offsets.coordinator, "somebody coordinates")
    for number in range(60):
        await offsets.commit_again(number)
        if filler.coordinator == offsets.coordinator:
            await filler.commit_again(number)
    with _slow_loading(0.3):
        await _ask_while_it_moves(stage, offsets)
    codes = {code for _, code, _ in offsets.answers}
    wanted = {ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    came_about(wanted <= codes, f"there were {sorted(code.name for code in codes)}")


@contextmanager
def _slow_loading(seconds: float) -> Iterator[None]:
    """Makes loading of coordinators slow, as if their logs were long, so that they are asked meanwhile."""
    original = Shard.load

    async def load(self: Shard[Any]) -> None:
        await trio.sleep(seconds)
        await original(self)

    with patch.object(Shard, "load", load):
        yield


async def _ask_while_it_moves(stage: Stage, offsets: _Offsets) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(offsets.ask_everybody)
        for round_ in range(3):
            old = offsets.coordinator
            stage.universe.kill_at(old, "coordinator.appended")
            with suppress(ChannelError):
                await offsets.commit(100 + 10 * round_, old)
            came_about(not stage.universe.is_alive(old), "the coordinator died in the midst of a commit")
            await offsets.commit_again(101 + 10 * round_)
            came_about(offsets.coordinator != old, "another coordinates")
            stage.start(old)
            await stage.until(lambda: not stage.cluster.not_ready(), "it is back")
            index = stage.broker(old).groups.partition_of("g")
            assert index is not None
            await stage.until(partial(stage.in_sync, old, GROUP_TOPIC, index), "and in sync")
        nursery.cancel_scope.cancel()


async def deleted_offsets_stay_deleted(stage: Stage) -> None:
    """Offsets are deleted and the coordinator dies: who reads its log must not bring them back."""
    await stage.create_topic(TOPIC)
    async with stage.consumer(group_id="g") as consumer, stage.admin() as admin:
        consumer.assign([PLACE])
        await consumer.commit({PLACE: 7})
        old = _Offsets(stage, "g").coordinator
        await admin.delete_consumer_group_offsets("g", [PLACE])
        came_about((await consumer.committed([PLACE]))[PLACE] is None, "they are gone")
        stage.kill(old)
        await stage.until(lambda: _Offsets(stage, "g").coordinator not in ("", old), "another coordinates")
        committed: OffsetAndMetadata | None = None
        with trio.fail_after(30):
            while True:
                try:
                    committed = (await consumer.committed([PLACE]))[PLACE]
                    break
                except KafkaError:
                    await trio.sleep(0.1)
        holds(committed is None, f"deleted, and there again: {committed}")
    stage.start(old)
