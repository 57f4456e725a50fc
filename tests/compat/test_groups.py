"""Groups of other people's consumers: they share partitions, commit, leave, die, and move their coordinator."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from barnabas.broker.groups.conversions import AT_ONCE_ITEMS
from barnabas.broker.groups.upgrades import ITEM_BYTES
from barnabas.runtime.disk import RealDisk
from barnabas.storage.dump import dump_lines
from tests.compat.foreign import Confluent, JavaConsole, Sent
from tests.compat.java import Java
from tests.compat.running import QUICK_GROUPS, RunningCluster
from tests.compat.running_programs import LOCKED, Program, python_command

pytestmark = pytest.mark.compat

PARTITIONS = 6
LEAVE_SECONDS = 25.0


@pytest.fixture(scope="module")
def cluster_of_groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    cluster = RunningCluster.start_new(tmp_path_factory.mktemp("cluster"), QUICK_GROUPS)
    yield cluster
    assert cluster.down() == []


@pytest.fixture(scope="module")
def tools(cluster_of_groups: RunningCluster, libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Java:
    return Java(libs, cluster_of_groups.bootstrap_servers).with_archive(tmp_path_factory.mktemp("java") / "classes.jsa")


class Member(threading.Thread):
    """One consumer in a thread, that reads and commits until it is stopped."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.seen: list[str] = []
        self.partitions: set[int] = set()
        self.failures: list[str] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        try:
            self.consume()
        except Exception as error:
            self.failures.append(repr(error))

    def consume(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        self.stopped.set()
        self.join(30)
        assert not self.is_alive(), f"{self.name} does not end"
        assert self.failures == []


class ConfluentMember(Member):
    """A member in a process of its own, which is restarted after a deadlock of librdkafka (`running_programs.py`)."""

    def __init__(self, bootstrap: str, topic: str, group: str, **more: Any) -> None:
        super().__init__(f"confluent-kafka {more}")
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{key.replace("_", "."): value for key, value in more.items()},
        }
        self.program = Program(
            self.name, python_command("member.py", json.dumps(settings), topic), on_line=self._on_line
        )

    def consume(self) -> None:
        self.program.start()
        try:
            while not self.stopped.wait(0.1):
                assert not self.program.ended, self.program.trouble
                if self.program.revive():
                    self.partitions = set()
            self.program.end_input()
            wrong = self.program.wait_ended(LEAVE_SECONDS)
            assert wrong in ("", LOCKED), wrong
        finally:
            self.program.kill()

    def _on_line(self, line: str) -> None:
        event = json.loads(line)
        self.seen += event.get("values", [])
        self.partitions = set(event.get("partitions", self.partitions))


class KafkaPythonMember(Member):
    """It asks for metadata often: an answer that is under way while it subscribes makes it forget to ask for the topic
    (`ClusterMetadata.set_topics`), and its leader then assigns nothing until metadata_max_age_ms, five minutes. And it
    polls for long: when the answer to SyncGroup comes just as a poll ends, it beats no more and does not join again.
    """

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        super().__init__("kafka-python")
        self._arguments = (bootstrap, topic, group)

    def consume(self) -> None:
        from kafka import KafkaConsumer

        bootstrap, topic, group = self._arguments
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap.split(","),
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
            metadata_max_age_ms=2_000,
        )
        try:
            while not self.stopped.is_set():
                polled = consumer.poll(4_000)
                for records in polled.values():
                    self.seen += [record.value.decode() for record in records]
                if polled:
                    consumer.commit()
                self.partitions = {each.partition for each in consumer.assignment()}
        finally:
            consumer.close()


class AioKafkaMember(Member):
    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        super().__init__("aiokafka")
        self._arguments = (bootstrap, topic, group)

    def consume(self) -> None:
        import asyncio

        asyncio.run(self._consume())

    async def _consume(self) -> None:
        from aiokafka import AIOKafkaConsumer

        bootstrap, topic, group = self._arguments
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
        )
        async with consumer:
            while not self.stopped.is_set():
                polled = await consumer.getmany(timeout_ms=100)
                for records in polled.values():
                    self.seen += [record.value.decode() for record in records]
                if polled:
                    await consumer.commit()
                self.partitions = {each.partition for each in consumer.assignment()}


class MakeMember(Protocol):
    def __call__(self, bootstrap: str, topic: str, group: str) -> Member: ...


def consumer_protocol(bootstrap: str, topic: str, group: str) -> ConfluentMember:
    return ConfluentMember(bootstrap, topic, group, group_protocol="consumer")


def cooperative(bootstrap: str, topic: str, group: str) -> ConfluentMember:
    strategy = {"partition_assignment_strategy": "cooperative-sticky"}
    return ConfluentMember(bootstrap, topic, group, session_timeout_ms=6000, heartbeat_interval_ms=500, **strategy)


