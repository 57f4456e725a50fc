"""Large messages are freed a piece at a time, and only what nothing else holds."""

from __future__ import annotations

from barnabas.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from barnabas.runtime.freeing import STEP_ELEMENTS, free_in_steps

MANY = 10 * STEP_ELEMENTS


def topics(count: int) -> list[MetadataResponseTopic]:
    return [MetadataResponseTopic(name=f"t{number}") for number in range(count)]


def test_a_message_that_nothing_else_holds_is_freed_a_piece_at_a_time() -> None:
    left: list[int] = []
    holder = [MetadataResponse(topics=topics(MANY))]
    steps = free_in_steps(holder)
    for _ in steps:
        assert steps.gi_yieldfrom is not None
        left.append(len(steps.gi_yieldfrom.gi_frame.f_locals["values"]))
    assert left == list(range(MANY - STEP_ELEMENTS, 0, -STEP_ELEMENTS))
    assert not holder


def test_the_arrays_of_a_few_elements_are_freed_a_piece_at_a_time() -> None:
    partitions = [MetadataResponsePartition(partition_index=index) for index in range(MANY)]
    holder = [MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=partitions)])]
    del partitions
    assert len(list(free_in_steps(holder))) == MANY // STEP_ELEMENTS - 1


def test_a_message_that_something_else_holds_stays_whole() -> None:
    held = MetadataResponse(topics=topics(MANY))
    assert list(free_in_steps([held])) == []
    assert len(held.topics) == MANY


def test_an_array_that_something_else_holds_stays_whole() -> None:
    held = topics(MANY)
    holder = [MetadataResponse(topics=held)]
    assert list(free_in_steps(holder)) == []
    assert len(held) == MANY
