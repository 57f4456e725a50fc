"""The groups of a broker have a limit together for the memory of what clients send."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from barnabas.broker.coordinator.outcome import Reply
from barnabas.broker.groups.group import Client, GroupDirectory
from barnabas.broker.groups.group_memory import GroupMemory
from barnabas.broker.groups.simple_group import SimpleGroup
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.broker.groups.machine_bench import Bench
from tests.broker.groups.streams_rig import Streams, subtopology, topology

pytestmark = pytest.mark.feature("RP-02")

CLIENT = Client("story", "/10.0.0.1")
FULL = ErrorCode.GROUP_MAX_SIZE_REACHED


def join_classic(bench: Bench, group_id: str, size: int) -> ErrorCode:
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(size))],
    )
    return code_of(bench, bench.machine.classic.join, request, CLIENT, 3)


def join_consumer(bench: Bench, group_id: str, size: int) -> ErrorCode:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id="m",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["n" * size],
        topic_partitions=[],
    )
    return code_of(bench, bench.machine.consumer.heartbeat, request, CLIENT, 1)


def join_share(bench: Bench, group_id: str, size: int) -> ErrorCode:
    request = ShareGroupHeartbeatRequest(group_id=group_id, member_id="m", subscribed_topic_names=["n" * size])
    return code_of(bench, bench.machine.shares.heartbeat, request, CLIENT)


def code_of(bench: Bench, command: Callable[..., Any], *arguments: Any) -> ErrorCode:
    """The error of the answer; NONE also if the answer is due later."""
    answers: list[Any] = []
    try:
        bench.run(partial(command, *arguments, Reply(answers.append, answers.append)))
    except KafkaError as error:
        return error.code
    return ErrorCode(answers[0].error_code) if answers else ErrorCode.NONE


@pytest.mark.parametrize("join", [join_classic, join_consumer, join_share])
def test_at_the_limit_no_kind_of_group_takes_more(join: Callable[[Bench, str, int], ErrorCode]) -> None:
    bench = Bench()
    bench.run(bench.machine.loaded)
    memory = bench.machine.groups.memory
    memory.most_bytes = 100_000
    sizes = [join(bench, f"g{number}", 30_000) for number in range(5)]
    assert sizes == [ErrorCode.NONE] * 3 + [FULL] * 2
    assert 90_000 <= memory.held_bytes <= 100_000
    bench.reload()
    if join is not join_classic:  # its members are not in the log before they have assignments
        assert bench.machine.groups.memory.held_bytes == memory.held_bytes, "the log is loaded whatever it takes"
    bench.advance(100_000)
    assert bench.machine.groups.memory.held_bytes == 0, "their sessions are over"


def test_at_the_limit_no_topology_is_taken() -> None:
    app = Streams()
    app.bench.create_topic("words")
    memory = app.bench.machine.groups.memory
    assert app.join("a").error_code == ErrorCode.NONE
    assert app.group.topology is not None and memory.held_bytes > app.group.topology.size_bytes > 300
    memory.most_bytes = memory.held_bytes + 10_000
    large = topology(*(subtopology(str(number), ["words"]) for number in range(40)))
    with pytest.raises(KafkaError) as refused:
        app.join("b", large, group_id="other")
    assert refused.value.code == FULL
    app.join("b", group_id="other")
    assert memory.held_bytes < memory.most_bytes


def test_groups_of_a_partition_that_is_given_up_do_not_count() -> None:
    memory = GroupMemory(1_000)
    directory, other = GroupDirectory(memory), GroupDirectory(memory)
    group, kept = SimpleGroup("a"), SimpleGroup("b")
    directory.put(group)
    other.put(kept)
    group.held.change(400)
    kept.held.change(100)
    with pytest.raises(KafkaError, match="hold 500 bytes and may hold 1000"):
        memory.check_room(501)
    memory.check_room(500)
    replacement = SimpleGroup("a")
    replacement.held.change(50)
    directory.put(replacement)
    assert memory.held_bytes == 150
    group.held.change(7)
    assert memory.held_bytes == 150, "it is in no directory"
    directory.give_up()
    replacement.held.change(7)
    assert memory.held_bytes == 100
    other.remove("b")
    assert memory.held_bytes == 0


def test_somebody_who_asks_for_no_more_is_served_above_the_limit() -> None:
    memory = GroupMemory(10)
    memory.held_bytes = 20
    memory.check_room(0)
    memory.check_room(-5)
    with pytest.raises(KafkaError):
        memory.check_room(1)

