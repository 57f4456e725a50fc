"""Meaning of each library's errors: definite failure, unknown outcome, or a client that has to be replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from barnabas.client.producer import Failed, Unknown
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.testing.simulated import SimulatedClusterForTests
from clients import definite_errors
from clients.barnabas_client import BarnabasLibrary
from clients.client import ClientError, ClientSettings
from clients.java_client import classified as classified_java
from clients.java_client import options
from operations import Place

pytestmark = pytest.mark.feature("FI-01")

OPEN = ("TimeoutException", "DisconnectException", "NetworkException", "NotLeaderOrFollowerException")
OPEN += ("UnknownServerException", "NotEnoughReplicasAfterAppendException", "CoordinatorNotAvailableException")


def test_no_error_that_may_come_after_the_deed_is_definite() -> None:
    for names in (definite_errors.OF_SENDS, definite_errors.OF_CHANGES):
        assert not names & set(OPEN)


@pytest.mark.parametrize(
    ("error", "sent", "is_definite", "is_fatal"),
    [
        ("TimeoutException", True, False, False),
        ("TimeoutException", False, True, False),
        ("NotLeaderOrFollowerException", True, False, False),
        ("InvalidTopicException", True, True, False),
        ("OutOfOrderSequenceException", True, True, True),
        ("ProducerFencedException", True, True, True),
        ("UnknownServerException", True, False, False),
    ],
)
def test_errors_of_java(error: str, sent: bool, is_definite: bool, is_fatal: bool) -> None:
    error_ = classified_java({"error": error, "text": "so", "sent": sent}, definite_errors.OF_SENDS)
    assert (error_.name, error_.text, error_.definite, error_.fatal) == (error, "so", is_definite, is_fatal)


def test_the_end_of_a_transaction_is_never_definite() -> None:
    assert not classified_java({"error": "ProducerFencedException", "sent": True}, frozenset()).definite


def test_java_asks_for_a_change_once() -> None:
    admin = options(ClientSettings("a:1", "x"))["admin"]
    assert admin["retries"] == 0


@pytest.mark.parametrize(
    ("code", "fatal", "name", "is_definite", "is_fatal"),
    [
        ("_MSG_TIMED_OUT", False, "TimeoutException", False, False),
        ("_TRANSPORT", False, "DisconnectException", False, False),
        ("_PURGE_QUEUE", False, "_PURGE_QUEUE", False, False),
        ("_QUEUE_FULL", False, "_QUEUE_FULL", True, False),
        ("_PURGE_INFLIGHT", False, "_PURGE_INFLIGHT", False, False),
        ("_UNKNOWN_TOPIC", False, "_UNKNOWN_TOPIC", False, False),
        ("_FENCED", True, "ProducerFencedException", True, True),
        ("NOT_LEADER_FOR_PARTITION", False, "NotLeaderOrFollowerException", False, False),
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", True, "OutOfOrderSequenceException", True, True),
        ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", False, "NotEnoughReplicasAfterAppendException", False, False),
        ("UNKNOWN", False, "UnknownServerException", False, False),
    ],
)
def test_errors_of_librdkafka(code: str, fatal: bool, name: str, is_definite: bool, is_fatal: bool) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    from clients.confluent_errors import classified

    error = confluent_kafka.KafkaError(getattr(confluent_kafka.KafkaError, code), "so", fatal)
    error_ = classified(error, definite_errors.OF_SENDS)
    assert (error_.name, error_.definite, error_.fatal) == (name, is_definite, is_fatal)


def in_simulation(story: Callable[[Any], Any]) -> None:
    """Plays a story over simulated nodes."""
    cluster = SimulatedClusterForTests()
    cluster.run(lambda: story(cluster))


def test_our_client_does_what_a_workload_asks() -> None:
    async def story(cluster: Any) -> None:
        library = BarnabasLibrary(cluster.client_world, lambda: 0)
        plain = ClientSettings(cluster.bootstrap_servers, "plain", group_id="g")
        transactional = ClientSettings(cluster.bootstrap_servers, "txn", group_id="g", transactional_id="t")
        here = Place("t0", 0)
        async with library.open(plain, "client-0") as one, library.open(transactional, "client-1") as two:
            await one.create_topic("t0", 2, 3)
            with pytest.raises(ClientError) as refused:
                await one.create_topic("t0", 2, 3)
            assert (refused.value.name, refused.value.definite) == ("TopicExistsException", True)
            assert await one.list_topics() == {"t0": 2}
            assert (await one.send(here, None, b"1")).offset == 0

            await two.init_transactions()
            await two.begin()
            assert (await two.send(here, None, b"2")).offset == 1
            await two.abort_transaction()
            await two.begin()
            await two.send(here, None, b"3")
            await two.send_offsets({Place("t0", 1): 5})
            await two.commit_transaction()
            assert await two.committed([Place("t0", 1)]) == {Place("t0", 1): 5}

            await one.assign([here], from_beginning=True)
            values = [read.value for _ in range(20) for read in await one.poll(100)]
            assert values == [b"1", b"3"]
            assert await one.position(here) == (await one.end_offsets([here]))[here]

            await one.subscribe(["t0"])
            while not one.assignment():
                await one.poll(100)
            assert [error_["kind"] for error_ in one.take_rebalances()] == ["assigned"]
            await one.poll(1_000)
            assert (await one.commit_offsets())[here] == await one.position(here)

            # It ends without LeaveGroup: its session expires, and its transaction ends by timeout.
            await two.begin()
            await two.send(here, None, b"4")
            await two.crash()
            with pytest.raises(ClientError):
                await two.commit_transaction()

    in_simulation(story)


def test_our_client_says_what_nobody_knows() -> None:
    async def story(cluster: Any) -> None:
        library = BarnabasLibrary(cluster.client_world, lambda: 0)
        settings = ClientSettings(cluster.bootstrap_servers, "plain", delivery_timeout_ms=4_000, max_block_ms=2_000)
        async with library.open(settings, "client-0") as client:
            await client.create_topic("t0", 1, 3)
            await client.send(Place("t0", 0), None, b"1")
            for name in cluster.brokers:
                cluster.pause(name)
            with pytest.raises(ClientError) as unknown:
                await client.send(Place("t0", 0), None, b"2")
            assert (unknown.value.name, unknown.value.definite) == ("TimeoutException", False)
            with pytest.raises(ClientError) as unmade:
                await client.create_topic("t1", 1, 3)
            assert not unmade.value.definite
            for name in cluster.brokers:
                cluster.resume(name)
            with trio.fail_after(60):
                while True:
                    try:
                        await client.send(Place("t0", 0), None, b"3")
                        return
                    except ClientError as error:
                        assert not error.fatal

    in_simulation(story)


def test_failures_are_definite_except_those_possible_after_an_append() -> None:
    from clients.barnabas_errors import may_be_definite

    assert may_be_definite(Failed(KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "")).error)
    assert not may_be_definite(Unknown(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "")).error)
