"""ShareFetch and ShareAcknowledge where something is in the way: rights, quotas, failed writes, aborted records."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.broker.apis import share_fetch
from barnabas.broker.shares.share_partition import Acknowledgement
from barnabas.broker.shares.state import SharePartitionKey, ShareStateChange
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.share_fetch import ShareFetchRequest
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.apis.rig import Rig, batch_of, on_cluster, play
from tests.broker.apis.test_quotas import set_quota
from tests.broker.apis.test_transactional_partitions import Oracle, batch, mark, produce
from tests.broker.authorization.state import SETTINGS
from tests.broker.authorization.users import user_who_may
from tests.broker.shares.share_rig import ALONE, GROUP_RESOURCE, Member, begin, only, ranges, start_offset, values

pytestmark = pytest.mark.feature("CG-17", "CG-19")

ACCEPT, RELEASE = 1, 2


class Refusing:
    """A store that refuses writes, once it is let."""

    def __init__(self, rig: Rig, code: ErrorCode | None, node: int = 1) -> None:
        self.code = code
        self.gate = trio.Event()
        self._states = rig.broker(node).coordination.share_states
        self._write = self._states.write
        self._states.write = self.write  # type: ignore[method-assign]

    async def write(self, key: SharePartitionKey, change: ShareStateChange) -> None:
        await self.gate.wait()
        if self.code is not None:
            raise KafkaError(self.code)
        await self._write(key, change)


@on_cluster(**ALONE)
async def test_a_dropped_share_partition_writes_no_more(rig: Rig) -> None:
    """Its successor may have read the state, and would not know of the write."""
    topic_id = await rig.create("orders")
    await begin(rig, topic_id)
    await rig.produce("orders", batch_of("a", "b"))
    one = Member(rig, "one", topic_id)
    assert await one.until_taken() == [(0, 1, 1)]
    partitions, key = rig.broker(1).shares.partitions, SharePartitionKey("work", topic_id, 0)
    led = partitions.find(key)
    assert led is not None
    partitions.drop(led, "the state is read again")
    assert partitions.use(key) is not led
    results: list[KafkaError | None] = []
    partitions.acknowledge(led, "one", [Acknowledgement(0, 1, [ACCEPT])], results.append)
    await rig.until(lambda: results)
    (error,) = results
    assert error is not None and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    state = await rig.broker(1).coordination.share_states.read(key, led.leader_epoch)
    assert (state.start_offset, state.batches) == (0, ())
    assert await Member(rig, "two", topic_id).until_taken() == [(0, 1, 1)]


@on_cluster(**ALONE)
async def test_an_acknowledgement_that_is_not_stored_does_not_count(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    await begin(rig, topic_id)
    await rig.produce("orders", batch_of("a", "b"))
    one, two = Member(rig, "one", topic_id), Member(rig, "two", topic_id)
    assert await one.until_taken() == [(0, 1, 1)]
    refusing = Refusing(rig, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    answers: list[int] = []

    async def acknowledge() -> None:
        answers.append(await one.acknowledged((0, 1, [ACCEPT])))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(acknowledge)
        await trio.sleep(1)
        assert await two.take() == [] and answers == [], "nothing is answered before it is stored"
        refusing.gate.set()
    assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert start_offset(rig.broker(1), topic_id) == 0
    refusing.code = None
    assert await one.acknowledged((0, 1, [ACCEPT])) == ErrorCode.NONE
    assert start_offset(rig.broker(1), topic_id) == 2


@on_cluster(**ALONE)
async def test_acknowledgements_that_arrive_during_a_write_go_with_the_next(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    await begin(rig, topic_id)
    await rig.produce("orders", batch_of(*"abcdef"))
    members = [Member(rig, name, topic_id) for name in "xyz"]
    for member in members:
        await member.until_taken(max_records=2, share_acquire_mode=1)
    slow = Refusing(rig, None)
    written: list[ShareStateChange] = []
    write = slow._write

    async def noted(key: SharePartitionKey, change: ShareStateChange) -> None:
        written.append(change)
        await write(key, change)

    slow._write = noted
    async with trio.open_nursery() as nursery:
        for place, member in enumerate(members):
            nursery.start_soon(member.acknowledged, (2 * place, 2 * place + 1, [ACCEPT]))
            await trio.sleep(0.1)
        slow.gate.set()
    assert [len(each.batches) for each in written] == [1, 2]
    assert start_offset(rig.broker(1), topic_id) == 6


@on_cluster(**ALONE)
async def test_altered_offsets_fence_the_leader_that_reads_them_again(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    await begin(rig, topic_id)
    await rig.produce("orders", batch_of("a"))
    await rig.produce("orders", batch_of("b"))
    one = Member(rig, "one", topic_id)
    assert await one.until_taken() == [(0, 1, 1)]
    await rig.broker(1).coordination.share_states.initialize(SharePartitionKey("work", topic_id, 0), 2, 1)
    assert await one.acknowledged((0, 1, [ACCEPT])) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await one.until_taken() == [(1, 1, 1)]
    assert await one.acknowledged((1, 1, [ACCEPT])) == ErrorCode.NONE


@on_cluster(**ALONE)
async def test_a_share_partition_that_nobody_began(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    one = Member(rig, "one", topic_id)
    data = only(await one.ask(max_wait_ms=10_000))
    assert data is not None and data.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    await begin(rig, topic_id)
    await rig.produce("orders", batch_of("a"))
    assert await one.until_taken() == [(0, 0, 1)]


@on_cluster(**ALONE)
async def test_the_topic_is_deleted_under_a_waiting_fetch(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    await begin(rig, topic_id)
    one = Member(rig, "one", topic_id)
    await one.ask()
    answers: list[Any] = []

    async def wait() -> None:
        answers.append(only(await one.ask(max_wait_ms=60_000)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(1)
        await rig.ask(1, DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")], timeout_ms=10_000))
    assert answers[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not list(rig.broker(1).shares.partitions)
    data = only(await one.ask())
    assert data is not None and data.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@on_cluster(**ALONE)
async def test_a_group_that_reads_committed_records(rig: Rig) -> None:
    topic_id = await rig.create("t")
    await begin(rig, topic_id)
    await rig.configure(GROUP_RESOURCE, "work", share_isolation_level="read_committed")
    Oracle(rig)
    await rig.produce("t", batch_of("before"))
    await produce(rig, ("t", 0, batch(0, "lost")))
    await produce(rig, ("t", 0, batch(0, "kept", producer_id=8)))
    one = Member(rig, "one", topic_id)
    assert await one.until_taken() == [(0, 0, 1)]
    assert await one.take() == [], "two transactions are open"
    await mark(rig, ("t", 0), commit=False)
    await mark(rig, ("t", 0), commit=True, producer_id=8)
    data = only(await one.ask())
    assert data is not None
    # Offset 1 is aborted; 3 and 4 are the markers, which the consumer acknowledges as gaps.
    assert ranges(data) == [(2, 4, 1)]
    assert "kept" in values(data)
    assert await one.acknowledged((0, 0, [ACCEPT]), (2, 4, [ACCEPT, 0, 0])) == ErrorCode.NONE
    assert start_offset(rig.broker(1), topic_id) == 5


@on_cluster(**ALONE)
async def test_a_throttled_fetch_acquires_nothing(rig: Rig) -> None:
    topic_id = await rig.create("t")
    await begin(rig, topic_id)
    one = Member(rig, "one", topic_id)
    await one.take(max_wait_ms=1000)
    await set_quota(rig, "consumer_byte_rate", 400)
    await rig.produce("t", batch_of("a" * 3_000))
    await rig.produce("t", batch_of("b" * 3_000))
    assert await one.take(max_records=1) == [(0, 0, 1)]
    held = await one.ask()
    assert held.throttle_time_ms > 0 and held.responses == []
    while not (taken := await one.take()):
        pass
    assert taken == [(1, 1, 1)], "the throttled fetch was no delivery"


def test_members_need_the_right_to_read_the_group_and_the_topic() -> None:
    async def story(rig: Rig) -> None:
        topic_id = await rig.create("orders")
        other_id = await rig.create("other")
        await begin(rig, topic_id)
        await rig.produce("orders", batch_of("a"))
        alice = await user_who_may(rig, "group work READ + topic other READ")
        members = {group: Member(rig, "one", topic_id, group=group) for group in ("work", "foreign")}
        for group, member in members.items():
            member.channel = alice._channel
            response = await member.ask()
            if group == "foreign":
                assert (response.error_code, response.responses) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])
                refused = await member.acknowledge((0, 0, [ACCEPT]))
                assert refused.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
            else:
                data = only(response)
                assert data is not None and data.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
                assert await member.acknowledged((0, 0, [ACCEPT])) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        readable = Member(rig, "two", other_id)
        readable.channel = alice._channel
        data = only(await readable.ask())
        assert data is not None and data.error_code == ErrorCode.NONE

    settings = {name.replace("__", "."): value for name, value in ALONE.items()}
    play(story, 1, 1, SETTINGS | settings)


@on_cluster(**ALONE)
async def test_requests_of_nobody(rig: Rig) -> None:
    for member_id in (None, "", "x" * 37):
        for group_id in ("work", None) if member_id == "" else ("work",):
            request = ShareFetchRequest(group_id=group_id, member_id=member_id)
            assert (await rig.ask(1, request)).error_code == ErrorCode.INVALID_REQUEST
    update = FeatureUpdateKey(feature="share.version", max_version_level=0, upgrade_type=2)
    topic_id = await rig.create("orders")
    await begin(rig, topic_id)
    one = Member(rig, "one", topic_id)
    await one.take(max_wait_ms=500)
    assert list(rig.broker(1).shares.partitions)
    await rig.ask(1, UpdateFeaturesRequest(feature_updates=[update], timeout_ms=10_000))
    await rig.until(lambda: not len(rig.broker(1).shares.sessions))
    assert not list(rig.broker(1).shares.partitions)
    assert (await one.ask()).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await one.acknowledge((0, 0, [ACCEPT]))).error_code == ErrorCode.UNSUPPORTED_VERSION


@on_cluster(**ALONE)
async def test_a_fetch_waits_for_enough_bytes(rig: Rig) -> None:
    topic_id = await rig.create("orders", partitions=2)
    await begin(rig, topic_id, partitions=2)
    one = Member(rig, "one", topic_id)
    await one.ask(partitions=(0, 1), max_wait_ms=500)
    got: list[list[tuple[int, int, int]]] = []
    began = trio.current_time()

    async def wait() -> None:
        response = await one.ask(partitions=(), min_bytes=1500, max_wait_ms=30_000)
        got.extend(ranges(data) for topic in response.responses for data in topic.partitions)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(1)
        await rig.produce("orders", batch_of("a" * 1000), index=0)
        await trio.sleep(1)
        assert got == []
        await rig.produce("orders", batch_of("b" * 1000), index=1)
    assert got == [[(0, 0, 1)], [(0, 0, 1)]]
    assert trio.current_time() - began < 5


@on_cluster(**ALONE)
async def test_partitions_take_turns(rig: Rig) -> None:
    topic_id = await rig.create("orders", partitions=3)
    await begin(rig, topic_id, partitions=3)
    one = Member(rig, "one", topic_id)
    await one.ask(partitions=(0, 1, 2), max_wait_ms=500)
    for index in range(3):
        for _ in range(3):
            await rig.produce("orders", batch_of("a"), index=index)
    seen = []
    for _ in range(6):
        response = await one.ask(partitions=(), max_records=1, max_wait_ms=500)
        seen += [data.partition_index for topic in response.responses for data in topic.partitions]
    assert sorted(set(seen)) == [0, 1, 2], "no partition starves"
    assert len(seen) == 6


@on_cluster(**ALONE)
async def test_a_disk_that_cannot_be_read_is_an_error_of_the_partition(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id = await rig.create("orders")
    await begin(rig, topic_id)
    await rig.produce("orders", batch_of("a", "b"))
    member = Member(rig, "one", topic_id)
    assert await member.until_taken(max_records=1, share_acquire_mode=1) == [(0, 0, 1)]
    rig.cluster.on_failure = lambda name, error: None

    def batches(*arguments: Any) -> Any:
        """The place of the records was found, and now their batches cannot be read."""
        rig.universe.disk(rig.name(1)).fail("read")
        return find(*arguments)

    find = share_fetch._batches
    monkeypatch.setattr(share_fetch, "_batches", batches)
    data = only(await member.ask())
    assert data is not None
    assert data.error_code == ErrorCode.KAFKA_STORAGE_ERROR


@on_cluster(**ALONE)
async def test_a_state_is_not_read_again_while_it_is_being_stored(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    await begin(rig, topic_id)
    await rig.produce("orders", batch_of("a", "b"))
    one, two = Member(rig, "one", topic_id), Member(rig, "two", topic_id)
    assert await one.until_taken() == [(0, 1, 1)]
    assert await one.acknowledged((0, 0, [ACCEPT])) == 0
    refusing = Refusing(rig, None)
    partitions = rig.broker(1).shares.partitions
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.acknowledged, (1, 1, [ACCEPT]))
        await trio.sleep(0.5)
        (led,) = partitions
        partitions.drop(led, "the test wants it")
        assert await two.take(max_wait_ms=500) == [], "nobody knows yet what becomes of the second record"
        refusing.gate.set()
    assert await two.take(max_wait_ms=500) == []
    assert start_offset(rig.broker(1), topic_id) == 2
