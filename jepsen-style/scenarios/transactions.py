"""Reads of committed records, and ends of transactions: scenarios 3, 8, 12, 13, 16 and 23."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import trio

from barnabas import TopicPartition
from barnabas.client.producer import Producer
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.runtime.channel import ChannelError
from scenarios.intercepted_messages import Rule
from scenarios.setups import leader_dies_before_followers_know
from scenarios.stage import (
    NotBroughtAbout,
    Stage,
    batch_of,
    came_about,
    fetch_request,
    holds,
    produce_request,
    values_in,
)

TOPIC = "t"
OPEN_SECONDS = 20.0
"""Maximum time for opening a producer once nothing is broken."""


def _at_rest(stage: Stage, index: int = 0) -> bool:
    """Nothing of this partition belongs to an open transaction: the last stable offset is the end."""
    log = stage.log_of(stage.leader(TOPIC, index), TOPIC, index)
    return log.last_stable_offset == log.high_watermark == log.log_end_offset


def coordinator_of(stage: Stage, transactional_id: str) -> str:
    """The coordinator, as the brokers know it; empty if there is none."""
    for node in stage.cluster.brokers:
        if node.broker is not None and (placed := node.broker.transactions.placed(transactional_id)) is not None:
            return "" if placed.leader < 0 else stage.name_of(placed.leader)
    return ""


# ---- 3


async def open_transaction_past_failovers(stage: Stage) -> None:
    """The leaders of a partition die one after the other while a transaction is open in it."""
    await stage.create_topic(TOPIC)
    seen: list[bytes] = []
    stop = trio.Event()

    async def look_everywhere() -> None:
        """Ask every broker again and again, so that no moment of a new leader is missed."""
        while not stop.is_set():
            for name in stage.brokers:
                if stage.node(name).is_up:
                    with suppress(ChannelError):
                        request = fetch_request(TOPIC, 0, committed=True, max_wait_ms=0)
                        data = await stage.fetch(name, request, host=f"looks/{name}", timeout_ms=500)
                        aborted = {each.producer_id for each in data.aborted_transactions or ()}
                        fresh = [value for value in values_in(data) if value.startswith(b"open") and not aborted]
                        seen.extend(fresh)
            await trio.sleep(0.02)

    async with (
        stage.producer("transactional", transactional_id="tx", transaction_timeout_ms=60_000) as producer,
        stage.producer("plain") as plain,
        trio.open_nursery() as nursery,
    ):
        await plain.send(TOPIC, b"before")
        producer.begin_transaction()
        await producer.send(TOPIC, b"open/1")
        nursery.start_soon(look_everywhere)
        for number in range(2):
            old = stage.leader(TOPIC)
            stage.kill(old)
            await plain.send(TOPIC, b"beside/%d" % number)
            new = stage.leader(TOPIC)
            came_about(new != old, "another leads")
            stable = stage.log_of(new, TOPIC).last_stable_offset
            holds(stable == 1, f"the last stable offset is {stable}, and a transaction is open from 1 on")
            stage.start(old)
            await stage.until(partial(stage.in_sync, old, TOPIC), "it is back")
        await producer.send(TOPIC, b"open/2")
        holds(not seen, f"an open transaction is read: {seen}")
        await producer.abort_transaction()
        await stage.must(partial(_at_rest, stage), "the last stable offset reaches the end")
        stop.set()
    await stage.whole(TOPIC)
    wanted = [b"before", b"beside/0", b"beside/1"]
    found = await stage.read(TOPIC)
    holds(found == wanted, f"committed are {found}")
    everything = await stage.read(TOPIC, committed=False)
    came_about(len(everything) == 5, f"the aborted records are in the log: {everything}")
    # And the node that has to read the log again.
    stage.kill(*stage.brokers)
    await trio.sleep(0.5)
    stage.start(*stage.brokers)
    await stage.whole(TOPIC)
    found = await stage.read(TOPIC)
    holds(found == wanted, f"after a restart committed are {found}")


async def elected_and_not_current(stage: Stage) -> None:
    """A new leader does not know yet that what it has is committed: it must not answer with an end offset."""
    await stage.create_topic(TOPIC)
    first = stage.leader(TOPIC)
    second, _third = stage.followers(TOPIC)
    await leader_dies_before_followers_know(stage, TOPIC, of_followers=0)
    await stage.until(lambda: stage.leader(TOPIC) == second, "the second leads")
    await stage.until(lambda: stage.replica_of(second, TOPIC).is_leader, "and knows it")
    log = stage.log_of(second, TOPIC)
    came_about((log.high_watermark, log.log_end_offset) == (1, 2), "it does not know of the last record")

    async def end(committed: bool) -> tuple[ErrorCode, int]:
        wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[ListOffsetsTopic(name=TOPIC, partitions=[wanted])],
            timeout_ms=300,
        )
        answer = (await stage.ask(second, request, timeout_ms=5_000)).topics[0].partitions[0]
        return ErrorCode(answer.error_code), answer.offset

    for committed in (False, True):
        code, offset = await end(committed)
        holds(code is ErrorCode.OFFSET_NOT_AVAILABLE, f"the end is answered: {code.name} {offset}")
        data = await stage.fetch(second, fetch_request(TOPIC, 0, committed=committed, max_wait_ms=50))
        holds(values_in(data) == [b"known"], f"it shows {values_in(data)}")
    stage.mend()
    await stage.must(lambda: log.high_watermark == 2, "the high watermark comes")
    holds(await end(False) == (ErrorCode.NONE, 2), "and then the end is known")
    stage.start(first)
    await stage.whole(TOPIC)


# ---- 8


async def _open(stage: Stage, transactional_id: str, opened: dict[str, float]) -> None:
    began = trio.current_time()
    async with stage.producer(f"of {transactional_id}", transactional_id=transactional_id, max_block_ms=200_000):
        opened[transactional_id] = trio.current_time() - began


async def producer_ids_past_a_pause(stage: Stage) -> None:
    """The coordinator sleeps, shorter and longer than its session: clients that asked it meanwhile get a producer
    id."""
    await stage.create_topic(TOPIC)
    opened: dict[str, float] = {}
    await _open(stage, "first", opened)
    for pause_seconds in (1.0, 8.0):
        opened.clear()
        coordinator = coordinator_of(stage, "first")
        asked = stage.mail.read(ApiKey.INIT_PRODUCER_ID, receiver=coordinator)
        answered = stage.mail.read(ApiKey.INIT_PRODUCER_ID, "response", sender=coordinator)
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(_open, stage, f"{pause_seconds}/{number}", opened)
            nursery.start_soon(_open, stage, "first", opened)
            # In the midst of it.
            await asked.caught()
            stage.pause(coordinator)
            before = len(answered.letters)
            await trio.sleep(pause_seconds)
            came_about("first" not in opened or pause_seconds > 3, "somebody waits for the coordinator")
            stage.resume(coordinator)
            awake = trio.current_time()
            with trio.move_on_after(OPEN_SECONDS + 40) as scope:
                while len(opened) < 4:
                    await trio.sleep(0.1)
            waited = trio.current_time() - awake
            holds(not scope.cancelled_caught, f"still waiting for producer ids: {sorted(opened)} have one")
            holds(waited <= OPEN_SECONDS, f"producer ids came {waited:.0f} s after the pause")
        came_about(before < len(asked.letters), "a request was under way when it fell asleep")
        await stage.until(lambda: not stage.cluster.not_ready(), "everybody is back")
    await _open(stage, "last", opened)


# ---- 12


async def _late_end(stage: Stage, *, first_commits: bool) -> None:
    """A request that ends one transaction arrives in the midst of the next one, which ends the other way."""
    await stage.create_topic(TOPIC)
    answers = stage.mail.read(ApiKey.END_TXN, "response", receiver="producer")
    async with stage.producer(transactional_id="tx", transaction_timeout_ms=60_000) as producer:
        producer.begin_transaction()
        await producer.send(TOPIC, b"warm")
        await producer.commit_transaction()
        kept = stage.mail.keep(ApiKey.END_TXN, sender="producer", limit=1)
        producer.begin_transaction()
        await producer.send(TOPIC, b"first/1")
        await producer.send(TOPIC, b"first/2")
        await _end(producer, commit=first_commits)
        [late] = kept.letters
        came_about(late.message.committed == first_commits, "the kept request ends the first transaction")
        producer.begin_transaction()
        await producer.send(TOPIC, b"second/1")
        offset = (await producer.send(TOPIC, b"second/2")).offset
        answered = len(answers.letters)
        kept.release()
        await answers.caught(answered + 1) if await _arrives(answers, answered) else None
        await trio.sleep(1)
        code = answers.letters[answered].message.error_code if len(answers.letters) > answered else None
        log = stage.log_of(stage.leader(TOPIC), TOPIC)
        holds(code != ErrorCode.NONE, "a request of the transaction before was carried out")
        holds(log.log_end_offset == offset + 1, "the late request ended the next transaction")
        await producer.send(TOPIC, b"second/3")
        await _end(producer, commit=not first_commits)
    await stage.must(partial(_at_rest, stage), "nothing is left open")
    first, second = [b"first/1", b"first/2"], [b"second/1", b"second/2", b"second/3"]
    found = await stage.read(TOPIC)
    wanted = [b"warm", *(first if first_commits else second)]
    holds(found == wanted, f"committed are {found} instead of {wanted}")


async def _arrives(answers: Rule, count: int) -> bool:
    """The connection was given up long ago; whether the coordinator answers on it is its own affair."""
    with trio.move_on_after(1):
        await answers.caught(count + 1)
        return True
    return False


async def _end(producer: Producer, *, commit: bool) -> None:
    """Until it is known to have ended: the client gives up a connection that does not answer, and asks again."""
    with trio.fail_after(60):
        while True:
            with suppress(KafkaError):
                await (producer.commit_transaction() if commit else producer.abort_transaction())
                return
            await trio.sleep(0.1)


async def late_commit(stage: Stage) -> None:
    """The commit of a transaction comes late, and the next one is going to be aborted."""
    await _late_end(stage, first_commits=True)


async def late_abort(stage: Stage) -> None:
    """The abort of a transaction comes late, and the next one is going to be committed."""
    await _late_end(stage, first_commits=False)


# ---- 13

PATIENT: dict[str, Any] = {
    "transaction_timeout_ms": 2_000,
    "request_timeout_ms": 40_000,
    "delivery_timeout_ms": 60_000,
}
"""The connection on which a batch is late lives on, or nobody would care about the batch."""


async def late_first_batch(stage: Stage) -> None:
    """The first batch of a partition comes when its transaction was aborted by its timeout: nobody would end it."""
    await stage.create_topic(TOPIC, partitions=2)
    kept: Rule | None = None
    async with stage.producer(transactional_id="tx", **PATIENT) as producer:
        producer.begin_transaction()
        await producer.send(TOPIC, b"in time", partition=0)
        leader = stage.leader(TOPIC, 1)
        kept = stage.mail.keep(ApiKey.PRODUCE, sender="producer", when=lambda letter: b"too late" in letter.frame)
        answers = stage.mail.read(ApiKey.PRODUCE, "response", sender=leader)
        await producer.enqueue(TOPIC, b"too late", partition=1)
        await kept.caught()
        await stage.until(partial(_at_rest, stage), "the timeout ended the transaction in the other partition", 30)
        came_about(stage.log_of(leader, TOPIC, 1).log_end_offset == 0, "nothing of it is in this partition")
        kept.release()
        await answers.caught()
    await trio.sleep(1)
    for name in stage.brokers:
        log = stage.log_of(name, TOPIC, 1)
        holds(b"too late" not in stage.values(name, TOPIC, 1), f"{name} took a batch of a transaction that had ended")
        holds(log.last_stable_offset == log.high_watermark, f"{name} waits for ever at {log.last_stable_offset}")
    await _readers_get_on(stage, 1)


async def _readers_get_on(stage: Stage, index: int) -> None:
    async with stage.producer("plain") as producer:
        metadata = await producer.send(TOPIC, b"after", partition=index)
    log = stage.log_of(stage.leader(TOPIC, index), TOPIC, index)
    await stage.must(lambda: log.last_stable_offset > metadata.offset, "readers of committed records get on", 15)


async def late_second_batch(stage: Stage) -> None:
    """A later batch of a partition comes when the marker of its abort is there already."""
    await stage.create_topic(TOPIC)
    async with stage.producer(transactional_id="tx", **PATIENT) as producer:
        producer.begin_transaction()
        await producer.send(TOPIC, b"in time")
        kept = stage.mail.keep(ApiKey.PRODUCE, sender="producer", when=lambda letter: b"too late" in letter.frame)
        answers = stage.mail.read(ApiKey.PRODUCE, "response", sender=stage.leader(TOPIC))
        await producer.enqueue(TOPIC, b"too late")
        await kept.caught()
        log = stage.log_of(stage.leader(TOPIC), TOPIC)
        await stage.until(lambda: log.log_end_offset == 2, "the marker is there", 30)
        kept.release()
        await answers.caught()
    await trio.sleep(1)
    for name in stage.brokers:
        holds(b"too late" not in stage.values(name, TOPIC), f"{name} took a batch of a transaction that had ended")
    await _readers_get_on(stage, 0)
    found = await stage.read(TOPIC)
    holds(found == [b"after"], f"committed are {found}")


async def late_batch_of_an_old_client(stage: Stage) -> None:
    """A client that adds partitions by itself, and keeps its epoch: only asking the coordinator can show it
    (KIP-890)."""
    await stage.create_topic(TOPIC, partitions=2)
    async with stage.producer(transactional_id="other"):
        """From now on there are coordinators."""
    transactional_id = "old"

    async def ask(request: Any, version: int) -> Any:
        again = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS)
        with trio.fail_after(30):
            while True:
                answer = await stage.ask(coordinator_of(stage, transactional_id), request, version=version)
                if getattr(answer, "error_code", 0) not in again:
                    return answer
                await trio.sleep(0.05)

    given = await ask(InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000), 4)
    holds(given.error_code == ErrorCode.NONE, f"no producer id: {given.error_code}")
    producer: dict[str, int] = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}

    async def add(index: int) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=given.producer_id,
            v3_and_below_producer_epoch=given.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[index])],
        )
        await ask(request, 3)

    async def send(value: bytes, index: int, sequence: int) -> ErrorCode:
        batch = batch_of(value, base_sequence=sequence, transactional=True, **producer)
        request = produce_request(TOPIC, batch, index=index, transactional_id=transactional_id)
        again = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS)
        while True:
            answer = await stage.produce(stage.leader(TOPIC, index), request, version=11)
            if answer.error_code not in again:
                return ErrorCode(answer.error_code)
            await trio.sleep(0.05)

    async def end(commit: bool) -> ErrorCode:
        request = EndTxnRequest(transactional_id=transactional_id, committed=commit, **producer)
        return ErrorCode((await ask(request, 4)).error_code)

    await add(0)
    came_about(await send(b"in time", 0, 0) is ErrorCode.NONE, "an old client can write")
    came_about(await end(False) is ErrorCode.NONE, "and abort")
    await stage.until(partial(_at_rest, stage), "the marker is written")
    for index, sequence in ((0, 1), (1, 0)):
        code = await send(b"too late", index, sequence)
        holds(code is not ErrorCode.NONE, f"a batch in no transaction was taken by partition {index}")
        holds(_at_rest(stage, index), f"partition {index} has an open transaction that nobody will end")
        await _readers_get_on(stage, index)


# ---- 16


async def timeout_is_not_the_end(stage: Stage) -> None:
    """A transaction takes too long and is aborted by its coordinator: it gets an error, and the process goes on at
    once."""
    await stage.create_topic(TOPIC)
    for number in range(2):
        async with stage.producer(transactional_id="tx", transaction_timeout_ms=1_500) as producer:
            producer.begin_transaction()
            await producer.send(TOPIC, b"slow/%d" % number)
            await stage.until(partial(_at_rest, stage), "its timeout has ended it", 30)
            raised: KafkaError | None = None
            try:
                if number:
                    await producer.send(TOPIC, b"slower/%d" % number)
                await producer.commit_transaction()
            except KafkaError as error:
                raised = error
            holds(raised is not None, "the commit of what was aborted succeeded")
            with suppress(KafkaError):
                await producer.abort_transaction()
        # As fenced producers do: the next one of the same process and of the same name.
        began = trio.current_time()
        async with (
            stage.producer(transactional_id="tx", transaction_timeout_ms=1_500) as producer,
            producer.transaction(),
        ):
            await producer.send(TOPIC, b"quick/%d" % number)
        waited = trio.current_time() - began
        holds(waited < 5, f"the next producer of the same name took {waited:.0f} s")
    found = await stage.read(TOPIC)
    holds(found == [b"quick/0", b"quick/1"], f"committed are {found}")
    everything = await stage.read(TOPIC, committed=False)
    slow = [each for each in everything if each.startswith(b"slow/")]
    came_about(slow == [b"slow/0", b"slow/1"], f"the slow ones are in the log, aborted: {everything}")


# ---- 23

CLEANING = {"log.cleaner.backoff.ms": "1000", "log.cleaner.min.cleanable.ratio": "0.01"}


async def compacted_transactions(stage: Stage) -> None:
    """A log with aborted and committed transactions is cleaned again and again, also while one is open."""
    configs = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": "700",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "500",
        "segment.ms": "1000",
    }
    await stage.create_topic(TOPIC, configs=configs)
    latest: dict[bytes, bytes] = {}
    place = TopicPartition(TOPIC, 0)
    async with (
        stage.producer("open", transactional_id="open", transaction_timeout_ms=120_000) as forgotten,
        stage.producer(transactional_id="tx", transaction_timeout_ms=60_000) as producer,
    ):
        for number in range(40):
            commit = number % 3 != 0
            if number == 20:
                forgotten.begin_transaction()
                await forgotten.send(TOPIC, b"open", key=b"open")
            producer.begin_transaction()
            for key in (b"k%d" % (number % 4), b"only %d" % number):
                value = b"%d of %s" % (number, b"a commit" if commit else b"an abort")
                await producer.send(TOPIC, value, key=key)
                if commit:
                    latest[key] = value
            await _end(producer, commit=commit)
            await trio.sleep(0.1)
        coverage = stage.universe.coverage
        await stage.until(lambda: coverage["cleaner.log.cleaned"] >= 3 * len(stage.brokers), "the log is cleaned")
        await trio.sleep(3)
        leader = stage.leader(TOPIC)
        left = len(stage.records(leader, TOPIC))
        came_about(left < 75, f"{left} of 81 records are left")
        log = stage.log_of(leader, TOPIC)
        holds(log.last_stable_offset < log.high_watermark, "an open transaction was forgotten by cleaning")
        await forgotten.abort_transaction()
        await stage.must(partial(_at_rest, stage), "the last one is over")
        for _ in range(3):
            async with producer.transaction():
                await producer.send(TOPIC, b"the last one", key=b"last")
            await trio.sleep(1.2)
        latest[b"last"] = b"the last one"
        with suppress(NotBroughtAbout):
            await stage.until(lambda: len(stage.records(leader, TOPIC)) < 45, "what it held back is cleaned, too", 10)
        left = len(stage.records(leader, TOPIC))
    stage.kill(leader)
    await stage.until(lambda: stage.leader(TOPIC) not in ("", leader), "another leads")
    found: dict[bytes, bytes] = {}
    async with stage.consumer(isolation_level="read_committed") as consumer:
        consumer.assign([place])
        end = (await consumer.end_offsets([place]))[place]
        with trio.fail_after(60):
            while await consumer.position(place) < end:
                for record in await consumer.poll(500):
                    found[record.key or b""] = record.value or b""
    wrong = {key: (found.get(key), latest.get(key)) for key in (*found, *latest) if found.get(key) != latest.get(key)}
    holds(not wrong, f"keys that are read otherwise than committed last (read, committed): {wrong}")
    came_about(left < 45, f"what the open transaction held back was cleaned, too: {left} records are left")
    stage.start(leader)
    await stage.whole(TOPIC)


async def half_of_an_aborted_transaction(stage: Stage) -> None:
    """Retention lets go of the beginning of an aborted transaction; its rest must still be known to be aborted."""
    configs = {"internal.segment.bytes": "600", "segment.ms": "600000"}
    await stage.create_topic(TOPIC, configs=configs)
    async with stage.producer(transactional_id="tx") as producer:
        producer.begin_transaction()
        for number in range(20):
            await producer.send(TOPIC, b"aborted/%d" % number + b"." * 100)
        await producer.abort_transaction()
        producer.begin_transaction()
        await producer.send(TOPIC, b"committed")
        await producer.commit_transaction()
    leader = stage.leader(TOPIC)
    log = stage.log_of(leader, TOPIC)
    bases = [segment.base_offset for segment in log.segments]
    came_about(len(bases) > 4, f"the transaction spans segments {bases}")
    async with stage.admin() as admin:
        middle = bases[2] + 1
        await admin.delete_records({TopicPartition(TOPIC, 0): middle})
    came_about(log.log_start_offset == middle, "it begins in the middle of the transaction")
    for round_ in range(2):
        rest = await stage.read(TOPIC, committed=False)
        came_about(any(value.startswith(b"aborted") for value in rest), "some of it is still there")
        found = await stage.read(TOPIC)
        holds(found == [b"committed"], f"committed are {found}")
        if round_ == 0:
            stage.kill(*stage.brokers)
            await trio.sleep(0.5)
            stage.start(*stage.brokers)
            await stage.whole(TOPIC)


async def deletion_and_a_lagging_follower(stage: Stage) -> None:
    """Records are deleted that a follower does not have yet: it must neither hinder it for ever nor bring them back."""
    await stage.create_topic(TOPIC, configs={"internal.segment.bytes": "600"})
    leader, (lagging, other) = stage.leader(TOPIC), stage.followers(TOPIC)
    place = TopicPartition(TOPIC, 0)
    async with stage.producer() as producer, stage.admin() as admin:
        for number in range(10):
            await producer.send(TOPIC, b"%d" % number + b"." * 100)
        stage.universe.wires.link(lagging, leader).set(stalled=True)
        for number in range(10, 20):
            await producer.send(TOPIC, b"%d" % number + b"." * 100)
        came_about(lagging not in stage.isr(TOPIC), "the follower is out of the ISR")
        lagging_end = stage.log_of(lagging, TOPIC).log_end_offset
        came_about(lagging_end < 15, f"the follower has {lagging_end}")
        outcome: list[object] = []

        async def delete() -> None:
            outcome.append((await admin.delete_records({place: 15}))[place])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(delete)
            await stage.until(lambda: stage.log_of(leader, TOPIC).log_start_offset == 15, "the leader has deleted")
            stage.universe.wires.link(lagging, leader).set(stalled=False)
        came_about(outcome, "the deletion is answered")
        await producer.send(TOPIC, b"20")
    await stage.whole(TOPIC)
    for name in (leader, lagging, other):
        log = stage.log_of(name, TOPIC)
        holds(log.log_start_offset == 15, f"{name} begins at {log.log_start_offset}")
        holds(min(offset for offset, _ in stage.records(name, TOPIC)) >= 15, f"{name} shows what was deleted")
    stage.kill(leader)
    await stage.until(lambda: stage.leader(TOPIC) not in ("", leader), "another leads")
    found = await stage.read(TOPIC)
    holds(len(found) == 6, f"after an election there are {len(found)} records")
    stage.start(leader)
