"""Kafka Streams with group.protocol=streams (KIP-1071): the same program on our cluster and on Apache Kafka.

Instances are killed, stopped and started while orders come in; the account of every order has to be exact.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from os import kill
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from barnabas import Admin, AlterConfigOp, ConfigResource, ResourceType, TopicPartition
from barnabas.cli.main import run
from barnabas.client.admin import StreamsGroupDescription
from barnabas.protocol.errors import KafkaError
from barnabas.testing.cluster import QUICK_GROUPS
from barnabas.testing.topics import create_topic
from tests.compat.apache import ApacheKafka
from tests.compat.client.any_cluster import APACHE_KAFKA, BARNABAS, AnyCluster
from tests.compat.java import Java
from tests.compat.running import RunningCluster, free_base_port
from tests.compat.running_programs import Program, compile_java, java_command

pytestmark = [pytest.mark.compat, pytest.mark.client("java"), pytest.mark.feature("CG-20", "TX-13")]

PARTITIONS = 4
PRODUCTS = [f"product-{number}" for number in range(20)]
ORDERS = 600
WAIT_SECONDS = 120.0
SETTINGS = QUICK_GROUPS | {
    "group.streams.initial.rebalance.delay.ms": "500",
    "group.streams.min.session.timeout.ms": "5000",
    "group.streams.session.timeout.ms": "5000",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}


@pytest.fixture(scope="module")
def nodes() -> dict[str, RunningCluster]:
    """The cluster of ours, for tests that kill its nodes."""
    return {}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(BARNABAS, marks=pytest.mark.client(BARNABAS)),
        pytest.param(APACHE_KAFKA, marks=[pytest.mark.client(APACHE_KAFKA), pytest.mark.slow]),
    ],
)
def place(
    request: pytest.FixtureRequest,
    libs: Path,
    nodes: dict[str, RunningCluster],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[AnyCluster]:
    data = tmp_path_factory.mktemp("cluster")
    if request.param == BARNABAS:
        nodes[BARNABAS] = ours = RunningCluster.start_new(data, SETTINGS)
        yield AnyCluster(BARNABAS, tuple(broker.port for broker in ours.layout.brokers))
        assert ours.trouble({node.name: 0 for node in ours.nodes}) == []
        assert ours.down() == []
        return
    base_port = free_base_port((0, 1))
    theirs = ApacheKafka(libs, data, (base_port, base_port + 1), SETTINGS, levels={"streams.version": 1})
    theirs.start()
    yield AnyCluster(APACHE_KAFKA, (theirs.port,))
    theirs.stop()


@pytest.fixture(scope="module")
def classes(libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_java(tmp_path_factory.mktemp("classes") / "out", libs)


@pytest.fixture
def tools(place: AnyCluster, libs: Path) -> Java:
    return Java(libs, place.bootstrap_servers)


class Total(NamedTuple):
    """Orders of a product, and the sum of their amounts."""

    count: int
    amount: int


@dataclass
class Shop:
    """An application with several instances, the orders that it was given, and the totals that it gave."""

    cluster: AnyCluster
    libs: Path
    classes: Path
    folder: Path
    group: str
    orders: str
    totals: str
    instances: dict[str, Program] = field(default_factory=dict)
    expected: dict[str, list[Total]] = field(default_factory=dict)
    """By product: the total after each order."""
    _random: random.Random = field(default_factory=lambda: random.Random(17))

    def start(self, name: str) -> Program:
        words = [self.cluster.bootstrap_servers, self.orders, self.totals, self.group, str(self.folder / name)]
        command = java_command(
            self.classes, self.libs, "OrderTotals", *words, str(self.cluster.replication_factor)
        )
        self.instances[name] = Program(name, command, self.folder / f"{name}.log")
        self.instances[name].start()
        return self.instances[name]

    def stop(self, name: str) -> None:
        """It leaves the group; a JVM ends with 143 after SIGTERM."""
        program = self.instances.pop(name)
        assert program.pid is not None
        kill(program.pid, signal.SIGTERM)
        assert program.wait_ended(60) == "ended with 143", program.last_words

    def end(self) -> None:
        for program in self.instances.values():
            program.kill()

    def order(self, count: int) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers, "enable.idempotence": True})
        errors: list[object] = []
        for _ in range(count):
            product, amount = self._random.choice(PRODUCTS), self._random.randrange(1, 100)
            customer = f"customer-{self._random.randrange(50)}"
            producer.produce(
                self.orders, f"{product} {amount}", customer, on_delivery=lambda error, _: errors.append(error)
            )
            so_far = self.expected.setdefault(product, [])
            before = so_far[-1] if so_far else Total(0, 0)
            so_far.append(Total(before.count + 1, before.amount + amount))
        assert producer.flush(30) == 0
        assert errors == [None] * count

    def final(self) -> dict[str, Total]:
        return {product: totals[-1] for product, totals in self.expected.items()}


@pytest.fixture
def shop(place: AnyCluster, libs: Path, classes: Path, tmp_path: Path) -> Iterator[Shop]:
    group = place.new_name("shop")
    orders, totals = (place.new_name(stem) for stem in ("orders", "totals"))
    for topic in (orders, totals):
        create_topic(place.ports, topic, PARTITIONS, place.replication_factor)
    shop = Shop(place, libs, classes, tmp_path, group, orders, totals)
    yield shop
    shop.end()


class Reader:
    """Reads the committed totals; each total of a product must follow the one before."""

    def __init__(self, cluster: AnyCluster, topic: str) -> None:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
        self.found: dict[str, Total] = {}

    def read(self) -> None:
        for message in self._consumer.consume(1000, 0.5):
            assert message.error() is None, message.error()
            product = message.key().decode()
            total = Total(*map(int, message.value().split()))
            before = self.found.get(product, Total(0, 0))
            assert total.count == before.count + 1, f"{product}: {total} after {before}"
            self.found[product] = total

    def read_until(self, expected: Mapping[str, Total], shop: Shop) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while self.found != expected:
            ended = {name: it.last_words for name, it in shop.instances.items() if it.ended}
            assert not ended, ended
            behind = {name: (self.found.get(name), total) for name, total in expected.items()}
            wrong = {name: pair for name, pair in behind.items() if pair[0] != pair[1]}
            assert time.monotonic() < deadline, f"{wrong}, {[it.last_words for it in shop.instances.values()]}"
            self.read()

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def reader(shop: Shop) -> Iterator[Reader]:
    reader = Reader(shop.cluster, shop.totals)
    yield reader
    reader.close()


def keep_standbys(shop: Shop) -> None:
    async def alter() -> None:
        async with Admin(bootstrap_servers=shop.cluster.bootstrap_servers) as admin:
            resource = ConfigResource(ResourceType.GROUP, shop.group)
            await admin.incremental_alter_configs({resource: [AlterConfigOp("streams.num.standby.replicas", "1")]})

    trio.run(alter)


def described(shop: Shop) -> StreamsGroupDescription:
    async def describe() -> StreamsGroupDescription:
        async with Admin(bootstrap_servers=shop.cluster.bootstrap_servers) as admin:
            return (await admin.describe_streams_groups(shop.group))[shop.group]

    return trio.run(describe)


def committed(shop: Shop) -> dict[TopicPartition, int]:
    """Offsets of the group in the topic of orders."""

    async def listed() -> dict[TopicPartition, int]:
        async with Admin(bootstrap_servers=shop.cluster.bootstrap_servers) as admin:
            found = (await admin.list_streams_group_offsets(shop.group))[shop.group]
            return {each: it.offset for each, it in found.items() if it is not None and each.topic == shop.orders}

    return trio.run(listed)


def group_as_we_show_it(shop: Shop, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Text of `barnabas groups describe`."""
    capsys.readouterr()
    assert run(["groups", "describe", shop.group, *words, "-b", shop.cluster.bootstrap_servers]) == 0
    return capsys.readouterr().out


