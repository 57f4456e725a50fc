"""`barnabas_cluster`, as users' tests have it: six processes that are killed, paused and cut apart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from barnabas import sync
from barnabas.pytest_plugin import BarnabasCluster, BarnabasError
from tests.eventually import eventually

ROOT = Path(__file__).resolve().parents[3]


def test_a_killed_leader_is_replaced_and_comes_back(barnabas_cluster: BarnabasCluster) -> None:
    cluster = barnabas_cluster
    topic = cluster.create_topic("killed", partitions=2, configs={"min.insync.replicas": "1"})
    leader = cluster.leader_of(topic)
    cluster.kill(leader)
    assert cluster.leader_of(topic, other_than=leader) != leader
    with pytest.raises(BarnabasError, match="does not run"):
        cluster.kill(leader)
    assert cluster.create_topic("made-by-two", replicas=2) == "made-by-two"
    assert cluster.repair() == [leader]
    eventually(lambda: sorted(cluster.partitions(topic)[0].isr) == [1, 2, 3])


def test_the_active_controller_may_go(barnabas_cluster: BarnabasCluster) -> None:
    cluster = barnabas_cluster
    active = cluster.active_controller()
    assert cluster.stop(active) is True
    assert cluster.active_controller(other_than=active) != active
    cluster.start(active)
    assert cluster.wait_ready() >= 0


def test_a_paused_broker_loses_its_office(barnabas_cluster: BarnabasCluster) -> None:
    cluster = barnabas_cluster
    topic = cluster.create_topic("paused")
    leader = cluster.leader_of(topic)
    cluster.pause(leader)
    assert cluster.leader_of(topic, other_than=leader) != leader
    cluster.resume(leader)
    eventually(lambda: len(cluster.partitions(topic)[0].isr) == 3)


def test_a_broker_that_is_cut_off_loses_its_office_and_learns_it_later(barnabas_cluster: BarnabasCluster) -> None:
    cluster = barnabas_cluster
    topic = cluster.create_topic("cut-off")
    leader = cluster.leader_of(topic)
    cluster.partition([leader])
    # Clients still reach it, and it still believes what it knew; the others know better.
    eventually(lambda: any(leader not in line for line in leaders_by_broker(cluster, topic)))
    assert leader in " ".join(leaders_by_broker(cluster, topic))
    assert f"{leader} stopped" not in cluster.log_of(leader)
    cluster.heal()
    eventually(lambda: len(cluster.partitions(topic)[0].isr) == 3)


def test_a_broker_with_a_full_disk_leaves_the_isr_until_it_has_room(barnabas_cluster: BarnabasCluster) -> None:
    cluster = barnabas_cluster
    topic = cluster.create_topic("no-room")
    cluster.fill_disk("broker-3")
    with sync.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send(topic, b"x" * 1000)
    eventually(lambda: 3 not in cluster.partitions(topic)[0].isr)
    cluster.repair()
    eventually(lambda: 3 in cluster.partitions(topic)[0].isr)


def test_a_broker_stamps_records_with_its_wrong_clock(barnabas_cluster: BarnabasCluster) -> None:
    cluster = barnabas_cluster
    topic = cluster.create_topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})
    leader = cluster.leader_of(topic)
    cluster.set_clock(leader, 86_400_000)
    with sync.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        stamped = producer.send(topic, b"tomorrow").timestamp_ms
    cluster.set_clock(leader, 0)
    assert stamped - time.time() * 1000 > 80_000_000


def leaders_by_broker(cluster: BarnabasCluster, topic: str) -> list[str]:
    """The leader of partition 0, as each of the brokers reports it."""
    from barnabas.cluster.probe import ask
    from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

    found = []
    for address in cluster.bootstrap_servers.split(","):
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        answer = ask(int(address.rpartition(":")[2]), request, MetadataResponse)
        found.append(f"broker-{answer.topics[0].partitions[0].leader_id}")
    return found


def test_impossible_calls_are_refused_in_one_line(barnabas_cluster: BarnabasCluster) -> None:
    cluster = barnabas_cluster
    for call, found in (
        (lambda: cluster.kill("broker-9"), "there is no node broker-9"),
        (lambda: cluster.partition(["nobody"]), "there is no node nobody"),
        (lambda: cluster.create_topic("two words"), "two words: INVALID_TOPIC_EXCEPTION"),
        (lambda: cluster.leader_of("unknown"), "unknown-0 has no leader"),
    ):
        with pytest.raises(BarnabasError) as refusal:
            call()
        assert found in str(refusal.value)
        assert "\n" not in str(refusal.value)


OUTLIVES = """
import os, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from barnabas.pytest_plugin import BarnabasCluster
cluster = BarnabasCluster(Path({data!r}), {{}})
print(*[path.read_text().split()[0] for path in sorted((cluster.data / "run").glob("*.pid"))], flush=True)
sys.stdin.read()
"""


def test_no_node_outlives_the_process_that_tested(tmp_path: Path) -> None:
    program = OUTLIVES.format(root=str(ROOT), data=str(tmp_path))
    tester = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert tester.stdin is not None and tester.stdout is not None
    pids = [int(pid) for pid in tester.stdout.readline().split()]
    assert len(pids) == 6
    os.kill(tester.pid, signal.SIGKILL)
    tester.wait()
    tester.stdin.close()
    tester.stdout.close()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
