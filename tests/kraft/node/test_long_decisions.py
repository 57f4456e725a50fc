"""A request that takes the active controller long: others are served meanwhile, and it takes effect as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from barnabas.kraft.commit_feed import APPLIED
from barnabas.kraft.controller.request_limits import MAX_LISTED
from barnabas.kraft.decision_queue import DecisionQueue, Job
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, Listener
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.runtime.channel import ChannelError
from barnabas.runtime.server import Steps
from barnabas.runtime.simulated import Universe, make_world, run_simulation
from barnabas.runtime.simulated.work import WorkCounter
from barnabas.runtime.world import World

THREE = (101, 102, 103)
MANY = 2_000
MOST_CALLS = 30_000
"""Calls that a step may make: about 20 ms."""


def many_topics(prefix: str = "t", count: int = MANY) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=f"{prefix}{it}", num_partitions=1, replication_factor=3) for it in range(count)]
    return CreateTopicsRequest(topics=topics)


async def start_brokers(quorum: Any) -> None:
    for broker_id in (1, 2, 3):
        await quorum.add_broker(broker_id)


@pytest.mark.feature("MB-16")
def test_two_thousand_topics_appear_at_once_and_in_short_steps(simulate: Any) -> None:
    longest: dict[str, int] = {}

    def took(name: str, calls: int) -> None:
        longest[name] = max(longest.get(name, 0), calls)

    async def story(quorum: Any, client: Any) -> None:
        quorum.kill(101)
        quorum.universe.count_work = WorkCounter(took)
        await quorum.start(101)
        await start_brokers(quorum)
        created = await client.active(many_topics())
        assert {it.error_code for it in created.topics} == {ErrorCode.NONE}
        seen = set()
        while len(client.image.topics.by_name) < MANY:
            seen.add(len(client.image.topics.by_name))
            await trio.sleep(0.0001)
        assert seen <= {0}, "nobody sees a part of them"
        deleted = await client.active(
            DeleteTopicsRequest(topics=[DeleteTopicState(name=f"t{it}") for it in range(MANY)])
        )
        assert {it.error_code for it in deleted.responses} == {ErrorCode.NONE}
        await client.until(lambda image: not image.topics.by_name)
        assert {"CreateTopics", "DeleteTopics", APPLIED} <= longest.keys()
        assert max(longest.values()) <= MOST_CALLS, longest

    simulate(21, (101,), story)


@pytest.mark.feature("MB-16")
def test_a_long_refusal_of_describe_quorum_is_made_and_encoded_in_short_steps(simulate: Any) -> None:
    longest: dict[str, int] = {}

    def took(name: str, calls: int) -> None:
        longest[name] = max(longest.get(name, 0), calls)

    async def story(quorum: Any, client: Any) -> None:
        quorum.kill(101)
        quorum.universe.count_work = WorkCounter(took)
        await quorum.start(101)
        topics = [RequestTopicData(topic_name=f"t{it}", partitions=[RequestPartitionData()] * 2) for it in range(MANY)]
        code, answer = await client.enveloped(101, DescribeQuorumRequest(topics=topics))
        assert code == ErrorCode.NONE
        assert [topic.topic_name for topic in answer.topics] == [topic.topic_name for topic in topics]
        errors = {partition.error_code for topic in answer.topics for partition in topic.partitions}
        assert errors == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert longest["Envelope"] <= MOST_CALLS and longest["DescribeQuorum"] <= MOST_CALLS / 4, longest

    simulate(22, (101,), story)


@pytest.mark.feature("MB-16")
def test_a_leader_deposed_in_the_middle_of_a_decision_drops_it(simulate: Any) -> None:
    """Its client learns that it has to retry, and the request takes effect once."""

    async def story(quorum: Any, client: Any) -> None:
        await start_brokers(quorum)
        leader = await client.leader()
        outcome: list[Any] = []

        async def create() -> None:
            try:
                outcome.append(await client.ask(leader, many_topics()))
            except ChannelError as error:
                outcome.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(create)
            await trio.sleep(0.001)
            quorum.running[leader].set()
        (first,) = outcome
        retried = await client.active(many_topics())
        codes = {it.error_code for it in retried.topics}
        if isinstance(first, ChannelError):
            assert codes in ({ErrorCode.NONE}, {ErrorCode.TOPIC_ALREADY_EXISTS}), "all of it or nothing"
        else:
            assert {it.error_code for it in first.topics} == {ErrorCode.NOT_CONTROLLER}
            assert codes == {ErrorCode.NONE}
        await client.until(lambda image: len(image.topics.by_name) == MANY)

    simulate(22, THREE, story)


@pytest.mark.feature("MB-02")
def test_a_registration_of_absurd_length_is_refused(simulate: Any) -> None:
    async def story(quorum: Any, client: Any) -> None:
        listener = Listener(name="PLAINTEXT", host="h", port=9092)
        request = BrokerRegistrationRequest(broker_id=7, listeners=[listener] * (MAX_LISTED + 1))
        refused = await client.active(request)
        assert refused.error_code == ErrorCode.INVALID_REGISTRATION

    simulate(24, (101,), story)


@pytest.mark.feature("AD-01")
def test_a_request_for_more_than_one_operation_may_change_is_refused_whole(simulate: Any) -> None:
    async def story(quorum: Any, client: Any) -> None:
        await start_brokers(quorum)
        refused = await client.active(many_topics(count=10_001))
        assert {it.error_code for it in refused.topics} == {ErrorCode.POLICY_VIOLATION}
        assert len(refused.topics) == 10_001
        unknown = await client.active(ElectLeadersRequest(election_type=7, topic_partitions=None))
        assert unknown.error_code == ErrorCode.INVALID_REQUEST
        assert not client.image.topics.by_name

    simulate(25, (101,), story)


# The queue by itself


class Line:
    """A queue in a simulated world, and what its jobs did, in order."""

    def __init__(self, world: World) -> None:
        self.queue = DecisionQueue(world)
        self.done: list[str] = []
        self.errors: list[Exception] = []

    def add(self, name: str, steps: int, *, client: int | None = None, **fields: Any) -> None:
        """A job of a client's connection, or of a node."""

        def run() -> Steps:
            for step in range(steps - 1):
                self.done.append(f"{name}{step}")
                yield None
            self.done.append(f"{name}{steps - 1}")

        if client is not None:
            fields |= {"connection": client, "is_of_client": True}
        self.queue.add(Job(name, run(), self.errors.append, **fields))


