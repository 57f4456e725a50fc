"""The command line as a user types it, on our cluster and on Apache Kafka."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from barnabas import TopicPartition, errors, sync
from barnabas.cli.main import run
from barnabas.cluster.probe import ask
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.compat.client.any_cluster import APACHE_KAFKA, AnyCluster
from tests.eventually import eventually


class Shell:
    """Runs commands against one cluster."""

    def __init__(self, cluster: AnyCluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._where = ["--bootstrap-server", cluster.bootstrap_servers]
        self._capfd = capfd
        self._monkeypatch = monkeypatch
        self.stderr = ""
        """Standard error of the last command."""

    def __call__(self, command: str, *words: str, expect: int = 0, stdin: bytes | str = b"") -> str:
        """Standard output of a command."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        self._monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        code = run([*command.split(), *words, *self._where])
        captured = self._capfd.readouterr()
        self.stderr = captured.err
        assert code == expect, captured.err + captured.out
        return captured.out

    def json(self, command: str, *words: str, expect: int = 0) -> Any:
        return json.loads(self(command, *words, "--json", expect=expect))

    def read(self, topic: str, *words: str) -> list[str]:
        """Lines of all records that are there."""
        return self("consume", topic, "-e", "-q", *words).splitlines()


@pytest.fixture
def shell(any_cluster: AnyCluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(any_cluster, capfd, monkeypatch)


@pytest.mark.feature("TO-08")
def test_lines_in_and_lines_out(any_cluster: AnyCluster, shell: Shell, tmp_path: Path) -> None:
    topic = any_cluster.create_topic("lines")
    shell("produce", topic, "-k", ":", "-H", "from=shell", "-z", "gzip", stdin="a:1\nb:2\r\nc:\n")
    assert shell.stderr == f"3 records sent to {topic}\n"
    whole = tmp_path / "whole"
    whole.write_bytes(b"two\nlines")
    shell("produce", topic, str(whole), "--key", "file", "-q")
    assert shell.stderr == ""
    shell("produce", topic, "-Z", "-k", ":", "-D", ";", stdin="gone:;last:x")

    assert shell.read(topic, "-o", "beginning", "-k", "=", "-D", "|") == [
        "a=1|b=2|c=|file=two",
        "lines|gone=null|last=x|",
    ]
    assert shell.read(topic, "-o", "1", "-n", "2", "-f", r"%p %o %k %S %h\n") == [
        "0 1 b 1 from=shell",
        "0 2 c 0 from=shell",
    ]
    assert shell.read(topic, "-o", "-2", "-f", r"%o %K %S\n") == ["4 4 -1", "5 4 1"]
    assert shell.read(topic) == []


@pytest.mark.feature("TO-08")
def test_json_out_is_json_in(any_cluster: AnyCluster, shell: Shell) -> None:
    first, second = any_cluster.create_topic("first", partitions=2), any_cluster.create_topic("second", partitions=2)
    records = [
        {"partition": 1, "timestamp": 1785585600000, "key": "ü", "value": {"base64": "/w=="}, "headers": [["h", None]]},
        {"partition": 1, "timestamp": 1785585600001, "key": None, "value": None, "headers": []},
    ]
    reported = shell(
        "produce", first, "--json", "--report", stdin="".join(json.dumps(record) + "\n" for record in records)
    )
    assert [json.loads(line)["offset"] for line in reported.splitlines()] == [0, 1]
    lines = shell("consume", first, "--json", "-e", "--from-beginning")
    assert [json.loads(line) for line in lines.splitlines()] == [
        {"topic": first, "offset": offset, **record} for offset, record in enumerate(records)
    ]
    shell("produce", second, "--json", stdin=lines)
    copied = shell("consume", second, "--json", "-e", "--from-beginning")
    assert copied == lines.replace(first, second)
    at = (
        shell.read(first, "-o", "s@1785585600001", "-f", r"%o\n"),
        shell.read(first, "-o", "beginning", "-o", "e@1785585600001", "-f", r"%o\n"),
    )
    assert at == (["1"], ["0"])


@pytest.mark.feature("TO-08", "TX-12")
def test_a_transaction_holds_all_records_or_none(any_cluster: AnyCluster, shell: Shell) -> None:
    topic = any_cluster.create_topic("whole")
    shell("produce", topic, "--transactional-id", any_cluster.new_name("shell"), stdin="1\n2\n")
    words = ["--json", "--transactional-id", any_cluster.new_name("shell")]
    shell("produce", topic, *words, expect=2, stdin='{"value": "3"}\nnonsense\n')
    assert "line 2: invalid JSON" in shell.stderr
    assert shell.read(topic, "--from-beginning", "--read-committed") == ["1", "2"]


@pytest.mark.feature("TO-08", "CL-03")
@pytest.mark.nightly_on_kafka
def test_members_of_a_share_group_accept_release_and_reject(any_cluster: AnyCluster, shell: Shell) -> None:
    topic, group = any_cluster.create_topic("jobs"), any_cluster.new_name("workers")
    shell("configs set", "group", group, "share.auto.offset.reset=earliest")
    shell("produce", topic, stdin="a\nb\nc\nd\n")
    words = [topic, "--share-group", group]
    assert shell("consume", *words, "-n", "1").splitlines() == ["a"]
    assert shell("consume", *words, "-n", "2", "--release").splitlines() == ["b", "c"]
    again = [json.loads(line) for line in shell("consume", *words, "-n", "2", "--reject", "--json").splitlines()]
    assert [(it["value"], it["delivery_count"]) for it in again] == [("b", 2), ("c", 2)]
    assert shell("consume", *words, "--idle", "5").splitlines() == ["d"]
    assert shell.stderr == "1 record\n"


@pytest.mark.feature("TO-08", "TO-05")
def test_a_group_goes_on_where_it_was(any_cluster: AnyCluster, shell: Shell) -> None:
    topic, group = any_cluster.create_topic("shared", partitions=2), any_cluster.new_name("readers")
    shell("produce", topic, "-p", "0", stdin="".join(f"{number}\n" for number in range(10)))
    words = ["-G", group, "--from-beginning"]
    assert shell("consume", topic, *words, "-n", "4").splitlines() == ["0", "1", "2", "3"]
    assert shell.stderr == "4 records\n"
    assert shell("consume", topic, *words, "-X", "group.protocol=consumer", "-e").splitlines() == [
        "4",
        "5",
        "6",
        "7",
        "8",
        "9",
    ]

    [offset] = [each for each in shell.json("groups describe", group)["groups"][0]["offsets"] if each["partition"] == 0]
    assert (offset["committed"], offset["end"], offset["lag"]) == (10, 10, 0)
    assert group in shell("groups list")
    planned = shell("groups reset-offsets", group, "--topic", f"{topic}:0", "--shift-by", "-3", "--export")
    assert planned == f"{topic},0,7\n"
    shell("groups reset-offsets", group, "--all-topics", "--to-earliest")
    assert "--execute" in shell.stderr
    assert shell.json("groups describe", group)["groups"][0]["offsets"][0]["committed"] == 10
    shell("groups reset-offsets", group, "--topic", f"{topic}:0", "--shift-by", "-3", "--execute")
    assert shell.read(topic, "-G", group) == ["7", "8", "9"]
    shell("groups delete-offsets", group, "--topic", topic)
    shell("groups delete", group)
    assert group not in [each["group_id"] for each in shell.json("groups list")]
    shell("groups delete", group, expect=1)
    assert "GROUP_ID_NOT_FOUND" in shell.stderr


@pytest.mark.feature("TO-02")
def test_topics_from_their_making_to_their_end(any_cluster: AnyCluster, shell: Shell) -> None:
    first, second = any_cluster.new_name("made"), any_cluster.new_name("made")
    made = shell.json("topics create", first, second, "-p", "2", "--config", "retention.ms=60000")
    assert [(each["name"], each["partitions"]) for each in made["topics"]] == [(first, 2), (second, 2)]
    shell("topics create", first, expect=1)
    assert "TOPIC_ALREADY_EXISTS" in shell.stderr
    shell("topics create", first, "--if-not-exists")
    assert {first, second} <= set(shell("topics list").splitlines())
    shell("topics alter", first, "-p", "3", "--config", "cleanup.policy=compact", "--unset", "retention.ms")
    [described] = shell.json("topics describe", first)["topics"]
    assert [each["partition"] for each in described["partitions"]] == [0, 1, 2]
    assert all(each["leader"] in each["replicas"] for each in described["partitions"])
    assert shell("topics describe", first).splitlines()[0].split()[:4] == ["topic", "partition", "leader", "epoch"]
    assert shell.json("topics describe", first, "--unavailable")["topics"][0]["partitions"] == []

    shell("produce", second, "-p", "0", stdin="1\n2\n3\n")
    [offsets, _] = shell.json("topics offsets", second)
    assert (offsets["first"], offsets["end"]) == (0, 3)
    shell("topics delete-records", f"{second}:0", "--before", "2")
    assert shell.json("topics offsets", f"{second}:0")[0]["first"] == 2
    shell("topics delete", first, second)
    shell("topics delete", first, expect=1)
    assert f"{first}: there is no such topic" in shell.stderr


@pytest.mark.feature("TO-02")
def test_settings_of_topics_brokers_and_groups(any_cluster: AnyCluster, shell: Shell) -> None:
    topic, group = any_cluster.create_topic("set"), any_cluster.new_name("set")
    shell("configs set", "topic", topic, "retention.ms=1000", "cleanup.policy=compact")
    [found] = shell.json("configs describe", "topic", topic)
    assert {each["name"]: each["value"] for each in found["configs"]} == {
        "retention.ms": "1000",
        "cleanup.policy": "compact",
    }
    shell("configs unset", "topic", topic, "retention.ms")
    assert "retention.ms" not in shell("configs describe", "topic", topic)
    assert "retention.ms" in shell("configs describe", "topic", topic, "--all")
    shell("configs set", "topic", topic, "retention.ms=soon", expect=1)
    assert "INVALID_CONFIG" in shell.stderr
    shell("configs set", "group", group, "consumer.session.timeout.ms=50000")
    assert "50000" in shell("configs describe", "group", group)
    assert "node.id" in shell("configs describe", "broker", "1", "--all")


@pytest.mark.feature("TO-07")
def test_transactions_are_listed_and_described(any_cluster: AnyCluster, shell: Shell) -> None:
    topic, transactional_id = any_cluster.create_topic("in"), any_cluster.new_name("shell")
    shell("produce", topic, "--transactional-id", transactional_id, stdin="1\n")
    listed = shell.json("transactions list")
    [mine] = [each for each in listed if each["transactional_id"] == transactional_id]
    assert mine["state"] in ("CompleteCommit", "PrepareCommit")
    [described] = shell.json("transactions describe", transactional_id)["transactions"]
    assert described["producer_id"] == mine["producer_id"]
    [producer] = shell.json("transactions producers", f"{topic}:0")[0]["producers"]
    assert producer["producer_id"] == mine["producer_id"]
    assert shell.json("transactions find-hanging", f"{topic}:0") == []
    shell("transactions describe", "nobody", expect=1)
    assert "TRANSACTIONAL_ID_NOT_FOUND" in shell.stderr


@pytest.mark.feature("TO-04", "TO-06")
def test_the_cluster_is_described(any_cluster: AnyCluster, shell: Shell) -> None:
    described = shell.json("cluster describe")
    assert len(described["brokers"]) == any_cluster.replication_factor
    quorum = shell.json("cluster quorum")
    assert quorum["leader"] in [each["id"] for each in quorum["voters"]]
    features = {each["name"]: each for each in shell.json("cluster features")["features"]}
    assert features["metadata.version"]["finalized"] == 30
    versions = shell.json("cluster api-versions")
    assert {each["broker"] for each in versions} == {each["id"] for each in described["brokers"]}
    assert {"Produce", "Metadata"} <= {each["name"] for each in versions}
    topic = any_cluster.create_topic("dir")
    directories = shell.json("cluster log-dirs", "--topic", topic)
    assert {part["topic"] for each in directories for part in each["replicas"]} == {topic}


@pytest.mark.feature("TO-06")
def test_leaders_are_elected(any_cluster: AnyCluster, shell: Shell) -> None:
    topic = any_cluster.create_topic("elect")
    elected = shell.json("topics elect", f"{topic}:0")
    assert elected["partitions"] == [{"topic": topic, "partition": 0, "elected": False}]
    shell("topics elect", topic, "--unclean")


@pytest.mark.feature("TO-08")
def test_speed_is_measured(any_cluster: AnyCluster, shell: Shell) -> None:
    topic = any_cluster.create_topic("fast", partitions=2)
    sent = shell.json("perf produce", topic, "-n", "2000", "-s", "50", "--percentiles", "50,99")
    assert (sent["records"], sent["bytes"]) == (2000, 100_000)
    assert 0 < sent["latency_ms"]["p50"] <= sent["latency_ms"]["p99"] <= sent["latency_ms"]["max"]
    read = shell.json("perf consume", topic, "-n", "2000")
    assert read["records"] >= 2000
    through = shell.json("perf latency", topic, "-n", "20")
    assert through["until_acked_ms"]["p50"] <= through["until_read_ms"]["max"]
    printed = shell("perf produce", topic, "-n", "100", "-t", "10000", "--transaction-size", "50").splitlines()
    assert printed[0].startswith("100 records, ")
    assert printed[1].startswith("latency (ms): mean ")


def test_nobody_answers(shell: Shell, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "list", "-b", "127.0.0.1:1", "--timeout", "0.5"]) == 3
    assert len(capfd.readouterr().err.splitlines()) == 1


