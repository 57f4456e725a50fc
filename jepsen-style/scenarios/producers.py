"""The outcomes that a producer gets, and what became of its records: scenarios 1, 6, 9 and 10."""

from __future__ import annotations

from functools import partial

import trio

from barnabas.client.producer import Acked, Outcome, Unknown
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.produce import PartitionProduceResponse
from scenarios.stage import Stage, batch_of, came_about, fetch_request, holds, produce_request, values_in

TOPIC = "t"


async def repeated_after_failover(stage: Stage) -> None:
    """The answer is lost together with the leader: the batch that comes again must be known to the next one."""
    await stage.create_topic(TOPIC)
    leader = stage.leader(TOPIC)
    async with stage.producer() as producer:
        await producer.send(TOPIC, b"before")
        requests = stage.mail.read(ApiKey.PRODUCE)
        lost = stage.mail.keep(ApiKey.PRODUCE, "response", sender=leader)
        future = await producer.enqueue(TOPIC, b"once")
        await lost.caught()
        stage.kill(leader)
        metadata = await future
        repeated = [letter for letter in requests.letters if letter.receiver != leader]
        came_about(repeated, "nobody sent the batch again")
        new = stage.leader(TOPIC)
        holds(new != leader and metadata.offset == 1, f"acked at {metadata.offset}, it was written at 1")
        after = await producer.send(TOPIC, b"after")
        holds(after.offset == 2, f"what is sent next is at {after.offset} instead of 2")
    stage.start(leader)
    await stage.whole(TOPIC)
    for name in stage.brokers:
        found = stage.records(name, TOPIC)
        holds(found == [(0, b"before"), (1, b"once"), (2, b"after")], f"{name} has {found}")


async def repeated_after_restart(stage: Stage) -> None:
    """All brokers die: who has written what is in the logs only, and must be read before the first produce."""
    await stage.create_topic(TOPIC)
    async with stage.producer(delivery_timeout_ms=90_000) as producer:
        for number in range(3):
            await producer.send(TOPIC, b"%d" % number)
        lost = stage.mail.keep(ApiKey.PRODUCE, "response", receiver="producer", limit=1)
        future = await producer.enqueue(TOPIC, b"once")
        await lost.caught()
        came_about(
            [stage.values(name, TOPIC).count(b"once") for name in stage.brokers] == [1, 1, 1],
            "the batch was acknowledged before all had it",
        )
        # All in one moment: none of them is out of sync, so each may lead again.
        stage.kill(*stage.brokers)
        await trio.sleep(1)
        requests = stage.mail.read(ApiKey.PRODUCE)
        stage.start(*stage.brokers)
        await stage.wait_ready()
        metadata = await future
        came_about(requests.letters, "nobody sent the batch again")
        holds(metadata.offset == 3, f"acked at {metadata.offset}, it was written at 3")
    await stage.whole(TOPIC)
    found = await stage.read(TOPIC)
    holds(found == [b"0", b"1", b"2", b"once"], f"the log has {found}")