def in_line(story: Callable[[Line], Any]) -> None:
    async def main(universe: Universe) -> None:
        line = Line(make_world("controller", universe))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(line.queue.run)
            await story(line)
            nursery.cancel_scope.cancel()

    run_simulation(1, main)


def test_a_job_of_one_step_is_done_at_once() -> None:
    async def story(line: Line) -> None:
        line.add("a", 1)
        assert line.done == ["a0"]

    in_line(story)


def test_jobs_are_not_interleaved_and_nodes_go_before_clients() -> None:
    async def story(line: Line) -> None:
        line.add("a", 9, client=1)
        line.add("b", 2, client=1)
        line.add("c", 2, client=2)
        line.add("n", 2, connection=7)
        line.add("o", 1, connection=7)
        line.add("p", 1, connection=8)
        line.add("d", 1, client=1)
        await trio.sleep(1)
        assert line.done == [*(f"a{it}" for it in range(9)), "n0", "n1", "p0", "o0", "b0", "b1", "c0", "c1", "d0"]

    in_line(story)


def test_other_tasks_run_between_the_steps_of_a_job() -> None:
    async def story(line: Line) -> None:
        line.add("a", 1_000)
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        assert 1 <= len(line.done) < 100

    in_line(story)


def test_an_abandoned_job_is_not_begun_and_a_failed_one_stops_no_other() -> None:
    async def story(line: Line) -> None:
        ended = []

        def fail() -> Steps:
            yield None
            raise ValueError("a bug")

        line.queue.add(Job("f", fail(), line.errors.append, done=lambda: ended.append("f")))
        line.add("gone", 1, client=1, is_abandoned=lambda: True, done=lambda: ended.append("gone"))
        line.add("b", 1, client=2)
        await trio.sleep(1)
        assert line.done == ["b0"]
        assert [str(it) for it in line.errors] == ["a bug"]
        assert ended == ["f", "gone"]

    in_line(story)


def test_work_that_a_step_yields_is_run_elsewhere_and_its_result_comes_back() -> None:
    async def story(line: Line) -> None:
        got: list[object] = []

        def run() -> Steps:
            got.append((yield lambda: 1 + 1))
            try:
                yield {}.popitem
            except KeyError as error:
                got.append(type(error))

        line.queue.add(Job("w", run(), line.errors.append))
        await trio.sleep(1)
        assert got == [2, KeyError] and not line.errors

    in_line(story)
