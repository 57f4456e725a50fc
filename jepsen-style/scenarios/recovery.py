"""Starting, stopping, and mistakes of one's own: scenarios 5, 11 and 25."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import trio

from barnabas import TopicPartition
from barnabas.broker.groups.offsets import Offsets
from barnabas.broker.transactions.machine import TransactionMachine
from barnabas.client.producer import Acked
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.runtime.channel import ChannelError
from barnabas.runtime.world import ConnectionLost
from scenarios.stage import Stage, came_about, holds

TOPIC = "t"
PLACE = TopicPartition(TOPIC, 0)


# ---- 5


async def pauses_and_garbage(stage: Stage) -> None:
    """Brokers are frozen and cut off under load, and strangers talk nonsense: nobody dies of it."""
    await stage.create_topic(TOPIC, partitions=3)
    lives = {name: stage.universe.hosts[name].lives for name in stage.cluster.nodes}
    sent: list[bytes] = []
    stop = trio.Event()

    async def load() -> None:
        async with stage.producer(delivery_timeout_ms=60_000) as producer:
            number = 0
            while not stop.is_set():
                value = b"%d" % number
                future = await producer.enqueue(TOPIC, value, partition=number % 3)
                if isinstance(await future.outcome(), Acked):
                    sent.append(value)
                number += 1
                await trio.sleep(0.05)

    async def commit() -> None:
        async with stage.consumer(TOPIC, host="member", group_id="g", session_timeout_ms=6_000) as consumer:
            while not stop.is_set():
                with suppress(KafkaError):
                    await consumer.poll(300)
                    await consumer.commit()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(load)
        nursery.start_soon(commit)
        for name in (*stage.brokers, stage.controllers[0]):
            await _say(stage, name, b"\xff" * 64)
            await _say(stage, name, b"\x00\x00\x00\x10" + b"\x7f\xff" * 8)
            await _say(stage, name, b"GET / HTTP/1.1\r\n\r\n")
            stage.pause(name)
            await trio.sleep(1.5)
            stage.resume(name)
            stage.isolate(name, but=["producer"])
            await trio.sleep(5)
            stage.mend()
            await trio.sleep(1)
        stop.set()
    came_about(len(sent) > 50, f"only {len(sent)} records under load")
    again = {name: stage.universe.hosts[name].lives for name in stage.cluster.nodes}
    holds(again == lives, f"nodes died and came again: {again}")
    await stage.whole(TOPIC)
    read = [value for index in range(3) for value in await stage.read(TOPIC, index)]
    lost = sorted(set(sent) - set(read))
    holds(not lost, f"acknowledged and lost: {lost}")


async def _say(stage: Stage, node: str, nonsense: bytes) -> None:
    """To whom does not speak like that; he hangs up, or waits for the rest."""
    with trio.move_on_after(1), suppress(ConnectionLost):
        connection = await stage.world_of("stranger").network.dial(node, stage.node(node).node.port)
        try:
            connection.send_now([nonsense])
            await connection.receive_into(memoryview(bytearray(1_000)))
        finally:
            connection.close()


class Planted(RuntimeError):
    """A mistake that nobody expected."""


async def mistake_in_one_request(stage: Stage) -> None:
    """A handler of a coordinator makes a mistake of its own: one request fails, it is logged, and all others go on.
    The producer whose transaction it was gives up, as Kafka's does; the next one with its id goes on.
    """
    await stage.create_topic(TOPIC)
    lives = {name: stage.universe.hosts[name].lives for name in stage.cluster.nodes}
    struck = 0

    def once(original: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
            nonlocal struck
            struck += 1
            if struck % 2 == 1:
                raise Planted("out of the blue")
            return original(self, *arguments, **keywords)

        return method

    targets: list[tuple[type, str]] = [(Offsets, "commit"), (TransactionMachine, "end_transaction")]
    before = [(owner, name, owner.__dict__[name]) for owner, name in targets]
    for name in stage.brokers:
        stage.may_fail[name] = None
    try:
        for owner, name, original in before:
            setattr(owner, name, once(original))
        async with stage.consumer(group_id="g") as consumer:
            consumer.assign([PLACE])
            for offset in range(1, 4):
                with trio.fail_after(60):
                    while True:
                        with suppress(KafkaError):
                            await consumer.commit({PLACE: offset})
                            break
                        await trio.sleep(0.1)
            committed = (await consumer.committed([PLACE]))[PLACE]
        came_about(struck >= 2, "a commit met the mistake")
        holds(committed is not None and committed.offset == 3, f"committed is {committed}")
        async with stage.producer(transactional_id="tx", max_block_ms=20_000) as producer:
            producer.begin_transaction()
            await producer.send(TOPIC, b"0")
            ended = False
            with suppress(KafkaError):
                await producer.commit_transaction()
                ended = True
            holds(not ended, "a transaction ended though its end was not carried out")
    finally:
        for owner, name, original in before:
            setattr(owner, name, original)
    again = {name: stage.universe.hosts[name].lives for name in stage.cluster.nodes}
    holds(again == lives and not stage.cluster.not_ready(), "a mistake in one request took a node down")
    logged = [message for _, message, error in stage.log.errors if isinstance(error, Planted)]
    holds(logged, "a mistake was not logged")
    async with stage.producer("another", transactional_id="tx") as producer, producer.transaction():
        await producer.send(TOPIC, b"1")
    found = await stage.read(TOPIC)
    holds(b"1" in found, f"the coordinator no longer works: {found}")


# ---- 11


async def brokers_before_controllers(stage: Stage) -> None:
    """Brokers start when there is no controller, no majority of them, or no name for them: they stay, and wait."""
    await stage.create_topic(TOPIC)
    async with stage.producer() as producer:
        await producer.send(TOPIC, b"before")
    await stage.cluster.down()
    stage.start(*stage.brokers)
    names = stage.universe.fabric.names
    hidden = {name: names.pop(name) for name in stage.controllers}
    await trio.sleep(6)
    _wait_unready(stage, "no name")
    names |= hidden
    await trio.sleep(6)
    _wait_unready(stage, "no controller")
    stage.start(stage.controllers[0])
    await trio.sleep(6)
    _wait_unready(stage, "one of three controllers")
    stage.start(stage.controllers[1])
    took = await stage.must(lambda: all(stage.node(name).is_up for name in stage.brokers), "they come up", 15)
    came_about(took > 0, "they had waited")
    stage.start(stage.controllers[2])
    await stage.wait_ready()
    async with stage.producer() as producer:
        await producer.send(TOPIC, b"after")
    found = await stage.read(TOPIC)
    holds(found == [b"before", b"after"], f"there are {found}")


def _wait_unready(stage: Stage, why: str) -> None:
    for name in stage.brokers:
        holds(stage.node(name).running, f"{why}: {name} has given up: {stage.node(name).failure!r}")
        holds(not stage.node(name).is_up, f"{why}: {name} reports that it is ready")


async def unready_is_not_asked(stage: Stage) -> None:
    """While a broker waits for its controllers it takes no clients: they go to another, or are refused."""
    await stage.create_topic(TOPIC)
    waiting = stage.leader(TOPIC)
    await stage.stop(waiting)
    stage.universe.wires.cut_between([waiting], stage.controllers)
    stage.start(waiting)
    await trio.sleep(5)
    refused = False
    try:
        await stage.ask(waiting, ApiVersionsRequest(), timeout_ms=2_000)
    except ChannelError:
        refused = True
    came_about(refused, "it does not listen before it knows what it leads")
    async with stage.producer() as producer:
        await producer.send(TOPIC, b"meanwhile")
    stage.mend()
    await stage.must(lambda: stage.node(waiting).is_up, "it comes up", 15)
    await stage.whole(TOPIC)


# ---- 25

RECOVERY = {"log.roll.ms": "1000", "replica.high.watermark.checkpoint.interval.ms": "500"}
DEATHS_AT_LEAST = 10


async def crash_at_every_write(stage: Stage, *, power_cut: bool = False) -> None:
    """A broker dies at each write of its recovery, one after the other, and each time again in the next one."""
    configs = {"internal.segment.bytes": "1500", "segment.ms": "1000"}
    await stage.create_topic(TOPIC, configs=configs)
    async with (
        stage.producer(delivery_timeout_ms=60_000) as producer,
        stage.producer("transactional", transactional_id="tx", transaction_timeout_ms=600_000) as transactional,
    ):
        acked: list[bytes] = []
        for number in range(24):
            await producer.send(TOPIC, b"%d" % number + b"." * 100)
            acked.append(b"%d" % number + b"." * 100)
            if number % 8 == 0:
                transactional.begin_transaction()
                await transactional.send(TOPIC, b"aborted/%d" % number)
                await transactional.abort_transaction()
        broken = stage.followers(TOPIC)[0]
        stage.may_fail[broken] = None
        deaths, after = 0, 1
        if power_cut:
            stage.power_cut(broken)
        else:
            stage.kill(broken)
        while True:
            await stage.until(lambda: not stage.node(broken).running, "it is dead")
            # Its first life dies at a write; the next one, in the recovery from that, some writes later.
            for nested in (after, 1 + after % 4):
                stage.start(broken)
                await _process_of(stage, broken)
                stage.universe.kill_at_change(broken, nested, power_cut=power_cut)
                with trio.move_on_after(20):
                    while stage.universe.is_alive(broken) and not stage.node(broken).is_up:
                        await trio.sleep(0.01)
                if stage.universe.is_alive(broken):
                    break
                deaths += 1
                await stage.until(lambda: not stage.node(broken).running, "it is dead")
            if stage.universe.is_alive(broken):
                break
            after += 1 if after < 12 else 3
            value = b"meanwhile/%d" % after
            await producer.send(TOPIC, value)
            acked.append(value)
            holds(after < 200, "its recovery has no end")
        stage.universe.disarm(broken)
    came_about(deaths >= DEATHS_AT_LEAST, f"it died {deaths} times only")
    await stage.whole(TOPIC)
    for name in stage.brokers:
        found = [value for value in stage.values(name, TOPIC) if not value.startswith(b"aborted")]
        holds(found == acked, f"{name} has {len(found)} of {len(acked)} records")
    # And now it has to do alone what it recovered.
    leader = stage.leader(TOPIC)
    stage.kill(leader)
    await stage.until(lambda: stage.leader(TOPIC) not in ("", leader), "another leads")
    found = await stage.read(TOPIC)
    holds(found == acked, f"committed are {len(found)} of {len(acked)} records")
    stage.start(leader)


async def _process_of(stage: Stage, name: str) -> None:
    with trio.fail_after(5):
        while not stage.universe.is_alive(name):
            await trio.sleep(0)


async def power_cut_at_every_write(stage: Stage) -> None:
    """The same with power cuts: what was not synced is left to chance each time."""
    await crash_at_every_write(stage, power_cut=True)