@pytest.mark.feature("TO-02")
def test_quotas_are_set_and_removed(any_cluster: AnyCluster, shell: Shell) -> None:
    name = any_cluster.new_name("who")
    shell("configs quotas set", "--user", name, "--client", "default", "producer_byte_rate=1000")
    entity = {"user": name, "client-id": None}
    known = {"entity": entity, "quotas": {"producer_byte_rate": 1000.0}}
    eventually(lambda: known in shell.json("configs quotas describe"))
    shell("configs quotas unset", "--user", name, "--client", "default", "producer_byte_rate")
    eventually(lambda: name not in shell("configs quotas describe"))


@pytest.mark.feature("TO-06")
def test_partitions_are_reassigned(any_cluster: AnyCluster, shell: Shell, tmp_path: Path) -> None:
    topic = any_cluster.create_topic("spread", partitions=2)
    plan, back = tmp_path / "plan.json", tmp_path / "back.json"
    plan.write_text(shell("topics reassign generate", topic))
    parts = json.loads(plan.read_text())["partitions"]
    assert [(part["topic"], part["partition"]) for part in parts] == [(topic, 0), (topic, 1)]
    shell("topics reassign execute", str(plan), "--back", str(back), "--wait")
    shell("topics reassign verify", str(plan))
    assert shell.json("topics reassign list") == []
    shell("topics reassign execute", str(back), "--wait")
    described = shell.json("topics describe", topic)["topics"][0]["partitions"]
    assert [each["replicas"] for each in described] == [
        part["replicas"] for part in json.loads(back.read_text())["partitions"]
    ]


