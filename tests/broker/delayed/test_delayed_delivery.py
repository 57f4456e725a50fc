"""Delayed delivery on a cluster: records come in their time, in order, once, whatever becomes of brokers."""

from __future__ import annotations

import pytest
import trio

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.broker.apis.rig import Rig, batch_of, on_cluster
from tests.broker.delayed.delayed_rig import DELAYED, delayed_batch, now_ms, records_of, seen, send, values

pytestmark = pytest.mark.feature("RP-12")

TOPIC_CONFIG = 2


@on_cluster()
async def test_a_record_is_seen_at_its_time_and_not_before(rig: Rig) -> None:
    await rig.create("t", **DELAYED)
    due_ms = now_ms(rig) + 3_000
    answer = await send(rig, ("later", due_ms))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    assert (await rig.produce("t", batch_of("at once"))).base_offset == 1
    assert values(await seen(rig)) == ["at once"]
    while now_ms(rig) < due_ms - 20:
        assert values(await seen(rig)) == ["at once"]
        await trio.sleep(0.01)
    await rig.until(lambda: now_ms(rig) > due_ms + 20)
    first, later = await seen(rig)
    assert (later.value, later.key) == (b"later", b"key later")
    assert later.headers == (("other", b"x"), ("deliver-at", str(due_ms).encode()))
    assert later.timestamp == 1_750_000_000_000
    assert later.offset > first.offset


@on_cluster()
async def test_records_come_in_the_order_of_their_times(rig: Rig) -> None:
    await rig.create("t", **DELAYED)
    now = now_ms(rig)
    await send(rig, ("c", now + 900), ("a", now + 500), ("now", None), ("d", now + 900))
    await send(rig, ("b", now + 700), ("e", now + 900), compression=4)
    await send(rig, ("f", "PT1.5S"), header="deliver-after")
    await rig.until(lambda: now_ms(rig) > now + 1_600)
    records = await seen(rig)
    assert values(records) == ["now", "a", "b", "c", "d", "e", "f"]
    assert len({record.offset for record in records}) == 7


@on_cluster()
async def test_without_the_setting_or_the_header_nothing_is_delayed(rig: Rig) -> None:
    await rig.create("plain")
    await rig.create("t", **DELAYED)
    far = now_ms(rig) + 10_000
    await send(rig, ("x", far), topic="plain")
    assert values(await seen(rig, "plain")) == ["x"]
    await send(rig, ("past", 5))
    await send(rig, ("none", None))
    assert values(await seen(rig)) == ["past", "none"]
    await send(rig, ("later", far))
    await rig.configure(TOPIC_CONFIG, "plain", **DELAYED)
    await send(rig, ("y", far), topic="plain")
    assert values(await seen(rig, "plain")) == ["x"]
    assert values(await seen(rig)) == ["past", "none"]


@on_cluster()
async def test_wrong_times_are_refused_by_record(rig: Rig) -> None:
    await rig.create("t", barnabas_delayed_delivery_max_ms="10000", **DELAYED)
    now = now_ms(rig)
    batch = delayed_batch(("good", now + 9_000), ("bad", "soon"), ("far", now + 11_000))
    refused = await rig.produce("t", batch)
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == [1, 2]
    assert "deliver-at must be milliseconds" in (refused.record_errors[0].batch_index_error_message or "")
    assert "barnabas.delayed.delivery.max.ms" in (refused.record_errors[1].batch_index_error_message or "")
    assert rig.partition(1, "t").log.log_end_offset == 0


@on_cluster()
async def test_too_many_pending_records_are_refused(rig: Rig) -> None:
    await rig.create("t", barnabas_delayed_delivery_max_pending_records="2", **DELAYED)
    due_ms = now_ms(rig) + 1_000
    assert (await send(rig, ("a", due_ms), ("b", due_ms))).error_code == ErrorCode.NONE
    assert (await send(rig, ("c", due_ms))).error_code == ErrorCode.POLICY_VIOLATION
    await rig.until(lambda: now_ms(rig) > due_ms + 50)
    assert (await send(rig, ("d", due_ms + 2_000))).error_code == ErrorCode.NONE
    assert values(await seen(rig)) == ["a", "b"]


@on_cluster()
async def test_an_idempotent_producer_may_send_again(rig: Rig) -> None:
    await rig.create("t", **DELAYED)
    due_ms = now_ms(rig) + 1_000
    stamp = {"producer_id": 7, "producer_epoch": 0}
    first = await send(rig, ("a", due_ms), ("b", due_ms + 1), base_sequence=0, **stamp)
    assert (await send(rig, ("a", due_ms), ("b", due_ms + 1), base_sequence=0, **stamp)).base_offset == 0
    assert (await rig.produce("t", batch_of("plain", base_sequence=2, **stamp))).base_offset == 2
    gap = await send(rig, ("z", due_ms), base_sequence=9, **stamp)
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await send(rig, ("c", due_ms + 2), base_sequence=3, **stamp)).error_code == ErrorCode.NONE
    await rig.until(lambda: now_ms(rig) > due_ms + 50)
    again = await send(rig, ("a", due_ms), ("b", due_ms + 1), base_sequence=0, **stamp)
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, first.base_offset)
    assert values(await seen(rig)) == ["plain", "a", "b", "c"]


async def fail_over(rig: Rig, at_ms: int) -> None:
    """Kill the leader at that time, and wait until all replicas are in sync again."""
    leader = rig.leader("t")
    await rig.until(lambda: now_ms(rig, leader) > at_ms)
    rig.cluster.kill(rig.name(leader))
    await rig.until(lambda: rig.leader("t") not in (leader, -1))
    rig.cluster.start(rig.name(leader))
    await rig.until(lambda: len(rig.placed(rig.leader("t"), "t").isr) == 3)


