"""docker-compose.yml on a docker daemon: clients on the host produce and consume, nodes are killed, paused and stopped
under load, and no acked record is lost.

The tests run in this order on one cluster; each leaves six healthy containers.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from barnabas.cluster.probe import NoAnswer
from tests.docker.composed import BROKERS, CONTROLLERS, IMAGE, NODES, ROOT, ComposedCluster, no_docker

pytestmark = [pytest.mark.docker, pytest.mark.feature("OP-01")]

TIME_LIMIT_SECONDS = 1800.0
"""For all tests together; an idle machine needs three minutes."""
CLUSTER_ID = "tests-of-the-composeQQ"
WAIT_SECONDS = 240.0
"""For operations that take seconds on an idle machine. Durations are reported and not asserted."""
PAUSE_SECONDS = 20.0

_TROUBLE = re.compile(r" (?:ERROR|CRITICAL) |Traceback")

Note = Callable[[str], None]


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, note: Note) -> Iterator[ComposedCluster]:
    if why := no_docker():
        note(f"skipped: {why}")
        pytest.skip(why)
    pytest.importorskip("confluent_kafka")
    cluster = ComposedCluster(f"barnabas-test-{os.getpid()}", CLUSTER_ID, TIME_LIMIT_SECONDS)
    failed_before = request.session.testsfailed
    began = time.monotonic()
    try:
        cluster.compose("build")
        built = time.monotonic()
        cluster.compose("up", "--detach")
        up = time.monotonic()
        cluster.wait_healthy()
        note(f"build {built - began:.1f} s, up {up - built:.1f} s, six healthy {time.monotonic() - up:.1f} s later")
        yield cluster
    finally:
        try:
            if request.session.testsfailed > failed_before or cluster.health() != dict.fromkeys(NODES, "healthy"):
                print(cluster.compose("logs", "--no-color", "--tail", "60"))
        finally:
            cluster.remove()
    note(f"all of it took {time.monotonic() - began:.0f} s")


def create_topic(cluster: ComposedCluster, name: str) -> None:
    """Creates a topic with one partition and three replicas; returns when all are in sync."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 3)], request_timeout=60)[name].result(90)
    wait_in_sync(cluster, name)


def wait_in_sync(cluster: ComposedCluster, topic: str) -> float:
    """Waits until all three replicas are in the ISR; returns the seconds."""
    return cluster.wait_for(
        f"three replicas of {topic} are in sync", lambda: len(isr_of(cluster, topic)) == 3, WAIT_SECONDS
    )


