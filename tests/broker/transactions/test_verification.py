"""Verification with transaction coordinators: batching, rejections and retries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import pytest
import trio

from barnabas.broker.transactions import verification
from barnabas.broker.transactions.transaction import TopicPartition
from barnabas.broker.transactions.verification import TransactionVerifier
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.image import BrokerImage, ClusterImage
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from barnabas.runtime.channel import ConnectionFailed
from tests.broker.apis.rig import Rig
from tests.broker.transactions.test_transaction_requests import Producer, on_small_cluster

E = ErrorCode


class Line:
    """A fake channel to the coordinator."""

    requests: ClassVar[list[AddPartitionsToTxnRequest]] = []
    gate: ClassVar[trio.Event]
    code: ClassVar[Callable[[str], int]]
    error: ClassVar[int] = 0
    broken: ClassVar[bool] = False

    def __init__(self, _world: Any, _nursery: Any, host: str, port: int, *, client_id: str) -> None:
        self.host, self.port = host, port

    async def call(self, request: AddPartitionsToTxnRequest, *, timeout_ms: int) -> AddPartitionsToTxnResponse:
        Line.requests.append(request)
        await Line.gate.wait()
        if Line.broken:
            raise ConnectionFailed("gone")
        results = [
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(
                                partition_index=index, partition_error_code=Line.code(each.transactional_id)
                            )
                            for index in topic.partitions
                        ],
                    )
                    for topic in each.topics
                ],
            )
            for each in request.transactions
        ]
        return AddPartitionsToTxnResponse(error_code=Line.error, results_by_transaction=results)


Story = Callable[[Rig, TransactionVerifier], Awaitable[None]]


def with_line(story: Story) -> Callable[..., None]:
    """Run a story with a verifier whose coordinator is a `Line`."""

    @on_small_cluster()
    async def test(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        await Producer(rig).coordinator()
        line = Line(None, None, "", 0, client_id="")
        monkeypatch.setattr(verification, "Channel", lambda *_, **__: line)
        monkeypatch.setattr(verification, "OwnChannel", lambda _: line)
        Line.requests, Line.gate, Line.error, Line.broken = [], trio.Event(), 0, False
        Line.code = staticmethod(lambda transactional_id: 0)  # type: ignore[assignment]
        await story(rig, rig.broker(1).coordination.verifier)

    return test


class Answers:
    """Questions asked one after the other, and their answers."""

    def __init__(self, nursery: trio.Nursery, verifier: TransactionVerifier) -> None:
        self._nursery = nursery
        self._verifier = verifier
        self.of: dict[int, dict[TopicPartition, ErrorCode]] = {}

    async def ask(
        self, number: int, name: str, epoch: int, *partitions: TopicPartition, add: bool = False, producer_id: int = 7
    ) -> None:
        async def asking() -> None:
            self.of[number] = await self._verifier.verify(name, producer_id, epoch, partitions, add=add)

        self._nursery.start_soon(asking)
        await trio.sleep(0.001)


@pytest.mark.feature("TX-05")
@with_line
async def test_questions_that_arrive_meanwhile_are_batched(rig: Rig, verifier: TransactionVerifier) -> None:
    async with trio.open_nursery() as nursery:
        answers = Answers(nursery, verifier)
        await answers.ask(1, "a", 0, ("t", 0))
        await answers.ask(2, "a", 0, ("t", 1))
        await answers.ask(3, "a", 0, ("t", 2), ("u", 0))
        await answers.ask(4, "b", 5, ("t", 0), add=True)
        assert len(Line.requests) == 1, "one at a time"
        Line.gate.set()
    assert answers.of == {
        1: {("t", 0): E.NONE},
        2: {("t", 1): E.NONE},
        3: {("t", 2): E.NONE, ("u", 0): E.NONE},
        4: {("t", 0): E.NONE},
    }
    first, second = Line.requests
    assert [it.transactional_id for it in first.transactions] == ["a"]
    a, b = second.transactions
    assert (a.transactional_id, a.verify_only, b.transactional_id, b.verify_only) == ("a", True, "b", False)
    assert [(topic.name, topic.partitions) for topic in a.topics] == [("t", [1, 2]), ("u", [0])]
    assert (b.producer_id, b.producer_epoch) == (7, 5)


@pytest.mark.feature("TX-05")
@with_line
async def test_a_newer_epoch_rejects_an_older_one(rig: Rig, verifier: TransactionVerifier) -> None:
    async with trio.open_nursery() as nursery:
        answers = Answers(nursery, verifier)
        await answers.ask(0, "a", 0, ("t", 0))
        await answers.ask(1, "a", 1, ("t", 1))
        await answers.ask(2, "a", 2, ("t", 2))
        await answers.ask(3, "a", 1, ("t", 3))
        await answers.ask(4, "a", 2, ("t", 4), add=True)
        assert answers.of == {
            1: {("t", 1): E.INVALID_PRODUCER_EPOCH},
            2: {("t", 2): E.NETWORK_EXCEPTION},
            3: {("t", 3): E.INVALID_PRODUCER_EPOCH},
        }
        Line.gate.set()
    assert answers.of[4] == {("t", 4): E.NONE}


@pytest.mark.feature("TX-05")
@with_line
async def test_another_producer_of_the_same_name_takes_the_place_of_the_one_before(
    rig: Rig, verifier: TransactionVerifier
) -> None:
    """Epochs of different producer ids cannot be compared."""
    async with trio.open_nursery() as nursery:
        answers = Answers(nursery, verifier)
        await answers.ask(0, "a", 0, ("t", 0))
        await answers.ask(1, "a", 5, ("t", 1))
        await answers.ask(2, "a", 1, ("t", 2), producer_id=8)
        await answers.ask(3, "a", 9, ("t", 3))
        assert answers.of == {1: {("t", 1): E.NETWORK_EXCEPTION}, 2: {("t", 2): E.NETWORK_EXCEPTION}}
        Line.gate.set()
    assert answers.of[3] == {("t", 3): E.NONE}
    assert [it.producer_id for request in Line.requests for it in request.transactions] == [7, 7]


@pytest.mark.feature("TX-05")
@with_line
async def test_no_answer_and_bad_answers(rig: Rig, verifier: TransactionVerifier) -> None:
    Line.gate.set()
    cases: list[tuple[dict[str, Any], ErrorCode]] = [
        ({"broken": True}, E.NETWORK_EXCEPTION),
        ({"error": E.CLUSTER_AUTHORIZATION_FAILED}, E.INVALID_TXN_STATE),
        ({"error": E.UNSUPPORTED_VERSION}, E.UNSUPPORTED_VERSION),
        ({"error": 9999}, E.UNKNOWN_SERVER_ERROR),
        ({"code": staticmethod(lambda name: E.PRODUCER_FENCED)}, E.INVALID_PRODUCER_EPOCH),
        ({"code": staticmethod(lambda name: E.TRANSACTION_ABORTABLE)}, E.TRANSACTION_ABORTABLE),
        ({"code": staticmethod(lambda name: -77)}, E.UNKNOWN_SERVER_ERROR),
    ]
    for changes, expected in cases:
        Line.broken, Line.error, Line.code = False, 0, staticmethod(lambda name: 0)  # type: ignore[assignment]
        for name, value in changes.items():
            setattr(Line, name, value)
        assert await verifier.verify("a", 7, 0, [("t", 0)], add=False) == {("t", 0): expected}, changes


@pytest.mark.feature("TX-05")
@with_line
async def test_questions_to_a_fenced_coordinator_are_cancelled(rig: Rig, verifier: TransactionVerifier) -> None:
    registered = {node_id: BrokerImage(node_id, 11, bytes(16), {}, {}, fenced=False) for node_id in (1, 2, 3)}
    before = replace(rig.broker(1).metadata.image, cluster=ClusterImage(brokers=registered))
    async with trio.open_nursery() as nursery:
        answers = Answers(nursery, verifier)
        await answers.ask(1, "a", 0, ("t", 0))
        await answers.ask(2, "b", 0, ("t", 1))
        unfenced = MetadataDelta(before, before, changed_brokers=dict(registered))
        verifier.metadata_changed(unfenced)
        await trio.sleep(1)
        assert answers.of == {} and len(Line.requests) == 1

        fenced = {node_id: replace(each, fenced=True) for node_id, each in registered.items()}
        verifier.metadata_changed(MetadataDelta(before, before, changed_brokers=dict(fenced)))
        await trio.sleep(0.001)
        assert answers.of == {1: {("t", 0): E.NETWORK_EXCEPTION}}
        assert len(Line.requests) == 2, "what was asked behind it goes at once"
        Line.gate.set()
    assert answers.of[2] == {("t", 1): E.NONE}


@pytest.mark.feature("TX-05")
@with_line
async def test_a_question_waits_for_the_end_of_the_previous_one(rig: Rig, verifier: TransactionVerifier) -> None:
    Line.gate.set()
    Line.code = staticmethod(  # type: ignore[assignment]
        lambda name: E.CONCURRENT_TRANSACTIONS if len(Line.requests) < 4 else E.NONE
    )
    began = trio.current_time()
    assert await verifier.verify("a", 7, 0, [("t", 0)], add=True) == {("t", 0): E.NONE}
    assert (len(Line.requests), round(trio.current_time() - began, 3)) == (4, 0.06)
    Line.code = staticmethod(lambda name: E.CONCURRENT_TRANSACTIONS)  # type: ignore[assignment]
    began = trio.current_time()
    assert await verifier.verify("a", 7, 0, [("t", 0)], add=True) == {("t", 0): E.CONCURRENT_TRANSACTIONS}
    assert round(trio.current_time() - began, 3) == 0.1
    Line.requests.clear()
    assert await verifier.verify("a", 7, 0, [("t", 0)], add=False) == {("t", 0): E.CONCURRENT_TRANSACTIONS}
    assert len(Line.requests) == 1, "who added the partition itself asks again itself"


@pytest.mark.feature("TX-05", "OB-01")
@with_line
async def test_verifications_are_counted_with_their_time(rig: Rig, verifier: TransactionVerifier) -> None:
    """A question counts once, an error once for each partition."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(verifier.verify, "a", 7, 0, [("t", 0), ("t", 1)], add=False))
        await trio.sleep(0.25)
        Line.gate.set()
    assert (verifier.counted.spread.count, verifier.counted.failures) == (1, 0)
    assert verifier.counted.spread.total == pytest.approx(0.25, abs=0.01)
    Line.error = E.UNSUPPORTED_VERSION
    await verifier.verify("a", 7, 0, [("t", 0), ("t", 1), ("u", 0)], add=False)
    assert (verifier.counted.spread.count, verifier.counted.failures) == (2, 3)
    assert verifier.counted.spread.total == pytest.approx(0.25, abs=0.01)


@pytest.mark.feature("TX-05")
@on_small_cluster()
async def test_without_a_coordinator(rig: Rig) -> None:
    verdict = await rig.broker(1).coordination.verifier.verify("a", 7, 0, [("t", 0)], add=True)
    assert verdict == {("t", 0): E.COORDINATOR_NOT_AVAILABLE}