@on_cluster(brokers=3)
async def test_records_are_delivered_once_though_their_leaders_die(rig: Rig) -> None:
    await rig.create("t", replicas=[1, 2, 3], min_insync_replicas="2", **DELAYED)
    start = now_ms(rig)
    expected = []
    for number in range(60):
        due_ms = start + 2_000 + number * 150
        expected.append(f"r{number}")
        answer = await send(rig, (f"r{number}", due_ms))
        assert answer.error_code == ErrorCode.NONE
    for round_ in range(3):
        await fail_over(rig, start + 3_500 + round_ * 2_500)
    await rig.until(lambda: now_ms(rig, rig.leader("t")) > start + 12_000)
    await trio.sleep(1)
    assert values(await seen(rig)) == expected


@on_cluster()
async def test_batches_of_many_records(rig: Rig) -> None:
    """Their offsets are in several of the chunks by which pending records are counted."""
    await rig.create("t", **DELAYED)
    due_ms = now_ms(rig) + 500
    for batch in range(3):
        await send(rig, *((f"{batch}-{each}", due_ms + each % 7) for each in range(900)))
    await rig.until(lambda: now_ms(rig) > due_ms + 100)
    records = await seen(rig)
    expected = sorted((each % 7, batch, each) for batch in range(3) for each in range(900))
    assert values(records) == [f"{batch}-{each}" for _, batch, each in expected]
    (led,) = rig.broker(1).deliveries
    assert len(led.pending) == 0
    assert led.partition.log.pending_from == led.partition.log.log_end_offset


@on_cluster()
async def test_a_batch_of_very_many_records(rig: Rig) -> None:
    await rig.create("t", **DELAYED)
    due_ms = now_ms(rig) + 2_000
    answer = await send(rig, *((f"{each}", due_ms) for each in range(6_000)), compression=4)
    assert answer.error_code == ErrorCode.NONE
    await rig.until(lambda: now_ms(rig) > due_ms + 500)
    assert values(await seen(rig)) == [f"{each}" for each in range(6_000)]
    refused = await send(rig, *((f"{each}", due_ms + 60_000) for each in range(20_001)), compression=4)
    assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE


@on_cluster()
async def test_pending_records_go_with_the_records_that_are_deleted(rig: Rig) -> None:
    await rig.create("t", **DELAYED)
    due_ms = now_ms(rig) + 2_000
    await send(rig, ("a", due_ms), ("b", due_ms))
    await send(rig, ("c", due_ms + 1))
    partition = DeleteRecordsPartition(partition_index=0, offset=2)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[partition])], timeout_ms=5_000)
    assert (await rig.ask(1, request)).topics[0].partitions[0].error_code == ErrorCode.NONE
    await rig.until(lambda: now_ms(rig) > due_ms + 100)
    data = await rig.fetch("t", 2)
    assert values(records_of(data)) == ["c"]
    (led,) = rig.broker(1).deliveries
    assert len(led.pending) == 0


QUICK_RETENTION = {"log__retention__check__interval__ms": "300", "log__initial__task__delay__ms": "100"}


@on_cluster(**QUICK_RETENTION)
async def test_retention_works_as_ever_where_nothing_is_pending(rig: Rig) -> None:
    await rig.create(
        "t",
        retention_ms="500",
        segment_ms="200",
        file_delete_delay_ms="0",
        message_timestamp_type="LogAppendTime",
        **DELAYED,
    )
    await rig.until(lambda: rig.broker(1).partitions.find("t", 0))
    log = rig.partition(1, "t").log
    while log.log_start_offset < 40:
        await rig.produce("t", batch_of("old"))
        await trio.sleep(0.05)


@on_cluster(brokers=3, **QUICK_RETENTION)
async def test_retention_deletes_no_pending_record_and_is_not_held_back_by_one(rig: Rig) -> None:
    await rig.create(
        "t",
        replicas=[1, 2, 3],
        retention_ms="1000",
        segment_ms="400",
        file_delete_delay_ms="0",
        message_timestamp_type="LogAppendTime",
        **DELAYED,
    )
    start = now_ms(rig)
    await send(rig, ("a", start + 9_000), ("soon", start + 700), ("b", start + 12_000), compression=1)
    await send(rig, ("c", start + 12_000))
    while now_ms(rig) < start + 8_000:
        await rig.produce("t", batch_of("old"))
        await trio.sleep(0.1)
    logs = [rig.partition(node, "t").log for node in (1, 2, 3)]
    assert all(log.log_start_offset > 30 for log in logs), [log.log_start_offset for log in logs]
    former = rig.leader("t")
    rig.cluster.kill(rig.name(former))
    await rig.until(lambda: rig.leader("t") not in (former, -1))
    leader = rig.leader("t")

    async def until_seen(value: bytes) -> list[bytes | None]:
        while True:
            data = await rig.fetch("t", rig.partition(leader, "t").log.log_start_offset)
            found = [record.value for record in records_of(data)]
            if value in found:
                return found
            await trio.sleep(0.05)

    assert b"b" not in await until_seen(b"a")
    assert now_ms(rig, leader) >= start + 9_000
    await until_seen(b"b")
    assert now_ms(rig, leader) >= start + 12_000
    assert [each for each in await until_seen(b"c") if each != b"old"][-2:] == [b"b", b"c"]