@pytest.mark.feature("TO-07")
def test_an_open_transaction_is_seen_and_ended(any_cluster: AnyCluster, shell: Shell) -> None:
    topic, transactional_id = any_cluster.create_topic("open"), any_cluster.new_name("open")
    options = {"bootstrap_servers": any_cluster.bootstrap_servers, "transactional_id": transactional_id}
    with sync.Producer(**options) as producer:
        with producer.transaction():
            producer.send(topic, b"1")
        producer.begin_transaction()
        producer.send(topic, b"2")
        [described] = shell.json("transactions describe", transactional_id)["transactions"]
        assert (described["state"], described["partitions"]) == ("Ongoing", [{"topic": topic, "partition": 0}])
        [state] = shell.json("transactions producers", topic)[0]["producers"]
        assert state["start_offset"] == 2
        assert shell.json("transactions find-hanging", topic, "--max-timeout", "0s") == []
        assert shell.json("transactions list", "--state", "Ongoing", "--pattern", f"{transactional_id}.*")
        assert shell.read(topic, "--from-beginning", "--read-committed") == ["1"]
        assert shell.read(topic, "--from-beginning") == ["1", "2"]
        shell("transactions abort", f"{topic}:0", "--start-offset", "1", expect=1)
        assert "no open transaction begins at offset 1" in shell.stderr
        assert f"fenced {transactional_id}: producer id" in shell("transactions fence", transactional_id)
        with pytest.raises(errors.KafkaError):
            producer.commit_transaction()
    assert shell.read(topic, "--from-beginning", "--read-committed") == ["1"]