def wait(what: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        with suppress(KafkaError):
            if is_so():
                return
        assert time.monotonic() < deadline, f"not after {WAIT_SECONDS:.0f} s: {what}"
        time.sleep(0.2)


def active_tasks(group: StreamsGroupDescription) -> Counter[tuple[str, int]]:
    return Counter(
        (subtopology, partition)
        for member in group.members
        for subtopology, partitions in member.assignment.active_tasks.items()
        for partition in partitions
    )


def standby_tasks(group: StreamsGroupDescription) -> Counter[tuple[str, int]]:
    return Counter(
        (subtopology, partition)
        for member in group.members
        for subtopology, partitions in member.assignment.standby_tasks.items()
        for partition in partitions
    )


ALL_TASKS = Counter((subtopology, partition) for subtopology in ("0", "1") for partition in range(PARTITIONS))


def is_balanced(shop: Shop, members: int) -> bool:
    """Each task is active once, and each task with a state has one standby."""
    group = described(shop)
    stateful = Counter(task for task in ALL_TASKS if task[0] == "1")
    return (
        group.state.value == "Stable"
        and len(group.members) == members
        and active_tasks(group) == ALL_TASKS
        and standby_tasks(group) == (stateful if members > 1 else Counter())
    )


def test_every_order_counts_once_while_instances_are_killed_and_restarted(
    shop: Shop, reader: Reader, note: Callable[[str], None]
) -> None:
    keep_standbys(shop)
    for name in ("one", "two", "three"):
        shop.start(name)
    for program in shop.instances.values():
        program.wait_began()
    shop.order(ORDERS)
    reader.read_until(shop.final(), shop)
    wait("all tasks are active once, and have a standby", lambda: is_balanced(shop, 3))

    shop.instances["one"].kill()
    since = time.monotonic()
    shop.order(ORDERS)
    del shop.instances["one"]
    reader.read_until(shop.final(), shop)
    took = time.monotonic() - since
    shop.start("one").wait_began()
    wait("the instance that was killed has tasks again", lambda: is_balanced(shop, 3))

    for name in ("one", "two", "three"):
        shop.order(ORDERS // 4)
        shop.stop(name)
        shop.order(ORDERS // 4)
        shop.start(name).wait_began()
    reader.read_until(shop.final(), shop)
    wait("all tasks are active once, and have a standby", lambda: is_balanced(shop, 3))
    orders = sum(total.count for total in shop.final().values())
    note(f"Kafka Streams, streams group on {shop.cluster.name}: {orders} orders, {took:.1f} s with an instance killed")


@pytest.mark.feature("CG-12")
def test_every_order_counts_once_while_the_coordinator_is_killed(
    place: AnyCluster, shop: Shop, reader: Reader, request: pytest.FixtureRequest
) -> None:
    if place.name == APACHE_KAFKA:
        pytest.skip("the one node of Apache Kafka here cannot be replaced by another")
    nodes: RunningCluster = request.getfixturevalue("nodes")[BARNABAS]
    for name in ("one", "two"):
        shop.start(name)
    for program in shop.instances.values():
        program.wait_began()
    shop.order(ORDERS // 2)
    reader.read_until(shop.final(), shop)
    coordinator = described(shop).coordinator
    assert coordinator is not None
    nodes.kill(f"broker-{coordinator.node_id}")
    try:
        shop.order(ORDERS // 2)
        reader.read_until(shop.final(), shop)
        wait("another broker coordinates the group", lambda: described(shop).coordinator not in (None, coordinator))
    finally:
        nodes.start(f"broker-{coordinator.node_id}")
    shop.order(ORDERS // 2)
    reader.read_until(shop.final(), shop)
    wait("all tasks are active once", lambda: active_tasks(described(shop)) == ALL_TASKS)


@pytest.mark.feature("TO-05", "TO-09", "AD-04")
def test_the_tool_describes_resets_and_deletes_a_streams_group(
    shop: Shop, reader: Reader, tools: Java, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.start("one").wait_began()
    shop.order(100)
    reader.read_until(shop.final(), shop)
    group = ("--group", shop.group)
    assert shop.group in tools.ask("streams-groups", "--list").lines
    states = [line.split() for line in tools.ask("streams-groups", "--list", "--state", "Stable").lines if line]
    assert [shop.group, "Stable"] in states
    assert shop.group in tools.ask("groups", "--list", "--streams").out
    state = tools.ask("streams-groups", "--describe", *group, "--state", "--verbose").lines[-1].split()
    assert state[0] == shop.group and "Stable" in state and state[-1] == "1"
    members = tools.ask("streams-groups", "--describe", *group, "--members", "--verbose").out
    assert "ACTIVE" in members and "0:[0,1,2,3]" in members

    ours = group_as_we_show_it(shop, capsys, "--members")
    assert "0:0,1,2,3 1:0,1,2,3" in ours and "one-StreamThread-1" in ours
    assert "Stable  streams" in group_as_we_show_it(shop, capsys, "--state")
    assert shop.orders in group_as_we_show_it(shop, capsys)

    def lags() -> dict[tuple[str, int], str]:
        lines = [line.split() for line in tools.ask("streams-groups", "--describe", *group, "--offsets").lines]
        return {(line[1], int(line[2])): line[-1] for line in lines if line and line[0] == shop.group}

    wait("no lag is left", lambda: {lag for (topic, _), lag in lags().items() if topic == shop.orders} == {"0"})
    refused = tools.ask("streams-groups", "--delete", *group)
    assert "not EMPTY" in refused.out + refused.err or "NON_EMPTY" in refused.out + refused.err
    shop.stop("one")
    wait("the group is empty", lambda: described(shop).state.value == "Empty")
    reset = ("--reset-offsets", *group, "--input-topic", shop.orders, "--to-earliest")
    planned = [line.split() for line in tools.ask("streams-groups", *reset, "--dry-run").lines]
    assert sorted(line[2:] for line in planned if line and line[0] == shop.group) == [
        [str(index), "0"] for index in range(PARTITIONS)
    ]
    tools.ask("streams-groups", *reset, "--execute")
    assert committed(shop) == {TopicPartition(shop.orders, index): 0 for index in range(PARTITIONS)}
    tools.ask("streams-groups", "--delete-offsets", *group, "--input-topic", shop.orders)
    assert committed(shop) == {}
    deleted = tools.ask("streams-groups", "--delete", *group, "--delete-all-internal-topics")
    assert "success" in deleted.out, deleted.out
    assert shop.group not in tools.ask("streams-groups", "--list").out
    topics = tools.ask("topics", "--list").out
    assert f"{shop.group}-by-product-repartition" not in topics
