"""Client quotas in a cluster: set by an admin client, followed by every broker, on a virtual clock."""

from __future__ import annotations

import pytest
import trio

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestEntryData,
)
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.runtime.quotas.source import QuotaType
from tests.broker.apis.rig import Rig, batch_of, on_cluster, produce_request
from tests.broker.apis.test_fetch import in_session, records_by_partition, wants

CLIENT_ID = "story"


async def set_quota(rig: Rig, key: str, value: float | None, client_id: str | None = CLIENT_ID) -> None:
    """Set or remove a quota, and wait until every broker and the controller have it."""
    entity = [EntityData(entity_type="client-id", entity_name=client_id)]
    ops = [OpData(key=key, value=value or 0.0, remove=value is None)]
    admin = rig.channel(1)
    request = AlterClientQuotasRequest(entries=[RequestEntryData(entity=entity, ops=ops)])
    response = await admin.call(request, timeout_ms=60_000)
    assert [entry.error_code for entry in response.entries] == [0]
    quota = next(it for it in QuotaType if it.key == key)
    nodes = [node.broker.quotas for node in rig.cluster.brokers if node.broker is not None]
    await rig.until(lambda: all(it.requests.managers[quota].is_active == (value is not None) for it in nodes))
    await trio.sleep(1)


@pytest.mark.feature("QU-01", "QU-04", "QU-06")
@on_cluster()
async def test_a_producer_keeps_to_its_rate_until_the_quota_goes(rig: Rig) -> None:
    await rig.create("t")
    await set_quota(rig, "producer_byte_rate", 2_000)
    request = produce_request("t", batch_of("x" * 4_000))
    began, sent, throttles = trio.current_time(), 0, []
    while trio.current_time() - began < 60:
        response: ProduceResponse = await rig.ask(1, request, 9)
        throttles.append(response.throttle_time_ms)
        sent += 4_000
    assert 1_800 <= sent / (trio.current_time() - began) <= 2_600
    assert throttles[0] == 0 and max(throttles) >= 1_000
    await set_quota(rig, "producer_byte_rate", None)
    fresh = rig.channel(1)
    for _ in range(20):
        assert (await fresh.call(request, timeout_ms=60_000, version=9)).throttle_time_ms == 0


@pytest.mark.feature("QU-06", "RP-09")
@on_cluster()
async def test_a_throttled_fetch_has_no_records_and_its_session_stays_where_it_was(rig: Rig) -> None:
    await rig.create("t", partitions=2)
    await rig.produce("t", batch_of("a" * 3_000))
    await set_quota(rig, "consumer_byte_rate", 400)
    first = await rig.ask(1, in_session(0, 0, wants("t", (0, 0), (1, 0))), 12)
    session = first.session_id
    assert session > 0 and len(records_by_partition(first)["t", 0]) == 1 and not first.throttle_time_ms
    await rig.produce("t", batch_of("b" * 3_000), index=1)
    held = await rig.ask(1, in_session(session, 1, wants("t", (0, 1))), 12)
    assert (held.responses, held.error_code, held.session_id) == ([], 0, session)
    assert held.throttle_time_ms > 0
    began = trio.current_time()
    epoch = 2
    after = await rig.ask(1, in_session(session, epoch), 12)
    assert trio.current_time() - began >= held.throttle_time_ms / 1000 - 0.01
    while not after.responses:  # the windows still hold the first answer
        epoch += 1
        after = await rig.ask(1, in_session(session, epoch), 12)
    assert records_by_partition(after)["t", 1] == ["b" * 3_000]
    assert not after.throttle_time_ms


@pytest.mark.feature("QU-06")
@on_cluster()
async def test_a_throttled_first_fetch_makes_no_session(rig: Rig) -> None:
    await rig.create("t")
    await rig.produce("t", batch_of("a" * 3_000))
    await set_quota(rig, "consumer_byte_rate", 400)
    await rig.ask(1, in_session(0, -1, wants("t", (0, 0))), 12)
    sessions = len(rig.broker(1).sessions)
    held = await rig.ask(1, in_session(0, 0, wants("t", (0, 0))), 12)
    assert held.throttle_time_ms > 0 and held.session_id == 0
    assert len(rig.broker(1).sessions) == sessions


@pytest.mark.feature("QU-01")
@on_cluster()
async def test_an_answer_holds_no_more_than_the_windows_allow(rig: Rig) -> None:
    await rig.create("t")
    for _ in range(10):
        await rig.produce("t", batch_of("a" * 3_000))
    await set_quota(rig, "consumer_byte_rate", 1_000)
    response = await rig.ask(1, in_session(0, -1, wants("t", (0, 0))), 12)
    assert len(response.responses[0].partitions[0].records) <= 10_000 and not response.throttle_time_ms


@pytest.mark.feature("QU-08")
@on_cluster()
async def test_a_controller_refuses_changes_above_the_rate(rig: Rig) -> None:
    """A rate of 1: a burst of 11 partitions. The broker's answer has the controller's throttle, and mutes."""
    await set_quota(rig, "controller_mutation_rate", 1)

    def creation(name: str, count: int) -> CreateTopicsRequest:
        return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=count, replication_factor=1)])

    async def create(name: str, count: int, version: int) -> CreateTopicsResponse:
        return await rig.channel(1).call(creation(name, count), timeout_ms=60_000, version=version)

    first = await create("a", 20, 7)
    assert (first.topics[0].error_code, first.throttle_time_ms) == (0, 0)
    channel = rig.channel(1)
    refused = await channel.call(creation("b", 1), timeout_ms=60_000, version=7)
    assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert 5_000 < refused.throttle_time_ms <= 9_000
    began = trio.current_time()
    second = await channel.call(creation("b", 1), timeout_ms=60_000, version=7)
    assert trio.current_time() - began >= refused.throttle_time_ms / 1000 - 0.01, "the broker muted its connection"
    assert second.topics[0].error_code == 0
    old = await create("c", 30, 5)
    assert old.topics[0].error_code == 0 and old.throttle_time_ms > 20_000, "older versions are only held back"
    grown = await rig.channel(1).call(
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=21, assignments=None)], timeout_ms=1_000),
        timeout_ms=60_000,
        version=3,
    )
    assert grown.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED and grown.throttle_time_ms > 20_000
    deleted = await rig.channel(1).call(
        DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=1_000), timeout_ms=60_000, version=6
    )
    assert deleted.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert "a" in rig.broker(1).metadata.image.topics.by_name
    held = rig.broker(1).quotas.state()
    assert held and held[0]["quota"] == "controller_mutation_rate" and held[0]["client_id"] == CLIENT_ID


@pytest.mark.feature("QU-05")
@on_cluster(brokers=3)
async def test_quotas_of_everybody_do_not_slow_replication(rig: Rig) -> None:
    """A byte a second for every client id, so also for those of followers."""
    await rig.create("t", replicas=[1, 2, 3])
    await set_quota(rig, "consumer_byte_rate", 1, client_id=None)
    await set_quota(rig, "request_percentage", 0.01, client_id=None)
    for number in range(10):
        await rig.produce("t", batch_of(f"{number}" * 2_000))
    end = rig.partition(rig.leader("t"), "t").log.log_end_offset
    await rig.until(lambda: all(rig.partition(node, "t").log.log_end_offset == end for node in (1, 2, 3)))
    assert len(rig.placed(1, "t").isr) == 3