def eager(bootstrap: str, topic: str, group: str) -> ConfluentMember:
    return ConfluentMember(bootstrap, topic, group, session_timeout_ms=6000, heartbeat_interval_ms=500)


MEMBERS: list[Any] = [
    pytest.param(eager, marks=pytest.mark.client("confluent-kafka"), id="confluent-kafka"),
    pytest.param(cooperative, marks=pytest.mark.client("confluent-kafka"), id="confluent-kafka cooperative"),
    pytest.param(consumer_protocol, marks=pytest.mark.client("confluent-kafka"), id="confluent-kafka KIP-848"),
    pytest.param(KafkaPythonMember, marks=[pytest.mark.client("kafka-python"), pytest.mark.slow], id="kafka-python"),
    pytest.param(AioKafkaMember, marks=pytest.mark.client("aiokafka"), id="aiokafka"),
]


def feed(cluster: RunningCluster, topic: str, first: int, count: int) -> set[str]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    values = {str(number) for number in range(first, first + count)}
    for number in range(first, first + count):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    return values


def share(members: list[Member]) -> bool:
    """Whether every partition has one owner, and every member has some."""
    assert [member.failures for member in members if member.failures] == []
    owners = Counter(partition for member in members for partition in member.partitions)
    return owners == Counter(range(PARTITIONS)) and all(member.partitions for member in members)


@pytest.mark.feature("CG-02", "CG-03", "CG-04", "CG-06", "CG-07", "CG-09", "CG-11", "CG-12", "CG-13", "CG-21")
@pytest.mark.parametrize("make", MEMBERS)
def test_a_group_shares_leaves_and_moves_its_coordinator(
    cluster_of_groups: RunningCluster, make: MakeMember, note: Callable[[str], None], request: pytest.FixtureRequest
) -> None:
    from barnabas.broker.coordinator.coordinator import partition_for

    cluster = cluster_of_groups
    topic = cluster.create_topic("shared", PARTITIONS)
    group = f"group of {topic}"
    members = [make(cluster.bootstrap_servers, topic, group) for _ in range(2)]
    for member in members:
        member.start()
    values = feed(cluster, topic, 0, 600)
    began = time.monotonic()
    cluster.wait_for("two share", lambda: share(members), 60)
    joined = time.monotonic() - began
    cluster.wait_for("all is read", lambda: values <= {each for m in members for each in m.seen}, 30)

    third = make(cluster.bootstrap_servers, topic, group)
    third.start()
    cluster.wait_for("three share", lambda: share([*members, third]), 60)
    members[0].stop()
    left = [members[1], third]
    cluster.wait_for("two share again", lambda: share(left), 60)

    index = partition_for(group, len(cluster.partitions("__consumer_offsets")))
    coordinator = cluster.leader_of("__consumer_offsets", index)
    cluster.kill(coordinator)
    more = feed(cluster, topic, 600, 600)
    everybody = [members[0], *left]
    cluster.wait_for("it goes on", lambda: more <= {each for m in everybody for each in m.seen}, 60)
    cluster.start(coordinator)
    cluster.wait_for("all replicas are back", lambda: all(len(p.isr) == 3 for p in cluster.status().partitions), 60)
    for member in left:
        member.stop()

    # The next member does not read committed records again.
    late = make(cluster.bootstrap_servers, topic, group)
    late.start()
    last = feed(cluster, topic, 1200, 60)
    cluster.wait_for("the last are read", lambda: last <= set(late.seen), 60)
    late.stop()
    again = Counter(value for member in [*everybody, late] for value in member.seen)
    note(f"{request.node.callspec.id}: two members share after {joined:.1f} s; "
         f"{sum(times - 1 for times in again.values())} of {len(again)} records were read twice")  # fmt: skip
    assert set(late.seen) == last, "what was committed was read again"


@pytest.mark.client("confluent-kafka")
@pytest.mark.feature("CG-09", "CG-12", "CG-21")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_killed_member_is_missed(cluster_of_groups: RunningCluster, protocol: str) -> None:
    cluster = cluster_of_groups
    topic = cluster.create_topic("missed", PARTITIONS)
    group = f"group of {topic}"
    make = eager if protocol == "classic" else consumer_protocol
    survivor = make(cluster.bootstrap_servers, topic, group)
    survivor.start()
    victim = make(cluster.bootstrap_servers, topic, group)
    victim.start()
    half = PARTITIONS // 2
    cluster.wait_for("both have a half", lambda: len(survivor.partitions) == len(victim.partitions) == half, 60)
    victim.program.kill()
    cluster.wait_for("the survivor has all", lambda: len(survivor.partitions) == PARTITIONS, 60)
    survivor.stop()
    victim.stop()


