"""Kafka's tools for share groups, and kafka-groups for groups of all types: one program on our cluster and on Kafka."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compat.available import kafka_libs
from tests.compat.client.any_cluster import AnyCluster
from tests.compat.foreign import Confluent, Sent
from tests.compat.java import Java
from tests.compat.running_programs import Program

pytestmark = [
    pytest.mark.compat,
    pytest.mark.client("java"),
    pytest.mark.feature("TO-05", "TO-09", "AD-04"),
    pytest.mark.nightly_on_kafka,
]

WAIT_SECONDS = 40.0


@pytest.fixture(scope="session")
def class_archive(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Java]:
    """Tools with an archive of classes, by cluster."""
    return {}


@pytest.fixture
def tools(any_cluster: AnyCluster, class_archive: dict[str, Java], tmp_path_factory: pytest.TempPathFactory) -> Java:
    libs = kafka_libs()
    assert libs is not None
    if any_cluster.name not in class_archive:
        archive = tmp_path_factory.mktemp("java") / "classes.jsa"
        class_archive[any_cluster.name] = Java(libs, any_cluster.bootstrap_servers).with_archive(archive)
    return class_archive[any_cluster.name]


class Member:
    """One kafka-verifiable-share-consumer."""

    def __init__(self, tools: Java, topic: str, group: str, log: Path, *words: str) -> None:
        place = ("--bootstrap-server", tools.bootstrap, "--topic", topic, "--group-id", group)
        command = tools.command("verifiable-share-consumer", *place, "--verbose", *words)
        self.events: Counter[str] = Counter()
        self.values: list[str] = []
        self.acknowledged = 0
        self.program = Program("member", command, log, self._on_line)

    def _on_line(self, line: str) -> None:
        event = json.loads(line)
        self.events[event["name"]] += 1
        if event["name"] == "record_data":
            self.values.append(event["value"])
        elif event["name"] == "offsets_acknowledged":
            assert event["success"], event
            self.acknowledged += event["count"]


@pytest.fixture
def member_of(tools: Java, tmp_path: Path) -> Iterator[Callable[..., Member]]:
    members: list[Member] = []

    def start(topic: str, group: str, *words: str) -> Member:
        members.append(Member(tools, topic, group, tmp_path / f"{len(members)}.log", *words))
        members[-1].program.start()
        return members[-1]

    yield start
    for member in members:
        member.program.kill()


def wait(what: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"not after {WAIT_SECONDS:.0f} s: {what}"
        time.sleep(0.05)


def table(tools: Java, group: str, *words: str) -> list[dict[str, str]]:
    """The rows that `kafka-share-groups --describe` prints, by the titles of their columns."""
    lines = [line.split() for line in tools.ask("share-groups", "--describe", "--group", group, *words).lines if line]
    titles = " ".join(lines[0]).replace("COORDINATOR (ID)", "COORDINATOR ID").split()
    return [dict(zip(titles, line, strict=True)) for line in lines[1:]]


def lags(tools: Java, group: str) -> list[str]:
    return [row["LAG"] for row in table(tools, group)]


def write(cluster: AnyCluster, topic: str, count: int, start: int = 0) -> list[str]:
    sent = [Sent(f"key-{number}", f"value-{number}") for number in range(start, start + count)]
    Confluent(cluster.bootstrap_servers).produce(topic, sent)
    return [each.value for each in sent]


def begin_at_the_start(tools: Java, group: str) -> None:
    change = ("--alter", "--entity-type", "groups", "--entity-name", group)
    tools.ask("configs", *change, "--add-config", "share.auto.offset.reset=earliest")


def test_a_share_group_with_a_member_is_described_and_refuses_to_be_changed(
    any_cluster: AnyCluster, tools: Java, member_of: Callable[..., Member]
) -> None:
    topic, group = any_cluster.create_topic("orders"), any_cluster.new_name("described")
    begin_at_the_start(tools, group)
    written = write(any_cluster, topic, 40)
    member = member_of(topic, group, "--acknowledgement-mode", "sync")
    wait("all records are read", lambda: sorted(member.values) == sorted(written))
    wait("all records are acknowledged", lambda: member.acknowledged == 40)
    [row] = table(tools, group, "--members", "--verbose")
    assert (row["GROUP"], row["HOST"]) == (group, "/127.0.0.1")
    assert (row["#PARTITIONS"], row["ASSIGNMENT"]) == ("1", f"{topic}:0")
    assert int(row["MEMBER-EPOCH"]) >= 1
    [row] = table(tools, group, "--state", "--verbose")
    assert (row["STATE"], row["#MEMBERS"]) == ("Stable", "1")
    assert row["GROUP-EPOCH"] == row["ASSIGNMENT-EPOCH"]
    wait("no lag is left", lambda: lags(tools, group) == ["0"])
    [row] = table(tools, group, "--offsets", "--verbose")
    assert (row["TOPIC"], row["PARTITION"], row["LAG"]) == (topic, "0", "0")
    assert 0 <= int(row["START-OFFSET"]) <= 40, "the stored one may lag behind what is acknowledged"
    where = ("--group", group, "--topic", topic)
    refused = tools.ask("share-groups", "--reset-offsets", *where, "--to-earliest", "--execute", code=1)
    assert f"Share group '{group}' is not empty." in refused.out + refused.err
    refused = tools.ask("share-groups", "--delete", "--group", group)
    assert "is not EMPTY" in refused.out + refused.err
    refused = tools.ask("share-groups", "--delete-offsets", *where)
    # Both are NON_EMPTY_GROUP: the broker may send words with the code.
    assert any(words in refused.out + refused.err for words in ("Non empty group.", "The group is not empty."))


def test_offsets_of_a_share_group_are_planned_reset_and_deleted(
    any_cluster: AnyCluster, tools: Java, member_of: Callable[..., Member]
) -> None:
    topic, other, group = (
        any_cluster.create_topic("orders"),
        any_cluster.create_topic("others"),
        any_cluster.new_name("reset"),
    )
    begin_at_the_start(tools, group)
    write(any_cluster, topic, 30)
    member = member_of(topic, group, "--max-messages", "30")
    assert member.program.wait_ended(WAIT_SECONDS) == ""
    assert member.events["shutdown_complete"] == 1
    wait("no lag is left", lambda: lags(tools, group) == ["0"])
    reset = ("--reset-offsets", "--group", group)
    planned = tools.ask("share-groups", *reset, "--topic", topic, "--to-earliest", "--dry-run").lines
    assert planned[-1].split() == [group, topic, "0", "0"]
    assert lags(tools, group) == ["0"], "a plan changes nothing"
    tools.ask("share-groups", *reset, "--all-topics", "--to-datetime", "2020-01-01T00:00:00.000", "--execute")
    assert lags(tools, group) == ["30"]
    tools.ask("share-groups", *reset, "--all-topics", "--to-latest", "--execute")
    assert lags(tools, group) == ["0"]
    not_read = tools.ask("share-groups", "--delete-offsets", "--group", group, "--topic", other)
    assert other in not_read.out and "Successful" not in not_read.out
    tools.ask("share-groups", "--delete-offsets", "--group", group, "--topic", topic)
    gone = tools.ask("share-groups", "--describe", "--group", group)
    assert topic not in gone.out
    assert "was successful" in tools.ask("share-groups", "--delete", "--group", group).out
    assert group not in tools.ask("share-groups", "--list").out
    missing = tools.ask("share-groups", "--describe", "--group", group)
    assert "GroupIdNotFoundException" in missing.out + missing.err


@pytest.mark.feature("TO-08")
def test_performance_is_measured_with_share_consumers(any_cluster: AnyCluster, tools: Java) -> None:
    topic, group = any_cluster.create_topic("many"), any_cluster.new_name("measured")
    begin_at_the_start(tools, group)
    write(any_cluster, topic, 5_000)
    words = ("--topic", topic, "--group", group, "--num-records", "5000", "--threads", "2", "--timeout", "30000")
    # The tool gives its members 500 ms to leave the group, which a busy machine may not have.
    printed = tools.ask("share-consumer-perf-test", *words, "--hide-header", expected="within 500 ms")
    assert "WARNING" not in printed.out
    numbers = printed.lines[-1].split(", ")
    assert int(numbers[5]) >= 5_000
    assert float(numbers[4]) > 0, "records per second"


@pytest.mark.feature("TO-08")
@pytest.mark.parametrize(
    "mode", ["auto", pytest.param("sync", marks=pytest.mark.slow), pytest.param("async", marks=pytest.mark.slow)]
)
def test_verifiable_share_consumers_acknowledge_in_each_mode(
    any_cluster: AnyCluster, tools: Java, member_of: Callable[..., Member], mode: str
) -> None:
    topic, group = any_cluster.create_topic("checked"), any_cluster.new_name("verified")
    written = write(any_cluster, topic, 60)
    words = ("--acknowledgement-mode", mode, "--offset-reset-strategy", "earliest", "--max-messages", "60")
    member = member_of(topic, group, *words)
    assert member.program.wait_ended(WAIT_SECONDS) == ""
    assert sorted(member.values) == sorted(written)
    for event in ("startup_complete", "offset_reset_strategy_set", "shutdown_complete"):
        assert member.events[event] == 1, event
    wait("no lag is left", lambda: lags(tools, group) == ["0"])


def test_groups_of_all_types_are_listed(
    any_cluster: AnyCluster, tools: Java, member_of: Callable[..., Member]
) -> None:
    topic = any_cluster.create_topic("orders")
    write(any_cluster, topic, 5)
    shared, classic, consumer = (any_cluster.new_name(stem) for stem in ("shared", "classic", "modern"))
    member_of(topic, shared, "--offset-reset-strategy", "earliest", "--max-messages", "5").program.wait_ended(
        WAIT_SECONDS
    )
    for group, protocol in ((classic, "classic"), (consumer, "consumer")):
        chosen = ("--group", group, "--command-property", f"group.protocol={protocol}")
        until = ("--from-beginning", "--max-messages", "5", "--timeout-ms", "30000")
        assert len(tools.ask("console-consumer", "--topic", topic, *chosen, *until).lines) == 5
    mine = {shared: ("Share", "share"), classic: ("Classic", "consumer"), consumer: ("Consumer", "consumer")}

    def listed(*words: str) -> dict[str, tuple[str, str]]:
        rows = [line.split() for line in tools.ask("groups", "--list", *words).lines]
        return {row[0]: (row[1], row[2]) for row in rows if row and row[0] in mine}

    assert listed() == mine
    assert listed("--share") == {shared: mine[shared]}
    assert listed("--consumer") == {classic: mine[classic], consumer: mine[consumer]}
    assert listed("--group-type", "classic") == {classic: mine[classic]}
    assert listed("--protocol", "share") == {shared: mine[shared]}
    assert listed("--streams") == {}
