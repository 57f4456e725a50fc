"""Dead letters of share groups (KIP-1191), and the backoff before a record is delivered again."""

from __future__ import annotations

import pytest
import trio

from barnabas.broker.shares.state import SharePartitionKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.records.batch import iterate_batches
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record, decode_records
from tests.broker.apis.rig import NOW_MS, Rig, batch_of, on_cluster
from tests.broker.shares.share_rig import ALONE, GROUP_RESOURCE, Member, begin, start_offset

pytestmark = pytest.mark.feature("CG-23")

GAP, ACCEPT, RELEASE, REJECT = 0, 1, 2, 3
DELIVERED_AT = 2
"""Offset of the delayed record of a test."""
DLQ = "dlq.work"
FEW = {**ALONE, "group__share__delivery__count__limit": "2"}


async def want_letters(rig: Rig, topic: str = DLQ, *, copies: bool = True) -> None:
    await rig.configure(
        GROUP_RESOURCE,
        "work",
        errors_deadletterqueue_topic_name=topic,
        errors_deadletterqueue_copy_record_enable=str(copies).lower(),
    )


async def letters(rig: Rig, topic: str = DLQ, index: int = 0) -> list[Record]:
    data = await rig.fetch(topic, index=index)
    batches = bytes(data.records or b"")
    return [record for position, _ in iterate_batches(batches) for record in decode_records(batches, position)]


async def until_letters(rig: Rig, count: int, topic: str = DLQ) -> list[Record]:
    while len(found := await letters(rig, topic)) < count:
        await trio.sleep(0.05)
    return found


def about(letter: Record) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in letter.headers}


async def until_start(rig: Rig, topic_id: bytes, offset: int, node: int = 1) -> None:
    await rig.until(lambda: start_offset(rig.broker(node), topic_id) == offset)


@on_cluster(**FEW)
async def test_rejected_and_given_up_records_are_copied_before_they_are_archived(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    await rig.create(DLQ, errors_deadletterqueue_group_enable="true")
    await want_letters(rig)
    await begin(rig, topic_id)
    headers = (("a", b"1"), ("a", None))
    records = [Record(0, NOW_MS, b"k%d" % each, b"v%d" % each, headers) for each in range(4)]
    await rig.produce("orders", build_batch(records, compression=1))
    member = Member(rig, "one", topic_id)
    assert await member.until_taken() == [(0, 3, 1)]
    assert await member.acknowledged((0, 3, [ACCEPT, REJECT, RELEASE, ACCEPT])) == ErrorCode.NONE
    (rejected,) = await until_letters(rig, 1)
    assert (rejected.key, rejected.value, rejected.headers[:2]) == (b"k1", b"v1", headers)
    assert about(rejected)["__dlq.errors.message"] == "Offset rejected by client."
    assert await member.until_taken() == [(2, 2, 2)]
    assert await member.acknowledged((2, 2, [RELEASE])) == ErrorCode.NONE
    _, often = await until_letters(rig, 2)
    assert (often.key, often.value) == (b"k2", b"v2")
    del (found := about(often))["a"]
    assert found == {
        "__dlq.errors.topic": "orders",
        "__dlq.errors.partition": "0",
        "__dlq.errors.offset": "2",
        "__dlq.errors.group": "work",
        "__dlq.errors.delivery.count": "2",
        "__dlq.errors.message": "Offset delivery count exceeded the threshold.",
    }
    await until_start(rig, topic_id, 4)


@on_cluster(**FEW)
async def test_a_topic_is_for_dead_letters_or_delays_records(rig: Rig) -> None:
    """A letter has the headers of its record: `deliver-after` among them would delay it again."""
    await rig.create("later", barnabas_delayed_delivery_enable="true")
    await rig.create(DLQ, errors_deadletterqueue_group_enable="true")
    both = {"barnabas.delayed.delivery.enable": "true", "errors.deadletterqueue.group.enable": "true"}
    for name, key in (("later", "errors.deadletterqueue.group.enable"), (DLQ, "barnabas.delayed.delivery.enable")):
        change = AlterConfigsResource(
            resource_type=2, resource_name=name, configs=[AlterableConfig(name=key, value="true")]
        )
        answer = await rig.ask(1, IncrementalAlterConfigsRequest(resources=[change]))
        (result,) = answer.responses
        assert result.error_code == ErrorCode.INVALID_CONFIG
        assert "a dead-letter topic cannot deliver records later" in (result.error_message or "")
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in both.items()]
    topic = CreatableTopic(name="dlq.both", num_partitions=1, replication_factor=1, configs=configs)
    (result,) = (await rig.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))).topics
    assert result.error_code == ErrorCode.INVALID_CONFIG