LONG_NAME = "n" * 9_000
"""The ids of two members with this client id make a group so large that the coordinator converts it in turns."""


class JavaMember(Member):
    """Kafka's VerifiableConsumer with the classic protocol."""

    def __init__(self, java: Java, settings: Path, topic: str, group: str) -> None:
        super().__init__("java")
        settings.write_text(f"client.id={LONG_NAME}\nheartbeat.interval.ms=500\n")
        words = ("--topic", topic, "--group-id", group, "--session-timeout", "6000", "--command-config", str(settings))
        command = java.command("verifiable-consumer", "--bootstrap-server", java.bootstrap, *words)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def consume(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            if event["name"] == "partitions_assigned":
                self.partitions = {each["partition"] for each in event["partitions"]}
            elif event["name"] == "partitions_revoked":
                self.partitions -= {each["partition"] for each in event["partitions"]}
        assert self.stopped.is_set(), "it has ended by itself"

    def stop(self) -> None:
        self.stopped.set()
        self.process.terminate()
        super().stop()
        self.process.wait(LEAVE_SECONDS)


def check_conversions(cluster: RunningCluster, topic: str, group: str, old: list[Member]) -> None:
    """A member with the consumer protocol joins their group and leaves it again."""
    assert 4 * len(LONG_NAME) > AT_ONCE_ITEMS * ITEM_BYTES
    for member in old:
        member.start()
    cluster.wait_for("both share", lambda: share(old), 60)
    new = consumer_protocol(cluster.bootstrap_servers, topic, group)
    new.start()
    cluster.wait_for("the three share", lambda: share([*old, new]), 60)
    new.stop()
    cluster.wait_for("both share again", lambda: share(old), 60)
    for member in old:
        member.stop()


@pytest.mark.client("confluent-kafka")
@pytest.mark.feature("CG-16")
def test_members_stay_while_their_large_group_is_converted(cluster_of_groups: RunningCluster) -> None:
    cluster = cluster_of_groups
    topic = cluster.create_topic("converted", PARTITIONS)
    group = f"group of {topic}"
    settings = {"client_id": LONG_NAME, "session_timeout_ms": 6000, "heartbeat_interval_ms": 500}
    old: list[Member] = [ConfluentMember(cluster.bootstrap_servers, topic, group, **settings) for _ in range(2)]
    check_conversions(cluster, topic, group, old)


@pytest.mark.client("java")
@pytest.mark.feature("CG-16")
def test_javas_members_stay_while_their_large_group_is_converted(
    cluster_of_groups: RunningCluster, tools: Java, tmp_path: Path
) -> None:
    cluster = cluster_of_groups
    topic = cluster.create_topic("java", PARTITIONS)
    group = f"group-of-{topic}"
    old = [JavaMember(tools, tmp_path / str(number), topic, group) for number in range(2)]
    try:
        check_conversions(cluster, topic, group, list(old))
    finally:
        for member in old:
            member.process.kill()


@pytest.mark.client("kcat")
@pytest.mark.feature("CG-02", "CG-06", "CG-03")
def test_kcat_in_a_group(cluster_of_groups: RunningCluster) -> None:
    cluster = cluster_of_groups
    topic = cluster.create_topic("balanced", PARTITIONS)
    values = feed(cluster, topic, 0, 120)
    command = ["kcat", "-b", cluster.bootstrap_servers, "-G", f"kcat of {topic}", "-c", "120", "-q",
               "-X", "auto.offset.reset=earliest", topic]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == values


@pytest.mark.client("java")
@pytest.mark.feature("CG-13", "CG-16", "CG-04", "AD-05", "TO-02")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_javas_consumer_and_the_tools_for_groups(cluster_of_groups: RunningCluster, tools: Java, protocol: str) -> None:
    cluster = cluster_of_groups
    topic = cluster.create_topic("tooled")
    group = f"{protocol}-group-of-{topic}"
    Confluent(cluster.bootstrap_servers).produce(topic, [Sent("k", str(number)) for number in range(10)])
    reading = ("--topic", topic, "--group", group, "--command-property", f"group.protocol={protocol}")
    printed = tools.ask(
        "console-consumer", *reading, "--from-beginning", "--max-messages", "10", expected="is deprecated"
    )
    assert printed.lines == [str(number) for number in range(10)]

    assert group in tools.ask("consumer-groups", "--list").lines
    described = tools.ask("consumer-groups", "--describe", "--group", group).out
    assert re.search(rf"{group}\s+{topic}\s+0\s+10\s+10\s+0\s", described), described
    state = tools.ask("consumer-groups", "--describe", "--group", group, "--state").out
    assert "Empty" in state
    listed = tools.ask("groups", "--list").out
    assert re.search(rf"{group}\s+{protocol.capitalize()}\s+consumer", listed), listed

    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-offset", "4", "--execute")
    assert re.search(rf"{topic}\s+0\s+4", tools.ask("consumer-groups", *reset).out)
    printed = tools.ask("console-consumer", *reading, "--max-messages", "6")
    assert printed.lines == [str(number) for number in range(4, 10)]
    gone = tools.ask("consumer-groups", "--delete-offsets", "--group", group, "--topic", topic).out
    assert "Successful" in gone
    assert "was successful" in tools.ask("consumer-groups", "--delete", "--group", group).out
    assert group not in tools.ask("consumer-groups", "--list").lines


@pytest.mark.client("java")
@pytest.mark.feature("TO-06", "CG-06")
def test_consumer_performance_tool(cluster_of_groups: RunningCluster, tools: Java) -> None:
    cluster = cluster_of_groups
    topic = cluster.create_topic("measured", PARTITIONS)
    feed(cluster, topic, 0, 2_000)
    printed = tools.ask("consumer-perf-test", "--topic", topic, "--num-records", "2000", "--group", f"perf of {topic}")
    assert re.search(r"^\d{4}-.*, 2000,", printed.lines[-1]), printed.out


@pytest.mark.client("java", "confluent-kafka")
@pytest.mark.feature("TX-14")
def test_hanging_transactions_are_found_and_ended(cluster_of_groups: RunningCluster, tools: Java) -> None:
    from confluent_kafka import Producer

    cluster = cluster_of_groups
    topic = cluster.create_topic("hanging")
    transactional_id = f"hangs in {topic}"
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": transactional_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(30)
    listed = tools.ask("transactions", "list").out
    assert re.search(rf"{transactional_id}\s+\d+\s+\d+\s+Ongoing", listed), listed
    described = tools.ask("transactions", "describe", "--transactional-id", transactional_id).out
    assert f"{topic}-0" in described
    producers = tools.ask("transactions", "describe-producers", "--topic", topic, "--partition", "0").out
    start_offset = re.search(r"\n\d+\s+(\d+)\s+-?\d+\s+\d+\s+\d+\s+(\d+)", producers)
    assert start_offset is not None and start_offset[2] == "0", producers
    tools.ask("transactions", "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    after = Confluent(cluster.bootstrap_servers)
    after.produce(topic, [Sent("k", "after")])
    console = JavaConsole(tools)
    printed = tools.ask(
        "console-consumer", "--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", "1",
        "--isolation-level", "read_committed", *console.shown("print.key"),
    )  # fmt: skip
    assert printed.lines == ["k\tafter"]


@pytest.mark.client("java", "confluent-kafka")
@pytest.mark.feature("ST-20", "CG-02", "TX-01")
def test_kafkas_tool_and_ours_read_the_coordinators_logs(
    cluster_of_groups: RunningCluster, tools: Java, tmp_path: Path
) -> None:
    from confluent_kafka import Producer

    cluster = cluster_of_groups
    topic = cluster.create_topic("dumped")
    transactional_id = f"writes {topic}"
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": transactional_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"value")
    producer.commit_transaction(30)
    for make, kind in ((eager, "classic"), (consumer_protocol, "modern")):
        member = make(cluster.bootstrap_servers, topic, f"{kind} reads {topic}")
        member.start()
        cluster.wait_for("it has read", lambda member=member: bool(member.seen), 60)
        member.stop()

    data = cluster.layout.log_directory(cluster.layout.node("broker-1"))
    found = {}
    for name, decoder in (("__consumer_offsets", "offsets"), ("__transaction_state", "transaction-log")):
        logs = [path for path in sorted(data.glob(f"{name}-*/*.log")) if path.stat().st_size]
        words = (f"--{decoder}-decoder", "--files", ",".join(map(str, logs)))
        found[name] = tools.run("dump-log", *words).out
        assert re.findall(r"(?i)could not|unknown|mismatch|isvalid: false", found[name]) == []
        ours = [line for path in logs for line in dump_lines(RealDisk(), str(path))]
        assert [line for line in ours if "undecodable" in line or "unknown type" in line] == []
        assert sum(" records, " in line for line in ours) == found[name].count("baseOffset: ")
    for group, record in (("classic", '"type":"2"'), ("classic", '"type":"1"'), ("modern", '"type":"8"')):
        assert re.search(rf"{record}.*{group} reads {topic}", found["__consumer_offsets"]), found["__consumer_offsets"]
    assert f'"transactionalId":"{transactional_id}"' in found["__transaction_state"]
    assert '"transactionStatus":4' in found["__transaction_state"]