def partition_of(cluster: ComposedCluster, topic: str) -> tuple[int, list[int]]:
    """Leader and ISR of partition 0."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    try:
        partitions = admin.list_topics(topic, timeout=5).topics[topic].partitions
    except KafkaException:
        return -1, []
    return (partitions[0].leader, partitions[0].isrs) if 0 in partitions else (-1, [])


def isr_of(cluster: ComposedCluster, topic: str) -> list[int]:
    return partition_of(cluster, topic)[1]


def leader_of(cluster: ComposedCluster, topic: str) -> str:
    leader, _ = partition_of(cluster, topic)
    assert leader > 0, f"{topic} has no leader"
    return f"broker-{leader}"


def wait_led_by_others(cluster: ComposedCluster, topic: str, leader: str) -> None:
    number = int(leader.rpartition("-")[2])

    def is_led() -> bool:
        return partition_of(cluster, topic)[0] not in (-1, number)

    cluster.wait_for(f"another broker leads {topic}", is_led, WAIT_SECONDS)


def cause_of_election(cluster: ComposedCluster, topic: str) -> str:
    """The cause of the last election, from the active controller."""
    active = cluster.active_controller()
    assert active is not None
    found = [it for it in cluster.decisions_of(active) if it["subject"] == f"{topic}-0" and it["kind"] == "election"]
    return str(found[-1]["cause"])


def test_why_finds_all_six_nodes_from_inside(cluster: ComposedCluster) -> None:
    words = ("barnabas", "why", "broker 1", "-b", "broker-1:9092", "--json")
    story = json.loads(cluster.docker("exec", cluster.container("broker-2"), *words))
    assert story["silent"] == {}
    assert "controller" in " ".join(decision["node"] for decision in story["decisions"])


def test_every_broker_advertises_the_published_ports(cluster: ComposedCluster) -> None:
    for port in cluster.ports:
        described = cluster.described(port)
        assert described.cluster_id == CLUSTER_ID
        assert {(each.broker_id, each.host, each.port) for each in described.brokers} == {
            (number, "127.0.0.1", port) for number, port in enumerate(cluster.ports, start=1)
        }


def test_nodes_run_without_privileges_and_own_their_data(cluster: ComposedCluster) -> None:
    for node in ("broker-1", "controller-101"):
        container = cluster.container(node)
        assert cluster.docker("exec", container, "id", "-un").strip() == "barnabas"
        owner = cluster.docker("exec", container, "stat", "-c", "%U", "/var/lib/barnabas", "/var/lib/barnabas/data")
        assert owner.split() == ["barnabas", "barnabas"]
        first = cluster.docker("exec", container, "cat", "/proc/1/cmdline")
        assert first.startswith("python\0-P\0-m\0"), "the node itself gets the signals"
    assert cluster.inspect("broker-1", "{{len .Mounts}} {{(index .Mounts 0).Name}}") == f"1 {cluster.project}_broker-1"


def test_a_client_on_the_host_produces_and_consumes(cluster: ComposedCluster) -> None:
    from confluent_kafka import Producer

    from tests.docker.load import read_all

    create_topic(cluster, "thousand")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    errors = []
    for number in range(1000):
        producer.produce("thousand", b"%d" % number, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(120) == 0
    assert errors == [None] * 1000
    assert read_all(cluster.bootstrap_servers, "thousand") == {number: b"%d" % number for number in range(1000)}


def test_the_page_shows_the_nodes_and_a_dead_one(cluster: ComposedCluster, note: Note) -> None:
    began = time.monotonic()
    cluster.compose("--profile", "page", "up", "--detach", "page")
    cluster.wait_for("the page shows six healthy nodes", lambda: page_states(cluster) == WELL, WAIT_SECONDS)
    seen = page_snapshot(cluster)["cluster"]
    note(f"the page shows six nodes {time.monotonic() - began:.1f} s after `up`")
    assert {"name": "thousand", "partitions": 1} in seen["topics"]
    assert page_snapshot(cluster, "thousand")["partitions"]["partitions"][0]["replicas"][0]["high_watermark"] == 1000
    assert page_post(cluster, "/control/kill/broker-1") == HTTPStatus.METHOD_NOT_ALLOWED, "the page is read-only"

    victim = "controller-102" if cluster.active_controller() != "controller-102" else "controller-101"
    cluster.signal("KILL", victim)
    cluster.wait_for(f"the page sees {victim} go", lambda: page_states(cluster).get(victim) in GONE, WAIT_SECONDS)
    cluster.start(victim)
    cluster.wait_for(f"the page sees {victim} come", lambda: page_states(cluster) == WELL, WAIT_SECONDS)
    owner = cluster.docker("exec", cluster.container("page"), "id", "-un").strip()
    assert owner == "barnabas"
    cluster.docker("rm", "--force", "--volumes", cluster.container("page"))
    cluster.wait_healthy()


WELL = {"controllers": "well", "brokers": "running"}
GONE = ("dead", "unreachable")


def page_snapshot(cluster: ComposedCluster, topic: str = "") -> dict[str, Any]:
    """The page's snapshot; without nodes while it is not up."""
    try:
        with urlopen(f"http://127.0.0.1:{cluster.page_port}/snapshot?topic={topic}", timeout=20) as answer:
            return dict(json.load(answer))
    except (OSError, HTTPException):
        return {"cluster": {"nodes": []}}