@on_cluster(**FEW)
async def test_letters_of_a_topic_that_delays_records(rig: Rig) -> None:
    """The record waits in a control batch at offset 0; another one, at 1, says that it is delivered, at 2."""
    topic_id = await rig.create("orders", barnabas_delayed_delivery_enable="true")
    await rig.create(DLQ, errors_deadletterqueue_group_enable="true")
    await want_letters(rig)
    await begin(rig, topic_id)
    headers = (("deliver-after", b"2000"),)
    await rig.produce("orders", build_batch([Record(0, NOW_MS, None, b"late", headers)]))
    member = Member(rig, "one", topic_id)
    last = -1
    while last < DELIVERED_AT:
        ((first, last, _),) = await member.until_taken()
        types = [REJECT if offset == DELIVERED_AT else GAP for offset in range(first, last + 1)]
        assert await member.acknowledged((first, last, types)) == ErrorCode.NONE
    (letter,) = await until_letters(rig, 1)
    assert (letter.value, letter.headers[:1]) == (b"late", headers)


@on_cluster(**FEW)
async def test_letters_without_copies_have_only_headers(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    await rig.create(DLQ, errors_deadletterqueue_group_enable="true")
    await want_letters(rig, copies=False)
    await begin(rig, topic_id)
    await rig.produce("orders", batch_of("a", "b"))
    member = Member(rig, "one", topic_id)
    assert await member.until_taken() == [(0, 1, 1)]
    assert await member.acknowledged((0, 1, [REJECT])) == ErrorCode.NONE
    found = await until_letters(rig, 2)
    assert [(it.key, it.value) for it in found] == [(None, None)] * 2
    assert [about(it)["__dlq.errors.offset"] for it in found] == ["0", "1"]


@on_cluster(**FEW)
async def test_a_record_waits_for_its_letter_until_the_topic_is_there(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    await want_letters(rig)
    await begin(rig, topic_id)
    await rig.produce("orders", batch_of("a", "b"))
    member = Member(rig, "one", topic_id)
    assert await member.until_taken() == [(0, 1, 1)]
    assert await member.acknowledged((0, 1, [REJECT, ACCEPT])) == ErrorCode.NONE
    await trio.sleep(5)
    assert start_offset(rig.broker(1), topic_id) == 0
    notes = [it.cause for it in rig.broker(1).decisions.since(0, "orders-0") if "no dead letter yet" in it.sentence]
    assert notes[0] == "UNKNOWN_TOPIC_OR_PARTITION: the dead-letter topic dlq.work does not exist"
    await rig.create(DLQ)
    await trio.sleep(5)
    assert start_offset(rig.broker(1), topic_id) == 0, "the topic is not meant for dead letters"
    assert await letters(rig) == []
    await rig.configure(2, DLQ, errors_deadletterqueue_group_enable="true")
    await until_start(rig, topic_id, 2)
    assert [it.value for it in await letters(rig)] == [b"a"]


@on_cluster(errors__deadletterqueue__auto__create__topics__enable="true", **FEW)
async def test_the_topic_is_created_if_brokers_may(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    await want_letters(rig)
    await begin(rig, topic_id)
    await rig.produce("orders", batch_of("a"))
    member = Member(rig, "one", topic_id)
    await member.until_taken()
    assert await member.acknowledged((0, 0, [REJECT])) == ErrorCode.NONE
    await until_start(rig, topic_id, 1)
    assert [it.value for it in await letters(rig)] == [b"a"]


@on_cluster(brokers=3, **{**FEW, "share__coordinator__state__topic__replication__factor": "3"})
async def test_the_next_leader_copies_what_its_predecessor_did_not(rig: Rig) -> None:
    """The topic of the letters has its leader elsewhere."""
    topic_id = await rig.create("orders", replicas=[1, 2, 3])
    await want_letters(rig)
    await begin(rig, topic_id)
    await rig.produce("orders", batch_of("a", "b"))
    member = Member(rig, "one", topic_id)
    assert await member.until_taken() == [(0, 1, 1)]
    assert await member.acknowledged((0, 1, [REJECT, ACCEPT])) == ErrorCode.NONE
    states = rig.broker(2).coordination.share_states
    stored = await states.read(SharePartitionKey("work", topic_id, 0), 0)
    assert [(it.first_offset, it.last_offset, it.state) for it in stored.batches] == [(0, 0, 3), (1, 1, 2)]
    rig.cluster.kill("broker-1")
    await rig.until(lambda: rig.leader("orders") in (2, 3))
    leader = rig.leader("orders")
    await rig.create(DLQ, replicas=[5 - leader], errors_deadletterqueue_group_enable="true")
    other = Member(rig, "two", topic_id, node=leader)
    while start_offset_or_none(rig, leader, topic_id) != 2:
        assert await other.take() == []
        await trio.sleep(0.1)
    (letter,) = await letters(rig)
    assert (letter.value, about(letter)["__dlq.errors.message"]) == (b"a", "Offset rejected by client.")


@pytest.mark.parametrize("is_led_here", [True, False])
@on_cluster(brokers=3, **FEW)
async def test_the_topic_is_deleted_while_a_letter_replicates(rig: Rig, is_led_here: bool) -> None:
    topic_id = await rig.create("orders", replicas=[1])
    await want_letters(rig)
    await begin(rig, topic_id)
    follower = 3 if rig.leader("__share_group_state") == 2 else 2
    leader = 1 if is_led_here else 5 - follower
    await rig.create(DLQ, replicas=[leader, follower], errors_deadletterqueue_group_enable="true")
    await rig.until(lambda: len(rig.placed(1, DLQ).isr) == 2)
    await rig.produce("orders", batch_of("a", "b"))
    member = Member(rig, "one", topic_id)
    assert await member.until_taken() == [(0, 1, 1)]
    rig.universe.wires.isolate(rig.name(follower))
    assert await member.acknowledged((0, 1, [REJECT, ACCEPT])) == ErrorCode.NONE
    former = rig.partition(leader, DLQ)
    await rig.until(lambda: former.log.log_end_offset == 1)
    assert former.replica.high_watermark == 0

    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=DLQ)], timeout_ms=10_000)
    await rig.ask(1, deletion)
    rig.universe.wires.heal()
    brokers = [rig.broker(node) for node in (1, 2, 3)]
    await rig.until(lambda: all(DLQ not in it.metadata.image.topics.by_name for it in brokers))
    await trio.sleep(3)
    assert start_offset(rig.broker(1), topic_id) == 0
    causes = [it.cause for it in rig.broker(1).decisions.since(0, "orders-0") if "no dead letter yet" in it.sentence]
    assert causes[0].startswith("NOT_LEADER_OR_FOLLOWER")
    assert causes[-1] == "UNKNOWN_TOPIC_OR_PARTITION: the dead-letter topic dlq.work does not exist"
    await rig.create(DLQ, replicas=[follower], errors_deadletterqueue_group_enable="true")
    await until_start(rig, topic_id, 2)
    assert [it.value for it in await letters(rig)] == [b"a"]


