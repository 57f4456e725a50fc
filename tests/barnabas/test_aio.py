"""The client on asyncio has every name that the client on trio has; cancels, callbacks and closed loops."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
import trio

from barnabas import (
    Admin,
    AlterConfigOp,
    ConfigResource,
    Consumer,
    Producer,
    ResourceType,
    ShareConsumer,
    TopicPartition,
    aio,
    errors,
)
from barnabas.asyncio_bridge import Bridge
from barnabas.client.shares.acknowledgements import Acknowledged
from barnabas.dev.embedded import EmbeddedServers
from tests.barnabas.test_sync import NOT_FOR_USERS

pytestmark = pytest.mark.feature("CL-05")

PAIRS = [(Producer, aio.Producer), (Consumer, aio.Consumer), (ShareConsumer, aio.ShareConsumer), (Admin, aio.Admin)]
TIMEOUT_SECONDS = 30


def on_asyncio(story: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await story

    asyncio.run(bounded())


@pytest.mark.parametrize(("on_trio", "here"), PAIRS)
def test_every_public_name_is_there_and_as_asynchronous_as_on_trio(on_trio: type, here: type) -> None:
    names = {name for name in dir(on_trio) if not name.startswith("_")} - NOT_FOR_USERS
    assert names <= set(dir(here))
    assert not set(dir(here)) & NOT_FOR_USERS
    for name in names:
        assert inspect.iscoroutinefunction(getattr(here, name)) == inspect.iscoroutinefunction(getattr(on_trio, name))
        assert inspect.getdoc(getattr(here, name)) == inspect.getdoc(getattr(on_trio, name)), name


def test_a_wrong_setting_is_reported_before_anything_is_opened() -> None:
    with pytest.raises(errors.ConfigException, match="linger"):
        aio.Producer(bootstrap_servers="127.0.0.1:1", linger=5)  # type: ignore[call-arg]


def test_a_client_that_is_not_open_raises() -> None:
    async def story() -> None:
        with pytest.raises(errors.IllegalStateException, match="`async with` block"):
            await aio.Producer(bootstrap_servers="127.0.0.1:1").flush()

    on_asyncio(story())


def test_a_client_belongs_to_the_loop_that_opened_it(barnabas_broker: EmbeddedServers, barnabas_topic: str) -> None:
    def elsewhere(producer: aio.Producer) -> None:
        asyncio.run(producer.send(barnabas_topic, b"x"))  # type: ignore[arg-type]

    async def story() -> None:
        async with aio.Producer(bootstrap_servers=barnabas_broker) as producer:
            with pytest.raises(errors.IllegalStateException, match="event loop"):
                await asyncio.to_thread(elsewhere, producer)

    on_asyncio(story())


def test_positions_and_commits_count_what_iteration_has_returned(
    barnabas_broker: EmbeddedServers, barnabas_topic: str
) -> None:
    async def story() -> None:
        async with aio.Producer(bootstrap_servers=barnabas_broker) as producer:
            await producer.send_all(barnabas_topic, [b"%d" % number for number in range(100)])
        place, group = TopicPartition(barnabas_topic, 0), f"{barnabas_topic}-readers"
        options: dict[str, Any] = {"bootstrap_servers": barnabas_broker, "group_id": group}
        async with aio.Consumer(barnabas_topic, auto_offset_reset="earliest", **options) as consumer:
            seen = []
            async for record in consumer:
                seen.append(record.value)
                if len(seen) == 7:
                    break
            assert await consumer.position(place) == 7
            await consumer.commit()
            async for record in consumer:
                seen.append(record.value)
                if len(seen) == 12:
                    break
            assert (await consumer.poll(1_000))[0].value == b"12"
            consumer.seek(place, 99)
            assert (await anext(consumer)).value == b"99"
        assert seen == [b"%d" % number for number in range(12)]
        async with aio.Consumer(**options) as consumer:
            committed = await consumer.committed([place])
        found = committed[place]
        assert found is not None and found.offset == 100, "closing commits what was returned"

    on_asyncio(story())


def test_a_cancelled_read_returns_nothing_and_loses_nothing(
    barnabas_broker: EmbeddedServers, barnabas_topic: str
) -> None:
    async def story() -> None:
        async with (
            aio.Producer(bootstrap_servers=barnabas_broker) as producer,
            aio.Consumer(
                barnabas_topic, bootstrap_servers=barnabas_broker, group_id=barnabas_topic, auto_offset_reset="earliest"
            ) as consumer,
        ):
            reading = asyncio.ensure_future(anext(consumer))
            await asyncio.wait((reading,), timeout=0)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            await producer.send(barnabas_topic, b"later")
            assert (await anext(consumer)).value == b"later"

    on_asyncio(story())


def test_a_block_that_is_cancelled_aborts_its_transaction(
    barnabas_broker: EmbeddedServers, barnabas_topic: str
) -> None:
    async def story() -> None:
        async with aio.Producer(bootstrap_servers=barnabas_broker, transactional_id=barnabas_topic) as producer:
            sent = asyncio.Event()

            async def part() -> None:
                async with producer.transaction():
                    await producer.enqueue(barnabas_topic, b"aborted")
                    sent.set()
                    await asyncio.Event().wait()

            task = asyncio.ensure_future(part())
            await sent.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(LookupError):
                async with producer.transaction():
                    await producer.enqueue(barnabas_topic, b"aborted, too")
                    raise LookupError
            async with producer.transaction():
                await producer.enqueue(barnabas_topic, b"committed")
        async with aio.Consumer(
            barnabas_topic,
            bootstrap_servers=barnabas_broker,
            group_id=barnabas_topic,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            assert (await anext(consumer)).value == b"committed"

    on_asyncio(story())


def test_callbacks_run_in_the_application_s_loop_and_may_use_the_client(
    barnabas_broker: EmbeddedServers, barnabas_topic: str
) -> None:
    threads = []

    async def story() -> None:
        async with aio.Producer(bootstrap_servers=barnabas_broker) as producer:
            await producer.send_all(barnabas_topic, [b"%d" % number for number in range(10)])
        async with aio.Consumer(
            bootstrap_servers=barnabas_broker, group_id=barnabas_topic, auto_offset_reset="earliest"
        ) as consumer:

            async def assigned(partitions: Sequence[TopicPartition]) -> None:
                threads.append(threading.current_thread())
                for each in partitions:
                    consumer.seek(each, await consumer.position(each) + 8)

            consumer.subscribe([barnabas_topic], listener=aio.RebalanceListener(on_assigned=assigned))
            assert (await anext(consumer)).value == b"8"
        acknowledged: list[Acknowledged] = []

        async def done(result: Acknowledged) -> None:
            threads.append(threading.current_thread())
            acknowledged.append(result)

        async with aio.Admin(bootstrap_servers=barnabas_broker) as admin:
            await admin.incremental_alter_configs(share_from_the_start(f"{barnabas_topic}-shared"))
        async with aio.ShareConsumer(
            barnabas_topic,
            bootstrap_servers=barnabas_broker,
            group_id=f"{barnabas_topic}-shared",
            share_acknowledgement_mode="explicit",
        ) as shares:
            shares.set_acknowledgement_callback(done)
            records = []
            while not records:
                records = await shares.poll(1_000)
            for record in records:
                async with record:
                    assert record.delivery_count == 1
            await shares.commit()
        assert acknowledged and set(threads) == {threading.main_thread()}

    on_asyncio(story())


def share_from_the_start(group: str) -> dict[ConfigResource, list[AlterConfigOp]]:
    return {ConfigResource(ResourceType.GROUP, group): [AlterConfigOp("share.auto.offset.reset", "earliest")]}


def test_a_call_is_cancelled_in_its_own_loop_before_its_caller_goes_on() -> None:
    ended = []

    async def long() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("long")

    async def story() -> None:
        bridge = Bridge()
        await bridge.start()
        task = asyncio.ensure_future(bridge.call(long))
        await bridge.call(trio.lowlevel.checkpoint)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert ended == ["long"]
        await bridge.stop()

    on_asyncio(story())
