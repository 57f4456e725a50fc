"""Metadata are loaded in short steps, however much a batch, a record or a snapshot changes."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from barnabas.kraft.metadata.image import BROKER_RESOURCE, EMPTY_IMAGE, MetadataImage
from barnabas.kraft.metadata.loader import MetadataLoader
from barnabas.kraft.metadata.replay import STEP_RECORDS, ImageReplay
from barnabas.kraft.metadata.snapshot import STEP_COMPARISONS, difference_in_steps, image_to_records
from barnabas.protocol.messages.metadata_log import (
    AccessControlEntryRecord,
    BeginTransactionRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from barnabas.protocol.schema import Message
from barnabas.runtime.simulated.work import WorkCounter
from tests.kraft.metadata.replaying import applied

TOPICS = 30
PARTITIONS = 200
LEVEL: list[Message] = [FeatureLevelRecord(name="metadata.version", feature_level=30)]
MOST_CALLS = 3_000
"""Calls of a step: about 2 ms."""


def steps_of(steps: Generator[None, None, Any]) -> tuple[Any, list[int]]:
    """The result, and the calls of each step."""
    calls: list[int] = []
    counter = WorkCounter(lambda _name, made: calls.append(made))
    while True:
        try:
            counter("", lambda: next(steps))
        except StopIteration as end:
            return end.value, calls


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def partition(topic: int, number: int, *, elr: bool = False) -> PartitionRecord:
    return PartitionRecord(
        topic_id=topic_id(topic),
        partition_id=number,
        replicas=[1, 2, 3],
        directories=[b"d" * 16] * 3,
        isr=[1],
        eligible_leader_replicas=[2] if elr else None,
        leader=1,
    )


def topics(*, elr: bool = False) -> list[Message]:
    records: list[Message] = []
    for topic in range(1, TOPICS + 1):
        records.append(TopicRecord(name=f"topic {topic}", topic_id=topic_id(topic)))
        records += [partition(topic, number, elr=elr) for number in range(PARTITIONS)]
    return records


def configs(count: int) -> list[Message]:
    return [
        ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="1", name=f"key.{it}", value="1")
        for it in range(count)
    ]


def acls(count: int) -> list[Message]:
    return [AccessControlEntryRecord(id=it.to_bytes(16, "big"), resource_name=f"{it}") for it in range(count)]


@pytest.fixture(scope="module")
def large() -> MetadataImage:
    return applied(EMPTY_IMAGE, [*LEVEL, *topics(elr=True), *configs(3_000), *acls(3_000)], 100, 1, 0)


def test_a_large_batch_is_loaded_in_short_steps_and_becomes_visible_with_the_last(large: MetadataImage) -> None:
    loader = MetadataLoader(large)
    records = [*configs(5_000), *acls(5_000)]
    steps = loader.commit_steps(101, 1, 0, records)
    next(steps)
    assert loader.image is large and loader.last_offset == 100
    (delta,), calls = steps_of(steps)
    assert loader.image is delta.after and delta.after.offset == 101 + len(records) - 1
    assert len(delta.after.config(BROKER_RESOURCE, "1")) == 5_000
    assert len(calls) == len(records) // STEP_RECORDS and max(calls) <= MOST_CALLS


def test_a_transaction_may_begin_and_end_in_later_steps_of_a_batch(large: MetadataImage) -> None:
    loader = MetadataLoader(large)
    many = configs(3 * STEP_RECORDS)
    records = [*acls(1), BeginTransactionRecord(), *many, EndTransactionRecord(), NoOpRecord()]
    before, ended = loader.handle_commit(101, 1, 0, records)
    assert list(before.changed_acls) == [bytes(16)] and not before.changed_configs
    assert len(ended.changed_configs[BROKER_RESOURCE, "1"]) == len(many) and not ended.changed_acls
    assert loader.image is ended.after


def test_the_overrides_of_a_resource_are_copied_once_in_a_run(large: MetadataImage) -> None:
    replay = ImageReplay(large)
    written = []
    for record in configs(3):
        replay.replay(record)
        written.append(replay.finish(101, 1, 0).after.config(BROKER_RESOURCE, "1"))
    assert written[0] is not large.config(BROKER_RESOURCE, "1"), "images do not change"
    assert written[0] is written[1] is written[2]


def test_overrides_of_a_deleted_topic_do_not_come_back_with_a_topic_of_its_name() -> None:
    def retention(value: str) -> Message:
        return ConfigRecord(resource_type=2, resource_name="t", name=f"retention.{value}", value=value)

    image = applied(
        EMPTY_IMAGE,
        [TopicRecord(name="t", topic_id=topic_id(1)), retention("ms")],
        0,
        1,
        0,
    )
    again = [
        retention("bytes"),
        RemoveTopicRecord(topic_id=topic_id(1)),
        TopicRecord(name="t", topic_id=topic_id(2)),
        retention("seconds"),
    ]
    assert applied(image, again, 1, 1, 0).config(2, "t") == {"retention.seconds": "seconds"}


@pytest.mark.feature("MB-15")
def test_one_record_that_clears_all_elrs_takes_many_short_steps(large: MetadataImage) -> None:
    loader = MetadataLoader(large)
    (delta,), calls = steps_of(loader.commit_steps(101, 1, 0, [ClearElrRecord()]))
    assert len(calls) >= TOPICS * PARTITIONS // STEP_RECORDS and max(calls) <= MOST_CALLS
    after = delta.after.topics.by_name
    assert not any(it.elr for topic in after.values() for it in topic.partitions.values())
    assert len(delta.changed_topics) == TOPICS
    (delta,), calls = steps_of(loader.commit_steps(102, 1, 0, [ClearElrRecord()]))
    assert not delta.changed_topics
    assert len(calls) >= TOPICS * PARTITIONS // (10 * STEP_RECORDS), "it has looked at all"


def test_a_snapshot_is_loaded_and_compared_in_short_steps(large: MetadataImage) -> None:
    records = [*image_to_records(large)]
    loader = MetadataLoader(large)
    delta, calls = steps_of(loader.snapshot_steps(records, 200, 2, 0))
    assert max(calls) <= MOST_CALLS
    assert delta.is_empty and loader.image.same_content(large)
    assert all(it is large.topics.by_id[it.id] for it in loader.image.topics.by_id.values())


def test_images_with_nothing_in_common_are_compared_in_short_steps(large: MetadataImage) -> None:
    other = applied(EMPTY_IMAGE, [*LEVEL, *topics(), *configs(10)], 100, 1, 0)
    delta, calls = steps_of(difference_in_steps(large, other))
    assert len(delta.changed_topics) == TOPICS
    assert all(len(it.changed_partitions) == PARTITIONS for it in delta.changed_topics.values())
    assert len(delta.changed_acls) == 3_000 and len(delta.changed_configs[BROKER_RESOURCE, "1"]) == 2_990
    assert len(calls) >= (TOPICS * PARTITIONS + 6_000) // STEP_COMPARISONS and max(calls) <= MOST_CALLS
