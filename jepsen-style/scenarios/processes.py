"""Scenarios in the words of every world: the same story with simulated nodes, processes, namespaces or containers.

What needs a look inside of nodes, or the very moment, is in the simulated ones only. Here a world is asked for its
faults, and our client for what it saw.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, cast

import trio

from barnabas import Admin, Consumer, NewTopic, Producer, TopicPartition
from barnabas.client.cluster import Cluster
from barnabas.client.consumer.settings import ConsumerOptions
from barnabas.client.producer import Acked
from barnabas.client.producer.settings import ProducerOptions
from barnabas.fault_proxy.rules import MessageRule
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.runtime.channel import ChannelError
from barnabas.runtime.world import ConnectionLost
from operations import Place
from scenarios.stage import NotBroughtAbout, batch_of, came_about, holds, produce_request
from worlds.cluster import ClusterUnderTest

TOPIC = "t"
PLACE = Place(TOPIC, 0)
PARTITION = TopicPartition(TOPIC, 0)
PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.1


class Field:
    """A cluster under test, and clients of ours in it."""

    def __init__(self, cluster: ClusterUnderTest) -> None:
        self.cluster = cluster

    def producer(self, host: str = "producer", **options: Any) -> Producer:
        chosen: dict[str, Any] = {
            "bootstrap_servers": self.cluster.bootstrap_servers,
            "linger_ms": 0,
            "request_timeout_ms": 3_000,
            "delivery_timeout_ms": 60_000,
            "socket_connection_setup_timeout_ms": 1_000,
            **options,
        }
        return Producer(world=self.cluster.world(host), **cast(ProducerOptions, chosen))

    def consumer(self, *topics: str, host: str = "consumer", **options: Any) -> Consumer:
        chosen: dict[str, Any] = {
            "bootstrap_servers": self.cluster.bootstrap_servers,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "request_timeout_ms": 5_000,
            "socket_connection_setup_timeout_ms": 1_000,
            **options,
        }
        return Consumer(*topics, world=self.cluster.world(host), **cast(ConsumerOptions, chosen))

    def admin(self) -> Admin:
        return Admin(bootstrap_servers=self.cluster.bootstrap_servers, world=self.cluster.world("admin"))

    def raw(self, nursery: trio.Nursery, host: str = "zombie") -> Cluster:
        """For requests that no client would send."""
        servers = [server.rpartition(":") for server in self.cluster.bootstrap_servers.split(",")]
        bootstrap = [(name, int(port)) for name, _, port in servers]
        return Cluster(self.cluster.world(host), nursery, bootstrap, client_id=host)

    async def create(self, partitions: int = 1) -> None:
        async with self.admin() as admin:
            await admin.create_topics([NewTopic(TOPIC, partitions, 3, configs={"min.insync.replicas": "2"})])
        await self.until(self.leader, "somebody leads")

    async def leader(self) -> str | None:
        return await self.cluster.leader_of(PLACE)

    async def must_lead(self) -> str:
        leader = await self.leader()
        came_about(leader, "somebody leads")
        return leader or ""

    async def another_leads(self, than: str) -> str:
        async def another() -> str | None:
            leader = await self.leader()
            return leader if leader not in (None, than) else None

        found: str = await self.until(another, f"another than {than} leads")
        return found

    async def until(self, look: Callable[[], Awaitable[Any]], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
        """Waits for `look` to return something true, and returns it. Raises NotBroughtAbout."""
        found = None
        with trio.move_on_after(seconds):
            while not (found := await look()):
                await trio.sleep(LOOK_SECONDS)
        came_about(found, f"not within {seconds:.0f} s: {what}")
        return found

    async def have(self, end_offset: int) -> bool:
        """True if the logs of all replicas end there."""
        ends = [view.log_end_offset for view in await self.cluster.views() if view.place == PLACE]
        return len(ends) == 3 and set(ends) == {end_offset}

    async def in_sync(self, *names: str) -> bool:
        """True if exactly these are the ISR."""
        wanted = {int(name.rpartition("-")[2]) for name in names}
        return any(set(view.isr) == wanted for view in await self.cluster.views() if view.place == PLACE)

    async def read(self, *, partition: int = 0, committed: bool = True) -> list[bytes]:
        """Everything, as a new consumer sees it."""
        place = TopicPartition(TOPIC, partition)
        isolation = "read_committed" if committed else "read_uncommitted"
        read: list[bytes] = []
        async with self.consumer(host="reader", isolation_level=isolation) as consumer:
            consumer.assign([place])
            end = (await consumer.end_offsets([place]))[place]
            with trio.move_on_after(PATIENCE_SECONDS) as scope:
                while await consumer.position(place) < end:
                    read += [record.value for record in await consumer.poll(500)]
        holds(not scope.cancelled_caught, f"reading {place} does not come to {end}")
        return read


async def duplicate(cluster: ClusterUnderTest) -> None:
    """1: the answer is lost together with the leader."""
    field = Field(cluster)
    await field.create()
    leader = await field.must_lead()
    async with field.producer() as producer:
        await producer.send(TOPIC, b"before")
        rule = await cluster.add_rule(MessageRule(ApiKey.PRODUCE, "response", "hold", target=leader))
        future = await producer.enqueue(TOPIC, b"once")
        await field.until(lambda: field.have(2), "all have it")
        came_about(not future.done, "the answer is held")
        await cluster.kill(leader)
        metadata = await future
        await cluster.clear_rule(rule)
        holds(metadata.offset == 1, f"acked at {metadata.offset}, written at 1")
        await producer.send(TOPIC, b"after")
    await cluster.start(leader)
    await cluster.wait_ready()
    found = await field.read()
    holds(found == [b"before", b"once", b"after"], f"the log has {found}")


async def mistakes_are_contained(cluster: ClusterUnderTest) -> None:
    """5: brokers are frozen, and strangers talk nonsense."""
    field = Field(cluster)
    await field.create()
    acked: list[bytes] = []
    stop = trio.Event()

    async def load() -> None:
        async with field.producer() as producer:
            number = 0
            while not stop.is_set():
                value = b"%d" % number
                if isinstance(await (await producer.enqueue(TOPIC, value)).outcome(), Acked):
                    acked.append(value)
                number += 1
                await trio.sleep(0.05)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(load)
        for name, server in zip(cluster.brokers, cluster.bootstrap_servers.split(","), strict=False):
            host, _, port = server.rpartition(":")
            for nonsense in (b"\xff" * 64, b"\x00\x00\x00\x10" + b"\x7f\xff" * 8, b"GET / HTTP/1.1\r\n\r\n"):
                await _say(cluster, (host, int(port)), nonsense)
            await cluster.pause(name)
            await trio.sleep(5)
            await cluster.resume(name)
            await trio.sleep(2)
        stop.set()
    states = await cluster.states()
    holds(set(states.values()) == {"running"}, f"not all live: {states}")
    came_about(len(acked) > 50, f"only {len(acked)} records under load")
    found = await field.read()
    holds(sorted(set(acked) - set(found)) == [], f"{len(set(acked) - set(found))} records are lost")


async def _say(cluster: ClusterUnderTest, address: tuple[str, int], nonsense: bytes) -> None:
    with trio.move_on_after(1), suppress(ConnectionLost):
        connection = await cluster.world("stranger").network.dial(*address)
        try:
            connection.send_now([nonsense])
            await connection.receive_into(memoryview(bytearray(1_000)))
        finally:
            connection.close()


async def stuck_reader(cluster: ClusterUnderTest) -> None:
    """7: a leader is cut off from all but clients."""
    field = Field(cluster)
    await field.create()
    old = await field.must_lead()
    async with field.producer() as producer, field.consumer(metadata_max_age_ms=300_000) as consumer:
        consumer.assign([PARTITION])
        await producer.send(TOPIC, b"0")
        read: list[bytes] = []
        with trio.move_on_after(PATIENCE_SECONDS):
            while not read:
                read += [record.value for record in await consumer.poll(500)]
        for other in (*cluster.brokers, *cluster.controllers):
            if other != old:
                await cluster.cut(old, other)
                await cluster.cut(other, old)
        for number in range(1, 6):
            await producer.send(TOPIC, b"%d" % number)
        with trio.move_on_after(30):
            while len(read) < 6:
                read += [record.value for record in await consumer.poll(500)]
    holds(read == [b"%d" % number for number in range(6)], f"a reader stands still at {len(read)} of 6 records")
    await cluster.heal()
    await field.until(lambda: field.have(6), "all are whole again")


async def stuck_producer(cluster: ClusterUnderTest) -> None:
    """8: the coordinator is frozen, shorter and longer than its session, when a producer asks for its id."""
    field = Field(cluster)
    await field.create()
    written = [b"first"]
    async with field.producer(transactional_id="tx") as producer, producer.transaction():
        await producer.send(TOPIC, b"first")
    for pause_seconds in (1.0, 8.0):
        coordinator = await field.until(lambda: cluster.coordinator_of("transaction", "tx"), "somebody coordinates")
        value = b"after %.0f" % pause_seconds
        rule = await cluster.add_rule(MessageRule(ApiKey.INIT_PRODUCER_ID, "response", "drop", target=coordinator))
        await cluster.pause(coordinator)
        opened = trio.Event()

        async def write(value: bytes = value, opened: trio.Event = opened) -> None:
            successor = field.producer(host="successor", transactional_id="tx", max_block_ms=200_000)
            async with successor, successor.transaction():
                opened.set()
                await successor.send(TOPIC, value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await trio.sleep(pause_seconds)
            await cluster.clear_rule(rule)
            await cluster.resume(coordinator)
            with trio.move_on_after(PATIENCE_SECONDS) as scope:
                await opened.wait()
            holds(not scope.cancelled_caught, f"no producer id {PATIENCE_SECONDS:.0f} s after the pause")
        written.append(value)
        await cluster.wait_ready()
    found = await field.read()
    holds(found == written, f"committed are {found}")


async def last_replica_standing(cluster: ClusterUnderTest) -> None:
    """17: the last member of the ISR loses its power, and another has everything that was acknowledged."""
    if "power" in cluster.cannot:
        raise NotBroughtAbout(cluster.cannot["power"])
    field = Field(cluster)
    await field.create()
    last = await field.must_lead()
    gone, eligible = (name for name in cluster.brokers if name != last)
    acked = [b"%d" % number for number in range(8)]
    async with field.producer() as producer:
        for value in acked[:5]:
            await producer.send(TOPIC, value)
        await cluster.kill(gone)
        await field.until(lambda: field.in_sync(last, eligible), f"{gone} is out of the ISR")
        for value in acked[5:]:
            await producer.send(TOPIC, value)
    await cluster.stop(eligible)
    await field.until(lambda: field.in_sync(last), "one is left")
    await cluster.power_cut(last)

    async def nobody_leads() -> bool:
        return await field.leader() is None

    await field.until(nobody_leads, "somebody noticed")
    await cluster.start(gone)
    await cluster.start(last)
    # Whether it has lost something or not: it may have, and nobody would know.
    for _ in range(40):
        await trio.sleep(LOOK_SECONDS)
        leader = await field.leader()
        holds(leader is None, f"{leader} leads, and may lack what was acknowledged")
    await cluster.start(eligible)

    async def leads() -> bool:
        return await field.leader() == eligible

    await field.until(leads, f"{eligible} has everything, and leads")
    await cluster.wait_ready()
    found = await field.read()
    holds(found == acked, f"acknowledged were {acked}, there are {found}")


async def late_end_of_a_transaction(cluster: ClusterUnderTest) -> None:
    """12: a request that ends one transaction comes again, in the midst of the next."""
    field = Field(cluster)
    await field.create()
    async with (
        trio.open_nursery() as nursery,
        field.admin() as admin,
        field.producer(transactional_id="tx", transaction_timeout_ms=60_000) as producer,
    ):
        raw = field.raw(nursery)
        await raw.refresh()
        producer.begin_transaction()
        await producer.send(TOPIC, b"first")
        described = (await admin.describe_transactions(["tx"]))["tx"]
        await producer.commit_transaction()
        producer.begin_transaction()
        await producer.send(TOPIC, b"second")
        late = EndTxnRequest(
            transactional_id="tx",
            producer_id=described.producer_id,
            producer_epoch=described.producer_epoch,
            committed=True,
        )
        coordinator = await cluster.coordinator_of("transaction", "tx")
        came_about(coordinator, "somebody coordinates")
        answer = await raw.call(int((coordinator or "").rpartition("-")[2]), late)
        await trio.sleep(1)
        holds(answer.error_code != ErrorCode.NONE, "a request of the transaction before was carried out")
        await producer.abort_transaction()
        nursery.cancel_scope.cancel()
    found = await field.read()
    holds(found == [b"first"], f"committed are {found}")
    came_about(await field.read(committed=False) == [b"first", b"second"], "the second is there, aborted")


async def hanging_transaction(cluster: ClusterUnderTest) -> None:
    """13: the first batch of a partition comes when its transaction was aborted."""
    field = Field(cluster)
    await field.create(partitions=2)
    options: Mapping[str, Any] = {"transaction_timeout_ms": 2_000, "request_timeout_ms": 40_000}
    async with field.producer(transactional_id="tx", **options) as producer, field.admin() as admin:
        producer.begin_transaction()
        await producer.send(TOPIC, b"in time", partition=0)
        target = await cluster.leader_of(Place(TOPIC, 1))
        rule = await cluster.add_rule(MessageRule(ApiKey.PRODUCE, "request", "hold", source="client", target=target))
        future = await producer.enqueue(TOPIC, b"too late", partition=1)

        async def over() -> bool:
            state = (await admin.describe_transactions(["tx"]))["tx"].state
            return "COMPLETE" in str(getattr(state, "name", state)).upper()

        await field.until(over, "the timeout ended the transaction")
        came_about(not future.done, "the batch is held")
        await cluster.clear_rule(rule)
        holds(not isinstance(await future.outcome(), Acked), "a batch of a transaction that had ended was taken")
        with suppress(KafkaError):
            await producer.abort_transaction()
    async with field.producer("plain") as plain:
        await plain.send(TOPIC, b"after", partition=1)
    found: list[bytes] = []
    with trio.move_on_after(20):
        while b"after" not in found:
            found = await field.read(partition=1)
            await trio.sleep(0.5)
    holds(found == [b"after"], f"readers of committed records stand still, or see {found}")


async def zombies(cluster: ClusterUnderTest) -> None:
    """19: a leader is frozen through two elections, with produces in its ears."""
    field = Field(cluster)
    await field.create()
    zombie = await field.must_lead()
    answers: list[int] = []
    async with field.producer() as producer, trio.open_nursery() as nursery:
        raw = field.raw(nursery)
        await raw.refresh()
        node_id = int(zombie.rpartition("-")[2])

        async def late(value: bytes) -> None:
            request = produce_request(TOPIC, batch_of(value), timeout_ms=40_000)
            with suppress(ChannelError, KafkaError):
                answer = await raw.call(node_id, request, timeout_ms=60_000, at_most=12)
                answers.append(answer.responses[0].partition_responses[0].error_code)

        await producer.send(TOPIC, b"before")
        await late(b"hello")
        came_about(answers == [0], "the raw request is right")
        await cluster.pause(zombie)
        async with trio.open_nursery() as buffered:
            buffered.start_soon(late, b"buffered")
            second = await field.another_leads(zombie)
            await producer.send(TOPIC, b"second")
            await cluster.kill(second)
            await trio.sleep(1)
            await cluster.start(second)
            await field.another_leads(second)
            await producer.send(TOPIC, b"third")
            await cluster.resume(zombie)
        nursery.cancel_scope.cancel()
    await cluster.wait_ready()
    found = await field.read()
    holds(answers[1:] != [0] or b"buffered" in found, f"a zombie acknowledged what is lost: {found}")
    holds([each for each in found if each != b"buffered"] == [b"before", b"hello", b"second", b"third"], f"{found}")
    holds(b"buffered" not in found, f"a record of a zombie is committed: {found}")


async def coordinator_moves(cluster: ClusterUnderTest) -> None:
    """22: coordinators die in the midst of commits."""
    field = Field(cluster)
    await field.create()
    async with field.consumer(group_id="g") as consumer:
        consumer.assign([PARTITION])
        await consumer.commit({PARTITION: 0})
        committed = 0
        for round_ in range(1, 4):
            old = await field.until(lambda: cluster.coordinator_of("group", "g"), "somebody coordinates")
            await cluster.kill_at(old, "coordinator.appended")
            with trio.fail_after(PATIENCE_SECONDS):
                while True:
                    with suppress(KafkaError):
                        await consumer.commit({PARTITION: 10 * round_})
                        break
                    await trio.sleep(LOOK_SECONDS)
            committed = 10 * round_
            dead = (await cluster.states())[old] == "dead"
            came_about(dead or await cluster.disarm(old), "the coordinator died in the midst of a commit")
            async with field.consumer(host="stranger", group_id="g") as stranger:
                found = None
                with trio.move_on_after(PATIENCE_SECONDS):
                    while True:
                        with suppress(KafkaError):
                            found = (await stranger.committed([PARTITION]))[PARTITION]
                            break
                        await trio.sleep(LOOK_SECONDS)
            holds(found is not None and found.offset == committed, f"{committed} was committed, and there is {found}")
            await cluster.start(old)
            await cluster.wait_ready()


STORIES: Mapping[int, Callable[[ClusterUnderTest], Awaitable[None]]] = {
    1: duplicate,
    5: mistakes_are_contained,
    7: stuck_reader,
    8: stuck_producer,
    12: late_end_of_a_transaction,
    13: hanging_transaction,
    17: last_replica_standing,
    19: zombies,
    22: coordinator_moves,
}
"""By the number of the scenario."""
NEED_POWER = frozenset({17})
"""Those that cut the power of a node, which takes root on a real machine."""