@on_cluster(**FEW)
async def test_letters_are_written_though_the_last_member_has_left(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    await want_letters(rig)
    await begin(rig, topic_id)
    await rig.produce("orders", batch_of("a"))
    member = Member(rig, "one", topic_id)
    await member.until_taken()
    assert await member.acknowledged((0, 0, [REJECT])) == ErrorCode.NONE
    member.hang_up()
    await trio.sleep(3)
    await rig.create(DLQ, errors_deadletterqueue_group_enable="true")
    assert [it.value for it in await until_letters(rig, 1)] == [b"a"]
    await rig.until(lambda: not list(rig.broker(1).shares.partitions))
    stored = await rig.broker(1).coordination.share_states.read(SharePartitionKey("work", topic_id, 0), 0)
    assert [(it.first_offset, it.last_offset, it.state) for it in stored.batches] == [(0, 0, 4)]


def start_offset_or_none(rig: Rig, node: int, topic_id: bytes) -> int | None:
    led = rig.broker(node).shares.partitions.find(SharePartitionKey("work", topic_id, 0))
    return None if led is None or led.core is None else led.core.start_offset


@on_cluster(**{**ALONE, "group__share__delivery__count__limit": "5"})
async def test_a_released_record_comes_again_after_a_backoff_that_grows(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    await rig.configure(
        GROUP_RESOURCE,
        "work",
        barnabas_share_redelivery_backoff_ms="1000",
        barnabas_share_redelivery_backoff_max_ms="3000",
    )
    await begin(rig, topic_id)
    await rig.produce("orders", batch_of("a"))
    member = Member(rig, "one", topic_id)
    assert await member.until_taken() == [(0, 0, 1)]
    for count, wait_seconds in ((2, 1.0), (3, 2.0), (4, 3.0), (5, 3.0)):
        began = trio.current_time()
        assert await member.acknowledged((0, 0, [RELEASE])) == ErrorCode.NONE
        # The fetch waits, and is woken when the record is due.
        assert await member.take(max_wait_ms=10_000) == [(0, 0, count)]
        assert wait_seconds <= trio.current_time() - began < wait_seconds + 0.2
