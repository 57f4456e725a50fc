"""Leaders, followers and what is committed: scenarios 2, 17, 18, 19, 20 and 21."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from barnabas import TopicPartition
from barnabas.client.errors import LogTruncationException
from barnabas.client.producer import Acked
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import alter_partition as alter
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.fetch import PartitionData, ReplicaState
from barnabas.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.messages.produce import PartitionProduceResponse
from barnabas.runtime.channel import ChannelError
from scenarios.intercepted_messages import Letter
from scenarios.setups import leader_dies_before_followers_know
from scenarios.stage import Stage, batch_of, came_about, fetch_request, holds, produce_request, values_in

TOPIC = "t"
PLACE = TopicPartition(TOPIC, 0)


Answers = list[PartitionProduceResponse]


async def _attempt(stage: Stage, answers: Answers, node: str, batch: bytes, acks: int, host: str = "zombie") -> None:
    """A produce whose answer, if there is one, is put to the others. Answers come in order for each host."""
    request = produce_request(TOPIC, batch, acks=acks, timeout_ms=20_000)
    try:
        answers.append(await stage.produce(node, request, host=host, timeout_ms=30_000))
    except ChannelError:
        return


async def _another_leads(stage: Stage, than: str) -> str:
    await stage.until(lambda: stage.leader(TOPIC) not in ("", than), f"another than {than} leads")
    return stage.leader(TOPIC)


def _same_everywhere(stage: Stage, acked: dict[int, bytes]) -> None:
    """Each acknowledged record is at its offset on every replica, and all replicas are the same."""
    logs = {name: stage.records(name, TOPIC) for name in stage.brokers}
    for name, log in logs.items():
        for offset, value in acked.items():
            found = [value for at, value in log if at == offset]
            holds(found == [value], f"{value!r} was acked at {offset}, where {name} has {found}")
        holds(log == logs[stage.brokers[0]], f"{name} differs: {log} and {logs[stage.brokers[0]]}")


# ---- 2


async def deposed_leader_gives_offsets(stage: Stage) -> None:
    """A leader is cut off from all but some clients, and goes on giving offsets that another gives, too."""
    await stage.create_topic(TOPIC)
    old = stage.leader(TOPIC)
    answers: Answers = []
    async with stage.producer() as producer, trio.open_nursery() as nursery:
        acked = {(await producer.send(TOPIC, b"common")).offset: b"common"}
        stage.world_of("patient")
        stage.world_of("zombie")
        stage.isolate(old, but=["zombie", "patient"])
        nursery.start_soon(_attempt, stage, answers, old, batch_of(b"old/all"), -1, "patient")
        await stage.until(lambda: b"old/all" in stage.values(old, TOPIC), "the old leader took a record")
        await _another_leads(stage, old)
        await _attempt(stage, answers, old, batch_of(b"old/leader"), 1)
        for number in range(3):
            value = b"new/%d" % number
            acked[(await producer.send(TOPIC, value)).offset] = value
        seen = values_in(await stage.fetch(old, fetch_request(TOPIC, 0, max_wait_ms=100)))
        holds(seen == [b"common"], f"the old leader shows {seen}")
        taken = stage.records(old, TOPIC)
        came_about([value for _, value in taken] == [b"common", b"old/all", b"old/leader"], f"it has {taken}")
        came_about(acked[1] != taken[1][1], "two records are at one offset")
        stage.mend()
        await stage.until(lambda: len(answers) == 2, "the old leader answers")
    of_one, of_all = sorted(answers, key=lambda answer: answer.error_code)
    came_about((of_one.error_code, of_one.base_offset) == (0, 2), "acks=1 is answered by the leader alone")
    holds(of_all.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, f"acks=all of a deposed leader: {of_all.error_code}")
    holds(of_all.base_offset == -1, "it names an offset that another has given")
    await stage.whole(TOPIC)
    _same_everywhere(stage, acked)
    holds(b"old/all" not in stage.values(old, TOPIC), "what nobody committed is still there")


# ---- 17


async def last_replica_loses_power(stage: Stage) -> None:
    """The last member of the ISR loses what it had not synced; it may not lead, though it was the last."""
    await stage.create_topic(TOPIC)
    last, (first_gone, eligible) = stage.leader(TOPIC), stage.followers(TOPIC)
    acked: dict[int, bytes] = {}
    async with stage.producer() as producer:
        for number in range(5):
            acked[(await producer.send(TOPIC, b"%d" % number)).offset] = b"%d" % number
        stage.kill(first_gone)
        await stage.until(lambda: first_gone not in stage.isr(TOPIC), "it left the ISR")
        for number in range(5, 8):
            acked[(await producer.send(TOPIC, b"%d" % number)).offset] = b"%d" % number
    await stage.stop(eligible)
    await stage.until(lambda: stage.isr(TOPIC) == [last], "one is left")
    elr = [stage.name_of(node_id) for node_id in stage.image(TOPIC).elr]
    holds(elr == [eligible], f"a replica with all that is committed stays eligible; eligible are {elr}")
    alone = await stage.produce(last, produce_request(TOPIC, batch_of(b"uncommitted"), acks=1))
    came_about(alone.error_code == ErrorCode.NONE, "the last one takes what nobody else will have")
    before = stage.log_of(last, TOPIC).log_end_offset
    stage.lose_unsynced(last, f"{TOPIC}-0")
    stage.power_cut(last)
    await trio.sleep(1)
    stage.start(last, first_gone)
    await stage.until(lambda: stage.node(last).is_up and stage.node(first_gone).is_up, "both are back")
    found = stage.log_of(last, TOPIC).log_end_offset
    came_about(found < len(acked) < before, f"it has {found} of {before} records")
    for _ in range(40):
        await trio.sleep(0.1)
        leader = stage.leader(TOPIC)
        holds(leader == "", f"{leader} leads, and lacks what was acknowledged")
    stage.start(eligible)
    await stage.must(lambda: stage.leader(TOPIC) == eligible, f"{eligible} has everything and leads")
    await stage.whole(TOPIC)
    _same_everywhere(stage, acked)


# ---- 18


async def two_leaders_in_a_row_die(stage: Stage) -> None:
    """KIP-101: a follower does not know yet that a record is committed, changes leaders twice, and leads."""
    await stage.create_topic(TOPIC)
    first = stage.leader(TOPIC)
    second, third = stage.followers(TOPIC)
    acked = await leader_dies_before_followers_know(stage, TOPIC, of_followers=1)
    await _another_leads(stage, first)
    came_about(stage.leader(TOPIC) == second, "the second leads")
    epoch = stage.image(TOPIC).leader_epoch
    await stage.until(lambda: stage.replica_of(third, TOPIC).leader_epoch == epoch, "the third follows it")
    log = stage.log_of(third, TOPIC)
    came_about(log.high_watermark == 1, "the third does not know that the last record is committed")
    await trio.sleep(0.2)
    stage.kill(second)
    await _another_leads(stage, second)
    came_about(stage.leader(TOPIC) == third, "the third leads")
    holds(log.log_end_offset == 2, f"it cut its log to {log.log_end_offset}, and leads without what was acknowledged")
    stage.mend()
    stage.start(first, second)
    await stage.whole(TOPIC)
    _same_everywhere(stage, acked)


async def chain_of_epochs(stage: Stage) -> None:
    """KIP-279: three logs part at one offset in three epochs, before any two of them can speak."""
    await stage.create_topic(TOPIC)
    first = stage.leader(TOPIC)
    second, third = stage.followers(TOPIC)
    async with stage.producer() as producer:
        acked = {(await producer.send(TOPIC, b"common")).offset: b"common"}
    await stage.until(lambda: stage.log_of(third, TOPIC).high_watermark == 1, "all have it")
    answers: Answers = []
    # The followers do not reach each other, so that each writes alone in its epoch.
    stage.universe.wires.cut_between([second], [third])
    stage.isolate(first, but=["zombie"])
    for value in (b"a1", b"a2", b"a3"):
        await _attempt(stage, answers, first, batch_of(value), 1)
    came_about(await _another_leads(stage, first) == second, "the second leads")
    await stage.until(lambda: stage.replica_of(second, TOPIC).is_leader, "and knows it")
    stage.isolate(second, but=["zombie"])
    for value in (b"b1", b"b2"):
        await _attempt(stage, answers, second, batch_of(value), 1)
    came_about(await _another_leads(stage, second) == third, "the third leads")
    await stage.until(lambda: stage.replica_of(third, TOPIC).is_leader, "and knows it")
    await _attempt(stage, answers, third, batch_of(b"c1"), 1)
    came_about([answer.error_code for answer in answers] == [0] * 6, "all three took what they were given")
    parted = [dict(stage.records(name, TOPIC)).get(1) for name in (first, second, third)]
    came_about(parted == [b"a1", b"b1", b"c1"], f"at one offset are {parted}")
    stage.mend()
    await stage.whole(TOPIC)
    acked[1] = b"c1"
    _same_everywhere(stage, acked)
    chains = {name: str(stage.log_of(name, TOPIC).epochs.entries) for name in stage.brokers}
    holds(len(set(chains.values())) == 1, f"their epochs differ: {chains}")


async def reader_after_truncation(stage: Stage) -> None:
    """KIP-320: after an unclean election the log is another one, and already longer than where a reader stood."""
    configs = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    await stage.create_topic(TOPIC, replicas=2, configs=configs)
    old, (left_behind,) = stage.leader(TOPIC), stage.followers(TOPIC)
    async with stage.producer() as producer:
        await producer.send(TOPIC, b"common")
        stage.kill(left_behind)
        await stage.until(lambda: stage.isr(TOPIC) == [old], "the leader is alone")
        for number in range(4):
            await producer.send(TOPIC, b"old/%d" % number)
    async with (
        stage.consumer(host="strict", auto_offset_reset="none", metadata_max_age_ms=1_000) as strict,
        stage.consumer(host="lenient", metadata_max_age_ms=1_000) as lenient,
    ):
        seen: dict[str, list[bytes]] = {"strict": [], "lenient": []}
        for name, consumer in (("strict", strict), ("lenient", lenient)):
            consumer.assign([PLACE])
            consumer.seek(PLACE, 0)
            while len(seen[name]) < 5:
                seen[name] += [record.value for record in await consumer.poll(1_000)]
        stage.kill(old)
        stage.start(left_behind)
        await stage.until(lambda: stage.leader(TOPIC) == left_behind, "an unclean election")
        async with stage.producer("another") as producer:
            for number in range(6):
                await producer.send(TOPIC, b"new/%d" % number)
        came_about(stage.log_of(left_behind, TOPIC).log_end_offset > 5, "the new log is longer than what was read")
        raised: LogTruncationException | None = None
        with trio.move_on_after(30):
            while raised is None:
                try:
                    garbage = await strict.poll(500)
                    holds(not garbage, f"read on as if nothing had happened: {[each.value for each in garbage]}")
                except LogTruncationException as error:
                    raised = error
        holds(raised is not None, "a reader without a reset policy gets no error when its log was cut")
        after: list[bytes] = []
        with trio.move_on_after(30):
            while len(after) < 6:
                after += [record.value for record in await lenient.poll(500)]
        holds(after == [b"new/%d" % number for number in range(6)], f"after the cut it is given {after}")
    stage.start(old)
    await stage.must(lambda: stage.values(old, TOPIC) == stage.values(left_behind, TOPIC), "the old leader cuts")


# ---- 19


async def zombie_leader(stage: Stage) -> None:
    """A leader sleeps through two elections and wakes up with produces in its ears."""
    await stage.create_topic(TOPIC)
    zombie = stage.leader(TOPIC)
    second, third = stage.followers(TOPIC)
    answers: Answers = []
    async with stage.producer(delivery_timeout_ms=60_000) as producer, trio.open_nursery() as nursery:
        acked = {(await producer.send(TOPIC, b"before")).offset: b"before"}
        await _attempt(stage, answers, zombie, batch_of(b"hello"), -1)
        acked[1] = b"hello"
        epoch = stage.image(TOPIC).leader_epoch
        await stage.ask(zombie, ApiVersionsRequest(), host="other zombie")
        stage.pause(zombie)
        produced = stage.mail.read(ApiKey.PRODUCE, "response", sender=zombie, receiver="other zombie")
        of_all: Answers = []
        of_one: Answers = []
        nursery.start_soon(_attempt, stage, of_all, zombie, batch_of(b"buffered/all"), -1)
        nursery.start_soon(_attempt, stage, of_one, zombie, batch_of(b"buffered/leader"), 1, "other zombie")
        await _another_leads(stage, zombie)
        acked[(await producer.send(TOPIC, b"second")).offset] = b"second"
        came_about(stage.leader(TOPIC) == second, "the second leads")
        stage.kill(second)
        await _another_leads(stage, second)
        stage.start(second)
        await stage.until(lambda: second in stage.isr(TOPIC), "the second is back")
        acked[(await producer.send(TOPIC, b"third")).offset] = b"third"
        came_about(stage.image(TOPIC).leader_epoch >= epoch + 2, "two elections")
        came_about(b"buffered/all" not in stage.values(zombie, TOPIC), "the produces are still on the wire")
        # Requests of clients come before any news.
        for name in ("zombie", "other zombie"):
            for link in (stage.universe.wires.link(name, zombie), stage.universe.wires.link(zombie, name)):
                link.set(stalled=False)
        await produced.caught()
        came_about(b"buffered/leader" in stage.values(zombie, TOPIC), "the zombie appends what it receives")
        stage.resume(zombie)
    await stage.whole(TOPIC)
    _same_everywhere(stage, acked)
    found = stage.values(third, TOPIC)
    holds(b"buffered/all" not in found, f"a record of the zombie is committed: {found}")
    codes = [ErrorCode(answer.error_code).name for answer in of_all]
    came_about(codes and of_one, "the zombie answers what it received when it wakes up")
    holds("NONE" not in codes, "acks=all was acknowledged by a zombie")
    await _old_epochs_are_refused(stage, zombie, epoch)


async def _old_epochs_are_refused(stage: Stage, broker: str, leader_epoch: int) -> None:
    """AlterPartition of who led in another epoch, in another life, or saw another state."""
    controller = await stage.quorum_leader()
    services = stage.broker(broker)
    current = stage.image(TOPIC)
    leader = stage.name_of(current.leader)
    topic_id = services.metadata.image.topics.by_name[TOPIC].id
    epochs = {name: stage.broker(name).lifecycle.broker_epoch for name in stage.brokers}

    async def alter_isr(who: str, *, in_epoch: int, at: int, life: int) -> ErrorCode:
        isr = [alter.BrokerState(broker_id=stage.id_of(who), broker_epoch=life)]
        wanted = alter.RequestPartitionData(
            partition_index=0, leader_epoch=in_epoch, partition_epoch=at, new_isr_with_epochs=isr
        )
        topics = [alter.RequestTopicData(topic_id=topic_id, partitions=[wanted])]
        request = alter.AlterPartitionRequest(broker_id=stage.id_of(who), broker_epoch=life, topics=topics)
        answer = await stage.ask(controller, request)
        return ErrorCode(answer.error_code or answer.topics[0].partitions[0].error_code)

    now = {"in_epoch": current.leader_epoch, "at": current.partition_epoch}
    old_epoch = await alter_isr(broker, in_epoch=leader_epoch, at=current.partition_epoch, life=epochs[broker])
    holds(old_epoch is ErrorCode.FENCED_LEADER_EPOCH, f"of an old leader epoch: {old_epoch.name}")
    old_life = await alter_isr(leader, **now, life=epochs[leader] - 1)
    holds(old_life is ErrorCode.STALE_BROKER_EPOCH, f"of an old life: {old_life.name}")
    stale = {"in_epoch": current.leader_epoch, "at": current.partition_epoch - 1}
    old_state = await alter_isr(leader, **stale, life=epochs[leader])
    holds(old_state is ErrorCode.INVALID_UPDATE_VERSION, f"of an old state: {old_state.name}")
    holds(stage.image(TOPIC).isr == current.isr, "and yet the ISR changed")


async def zombie_controller(stage: Stage) -> None:
    """The active controller sleeps while another takes over, and wakes up with a request in its ears."""
    await stage.create_topic(TOPIC)
    zombie = await stage.quorum_leader()
    hello = CreateTopicsRequest(topics=[CreatableTopic(name="early", num_partitions=1, replication_factor=3)])
    first = await stage.ask(zombie, hello)
    came_about(first.topics[0].error_code == ErrorCode.NONE, "controllers take requests of administrators")
    codes: list[ErrorCode] = []

    async def late() -> None:
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name="late", num_partitions=1, replication_factor=3)], timeout_ms=20_000
        )
        answer = await stage.ask(zombie, request, timeout_ms=40_000)
        codes.append(ErrorCode(answer.topics[0].error_code))

    async with trio.open_nursery() as nursery:
        stage.pause(zombie)
        nursery.start_soon(late)
        new = await stage.quorum_leader(other_than=zombie)
        await stage.create_topic("new")
        stage.resume(zombie)
    came_about(new != zombie, "another is active")
    await trio.sleep(2)
    topics = {name: stage.broker(name).metadata.image.topics.by_name for name in stage.brokers}
    there = {name: "late" in known for name, known in topics.items()}
    came_about(codes, "the zombie answers")
    holds(len(set(there.values())) == 1, f"brokers do not agree whether the topic is there: {there}")
    holds(codes != [ErrorCode.NONE] or all(there.values()), "a zombie created a topic that is not there")
    holds(codes == [ErrorCode.NOT_CONTROLLER], f"a zombie answers {codes[0].name}")
    holds(all("new" in known for known in topics.values()), "what the new one created is gone")


# ---- 20


async def shrink_that_is_refused(stage: Stage) -> None:
    """A leader proposes to drop a follower; the controller makes that very follower the next leader."""
    await stage.create_topic(TOPIC)
    old = stage.leader(TOPIC)
    slow, quick = stage.followers(TOPIC)
    async with stage.producer() as producer:
        acked = {(await producer.send(TOPIC, b"before")).offset: b"before"}
    proposals = stage.mail.keep(ApiKey.ALTER_PARTITION, sender=old)
    refusals = stage.mail.read(ApiKey.ALTER_PARTITION, "response", receiver=old)
    answers: Answers = []
    stage.universe.wires.cut_between([slow], [old])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_attempt, stage, answers, old, batch_of(b"too early"), -1)
        [proposal] = await proposals.caught()
        wanted = proposal.message.topics[0].partitions[0].new_isr_with_epochs
        came_about(stage.id_of(slow) not in [each.broker_id for each in wanted], "it proposes to drop the slow one")
        log = stage.log_of(old, TOPIC)
        await stage.until(lambda: b"too early" in stage.values(quick, TOPIC), "the quick one has it")
        await trio.sleep(1)
        holds(not answers, "acknowledged by an ISR that nobody agreed to")
        holds(log.high_watermark == 1, f"the high watermark is {log.high_watermark}")
        # It cannot be reached by the controllers, whose answer is that another leads.
        stage.universe.wires.cut_between([old], [*stage.controllers, quick])
        new = await _another_leads(stage, old)
        came_about(new == slow, f"the slow one leads, not {new}")
        came_about(b"too early" not in stage.values(slow, TOPIC), "it lacks the record")
        await trio.sleep(0.5)
        holds(not answers, "acknowledged by a deposed leader")
        stage.mend()
        proposals.release()
        await stage.until(lambda: answers, "the old leader answers")
    holds(answers[0].error_code != ErrorCode.NONE, "acknowledged, and lost")
    async with stage.producer() as producer:
        acked[(await producer.send(TOPIC, b"after")).offset] = b"after"
    await stage.whole(TOPIC)
    _same_everywhere(stage, acked)
    outcomes = [each.message.topics for each in refusals.letters]
    codes = [part.error_code for topics in outcomes for topic in topics for part in topic.partitions]
    holds(ErrorCode.NONE not in codes[:1], "a proposal on top of an old state was taken")


# ---- 21


async def session_after_restart(stage: Stage) -> None:
    """A reader goes on with a fetch session that its broker has forgotten."""
    await stage.create_topic(TOPIC)
    leader = stage.leader(TOPIC)
    lost = stage.mail.read(ApiKey.FETCH, "response", receiver="consumer", when=_session_is_unknown)
    async with stage.producer(delivery_timeout_ms=60_000) as producer, stage.consumer() as consumer:
        consumer.assign([PLACE])
        read: list[bytes] = []
        for number in range(30):
            await producer.send(TOPIC, b"%d" % number)
            read += [record.value for record in await consumer.poll(200)]
            if number == 10:
                # All at once, so that the same one leads again, and knows no session.
                stage.kill(*stage.brokers)
                await trio.sleep(0.5)
                stage.start(*stage.brokers)
                await stage.wait_ready()
        with trio.move_on_after(30):
            while len(read) < 30:
                read += [record.value for record in await consumer.poll(500)]
    holds(read == [b"%d" % number for number in range(30)], f"read {read}")
    # Over the same connection no session can be lost, so one is claimed that never was.
    unknown = await stage.ask(leader, fetch_request(TOPIC, 0, session_id=77, session_epoch=5), at_most=12)
    holds(unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"an unknown session: {unknown.error_code}")
    holds(not lost.letters or len(read) == 30, "a session was lost, and with it records")


def _session_is_unknown(letter: Letter) -> bool:
    code: int = letter.message.error_code
    return code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def fetches_of_other_epochs(stage: Stage) -> None:
    """Followers that are older or newer than their leader, or lie: none of them moves anything."""
    await stage.create_topic(TOPIC)
    old = stage.leader(TOPIC)
    async with stage.producer() as producer:
        for number in range(5):
            await producer.send(TOPIC, b"%d" % number)
        stage.kill(old)
        await _another_leads(stage, old)
        stage.start(old)
        await stage.whole(TOPIC)
        leader, follower = stage.leader(TOPIC), stage.followers(TOPIC)[1]
        image = stage.image(TOPIC)
        life = stage.broker(follower).lifecycle.broker_epoch
        topic_id = stage.broker(leader).metadata.image.topics.by_name[TOPIC].id
        stage.universe.wires.link(follower, leader).set(stalled=True)
        future = await producer.enqueue(TOPIC, b"5")
        other = next(name for name in stage.followers(TOPIC) if name != follower)
        await stage.until(lambda: b"5" in stage.values(other, TOPIC), "the other follower has it")

        async def as_follower(node_id: int, epoch: int, broker_epoch: int) -> PartitionData:
            request = fetch_request(TOPIC, 6, current_leader_epoch=epoch, max_wait_ms=50)
            request.topics[0].topic_id = topic_id
            request.replica_state = ReplicaState(replica_id=node_id, replica_epoch=broker_epoch)
            answer = await stage.ask(leader, request)
            result: PartitionData = answer.responses[0].partitions[0]
            return result

        me, epoch = stage.id_of(follower), image.leader_epoch
        lies: dict[str, tuple[Callable[[], Awaitable[PartitionData]], ErrorCode]] = {
            "an older epoch": (partial(as_follower, me, epoch - 1, life), ErrorCode.FENCED_LEADER_EPOCH),
            "a newer epoch": (partial(as_follower, me, epoch + 1, life), ErrorCode.UNKNOWN_LEADER_EPOCH),
            "an earlier life": (partial(as_follower, me, epoch, life - 1), ErrorCode.NOT_LEADER_OR_FOLLOWER),
            "no replica": (partial(as_follower, 9, epoch, -1), ErrorCode.UNKNOWN_LEADER_EPOCH),
        }
        for lie, (ask, code) in lies.items():
            answer = await ask()
            holds(answer.error_code == code, f"{lie} gets {ErrorCode(answer.error_code).name}, not {code.name}")
        log = stage.log_of(leader, TOPIC)
        holds(log.high_watermark == 5 and not future.done, "a fetch that was refused has moved the high watermark")
        stage.mend()
        outcome = await future.outcome()
        holds(isinstance(outcome, Acked), f"the truth is believed: {outcome}")


async def epochs_below_the_log_start(stage: Stage) -> None:
    """Records are deleted while a follower sleeps: what it asks about is gone, and so is its own end."""
    await stage.create_topic(TOPIC)
    first = stage.leader(TOPIC)
    async with stage.producer() as producer:
        for number in range(5):
            await producer.send(TOPIC, b"%d" % number)
        sleeper = stage.followers(TOPIC)[1]
        await stage.whole(TOPIC)
        stage.isolate(sleeper)
        await stage.until(lambda: sleeper not in stage.isr(TOPIC), "the sleeper is out")
        old_epoch = stage.image(TOPIC).leader_epoch
        async with stage.admin() as admin:
            stage.kill(first)
            await _another_leads(stage, first)
            stage.start(first)
            await stage.until(lambda: first in stage.isr(TOPIC), "the first is back")
            for number in range(5, 10):
                await producer.send(TOPIC, b"%d" % number)
            leader = stage.leader(TOPIC)
            # Not beyond what a live replica has: the sleeper is fenced, and is not waited for.
            await admin.delete_records({PLACE: 8})
        start = stage.log_of(leader, TOPIC).log_start_offset
        came_about(start == 8, f"the log starts at {start}")
        answer = await _end_of_epoch(stage, leader, 0)
        holds(answer.error_code == ErrorCode.NONE, f"refused: {answer.error_code}")
        holds(answer.end_offset == -1 or answer.end_offset >= start, f"epoch 0 ends at {answer.end_offset}")
        came_about(old_epoch < stage.image(TOPIC).leader_epoch, "there was an election")
        came_about(stage.log_of(sleeper, TOPIC).log_end_offset < start, "the sleeper ends before the log begins")
        stage.mend()
        await producer.send(TOPIC, b"10")
    await stage.must(lambda: sleeper in stage.isr(TOPIC), "the sleeper is in sync again")
    log = stage.log_of(sleeper, TOPIC)
    await stage.must(lambda: log.log_start_offset == start, "it begins where its leader does")
    await stage.must(lambda: stage.records(sleeper, TOPIC) == stage.records(leader, TOPIC), "and has the same")


async def _end_of_epoch(stage: Stage, leader: str, epoch: int) -> EpochEndOffset:
    partitions = [OffsetForLeaderPartition(partition=0, leader_epoch=epoch)]
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=partitions)])
    answer = await stage.ask(leader, request)
    result: EpochEndOffset = answer.topics[0].partitions[0]
    return result
