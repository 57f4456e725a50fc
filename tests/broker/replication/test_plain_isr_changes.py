"""Proposals of ISRs on their way to a controller, beside a plain list of those that wait, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.replication import isr_changes
from barnabas.broker.replication.isr_changes import FIRST_RETRY_MS, LAST_RETRY_MS, IsrChanges
from barnabas.broker.replication.replica import CommittedIsr, IsrChangeWanted
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from tests.examples import examples

NODE, EPOCH, MOST = 3, 77, 4
LATENCY_SECONDS = 0.00537
"""Never a multiple of the other times."""
KEYS = [(bytes(15) + bytes([topic]), index) for topic in (1, 2) for index in range(3)]
AGAIN, DROPPED = ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_UPDATE_VERSION
"""After the first a replica proposes the same once more."""
Key = tuple[bytes, int]


@dataclass
class Proposing:
    """A partition with its newest proposal, and the answers that it got."""

    key: Key
    propose: Callable[[Any, IsrChangeWanted], None]
    replica: Any = field(default_factory=lambda: SimpleNamespace(pending_isr_change=None))
    answers: list[tuple[IsrChangeWanted, Any]] = field(default_factory=list)

    def isr_change_answered(self, proposal: IsrChangeWanted, answer: Any) -> None:
        self.answers.append((proposal, answer))
        if self.replica.pending_isr_change == proposal:
            if answer is AGAIN:
                self.propose(self, proposal)
            else:
                self.replica.pending_isr_change = None


class Broker:
    """Both: the proposals of a broker, and what must become of each."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.real = IsrChanges(NODE, lambda: EPOCH, self.controller)
        self.partitions = {key: Proposing(key, self.real.propose) for key in KEYS}
        self.waiting: dict[Key, IsrChangeWanted] = {}
        """In the order in which they are to be sent."""
        self.since: dict[Key, float] = {}
        self.expected: dict[Key, list[tuple[IsrChangeWanted, Any]]] = {key: [] for key in KEYS}
        self.retry_ms = FIRST_RETRY_MS
        self.ready_at = 0.0
        self.is_asked = self.is_well = False
        self.numbers = 0
        self.mistakes: list[AssertionError] = []

    def propose(self, key: Key) -> None:
        self.numbers += 1
        members = tuple(sorted({NODE, *self.draw(st.sets(st.integers(1, 4), max_size=2))}))
        isr = tuple((node, 100 + node) for node in members)
        proposal = IsrChangeWanted(isr, self.numbers % 5, self.numbers, self.draw(st.integers(0, 1)))
        self.partitions[key].replica.pending_isr_change = proposal
        self.waits(key, proposal)
        self.real.propose(cast(Any, self.partitions[key]), proposal)

    def waits(self, key: Key, proposal: IsrChangeWanted) -> None:
        self.waiting[key], self.since[key] = proposal, trio.current_time()

    def overtake(self, key: Key) -> None:
        """The metadata log answers before the controller."""
        self.partitions[key].replica.pending_isr_change = None

    async def controller(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        asked: dict[Key, IsrChangeWanted] = {}
        try:
            assert not self.is_asked, "one request at a time"
            asked = self.expected_request()
            self.check(request, asked)
        except AssertionError as error:
            self.mistakes.append(error)
        self.is_asked = True
        await trio.sleep(LATENCY_SECONDS)
        self.is_asked = False
        return self.answer(asked)

    def is_pending(self, key: Key, proposal: IsrChangeWanted) -> bool:
        return bool(self.partitions[key].replica.pending_isr_change == proposal)

    def expected_request(self) -> dict[Key, IsrChangeWanted]:
        """The oldest that wait, as many as fit, without those that were overtaken; at once, or when the time is over
        after a failure."""
        while True:
            taken = [*self.waiting.items()][:MOST]
            assert taken, "nobody waits"
            for key, _ in taken:
                del self.waiting[key]
            asked = {key: each for key, each in taken if self.is_pending(key, each)}
            if asked:
                first = min(self.since[key] for key in asked)
                assert trio.current_time() == pytest.approx(max(first, self.ready_at), abs=1e-6)
                return asked

    def check(self, request: AlterPartitionRequest, asked: dict[Key, IsrChangeWanted]) -> None:
        assert (request.broker_id, request.broker_epoch) == (NODE, EPOCH)
        assert len({topic.topic_id for topic in request.topics}) == len(request.topics)
        found = {
            (topic.topic_id, each.partition_index): (
                tuple((it.broker_id, it.broker_epoch) for it in each.new_isr_with_epochs),
                each.leader_epoch,
                each.partition_epoch,
                each.leader_recovery_state,
            )
            for topic in request.topics
            for each in topic.partitions
        }
        assert found == {
            key: (each.isr, each.leader_epoch, each.partition_epoch, each.leader_recovery_state)
            for key, each in asked.items()
        }

    def answer(self, asked: dict[Key, IsrChangeWanted]) -> AlterPartitionResponse:
        """All of them, some of them and a stranger, or none; what is left is asked again, later each time."""
        hows = ["all", "all", "some", "refused", "unreachable", "a mistake"]
        how = "all" if self.is_well else self.draw(st.sampled_from(hows))
        left = dict(asked)
        response = AlterPartitionResponse()
        for key in self.draw(st.permutations([*asked, (bytes(16), 0)])) if how in ("all", "some") else ():
            if how == "some" and self.draw(st.booleans()):
                continue
            code = 0 if self.is_well else self.draw(st.sampled_from([0, 0, int(AGAIN), int(DROPPED)]))
            data = ResponsePartitionData(partition_index=key[1], error_code=code, leader_epoch=9, isr=[1, 2])
            data.partition_epoch = 1_000
            response.topics.append(ResponseTopicData(topic_id=key[0], partitions=[data]))
            if key in left:
                proposal = left.pop(key)
                self.expected[key].append((proposal, ErrorCode(code) if code else CommittedIsr(9, 1_000, (1, 2))))
                if code == AGAIN and self.is_pending(key, proposal):
                    self.waits(key, proposal)
        if left:
            # A newer proposal of the same partition counts.
            for key in asked.keys() - self.waiting.keys():
                self.since[key] = trio.current_time()
            self.waiting |= {key: each for key, each in asked.items() if key not in self.waiting}
        self.ready_at = trio.current_time()
        if left or any(self.waiting.get(key) == each for key, each in asked.items()):
            self.ready_at += self.retry_ms / 1000
            self.retry_ms = min(2 * self.retry_ms, LAST_RETRY_MS)
        else:
            self.retry_ms = FIRST_RETRY_MS
        if how == "refused":
            response.error_code = ErrorCode.NOT_CONTROLLER
        elif how == "unreachable":
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        elif how == "a mistake":
            raise ZeroDivisionError
        return response


@pytest.mark.feature("RE-08")
@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_each_proposal_is_sent_until_it_is_answered_or_overtaken(data: st.DataObject) -> None:
    async def life() -> None:
        broker = Broker(data.draw)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.real.run)
            for _ in range(data.draw(st.integers(1, 15))):
                for key in data.draw(st.lists(st.sampled_from(KEYS), max_size=6)):
                    broker.propose(key)
                if data.draw(st.booleans()):
                    broker.overtake(data.draw(st.sampled_from(KEYS)))
                await trio.sleep(data.draw(st.sampled_from([0.001, 0.02, 0.06, 1.1])))
                assert not broker.mistakes, broker.mistakes
            broker.is_well = True
            await trio.sleep(60)
            nursery.cancel_scope.cancel()
        assert not broker.mistakes, broker.mistakes
        assert not [key for key, each in broker.waiting.items() if broker.is_pending(key, each)], "all were sent"
        assert {key: each.answers for key, each in broker.partitions.items()} == broker.expected

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isr_changes, "MOST_ASKED", MOST)
        trio.run(life, clock=trio.testing.MockClock(autojump_threshold=0))