@pytest.mark.feature("TO-05")
def test_members_are_shown_and_put_out(any_cluster: AnyCluster, shell: Shell) -> None:
    topic, group = any_cluster.create_topic("members"), any_cluster.new_name("members")
    shell("produce", topic, stdin="1\n2\n3\n")
    options = {"bootstrap_servers": any_cluster.bootstrap_servers, "group_id": group, "auto_offset_reset": "earliest"}
    with sync.Consumer(topic, group_instance_id="one", client_id="reader", **options) as consumer:
        while not consumer.poll(timeout_ms=200):
            pass
        consumer.commit({TopicPartition(topic, 0): 2})
        [described] = shell.json("groups describe", group)["groups"]
        [member] = described["members"]
        assert (member["instance_id"], member["client_id"]) == ("one", "reader")
        assert member["assignment"] == [{"topic": topic, "partition": 0}]
        [offset] = described["offsets"]
        seconds = offset.pop("lag_seconds")
        assert offset == {"topic": topic, "partition": 0, "committed": 2, "end": 3, "lag": 1}
        assert seconds is None if any_cluster.name == APACHE_KAFKA else 0 <= seconds < 60
        assert shell("groups describe", group).splitlines()[1].split()[:6] == [group, topic, "0", "2", "3", "1"]
        assert f"{topic}:0" in shell("groups describe", group, "--members")
        assert "Stable" in shell("groups describe", group, "--state")
        shell("groups reset-offsets", group, "--topic", topic, "--to-earliest", "--execute", expect=1)
        assert f"{topic}:0: UNKNOWN_MEMBER_ID" in shell.stderr
        shell("groups delete", group, expect=1)
        assert "NON_EMPTY_GROUP" in shell.stderr
        assert shell("groups remove-members", group, "--instance", "one") == "removed one\n"
    assert shell.json("groups describe", group)["groups"][0]["members"] == []


