"""Consumers that read from a near replica (KIP-392): which one they are sent to, and what a follower may answer."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.broker.replication.replica_selection import ReplicaView, same_rack
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.fetch import PartitionData
from barnabas.settings.broker import RACK_AWARE_SELECTOR, load_broker_settings
from barnabas.settings.errors import SettingsError
from tests.broker.apis.rig import Rig, batch_of, fetch_request, on_cluster, values_in

ALL_VERSIONS = range(11, 19)
WAIT_MS = 500
"""replica.fetch.wait.max.ms: how long a leader may hold back the news of its high watermark."""


async def ask(
    rig: Rig, node: int, topic_id: bytes, offset: int = 0, *, version: int = 17, **more: Any
) -> PartitionData:
    topic: str | bytes = topic_id if version >= 13 else "t"
    response = await rig.ask(node, fetch_request(topic, offset, **more), version)
    assert response.error_code == 0
    (data,) = response.responses[0].partitions
    assert isinstance(data, PartitionData)
    return data


# -- where to


def test_the_nearest_is_the_leader_or_the_most_caught_up_follower() -> None:
    leader = ReplicaView(1, "a", 100, 0)
    behind, late = ReplicaView(2, "b", 90, 5), ReplicaView(3, "b", 95, 70)
    early, twin = ReplicaView(4, "b", 95, 3), ReplicaView(5, "b", 95, 3)
    assert same_rack("b", leader, [behind]) == 2
    assert same_rack("b", leader, [behind, late]) == 3
    assert same_rack("b", leader, [early, behind, late]) == 4
    assert same_rack("b", leader, [twin, early, late]) == 5
    assert same_rack("a", leader, [behind, ReplicaView(6, "a", 100, 0)]) is None
    assert same_rack("c", leader, [behind, late]) is None
    assert same_rack("", leader, [ReplicaView(2, "", 100, 0)]) is None
    assert same_rack("b", leader, [ReplicaView(2, None, 100, 0)]) is None


def test_an_unknown_selector_class_is_refused_in_one_line() -> None:
    text = "process.roles=broker\nnode.id=1\ncontroller.listener.names=C\nlistener.security.protocol.map=C:PLAINTEXT\n"
    text += "listeners=PLAINTEXT://:9092\ncontroller.quorum.voters=9@h:1\n"
    with pytest.raises(SettingsError) as refused:
        load_broker_settings(f"{text}replica.selector.class=com.example.Mine\n", "b.properties")
    assert "replica.selector.class" in str(refused.value) and "RackAwareReplicaSelector" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.feature("RE-15")
@on_cluster(brokers=3)
async def test_without_a_selector_everybody_reads_where_they_ask(rig: Rig) -> None:
    topic_id = await rig.create("t", replicas=[1, 2, 3])
    await rig.produce("t", batch_of("a"))
    for version in ALL_VERSIONS:
        at_leader = await ask(rig, 1, topic_id, version=version, rack_id="rack-2")
        assert (at_leader.preferred_read_replica, values_in(at_leader)) == (-1, ["a"])
    await rig.until(lambda: rig.partition(2, "t").log.high_watermark == 1)
    assert values_in(await ask(rig, 2, topic_id, rack_id="rack-3")) == ["a"]


@pytest.mark.feature("RE-15")
@on_cluster(brokers=3, replica__selector__class=RACK_AWARE_SELECTOR)
async def test_a_leader_sends_consumers_to_their_rack(rig: Rig) -> None:
    topic_id = await rig.create("t", replicas=[1, 2, 3])
    await rig.produce("t", batch_of("a"))
    await rig.until(lambda: rig.partition(2, "t").log.high_watermark == 1)
    for version in ALL_VERSIONS:
        started = trio.current_time()
        patient = {"max_wait_ms": 10_000, "min_bytes": 1000}
        sent_on = await ask(rig, 1, topic_id, version=version, rack_id="rack-2", **patient)
        assert trio.current_time() - started < 1, "the response does not wait"
        assert (sent_on.error_code, sent_on.preferred_read_replica, sent_on.high_watermark) == (0, 2, 1)
        assert not sent_on.records
        there = await ask(rig, 2, topic_id, version=version, rack_id="rack-2")
        assert (there.preferred_read_replica, values_in(there)) == (-1, ["a"])
        for rack in ("rack-1", "", "elsewhere"):
            here = await ask(rig, 1, topic_id, version=version, rack_id=rack)
            assert (here.preferred_read_replica, values_in(here)) == (-1, ["a"]), rack
    # The epoch is looked at as ever.
    epoch = rig.partition(1, "t").leader_epoch
    for asked, error in ((epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH), (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH)):
        wrong = await ask(rig, 1, topic_id, rack_id="rack-2", current_leader_epoch=asked)
        assert (wrong.error_code, wrong.preferred_read_replica) == (error if asked >= 0 else 0, -1 if asked >= 0 else 2)


@pytest.mark.feature("RE-15", "RP-05")
@on_cluster(brokers=3, replica__selector__class=RACK_AWARE_SELECTOR)
async def test_within_a_session(rig: Rig) -> None:
    """The news that another replica is nearer is news."""
    await rig.create("t", replicas=[1, 2])
    await rig.produce("t", batch_of("a"))
    await rig.until(lambda: rig.partition(2, "t").log.high_watermark == 1)
    request = fetch_request("t", rack_id="rack-2", session_epoch=0)
    first = await rig.ask(1, request, 12)
    assert first.responses[0].partitions[0].preferred_read_replica == 2
    request.session_id, request.session_epoch = first.session_id, 1
    again = await rig.ask(1, request, 12)
    assert again.responses[0].partitions[0].preferred_read_replica == 2


@pytest.mark.feature("RE-15", "RP-05", "RP-09")
@on_cluster(brokers=3, replica__selector__class=RACK_AWARE_SELECTOR)
async def test_a_consumer_that_stays_in_its_session_is_not_forgotten(rig: Rig) -> None:
    """The consumer has lost its connection to the nearer replica. It asks the leader again and does not name the
    partition, because its question is the same: it reads on as soon as the leader has no nearer replica."""
    await rig.create("t", replicas=[1, 2])
    await rig.produce("t", batch_of("a"))
    await rig.until(lambda: rig.partition(2, "t").log.high_watermark == 1)
    request = fetch_request("t", rack_id="rack-2", session_epoch=0)
    first = await rig.ask(1, request, 12)
    assert first.responses[0].partitions[0].preferred_read_replica == 2
    request.session_id, request.topics = first.session_id, []
    for epoch in (1, 2, 3):
        request.session_epoch = epoch
        (topic,) = (await rig.ask(1, request, 12)).responses
        assert topic.partitions[0].preferred_read_replica == 2, epoch
    rig.cluster.kill("broker-2")
    await rig.until(lambda: 2 not in rig.broker(1).metadata.alive_nodes("PLAINTEXT"))
    request.session_epoch = 4
    (topic,) = (await rig.ask(1, request, 12)).responses
    assert (topic.partitions[0].preferred_read_replica, values_in(topic.partitions[0])) == (-1, ["a"])


@pytest.mark.feature("RE-15")
@on_cluster(brokers=3, replica__selector__class=RACK_AWARE_SELECTOR, replica__lag__time__max__ms="1000")
async def test_no_consumer_is_sent_to_a_replica_that_lags_or_lacks_the_offset(rig: Rig) -> None:
    topic_id = await rig.create("t", replicas=[1, 2, 3], min_insync_replicas="1")
    await rig.produce("t", batch_of("a"))
    rig.universe.wires.cut_between(["broker-2"], ["broker-1"])
    await trio.sleep(0.1)
    await rig.produce("t", batch_of("b"), acks=1)
    # Broker 2 is in the ISR, but lacks offset 2.
    assert 2 in rig.partition(1, "t").replica.isr
    assert (await ask(rig, 1, topic_id, 1, rack_id="rack-2")).preferred_read_replica == 2
    assert (await ask(rig, 1, topic_id, 2, rack_id="rack-2")).preferred_read_replica == -1
    await rig.until(lambda: 2 not in rig.partition(1, "t").replica.isr)
    read = await ask(rig, 1, topic_id, 0, rack_id="rack-2")
    assert (read.preferred_read_replica, values_in(read)) == (-1, ["a", "b"])
    assert (await ask(rig, 1, topic_id, 0, rack_id="rack-3")).preferred_read_replica == 3
    rig.universe.wires.heal()
    await rig.until(lambda: 2 in rig.partition(1, "t").replica.isr)
    assert (await ask(rig, 1, topic_id, 0, rack_id="rack-2")).preferred_read_replica == 2
    rig.cluster.kill("broker-2")
    await rig.until(lambda: 2 not in rig.broker(1).metadata.alive_nodes("PLAINTEXT"))
    assert (await ask(rig, 1, topic_id, 0, rack_id="rack-2")).preferred_read_replica == -1


# -- responses of followers


@pytest.mark.feature("RE-15", "RE-05")
@on_cluster(brokers=3)
async def test_a_follower_returns_only_what_it_knows_to_be_committed(rig: Rig) -> None:
    topic_id = await rig.create("t", replicas=[1, 2, 3])
    await rig.produce("t", batch_of("committed"))
    await rig.until(lambda: rig.partition(2, "t").log.high_watermark == 1)
    rig.universe.wires.cut_between(["broker-3"], ["broker-1"])
    await trio.sleep(1)
    await rig.produce("t", batch_of("not yet"), acks=1)
    await rig.until(lambda: rig.partition(2, "t").log.log_end_offset == 2)
    for isolation in (0, 1):
        data = await ask(rig, 2, topic_id, isolation_level=isolation)
        assert values_in(data) == ["committed"]
        assert (data.high_watermark, data.last_stable_offset) == (1, 1)
        for offset in (1, 2):
            above = await ask(rig, 2, topic_id, offset, isolation_level=isolation)
            assert (above.error_code, values_in(above)) == (0, [])
    # It does not know whether the leader has more.
    assert (await ask(rig, 2, topic_id, 3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    rig.universe.wires.heal()
    waited = await ask(rig, 2, topic_id, 1, max_wait_ms=60_000)
    assert values_in(waited) == ["not yet"]


@pytest.mark.feature("RE-15")
@on_cluster(brokers=3)
async def test_how_much_later_a_record_can_be_read_from_a_follower(rig: Rig) -> None:
    """The leader reports its high watermark with the next records, or at the end of the follower's wait."""
    topic_id = await rig.create("t", replicas=[1, 2, 3])
    latest = 0.0
    for number in range(20):
        await trio.sleep(0.13 * (number % 7))
        await rig.produce("t", batch_of(f"{number}"))
        produced = trio.current_time()
        for node in (1, 2, 3):
            data = await ask(rig, node, topic_id, number, max_wait_ms=60_000)
            assert values_in(data) == [f"{number}"]
            if node == 1:
                assert trio.current_time() - produced < 0.05
        latest = max(latest, trio.current_time() - produced)
    assert 0.1 < latest < WAIT_MS / 1000 + 0.1