class Steps(trio.abc.Instrument):
    """The number of times at which other tasks could run."""

    def __init__(self) -> None:
        self.count = 0

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


@pytest.mark.feature("RE-08", "OP-08")
async def test_a_thousand_answers_are_given_in_steps(autojump_clock: object) -> None:
    proposal = IsrChangeWanted(((NODE, 1),), 0, 0)
    steps = Steps()

    async def controller(request: AlterPartitionRequest) -> AlterPartitionResponse:
        [topic] = request.topics
        answers = [ResponsePartitionData(partition_index=it.partition_index) for it in topic.partitions]
        trio.lowlevel.add_instrument(steps)
        return AlterPartitionResponse(topics=[ResponseTopicData(topic_id=bytes(16), partitions=answers)])

    changes = IsrChanges(NODE, lambda: EPOCH, controller)
    partitions = [Proposing((bytes(16), index), cast(Any, changes.propose)) for index in range(1_000)]
    for each in partitions:
        each.replica.pending_isr_change = proposal
        changes.propose(cast(Any, each), proposal)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(changes.run)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    trio.lowlevel.remove_instrument(steps)
    assert all(len(each.answers) == 1 for each in partitions)
    assert 1_000 // isr_changes.ANSWERED_IN_A_STEP <= steps.count <= 20