@pytest.mark.feature("TO-08")
def test_a_pattern_reads_what_it_matches(any_cluster: AnyCluster, shell: Shell) -> None:
    first, second, other = (any_cluster.create_topic(stem) for stem in ("seen-a", "seen-b", "unseen"))
    for topic in (first, second, other):
        shell("produce", topic, stdin=f"{topic}\n")
    words = ["-G", any_cluster.new_name("pattern"), "--from-beginning", "-n", "2"]
    assert sorted(shell("consume", f"^({first}|{second})$", *words).split()) == [first, second]
    words = ["-G", any_cluster.new_name("pattern"), "--from-beginning", "-n", "2", "-X", "group.protocol=consumer"]
    assert sorted(shell("consume", f"^({first}|{second})$", *words).split()) == [first, second]


@pytest.mark.feature("TO-02", "TO-05")
def test_the_shell_is_offered_names_that_there_are(
    any_cluster: AnyCluster, shell: Shell, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = any_cluster.create_topic("offered")

    def offered(*words: str) -> list[str]:
        monkeypatch.setenv("_BARNABAS_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(["barnabas", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        with pytest.raises(SystemExit):
            run([])
        return capfd.readouterr().out.split()

    where = ["-b", any_cluster.bootstrap_servers]
    assert offered("topics", "describe", *where, topic[:-1])[0].startswith(topic[:-1])
    assert topic in offered("consume", *where, "offered")
    assert offered("consume", *where, "there-is-none") == []
    assert offered("topics", "describe", "-b", "127.0.0.1:1", "off") == []
    assert offered("topics", "del") == ["delete", "delete-records"]


def join_share_group(cluster: AnyCluster, group: str, topic: str, epoch: int) -> None:
    """A heartbeat of member `a` at the group's coordinator: epoch 0 joins, -1 leaves. Returns when it is served."""

    def is_served() -> bool:
        found = ask(cluster.ports[0], FindCoordinatorRequest(coordinator_keys=[group]), FindCoordinatorResponse)
        port = found.coordinators[0].port
        if port < 0:
            return False
        beat = ShareGroupHeartbeatRequest(
            group_id=group, member_id="a", member_epoch=epoch, subscribed_topic_names=[topic]
        )
        answer = ask(port, beat, ShareGroupHeartbeatResponse)
        return answer.error_code == 0 and (epoch != 0 or bool(answer.assignment and answer.assignment.topic_partitions))

    eventually(is_served)


@pytest.mark.feature("TO-08", "CG-17", "CG-18")
def test_share_groups_are_served_like_others(any_cluster: AnyCluster, shell: Shell) -> None:
    topic = any_cluster.create_topic("shared")
    group = any_cluster.new_name("work")
    shell("produce", topic, stdin="1\n2\n3\n")
    join_share_group(any_cluster, group, topic, 0)
    assert [group, "share"] in [line.split()[:2] for line in shell("groups list --type share").splitlines()]
    described = shell.json("groups describe", group)["groups"][0]
    assert (described["type"], described["state"]) == ("share", "Stable")
    (member,) = described["members"]
    assert (member["member_id"], member["assignment"]) == ("a", [{"topic": topic, "partition": 0}])
    assert f"{topic}:0" in shell("groups describe --members", group)
    assert "share" in shell("groups describe --state", group)
    shell("groups reset-offsets --to-earliest --execute", group, "--topic", topic, expect=1)
    assert group in shell.stderr

    shell("groups remove-members", group, "--member", "nobody", expect=1)
    assert "UNKNOWN_MEMBER_ID" in shell.stderr
    assert shell("groups remove-members", group, "--member", "a") == "removed a\n"
    plan = shell.json("groups reset-offsets --to-earliest --execute", group, "--topic", topic)
    assert plan["executed"] and plan["offsets"][0]["after"] == 0
    offset = {"topic": topic, "partition": 0, "committed": 0, "end": 3, "lag": 3}
    [found] = shell.json("groups describe", group)["groups"][0]["offsets"]
    assert found.pop("lag_seconds") is None or any_cluster.name != APACHE_KAFKA
    assert found == offset
    plan = shell.json("groups reset-offsets --shift-by 2 --execute --all-topics", group)
    assert plan["offsets"] == [{"topic": topic, "partition": 0, "before": 0, "after": 2}]

    shell("groups delete-offsets", group, "--topic", f"{topic}:0", expect=2)
    assert "by topic" in shell.stderr
    assert shell("groups delete-offsets", group, "--topic", topic) == f"deleted {topic}\n"
    assert shell.json("groups describe", group)["groups"][0]["offsets"] == []
    assert shell("groups delete", group) == f"deleted {group}\n"
    shell("groups describe", group, expect=1)