def page_states(cluster: ComposedCluster) -> dict[str, str]:
    """State by node; `WELL` if all six are healthy."""
    states = {node["name"]: node["state"] for node in page_snapshot(cluster)["cluster"]["nodes"]}
    controllers = sorted(states.get(name, "") for name in CONTROLLERS)
    if controllers == ["follower", "follower", "leader"] and {states.get(name) for name in BROKERS} == {"running"}:
        return WELL
    return states


def page_post(cluster: ComposedCluster, path: str) -> int:
    try:
        with urlopen(Request(f"http://127.0.0.1:{cluster.page_port}{path}", method="POST"), timeout=20) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


def test_the_targets_of_prometheus_answer(cluster: ComposedCluster) -> None:
    """Without Prometheus itself, whose image may not be available."""
    text = (ROOT / "docker" / "prometheus" / "prometheus.yml").read_text()
    targets = re.findall(r"[\w-]+:9292", text)
    assert sorted(targets) == sorted(f"{node}:9292" for node in NODES)
    ask = "print(urllib.request.urlopen(f'http://{it}/metrics', timeout=60).status)"
    program = f"import sys, urllib.request\nfor it in sys.argv[1:]: {ask}"
    statuses = cluster.docker("exec", cluster.container("broker-1"), "python", "-c", program, *targets)
    assert statuses.split() == ["200"] * 6


def test_the_leader_is_killed(cluster: ComposedCluster, note: Note) -> None:
    from tests.docker.load import Load

    create_topic(cluster, "leader-killed")
    with Load(cluster.bootstrap_servers, "leader-killed") as load:
        load.run_for(3)
        leader = leader_of(cluster, "leader-killed")
        cluster.signal("KILL", leader)
        wait_led_by_others(cluster, "leader-killed", leader)
        load.wait_for_acks(100, WAIT_SECONDS)
        assert cluster.inspect(leader, "{{.State.Status}}") == "exited", "docker does not restart a killed container"
        cluster.start(leader)
        returned = wait_in_sync(cluster, "leader-killed")
        load.run_for(1)
    report(note, f"kill -9 {leader}, the leader; in sync {returned:.1f} s after its start", load)


def test_the_active_controller_is_killed(cluster: ComposedCluster, note: Note) -> None:
    from tests.docker.load import Load

    create_topic(cluster, "controller-killed")
    active = cluster.active_controller()
    assert active in CONTROLLERS
    with Load(cluster.bootstrap_servers, "controller-killed") as load:
        load.run_for(2)
        cluster.signal("KILL", active)
        others = [each for each in CONTROLLERS if each != active]
        took = cluster.wait_for(
            "another controller is active", lambda: cluster.active_controller() in others, WAIT_SECONDS
        )
        began = time.monotonic()
        create_topic(cluster, "made-by-the-next")
        created = time.monotonic() - began
        load.wait_for_acks(100, WAIT_SECONDS)
        cluster.start(active)
    cluster.wait_healthy()
    report(note, f"kill -9 {active}, the active one; another after {took:.1f} s, a topic {created:.1f} s later", load)


def test_the_leader_is_paused(cluster: ComposedCluster, note: Note) -> None:
    from tests.docker.load import Load

    create_topic(cluster, "leader-paused")
    with Load(cluster.bootstrap_servers, "leader-paused") as load:
        load.run_for(3)
        leader = leader_of(cluster, "leader-paused")
        container = cluster.container(leader)
        cluster.docker("pause", container)
        began = time.monotonic()
        try:
            # Others take over before it goes on, however long that takes here.
            wait_led_by_others(cluster, "leader-paused", leader)
            load.wait_for_acks(100, WAIT_SECONDS)
            load.run_for(max(0.0, PAUSE_SECONDS - (time.monotonic() - began)))
        finally:
            cluster.docker("unpause", container)
        returned = wait_in_sync(cluster, "leader-paused")
        load.run_for(2)
    cluster.wait_healthy()
    report(note, f"{leader}, the leader, paused for 20 s or more; in sync {returned:.1f} s after it went on", load)