async def not_leader_after_append(stage: Stage) -> None:
    """A leader has appended, and is deposed before enough replicas have it: the record may well live on."""
    await stage.create_topic(TOPIC)
    leader, (first, second) = stage.leader(TOPIC), stage.followers(TOPIC)
    wires = stage.universe.wires
    outcomes: dict[str, Outcome] = {}
    raw: list[PartitionProduceResponse] = []

    async def send(host: str, **options: object) -> None:
        async with stage.producer(host, request_timeout_ms=20_000, **options) as producer:
            future = await producer.enqueue(TOPIC, host.encode())
            outcomes[host] = await future.outcome()

    async def send_raw() -> None:
        request = produce_request(TOPIC, batch_of(b"raw"), timeout_ms=30_000)
        raw.append(await stage.produce(leader, request, timeout_ms=40_000))

    # What the second follower asks for does not arrive, so the high watermark rests; the first has everything.
    await stage.until(lambda: stage.log_of(first, TOPIC).high_watermark == 0, "the replicas know each other")
    wires.link(second, leader).set(stalled=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: send("doubtful", enable_idempotence=False, retries=0))
        nursery.start_soon(send, "careful")
        nursery.start_soon(send_raw)
        await stage.until(lambda: len(stage.values(first, TOPIC)) == 3, "the first follower has all")
        came_about(not outcomes and not raw, "nobody may have an answer yet")
        wires.cut_between([leader], stage.controllers)
        await stage.until(lambda: stage.leader(TOPIC) not in ("", leader), "another leads")
        for controller in stage.controllers:
            wires.link(leader, controller).set(cut=False)
            wires.link(controller, leader).set(cut=False)
        await stage.until(lambda: raw, "the old leader answers")
        stage.mend()
    came_about(raw[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the raw produce gets {raw[0].error_code}")
    holds(raw[0].base_offset == -1, "an error with an offset")
    careful, doubtful = outcomes["careful"], outcomes["doubtful"]
    holds(isinstance(careful, Acked), f"the idempotent producer got {careful}")
    await stage.whole(TOPIC)
    found = await stage.read(TOPIC)
    holds(found.count(b"careful") == 1, f"sent once, acked, and there {found.count(b'careful')} times")
    holds(isinstance(doubtful, Unknown), f"a record that is in the log {found} ended as {doubtful}")


async def no_offset_in_errors(stage: Stage) -> None:
    """Each error of a produce, one after the other: none names an offset, least of all 0."""
    await stage.create_topic(TOPIC, configs={"max.message.bytes": "1000"})
    leader, followers = stage.leader(TOPIC), stage.followers(TOPIC)
    seen: dict[ErrorCode, int] = {}

    async def send(
        batch: bytes,
        *,
        node: str = leader,
        topic: str = TOPIC,
        acks: int = -1,
        transactional_id: str | None = None,
        timeout_ms: int = 1_000,
    ) -> PartitionProduceResponse:
        request = produce_request(topic, batch, acks=acks, transactional_id=transactional_id, timeout_ms=timeout_ms)
        answer = await stage.produce(node, request, timeout_ms=20_000)
        code = ErrorCode(answer.error_code)
        if code is not ErrorCode.NONE:
            seen[code] = answer.base_offset
            holds(answer.base_offset == -1, f"{code.name} comes with the offset {answer.base_offset}")
        return answer

    async with stage.producer(transactional_id="somebody"):
        """From now on there are coordinators."""
    good = batch_of(b"good", producer_id=7_000, producer_epoch=1, base_sequence=0)
    first = await send(good)
    again = await send(good)
    holds((first.base_offset, again.base_offset) == (0, 0), "a repetition is where the batch is")
    await send(batch_of(b"early", producer_id=7_000, producer_epoch=1, base_sequence=9))
    await send(batch_of(b"old", producer_id=7_000, producer_epoch=0, base_sequence=0))
    await send(batch_of(b"in no transaction", producer_id=7_001, producer_epoch=0, base_sequence=0, transactional=True),
               transactional_id="nobody")  # fmt: skip
    broken = bytearray(batch_of(b"broken"))
    broken[-1] ^= 1
    await send(bytes(broken))
    await send(batch_of(b"x" * 2_000))
    await send(batch_of(b"one") + batch_of(b"two"))
    await send(batch_of(b"lost"), node=followers[0])
    await send(batch_of(b"lost"), topic="there-is-no-such-topic")
    await send(batch_of(b"odd"), acks=2)
    for follower in followers:
        stage.universe.wires.link(follower, leader).set(stalled=True)
    await send(batch_of(b"slow"), timeout_ms=500)
    stage.mend()
    stage.kill(*followers)
    await stage.until(lambda: stage.isr(TOPIC) == [leader], "the leader is alone")
    await send(batch_of(b"alone"))
    stage.may_fail[leader] = None
    stage.universe.disk(leader).fail("write", prefix=f"/{leader}/data/{TOPIC}-0")
    await send(batch_of(b"unwritten"), acks=1)
    wanted = {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
    missing = sorted(code.name for code in wanted - set(seen))
    names = [code.name for code in seen]
    came_about(not missing, f"no producer got {', '.join(missing)}; there were {names}")
    came_about(len(seen) > len(wanted), f"the batch of no transaction was not refused; there were {names}")


async def acked_below_the_high_watermark(stage: Stage) -> None:
    """In a healthy cluster with one slow wire: no answer, and nothing to read, before all in sync have the record."""
    await stage.create_topic(TOPIC)
    leader, (first, second) = stage.leader(TOPIC), stage.followers(TOPIC)
    link = stage.universe.wires.link(second, leader)
    async with stage.producer() as producer:
        for number in range(6):
            log = stage.log_of(leader, TOPIC)
            link.set(stalled=True)
            future = await producer.enqueue(TOPIC, b"%d" % number)
            await stage.until(partial(stage.has_more_than, number, first, TOPIC), "the first follower has it")
            await trio.sleep(0.4)
            came_about(second in stage.isr(TOPIC), "the slow follower counts")
            holds(not future.done, f"acked at once, and {second} may not have it")
            holds(log.high_watermark <= number, f"the high watermark is {log.high_watermark}")
            seen = values_in(await stage.fetch(leader, fetch_request(TOPIC, number, max_wait_ms=100)))
            holds(not seen, f"readers are given {seen}, which is not committed")
            link.set(stalled=False)
            metadata = await future
            holds(log.high_watermark > metadata.offset, "acked above the high watermark")
            for name in stage.isr(TOPIC):
                holds((metadata.offset, b"%d" % number) in stage.records(name, TOPIC), f"acked, and {name} lacks it")
