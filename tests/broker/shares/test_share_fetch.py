"""ShareFetch and ShareAcknowledge on simulated clusters: what members get, and what becomes of it."""

from __future__ import annotations

import pytest
import trio

from barnabas.broker.shares.state import SharePartitionKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.broker.apis.rig import Rig, batch_of, on_cluster
from tests.broker.shares.share_rig import (
    ALONE,
    GROUP_RESOURCE,
    Member,
    begin,
    begin_anywhere,
    only,
    ranges,
    start_offset,
    values,
)

pytestmark = pytest.mark.feature("CG-17", "CG-19")

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
CLOSES = -1
"""Session epoch of the last request."""
LOCK_SECONDS = 30


@on_cluster(**ALONE)
async def test_two_members_share_a_partition(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    await begin(rig, topic_id)
    for first in range(3):
        await rig.produce("orders", batch_of(*(f"value-{2 * first + each}" for each in range(2))))
    one, two = Member(rig, "one", topic_id), Member(rig, "two", topic_id)
    # The first fetch loads the share partition.
    assert await one.until_taken(max_records=2) == [(0, 1, 1)]
    response = await two.ask(max_records=3)
    data = only(response)
    assert data is not None
    assert ranges(data) == [(2, 5, 1)], "the batch with the third record is acquired as a whole"
    assert values(data) == ["value-2", "value-3", "value-4", "value-5"]
    assert response.acquisition_lock_timeout_ms == 1000 * LOCK_SECONDS
    assert await one.take() == []
    # Each acknowledges its own.
    assert await two.acknowledged((0, 0, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
    assert await two.acknowledged((2, 5, [ACCEPT])) == ErrorCode.NONE
    assert start_offset(rig.broker(1), topic_id) == 0
    assert await one.take([(0, 1, [ACCEPT, REJECT])]) == []
    assert start_offset(rig.broker(1), topic_id) == 6
    stored = await rig.broker(1).coordination.share_states.read(SharePartitionKey("work", topic_id, 0), 0)
    assert [(it.first_offset, it.last_offset, it.state) for it in stored.batches] == [(0, 0, 2), (1, 1, 4), (2, 5, 2)]


@on_cluster(**ALONE)
async def test_a_waiting_fetch_gets_new_and_released_records(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    await begin(rig, topic_id)
    one, two = Member(rig, "one", topic_id), Member(rig, "two", topic_id)
    got: dict[str, list[tuple[int, int, int]]] = {}

    async def wait(member: Member) -> None:
        got[member.name] = await member.take(max_wait_ms=20_000)

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, one)
        await trio.sleep(1)
        await rig.produce("orders", batch_of("a", "b"))
    assert got["one"] == [(0, 1, 1)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, two)
        await trio.sleep(1)
        assert await one.acknowledged((0, 1, [RELEASE, ACCEPT])) == ErrorCode.NONE
    assert got["two"] == [(0, 0, 2)]
    assert trio.current_time() - began < 5


@on_cluster(**ALONE)
async def test_a_member_acknowledges_while_its_fetch_waits(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    await begin(rig, topic_id)
    await rig.produce("orders", batch_of("a"))
    one = Member(rig, "one", topic_id)
    assert await one.until_taken() == [(0, 0, 1)]
    waiting = Member(rig, "one", topic_id)
    waiting.epoch = one.epoch
    got: list[list[tuple[int, int, int]]] = []

    async def wait() -> None:
        got.append(await waiting.take(max_wait_ms=20_000))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(1)
        one.epoch += 1
        assert await one.acknowledged((0, 0, [ACCEPT])) == ErrorCode.NONE
        await rig.produce("orders", batch_of("b"))
    assert got == [[(1, 1, 1)]]


@on_cluster(**ALONE)
async def test_locks_expire_and_are_renewed(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    await begin(rig, topic_id)
    await rig.produce("orders", batch_of("a", "b", "c"))
    one, two = Member(rig, "one", topic_id), Member(rig, "two", topic_id)
    assert await one.until_taken() == [(0, 2, 1)]
    await trio.sleep(LOCK_SECONDS / 2)
    assert await one.acknowledged((1, 1, [RENEW]), is_renew_ack=True) == ErrorCode.NONE
    assert await two.take(max_wait_ms=LOCK_SECONDS * 1000) == [(0, 0, 2), (2, 2, 2)]
    assert await one.acknowledged((0, 0, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
    assert await one.acknowledged((1, 1, [ACCEPT])) == ErrorCode.NONE
    # A renewal fetches nothing.
    renewed = await two.ask(
        [(0, 0, [RENEW])], is_renew_ack=True, max_bytes=0, min_bytes=0, max_records=0, max_wait_ms=0
    )
    data = only(renewed)
    assert data is not None and (data.acknowledge_error_code, ranges(data)) == (0, [])
    refused = await two.ask([(0, 0, [RENEW])], is_renew_ack=True)
    assert refused.error_code == ErrorCode.INVALID_REQUEST


@on_cluster(**ALONE)
async def test_records_are_given_up_after_the_last_delivery(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    await begin(rig, topic_id)
    await rig.configure(GROUP_RESOURCE, "work", share_delivery_count_limit="2")
    await rig.produce("orders", batch_of("a"))
    one = Member(rig, "one", topic_id)
    assert await one.until_taken() == [(0, 0, 1)]
    assert await one.take([(0, 0, [RELEASE])], max_wait_ms=1000) == [(0, 0, 2)]
    assert await one.take([(0, 0, [RELEASE])]) == []
    assert start_offset(rig.broker(1), topic_id) == 1
    sentences = [it.sentence for it in rig.broker(1).decisions.since(1, "group work", 100)]
    assert any("gives up 1 records of orders-0" in it for it in sentences), sentences


@on_cluster(**ALONE)
async def test_records_of_a_lost_member_go_to_others(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    await begin(rig, topic_id)
    await rig.produce("orders", batch_of("a", "b"))
    one, two, three = (Member(rig, name, topic_id) for name in ("one", "two", "three"))
    await two.take()
    assert await one.until_taken() == [(0, 1, 1)]
    one.hang_up()
    assert await two.take(max_wait_ms=10_000) == [(0, 1, 2)]
    await three.take()
    two.epoch = CLOSES
    assert await two.acknowledged((0, 0, [ACCEPT])) == ErrorCode.NONE
    assert await three.take(max_wait_ms=10_000) == [(1, 1, 3)]
    assert len(rig.broker(1).shares.sessions) == 1


@on_cluster(brokers=3, share__coordinator__state__topic__num__partitions="1")
async def test_a_new_leader_continues_where_the_last_one_was(rig: Rig) -> None:
    topic_id = await rig.create("orders", replicas=[2, 3])
    await begin(rig, topic_id)
    for value in "abcd":
        await rig.produce("orders", batch_of(value))
    one = Member(rig, "one", topic_id, node=2)
    assert await one.until_taken(max_records=4) == [(0, 3, 1)]
    assert await one.acknowledged((1, 1, [ACCEPT]), (3, 3, [RELEASE])) == ErrorCode.NONE
    rig.cluster.kill("broker-2")
    await rig.until(lambda: rig.broker(3).metadata.image.topics.by_name["orders"].partitions[0].leader == 3)
    two = Member(rig, "two", topic_id, node=3)
    taken = await two.until_taken()
    while len(taken) < 3:
        taken += await two.until_taken()
    assert sorted(taken) == [(0, 0, 1), (2, 2, 1), (3, 3, 2)], "record 1 is accepted, record 3 was delivered before"


@on_cluster(**ALONE)
async def test_the_start_offset_by_the_config_of_the_group(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    await rig.produce("orders", batch_of("a", timestamp=0))
    await rig.produce("orders", batch_of("b", timestamp=rig.broker(1).world.wall_clock.now_ms()))
    for group, value, expected in (("early", "earliest", 0), ("by-time", "by_duration:PT1H", 1), ("late", "", 2)):
        if value:
            await rig.configure(GROUP_RESOURCE, group, share_auto_offset_reset=value)
        await begin_anywhere(rig, topic_id, group)
        member = Member(rig, "one", topic_id, group=group)
        await member.take(max_wait_ms=500)
        assert start_offset(rig.broker(1), topic_id, group) == expected, group


@on_cluster(**ALONE)
async def test_deleted_records_are_not_waited_for(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    await begin(rig, topic_id)
    await rig.produce("orders", batch_of("a", "b", "c"))
    one = Member(rig, "one", topic_id)
    assert await one.until_taken() == [(0, 2, 1)]
    await rig.produce("orders", batch_of("d"))
    topic = DeleteRecordsTopic(name="orders", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
    await rig.ask(1, DeleteRecordsRequest(topics=[topic], timeout_ms=1000))
    assert await one.take() == [(3, 3, 1)]
    assert start_offset(rig.broker(1), topic_id) == 2
    assert await one.acknowledged((0, 2, [ACCEPT])) == ErrorCode.NONE
    assert start_offset(rig.broker(1), topic_id) == 3


@on_cluster(**ALONE)
async def test_sessions_and_their_epochs(rig: Rig) -> None:
    topic_id = await rig.create("orders", partitions=2)
    await begin(rig, topic_id, partitions=2)
    one = Member(rig, "one", topic_id)
    one.epoch = 1
    assert (await one.ask()).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert (await one.acknowledge((0, 0, [ACCEPT]))).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    one.epoch = 0
    assert (await one.acknowledge((0, 0, [ACCEPT]))).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert (await one.ask([(0, 0, [ACCEPT])])).error_code == ErrorCode.INVALID_REQUEST
    first = await one.ask(partitions=(0,))
    assert [it.partition_index for it in first.responses[0].partitions] == [0], "the first response has all"
    second = await one.ask(partitions=(1,))
    assert [it.partition_index for it in second.responses[0].partitions] == [1], "a new one is answered once"
    assert (await one.ask(partitions=())).responses == []
    one.epoch = 2
    assert (await one.ask()).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    one.epoch = 3
    await rig.produce("orders", batch_of("a"), index=0)
    await rig.produce("orders", batch_of("b"), index=1)
    last = await one.ask(partitions=(), forgotten=(0,), max_wait_ms=500)
    assert [it.partition_index for it in last.responses[0].partitions] == [1]
    unknown = Member(rig, "two", bytes(15) + b"\x09")
    data = only(await unknown.ask())
    assert data is not None and data.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@on_cluster(**ALONE, group__share__max__share__sessions="1")
async def test_there_are_not_more_sessions_than_allowed(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    await begin(rig, topic_id)
    one, two = Member(rig, "one", topic_id), Member(rig, "two", topic_id)
    await one.take()
    began = trio.current_time()
    assert (await two.ask(max_wait_ms=3000)).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert trio.current_time() - began >= 3
    one.hang_up()
    await rig.until(lambda: not len(rig.broker(1).shares.sessions))
    assert not list(rig.broker(1).shares.partitions), "the last member of the group is gone"
    assert (await two.ask()).error_code == 0


@on_cluster(brokers=3, **{name: value for name, value in ALONE.items() if "lock" not in name})
async def test_another_broker_names_the_leader(rig: Rig) -> None:
    topic_id = await rig.create("orders", replicas=[2])
    await begin(rig, topic_id)
    one = Member(rig, "one", topic_id, node=1)
    response = await one.ask()
    data = only(response)
    assert data is not None and data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert data.current_leader.leader_id == 2
    assert [(it.node_id, it.host) for it in response.node_endpoints] == [(2, "broker-2")]


@on_cluster(**ALONE)
async def test_acknowledgements_that_make_no_sense(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    await begin(rig, topic_id)
    await rig.produce("orders", batch_of("a", "b", "c"))
    one = Member(rig, "one", topic_id)
    assert await one.until_taken() == [(0, 2, 1)]
    for acks in (
        [(1, 0, [ACCEPT])],
        [(0, 2, [])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(0, 2, [5])],
        [(0, 2, [-1])],
        [(0, 2, [RENEW])],
        [(1, 2, [ACCEPT]), (0, 0, [ACCEPT])],
        [(0, 3, [ACCEPT])],
    ):
        assert await one.acknowledged(*acks) == ErrorCode.INVALID_REQUEST, acks
    assert await one.acknowledged((0, 2, [ACCEPT]), version=1) == ErrorCode.NONE
