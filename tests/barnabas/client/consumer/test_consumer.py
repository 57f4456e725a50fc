"""Stories of the public consumer on a whole simulated cluster: assignment, groups, commits, the end."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
import trio

from barnabas.client.consumer.consumer import Consumer
from barnabas.client.consumer.listener import RebalanceListener
from barnabas.client.errors import (
    CommitFailedException,
    ConfigException,
    IllegalStateException,
    InvalidGroupIdException,
    NoOffsetForPartitionException,
    RecordDeserializationException,
    TimeoutException,
    UnknownMemberIdException,
)
from barnabas.client.groups.assignor import Assignment, Assignor, GroupTopics, Subscriber
from barnabas.client.groups.membership import Leaving
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import OffsetAndMetadata
from barnabas.client.producer import Producer
from barnabas.protocol.errors import KafkaError
from tests.barnabas.client.consumer.simulated_stage import Stage, play, polled, read, until

pytestmark = pytest.mark.feature("CL-03")

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])
CLASSIC = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 200}


def group(protocol: str = "classic", **options: object) -> dict[str, object]:
    return {"group_id": "g", "group_protocol": protocol, **(CLASSIC if protocol == "classic" else {}), **options}


@pytest.mark.feature("CG-01")
def test_partitions_are_assigned_by_hand_sought_and_paused() -> None:
    async def story(stage: Stage) -> None:
        await stage.create("t", 2)
        for partition in (0, 1):
            await stage.write("t", *[b"%d" % number for number in range(10)], partition=partition)
        async with stage.consumer(max_poll_records=7) as consumer:
            consumer.assign([T0, T1])
            assert consumer.assignment() == (T0, T1)
            records = await consumer.poll(5_000)
            assert 0 < len(records) <= 7
            records += await read(consumer, 20 - len(records))
            assert sorted((each.partition, each.offset) for each in records) == [
                (partition, offset) for partition in (0, 1) for offset in range(10)
            ]
            assert await consumer.position(T0) == 10
            consumer.seek(T0, 8)
            assert [each.value for each in await read(consumer, 2)] == [b"8", b"9"]
            consumer.seek_to_beginning([T0])
            consumer.pause([T1])
            consumer.seek(T1, 0)
            assert [each.offset for each in await read(consumer, 10)] == list(range(10))
            assert consumer.paused() == (T1,)
            assert await consumer.poll(200) == []
            consumer.resume([T1])
            assert {each.partition for each in await read(consumer, 10)} == {1}
            consumer.seek_to_end([T1])
            assert await consumer.position(T1) == 10
            consumer.assign([T1])
            assert consumer.positions() == {T1: OffsetAndMetadata(10, consumer.positions()[T1].leader_epoch)}
            with pytest.raises(IllegalStateException, match="t-0"):
                consumer.seek(T0, 1)

    play(story)


@pytest.mark.feature("CG-01")
def test_offsets_and_topics_of_the_cluster() -> None:
    async def story(stage: Stage) -> None:
        await stage.create("t", 2)
        await stage.write("t", b"0", b"1", b"2")
        async with stage.consumer() as consumer:
            assert await consumer.beginning_offsets([T0, T1]) == {T0: 0, T1: 0}
            assert await consumer.end_offsets([T0, T1]) == {T0: 3, T1: 0}
            found = await consumer.offsets_for_times({T0: 7, T1: 7})
            first = found[T0]
            assert first is not None and (first.offset, first.timestamp_ms) == (0, 7)
            assert found[T1] is None
            assert await consumer.offsets_for_times({T0: 8}) == {T0: None}
            partitions = await consumer.partitions_for("t")
            assert [each.partition for each in partitions] == [0, 1]
            assert all(len(each.replicas) == 3 and each.leader is not None for each in partitions)
            assert await consumer.partitions_for("nothing") == []
            assert "t" in await consumer.list_topics()
            consumer.assign([T0])
            await read(consumer, 3)
            assert consumer.current_lag(T0) == 0
            consumer.seek(T0, 1)
            assert consumer.current_lag(T0) == 2

    play(story)


@PROTOCOLS
@pytest.mark.feature("CG-13")
def test_two_members_share_a_topic_and_one_takes_over(protocol: str) -> None:
    async def story(stage: Stage) -> None:
        await stage.create("t", 2)
        async with polled(stage.consumer("t", **group(protocol))) as all_of_it:
            async with polled(stage.consumer("t", **group(protocol))) as a_part:
                with trio.fail_after(60):
                    while not (a_part and all_of_it):
                        for partition in (0, 1):
                            await stage.write("t", b"shared", partition=partition)
                        await trio.sleep(0.5)
            del all_of_it[:]
            with trio.fail_after(5):  # far less than a session: the other one has left
                while {each.partition for each in all_of_it} != {0, 1}:
                    for partition in (0, 1):
                        await stage.write("t", b"after", partition=partition)
                    await trio.sleep(0.2)

    play(story)


@PROTOCOLS
@pytest.mark.feature("CG-21")
def test_offsets_are_committed_by_hand_and_reading_goes_on_there(protocol: str) -> None:
    async def story(stage: Stage) -> None:
        await stage.create("t")
        await stage.write("t", b"0", b"1", b"2")
        options = group(protocol, enable_auto_commit=False)
        async with stage.consumer("t", **options) as consumer:
            assert await consumer.committed([T0]) == {T0: None}
            await read(consumer, 3)
            await consumer.commit({T0: OffsetAndMetadata(1, metadata="a note")})
            assert await consumer.committed([T0]) == {T0: OffsetAndMetadata(1, None, "a note")}
            assert consumer.group_metadata().generation_or_epoch > 0
        async with stage.consumer("t", **options) as consumer:
            assert [each.offset for each in await read(consumer, 2)] == [1, 2]
            await consumer.commit()
            committed = (await consumer.committed([T0]))[T0]
            assert committed is not None and committed.offset == 3

    play(story)


@PROTOCOLS
def test_auto_commit_counts_what_was_given_before_the_last_poll(protocol: str) -> None:
    async def story(stage: Stage) -> None:
        await stage.create("t")
        await stage.write("t", *[b"%d" % number for number in range(6)])
        options = group(protocol, auto_commit_interval_ms=1_000, max_poll_records=2)

        async def committed(consumer: Consumer) -> int:
            found = (await consumer.committed([T0]))[T0]
            return -1 if found is None else found.offset

        async with stage.consumer("t", **options) as consumer:
            await read(consumer, 2)
            await trio.sleep(1.1)
            assert len(await consumer.poll(100)) == 2
            await trio.sleep(0.1)
            assert await committed(consumer) == 2
        async with stage.consumer("t", **options) as consumer:
            assert await committed(consumer) == 4, "the end of the block commits the rest"
            with pytest.raises(RuntimeError, match="cannot"):
                async with stage.consumer(**{**options, "group_id": "h"}) as failing:
                    failing.subscribe("t")
                    await read(failing, 2)
                    await read(failing, 2)
                    raise RuntimeError("cannot work on this")
        async with stage.consumer(**{**options, "group_id": "h"}) as consumer:
            consumer.assign([T0])
            assert await committed(consumer) == 2, "what it failed on is read again"

    play(story)


def test_iteration_counts_records_one_by_one() -> None:
    async def story(stage: Stage) -> None:
        await stage.create("t")
        await stage.write("t", *[b"%d" % number for number in range(5)])
        async with stage.consumer("t", **group()) as consumer:
            seen = []
            async for record in consumer:
                seen.append(record.offset)
                if record.offset == 1:
                    assert await consumer.position(T0) == consumer.positions()[T0].offset == 2
                    assert consumer.current_lag(T0) == 3
                    consumer.seek(T0, 3)
                if record.offset == 3:
                    consumer.pause([T0])
                    assert await consumer.poll(200) == []
                    consumer.resume([T0])
                if record.offset == 4:
                    break
            assert seen == [0, 1, 3, 4]
        async with stage.consumer("t", **group()) as consumer:
            await until(consumer, lambda: bool(consumer.assignment()))
            assert await consumer.position(T0) == 5

    play(story)


@PROTOCOLS
@pytest.mark.feature("CG-11")
def test_the_listener_receives_assigned_and_revoked_partitions(protocol: str) -> None:
    async def story(stage: Stage) -> None:
        await stage.create("t", 2)
        await stage.create("u")
        calls: list[tuple[str, tuple[TopicPartition, ...]]] = []
        consumer = stage.consumer(**group(protocol, enable_auto_commit=False))

        def on_assigned(partitions: Sequence[TopicPartition]) -> None:
            calls.append(("assigned", tuple(sorted(partitions))))
            if T0 in partitions:
                consumer.seek(T0, 1)

        async def on_revoked(partitions: Sequence[TopicPartition]) -> None:
            await consumer.commit(dict.fromkeys(partitions, 7))
            calls.append(("revoked", tuple(sorted(partitions))))

        await stage.write("t", b"0", b"1")
        async with consumer:
            consumer.subscribe(["t"], listener=RebalanceListener(on_assigned, on_revoked))
            assert [each.offset for each in await read(consumer, 1)] == [1]
            assert calls == [("assigned", (T0, T1))]
            listener = RebalanceListener(on_assigned, on_revoked)
            consumer.subscribe(["u"], listener=listener)
            await until(consumer, lambda: TopicPartition("u", 0) in consumer.assignment())
            assert calls[1] == ("revoked", (T0, T1))
            assert await consumer.committed([T0]) == {T0: OffsetAndMetadata(7)}
            assert consumer.subscription() == ("u",)
        assert calls[-1] == ("revoked", (TopicPartition("u", 0),))

    play(story)


def test_poll_raises_an_exception_of_the_listener_once() -> None:
    async def story(stage: Stage) -> None:
        await stage.create("t")
        await stage.write("t", b"0")

        def broken(partitions: Sequence[TopicPartition]) -> None:
            raise RuntimeError(f"no use for {len(partitions)}")

        async with stage.consumer(**group()) as consumer:
            consumer.subscribe(["t"], listener=RebalanceListener(on_assigned=broken))
            with pytest.raises(RuntimeError, match="no use for 1"):
                await read(consumer, 1)
            assert len(await read(consumer, 1)) == 1

    play(story)


@PROTOCOLS
def test_unsubscribing_leaves_and_the_same_consumer_comes_back(protocol: str) -> None:
    async def story(stage: Stage) -> None:
        await stage.create("t")
        await stage.write("t", b"0", b"1")
        calls: list[str] = []
        consumer = stage.consumer(**group(protocol, enable_auto_commit=False))

        async def on_revoked(partitions: Sequence[TopicPartition]) -> None:
            await consumer.commit()
            calls.append(" ".join(map(str, partitions)))

        async with consumer:
            consumer.subscribe("t", listener=RebalanceListener(on_revoked=on_revoked))
            await read(consumer, 2)
            consumer.unsubscribe()
            assert consumer.assignment() == ()
            assert consumer.subscription() == ()
            with pytest.raises(IllegalStateException, match="poll needs a subscription"):
                await consumer.poll(0)
            consumer.subscribe("t", listener=RebalanceListener())
            await until(consumer, lambda: bool(consumer.assignment()))
            assert calls == ["t-0"], "the listener that saw the assignment sees the revocation"
            assert await consumer.position(T0) == 2
            with pytest.raises(IllegalStateException, match="subscribed to"):
                consumer.assign([T0])
            consumer.unsubscribe()
            consumer.assign([T0])
            with pytest.raises(IllegalStateException, match="by hand"):
                consumer.subscribe("t")

    play(story)


@pytest.mark.feature("CG-15")
@pytest.mark.parametrize(
    ("protocol", "pattern"), [("classic", "a.+"), ("consumer", "a.+"), ("consumer", re.compile("a.+"))]
)
def test_a_pattern_takes_topics_that_come_later(protocol: str, pattern: str | re.Pattern[str]) -> None:
    async def story(stage: Stage) -> None:
        for name in ("a1", "b1", "xa1"):
            await stage.create(name)
        async with stage.consumer(**group(protocol, metadata_max_age_ms=500)) as consumer:
            consumer.subscribe(pattern=pattern)
            await until(consumer, lambda: consumer.subscription() == ("a1",))
            await until(consumer, lambda: bool(consumer.assignment()))
            if protocol == "classic" or not isinstance(pattern, str):
                # A broker matches again each ten minutes only.
                await stage.create("a2")
                await until(consumer, lambda: len(consumer.assignment()) == 2)
            await stage.write("a1", b"found")
            assert (await read(consumer, 1))[0].value == b"found"

    play(story)


@pytest.mark.feature("CG-15")
def test_a_pattern_that_is_none() -> None:
    async def story(stage: Stage) -> None:
        async with stage.consumer(**group("consumer")) as consumer:
            consumer.subscribe(pattern="a(")
            with pytest.raises(Exception, match=r"INVALID_REGULAR_EXPRESSION"):
                await read(consumer, 1)
        async with stage.consumer(**group()) as consumer:
            with pytest.raises(Exception, match=r"INVALID_REGULAR_EXPRESSION"):
                consumer.subscribe(pattern="a(")

    play(story)


@PROTOCOLS
@pytest.mark.feature("CG-10")
def test_a_static_member_comes_back_without_a_rebalance(protocol: str) -> None:
    async def story(stage: Stage) -> None:
        await stage.create("t", 2)
        async with polled(stage.consumer("t", **group(protocol))) as others:
            async with polled(stage.consumer("t", **group(protocol, group_instance_id="one"))) as mine:
                with trio.fail_after(60):
                    while not mine:
                        await stage.write("t", b"x", partition=0)
                        await stage.write("t", b"x", partition=1)
                        await trio.sleep(0.3)
            del others[:]
            async with stage.consumer("t", **group(protocol, group_instance_id="one")) as again:
                await until(again, lambda: len(again.assignment()) == 1)
                await stage.write("t", b"y", partition=again.assignment()[0].partition)
                assert (await read(again, 1))[-1].partition == again.assignment()[0].partition
                mine_again = again.assignment()[0].partition
                await again.close(leaving=Leaving.LEAVE_GROUP)
            with trio.fail_after(5):
                while mine_again not in {each.partition for each in others}:
                    await stage.write("t", b"z", partition=mine_again)
                    await trio.sleep(0.2)

    play(story)


@PROTOCOLS
@pytest.mark.feature("CG-09")
def test_a_member_that_does_not_poll_is_out_of_the_group_until_it_does(protocol: str) -> None:
    async def story(stage: Stage) -> None:
        await stage.create("t")
        lost: list[TopicPartition] = []
        options = group(protocol, max_poll_interval_ms=2_000, enable_auto_commit=False)
        async with stage.consumer(**options) as consumer:
            consumer.subscribe("t", listener=RebalanceListener(on_lost=lost.extend))
            await until(consumer, lambda: bool(consumer.assignment()))
            await stage.write("t", b"0")
            await read(consumer, 1)
            await trio.sleep(3)
            with pytest.raises(CommitFailedException):
                await consumer.commit()
            again = await until(consumer, lambda: bool(lost))
            again += await read(consumer, 1 - len(again))
            assert [each.offset for each in again] == [0], "nothing was committed"

    play(story)


@PROTOCOLS
@pytest.mark.feature("CG-09", "TX-08")
def test_a_transaction_with_what_has_become_anothers_is_refused(protocol: str) -> None:
    """However the member came out of its group, and though the application has not polled since."""

    async def story(stage: Stage) -> None:
        await stage.create("t")
        await stage.write("t", b"0")
        options = group(protocol, max_poll_interval_ms=2_000, enable_auto_commit=False)
        async with (
            stage.consumer("t", **options) as slow,
            Producer(
                world=stage.world(), bootstrap_servers=stage.bootstrap_servers, transactional_id="slow"
            ) as producer,
        ):
            await read(slow, 1)
            producer.begin_transaction()
            async with stage.consumer("t", **group(protocol, enable_auto_commit=False)) as other:
                await read(other, 1)
                assert slow.membership is not None and slow.membership.stamp is None, "it has left by itself"
                stamp = slow.group_metadata()
                assert stamp.member_id and stamp.generation_or_epoch > 0
                with pytest.raises(UnknownMemberIdException):
                    await producer.send_offsets_to_transaction({T0: 1}, slow.group_metadata())
                await producer.abort_transaction()
                assert await other.committed([T0]) == {T0: None}

                slow.unsubscribe()
                producer.begin_transaction()
                with pytest.raises(UnknownMemberIdException):
                    await producer.send_offsets_to_transaction({T0: 1}, slow.group_metadata())
                await producer.abort_transaction()
                slow.subscribe("t")
                assert slow.group_metadata() == stamp, "it is not in the group again yet"
                slow.unsubscribe()
            slow.assign([T0])
            await slow.position(T0)
            async with producer.transaction():
                await producer.send_offsets_to_transaction({T0: 1}, slow.group_metadata())
            committed = (await slow.committed([T0]))[T0]
            assert committed is not None and committed.offset == 1, "nobody's member is fenced by nobody"

    play(story)


@pytest.mark.feature("CG-07")
def test_an_asked_for_rebalance_reaches_the_other_members() -> None:
    async def story(stage: Stage) -> None:
        await stage.create("t", 2)
        async with polled(stage.consumer("t", **group())), stage.consumer("t", **group()) as consumer:
            await until(consumer, lambda: len(consumer.assignment()) == 1)
            generation = consumer.group_metadata().generation_or_epoch
            consumer.enforce_rebalance("balance")
            await until(consumer, lambda: consumer.group_metadata().generation_or_epoch > generation)
            await until(consumer, lambda: len(consumer.assignment()) == 1)

    play(story)


def test_where_to_begin_without_a_committed_offset() -> None:
    async def story(stage: Stage) -> None:
        await stage.create("t")
        await stage.write("t", b"0", b"1")
        async with stage.consumer("t", **group(auto_offset_reset="none")) as consumer:
            with pytest.raises(NoOffsetForPartitionException):
                await read(consumer, 1)
        async with stage.consumer("t", **group(auto_offset_reset="latest")) as consumer:
            await until(consumer, lambda: bool(consumer.assignment()))
            assert await consumer.position(T0) == 2
        async with stage.consumer(auto_offset_reset="by_duration:PT1H") as consumer:
            consumer.assign([T0])
            assert await consumer.position(T0) == 2, "those records are from 1970"

    play(story)


def test_a_value_that_cannot_be_deserialized_is_reported_until_it_is_skipped() -> None:
    async def story(stage: Stage) -> None:
        await stage.create("t")
        await stage.write("t", b'{"n":1}', b"{", b'{"n":3}')
        async with stage.consumer(value_deserializer="json", key_deserializer="str") as consumer:
            consumer.assign([T0])
            [first] = await read(consumer, 1)
            assert (first.key, first.value) == ("k", {"n": 1})
            for _ in range(2):
                with pytest.raises(RecordDeserializationException) as failure:
                    await consumer.poll(1_000)
                assert failure.value.offset == 1
            consumer.seek(T0, failure.value.offset + 1)
            assert [each.value for each in await read(consumer, 1)] == [{"n": 3}]

    play(story)


def test_calls_that_need_a_group() -> None:
    with pytest.raises(InvalidGroupIdException):
        Consumer("t", bootstrap_servers="b:1")
    with pytest.raises(ConfigException, match=r"bootstrap_servers is missing"):
        Consumer()
    for options, message in (
        ({"group_id": " "}, "group_id"),
        ({"enable_auto_commit": True}, "enable_auto_commit"),
        ({"auto_offset_reset": "tomorrow"}, "auto_offset_reset"),
        ({"group_id": "g", "group_protocol": "consumer", "session_timeout_ms": 9}, "session_timeout_ms"),
        ({"group_id": "g", "group_remote_assignor": "range"}, "group_remote_assignor"),
        ({"group_id": "g", "heartbeat_interval_ms": 60_000}, "heartbeat_interval_ms"),
        ({"partition_assignment_strategy": "rnage"}, "rnage"),
        ({"value_deserializer": "jsno"}, "jsno"),
        ({"max_poll_recrods": 1}, "max_poll_records"),
    ):
        with pytest.raises(ConfigException, match=message):
            Consumer(bootstrap_servers="b:1", **options)

    async def story(stage: Stage) -> None:
        consumer = stage.consumer()
        with pytest.raises(IllegalStateException, match="not open"):
            await consumer.poll(0)
        async with consumer:
            with pytest.raises(IllegalStateException, match="poll needs a subscription"):
                await consumer.poll(0)
            with pytest.raises(InvalidGroupIdException):
                await consumer.commit()
            with pytest.raises(InvalidGroupIdException):
                consumer.subscribe("t")
            with pytest.raises(InvalidGroupIdException):
                consumer.group_metadata()
        with pytest.raises(IllegalStateException, match="closed"):
            consumer.assignment()

    play(story)


def test_offsets_of_a_group_are_kept_without_being_in_it() -> None:
    async def story(stage: Stage) -> None:
        await stage.create("t")
        await stage.write("t", b"0", b"1", b"2")
        async with stage.consumer(group_id="alone") as consumer:
            consumer.assign([T0])
            await read(consumer, 3)
        async with stage.consumer(group_id="alone") as consumer:
            consumer.assign([T0])
            assert await consumer.position(T0) == 3
            assert consumer.group_metadata() == ("alone", "", -1, None)

    play(story)


@PROTOCOLS
def test_a_block_that_is_cancelled_still_leaves_its_group(protocol: str) -> None:
    async def story(stage: Stage) -> None:
        await stage.create("t")
        await stage.write("t", b"0")
        with trio.move_on_after(5) as scope:
            async with stage.consumer("t", **group(protocol)) as consumer:
                await read(consumer, 1)
                await trio.sleep_forever()
        assert scope.cancelled_caught
        async with stage.consumer("t", **group(protocol)) as consumer:
            await until(consumer, lambda: bool(consumer.assignment()), seconds=3)

    play(story)


def test_closing_is_bounded_when_nobody_answers() -> None:
    async def story(stage: Stage) -> None:
        await stage.create("t")
        await stage.write("t", b"0")
        consumer = stage.consumer("t", **group())
        async with consumer:
            await read(consumer, 1)
            for node in stage.nodes.brokers:
                stage.nodes.universe.wires.isolate(node.node.name)
            began = trio.current_time()
            await consumer.close(timeout_ms=1_500)
            assert trio.current_time() - began < 2
            with pytest.raises(IllegalStateException):
                await consumer.poll(0)

    play(story)


def test_one_error_of_the_block_comes_out_as_it_is() -> None:
    async def story(stage: Stage) -> None:
        with pytest.raises(KeyError, match="mine"):
            async with stage.consumer():
                raise KeyError("mine")

    play(story)


def test_two_tasks_cannot_poll_at_once() -> None:
    async def story(stage: Stage) -> None:
        await stage.create("t")
        async with stage.consumer() as consumer, trio.open_nursery() as nursery:
            consumer.assign([T0])
            nursery.start_soon(consumer.poll, 5_000)
            await trio.sleep(0.1)
            with pytest.raises(IllegalStateException, match="one task at a time"):
                await consumer.poll(0)
            nursery.cancel_scope.cancel()

    play(story)


def test_a_position_that_cannot_be_found_out_in_time() -> None:
    async def story(stage: Stage) -> None:
        async with stage.consumer(allow_auto_create_topics=False) as consumer:
            consumer.assign([TopicPartition("nothing", 0)])
            with pytest.raises(TimeoutException):
                await consumer.position(TopicPartition("nothing", 0), timeout_ms=500)

    play(story)


class Broken(Assignor):
    name = "broken"

    def assign(self, members: Sequence[Subscriber], topics: GroupTopics) -> Assignment:
        raise ZeroDivisionError("no members to divide by")


@pytest.mark.feature("CG-07")
def test_an_error_of_the_assignor_is_reported_and_another_subscription_starts_again() -> None:
    async def story(stage: Stage) -> None:
        await stage.create("t")
        options = group(partition_assignment_strategy=Broken)
        async with stage.consumer("t", **options) as consumer:
            with pytest.raises(KafkaError, match="no members to divide by"):
                await until(consumer, lambda: bool(consumer.assignment()))
            with pytest.raises(KafkaError, match="no members to divide by"):
                await consumer.poll(0)
            before = consumer.membership
            consumer.subscribe("t")
            assert consumer.membership is not before

    play(story)


@pytest.mark.feature("CG-16")
def test_a_group_moves_to_the_new_protocol_member_by_member() -> None:
    async def story(stage: Stage) -> None:
        await stage.create("t", 2)
        async with (
            polled(stage.consumer("t", **group("classic"))) as old,
            stage.consumer("t", **group("consumer")) as new,
        ):
            await until(new, lambda: len(new.assignment()) == 1)
            for partition in (0, 1):
                await stage.write("t", b"x", partition=partition)
            mine = await read(new, 1)
            with trio.fail_after(10):
                while not old:
                    await trio.sleep(0.1)
            assert {each.partition for each in mine}.isdisjoint(each.partition for each in old)

    play(story)