def test_the_leader_is_stopped_cleanly(cluster: ComposedCluster, note: Note) -> None:
    from tests.docker.load import Load

    create_topic(cluster, "leader-stopped")
    with Load(cluster.bootstrap_servers, "leader-stopped") as load:
        load.run_for(3)
        leader = leader_of(cluster, "leader-stopped")
        began = time.monotonic()
        cluster.docker("stop", "--time", "40", cluster.container(leader))
        stopped = time.monotonic() - began
        assert cluster.inspect(leader, "{{.State.Status}} {{.State.ExitCode}}") == "exited 0"
        load.run_for(2)
        why = cause_of_election(cluster, "leader-stopped")
        assert why.startswith(f"controlled shutdown of broker {leader[-1]}"), "handed over before it went"
        cluster.start(leader)
        wait_in_sync(cluster, "leader-stopped")
    report(note, f"{leader}, the leader, stopped in {stopped:.1f} s", load)


def test_all_six_are_killed_at_once(cluster: ComposedCluster, note: Note) -> None:
    from tests.docker.load import Load

    create_topic(cluster, "all-killed")
    with Load(cluster.bootstrap_servers, "all-killed") as load:
        load.run_for(2)
        cluster.signal("KILL", *NODES)
        began = time.monotonic()
        cluster.start(*NODES)
        wait_in_sync(cluster, "all-killed")
        took = time.monotonic() - began
        load.run_for(2)
    cluster.wait_healthy()
    report(note, f"kill -9 of all six; in sync {took:.1f} s after their start", load)


def test_data_survives_the_containers_and_is_refused_to_another_cluster(cluster: ComposedCluster, note: Note) -> None:
    from tests.docker.load import read_all

    began = time.monotonic()
    cluster.compose("stop")
    stopped = time.monotonic() - began
    assert {node: cluster.inspect(node, "{{.State.ExitCode}}") for node in NODES} == dict.fromkeys(NODES, "0")
    output = cluster.compose("logs", "--no-color")
    assert [line for line in output.splitlines() if _TROUBLE.search(line)] == [], "nodes log no errors"
    cluster.compose("down")
    assert cluster.containers() == {}

    volume = f"{cluster.project}_broker-1:/var/lib/barnabas"
    command = ["docker", "run", "--rm", "--volume", volume, "--env", "CLUSTER_ID=another", IMAGE, "broker-1"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [f"/var/lib/barnabas/data belongs to cluster {CLUSTER_ID}, not another"]

    cluster.compose("up", "--detach")
    healthy = cluster.wait_healthy()
    note(f"all six stopped cleanly in {stopped:.1f} s; with the old data six healthy {healthy:.1f} s after up")
    cluster.wait_for("three brokers are there again", lambda: brokers_known(cluster) == {1, 2, 3}, WAIT_SECONDS)
    wait_in_sync(cluster, "thousand")
    assert read_all(cluster.bootstrap_servers, "thousand") == {number: b"%d" % number for number in range(1000)}
    assert cluster.described(cluster.ports[0]).cluster_id == CLUSTER_ID


def brokers_known(cluster: ComposedCluster) -> set[int]:
    try:
        return {each.broker_id for each in cluster.described(cluster.ports[0]).brokers}
    except NoAnswer:
        return set()


def report(note: Note, what: str, load: object) -> None:
    """Reports the gap, and checks every ack against the log."""
    from tests.docker.load import Load

    assert isinstance(load, Load)
    losses = load.losses()
    note(
        f"{what}: longest time without an ack {load.longest_gap() * 1000:.0f} ms, {len(load.acked)} acked, "
        f"{len(load.unknown)} of unknown fate, {len(losses)} lost"
    )
    assert len(load.acked) > 200
    assert losses == []