@pytest.mark.feature("RE-15", "RE-12")
@on_cluster(brokers=3)
async def test_a_fetch_waiting_at_a_follower_is_answered_when_its_role_changes(rig: Rig) -> None:
    topic_id = await rig.create("t", replicas=[1, 2])
    await rig.produce("t")
    await rig.until(lambda: rig.partition(2, "t").log.high_watermark == 1)
    epoch = rig.partition(2, "t").leader_epoch
    answers: dict[str, Any] = {}

    async def wait(name: str, **more: Any) -> None:
        request = fetch_request(topic_id, 1, max_wait_ms=30_000, **more)
        answers[name] = (await rig.channel(2).call(request, timeout_ms=60_000, version=17)).responses[0].partitions[0]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, "without epoch")
        nursery.start_soon(lambda: wait("in epoch", current_leader_epoch=epoch))
        await trio.sleep(1)
        assert answers == {}
        rig.cluster.kill("broker-1")
        await rig.until(lambda: "in epoch" in answers, 20)
        assert answers["in epoch"].error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert "without epoch" not in answers, "who does not say what it believes in may go on waiting"
        assert (await rig.produce("t", batch_of("by the new one"), node=2)).error_code == 0
        await rig.until(lambda: "without epoch" in answers)
        assert values_in(answers["without epoch"]) == ["by the new one"]


@pytest.mark.feature("RE-15")
@on_cluster(brokers=3)
async def test_a_fetch_waiting_at_a_follower_while_the_topic_is_deleted(rig: Rig) -> None:
    topic_id = await rig.create("t", replicas=[1, 2])
    answers: list[Any] = []

    async def wait() -> None:
        request = fetch_request(topic_id, 0, max_wait_ms=30_000)
        answers.append(await rig.channel(2).call(request, timeout_ms=60_000, version=17))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(1)
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=30_000)
        assert (await rig.ask(1, gone)).responses[0].error_code == 0
        await rig.until(lambda: answers, 5)
    assert answers[0].responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
