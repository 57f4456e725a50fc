"""Share groups (KIP-932) of Kafka's own consumers and tools."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.foreign import Confluent, Kcat, Sent
from tests.compat.java import Java, ToolOutput
from tests.compat.running import RunningCluster
from tests.compat.running_programs import Program

pytestmark = [pytest.mark.compat, pytest.mark.client("java"), pytest.mark.feature("CG-17", "CG-18", "TO-05")]

PARTITIONS = 3
FEW = {
    "share.coordinator.state.topic.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
    "group.share.min.record.lock.duration.ms": "1000",
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    cluster = RunningCluster.start_new(tmp_path_factory.mktemp("cluster"), FEW)
    yield cluster
    assert cluster.down() == []


@pytest.fixture(scope="module")
def tools(shared: RunningCluster, libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Java:
    return Java(libs, shared.bootstrap_servers).with_archive(tmp_path_factory.mktemp("java") / "classes.jsa")


def numbered(count: int, start: int = 0) -> list[Sent]:
    return [Sent(f"key-{number}", f"value-{number}") for number in range(start, start + count)]


def begin_at_the_start(tools: Java, group: str, **more: str) -> None:
    configs = {"share.auto.offset.reset": "earliest", **{key.replace("_", "."): it for key, it in more.items()}}
    added = ",".join(f"{key}={value}" for key, value in configs.items())
    tools.ask("configs", "--alter", "--entity-type", "groups", "--entity-name", group, "--add-config", added)


def read(tools: Java, topic: str, group: str, count: int, *words: str) -> ToolOutput:
    place = ("--bootstrap-server", tools.bootstrap, "--topic", topic, "--group", group)
    return tools.run(
        "console-share-consumer", *place, "--max-messages", str(count), "--timeout-ms", "30000", *words
    )


def lags(tools: Java, group: str) -> dict[int, tuple[str, str]]:
    """(start offset, lag) by partition, as the tool prints them."""
    lines = [line.split() for line in tools.ask("share-groups", "--describe", "--group", group).lines]
    return {int(line[2]): (line[3], line[4]) for line in lines if line and line[0] == group}


def test_the_console_reads_all_and_the_tools_describe_it(shared: RunningCluster, tools: Java) -> None:
    topic, group = shared.create_topic("orders", PARTITIONS), "console"
    sent = numbered(200)
    Confluent(shared.bootstrap_servers).produce(topic, sent)
    begin_at_the_start(tools, group)
    assert sorted(read(tools, topic, group, 200).lines) == sorted(each.value for each in sent)
    assert [line.split() for line in tools.ask("share-groups", "--list", "--state").lines if group in line] == [
        [group, "Empty"]
    ]
    assert "console" in tools.ask("groups", "--list", "--share").out
    shared.wait_for("no lag is left", lambda: all(lag in ("0", "-") for _, lag in lags(tools, group).values()))
    assert tools.ask("share-groups", "--describe", "--group", group, "--state").lines[-1].split()[-2:] == ["Empty", "0"]


@pytest.mark.client("kcat")
@pytest.mark.feature("RP-12")
def test_delayed_records_come_once_and_in_order_and_leave_no_lag(shared: RunningCluster, tools: Java) -> None:
    topic, group = shared.create_topic("reminders", configs={"barnabas.delayed.delivery.enable": "true"}), "later"
    begin_at_the_start(tools, group)
    kcat = Kcat(shared.bootstrap_servers)
    for value, delay_ms in (("third", 6_000), ("second", 4_000), ("first", 0)):
        kcat.run("-P", "-t", topic, "-p", "0", "-H", f"deliver-after={delay_ms}", stdin=f"{value}\n")
    assert read(tools, topic, group, 3).lines == ["first", "second", "third"]
    shared.wait_for("no lag is left", lambda: lags(tools, group)[0][1] in ("0", "-"))


def test_rejected_and_released_records(shared: RunningCluster, tools: Java) -> None:
    topic, group = shared.create_topic("refused", 1), "refusing"
    Confluent(shared.bootstrap_servers).produce(topic, numbered(3))
    begin_at_the_start(tools, group, share_delivery_count_limit="3")
    released = read(tools, topic, group, 3, "--release", "--formatter-property", "print.delivery=true").lines
    again = read(tools, topic, group, 3, "--release", "--formatter-property", "print.delivery=true").lines
    last = read(tools, topic, group, 3, "--reject", "--formatter-property", "print.delivery=true").lines
    counts = [sorted(re.findall(r"Delivery:(\d+)", line)[0] for line in lines) for lines in (released, again, last)]
    assert counts == [["1"] * 3, ["2"] * 3, ["3"] * 3]
    shared.wait_for("rejected records are done", lambda: lags(tools, group)[0][1] == "0")


def test_offsets_are_reset_and_deleted(shared: RunningCluster, tools: Java) -> None:
    topic, group = shared.create_topic("again", 1), "resetting"
    Confluent(shared.bootstrap_servers).produce(topic, numbered(10))
    begin_at_the_start(tools, group)
    assert len(read(tools, topic, group, 10).lines) == 10
    shared.wait_for("all is acknowledged", lambda: lags(tools, group)[0][1] == "0")
    tools.ask("share-groups", "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    assert lags(tools, group)[0] == ("0", "10")
    assert len(read(tools, topic, group, 10).lines) == 10
    tools.ask("share-groups", "--delete-offsets", "--group", group, "--topic", topic)
    assert lags(tools, group) == {}
    assert "Deletion of requested share groups" in tools.ask("share-groups", "--delete", "--group", group).out
    assert group not in tools.ask("share-groups", "--list").out


class ShareMember:
    """One kafka-verifiable-share-consumer."""

    def __init__(self, tools: Java, topic: str, group: str, log: Path) -> None:
        words = ("--bootstrap-server", tools.bootstrap, "--topic", topic, "--group-id", group, "--verbose")
        command = tools.command("verifiable-share-consumer", *words)
        self.records: list[str] = []
        """Values of the records that it got."""
        self.program = Program("member", command, log, self._on_line)

    def _on_line(self, line: str) -> None:
        event = json.loads(line)
        if event.get("name") == "record_data":
            self.records.append(event["value"])


@pytest.mark.feature("CG-12", "FI-01")
def test_members_share_a_partition_while_its_leader_is_killed(
    shared: RunningCluster, tools: Java, tmp_path: Path
) -> None:
    topic, group = shared.create_topic("killed", 1), "sharing"
    begin_at_the_start(tools, group, share_record_lock_duration_ms="2000")
    writer = Confluent(shared.bootstrap_servers)
    members = [ShareMember(tools, topic, group, tmp_path / f"{number}.log") for number in range(2)]
    for member in members:
        member.program.start()
    try:
        first, second = numbered(500), numbered(500, 500)
        writer.produce(topic, first)
        wanted = {each.value for each in first}
        shared.wait_for("the first half", lambda: wanted <= {it for each in members for it in each.records}, 60)
        target = shared.leader_of(topic, 0)
        shared.kill(target)
        writer.produce(topic, second)
        wanted |= {each.value for each in second}
        shared.wait_for("the second half", lambda: wanted <= {it for each in members for it in each.records}, 90)
        shared.start(target)
    finally:
        for member in members:
            member.program.kill()
    found = Counter(it for each in members for it in each.records)
    assert found.keys() == wanted
    assert max(found.values()) <= 5, "the limit of deliveries"
