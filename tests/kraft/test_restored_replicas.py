"""Replicas that may lead in restored metadata: those with the longest logs, on any broker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.kraft.metadata.image import (
    TOPIC_RESOURCE,
    BrokerImage,
    ClusterImage,
    FeaturesImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
    TopicsImage,
)
from barnabas.kraft.restored_replicas import IncompleteLogEnds, decided, undecided
from barnabas.storage.log_ends import BrokerLogEnds, LogEnd, MalformedLogEnds, format_log_ends, parse_log_ends

pytestmark = pytest.mark.feature("OP-07")

EVENTS, LATER = b"events".ljust(16), b"later".ljust(16)
LEVEL = 30


def directory(broker: int) -> bytes:
    return b"disk" + broker.to_bytes(12, "big")


def image_of(
    *replicas: tuple[int, ...], brokers: tuple[int, ...] = (1, 2, 3), elr: bool = True, **fields: tuple[int, ...]
) -> MetadataImage:
    """Topic `events` with these replicas, all in sync; the first of them leads."""
    partitions = {
        index: PartitionImage(each, tuple(map(directory, each)), each, leader=each[0], leader_epoch=3, **fields)
        for index, each in enumerate(replicas)
    }
    topic = TopicImage("events", EVENTS, partitions)
    registered = {
        it: BrokerImage(it, 10 + it, bytes(16), {}, {}, fenced=False, log_directories=(directory(it),))
        for it in brokers
    }
    return MetadataImage(
        features=FeaturesImage(LEVEL, {"eligible.leader.replicas.version": 1} if elr else {}),
        cluster=ClusterImage(registered),
        topics=TopicsImage({"events": topic}, {EVENTS: topic}),
        configs={(TOPIC_RESOURCE, "events"): {"retention.ms": "1"}},
    )


def ends_of(broker: int, *logs: tuple[int, int, int], topic: str = "events", topic_id: bytes = EVENTS) -> BrokerLogEnds:
    """Logs as (partition, last epoch, end offset)."""
    found = tuple(LogEnd(topic, index, topic_id, directory(broker), epoch, end) for index, epoch, end in logs)
    return BrokerLogEnds("cluster", broker, 100 + broker, found)


def both(first: BrokerLogEnds, second: BrokerLogEnds) -> BrokerLogEnds:
    return BrokerLogEnds(first.cluster_id, first.broker_id, first.broker_epoch, first.logs + second.logs)


def events(image: MetadataImage, index: int = 0) -> PartitionImage:
    return image.topics.by_name["events"].partitions[index]


def test_all_replicas_with_the_longest_log_may_lead() -> None:
    image = decided(image_of((1, 2, 3)), [ends_of(1, (0, 4, 50)), ends_of(2, (0, 5, 40)), ends_of(3, (0, 5, 40))]).image
    partition = events(image)
    assert (partition.leader, partition.isr, partition.elr) == (-1, (), (2, 3)), "a later epoch beats a longer log"
    assert partition.replicas == (1, 2, 3)
    assert partition.leader_epoch == 5, "epochs that were given out after the backup"
    assert not partition.awaits_decision
    assert {it.id: (it.fenced, it.epoch) for it in image.cluster.brokers.values()} == {
        1: (True, 101),
        2: (True, 102),
        3: (True, 103),
    }, "the epoch that the broker will name"


def test_without_elr_they_are_the_isr() -> None:
    ends = [ends_of(1, (0, 4, 50)), ends_of(2, (0, 4, 50)), ends_of(3, (0, 4, 49))]
    partition = events(decided(image_of((1, 2, 3), elr=False), ends).image)
    assert (partition.leader, partition.isr, partition.elr) == (-1, (1, 2), ())


def test_all_brokers_of_the_backup_are_asked_for() -> None:
    ends = [ends_of(1, (0, 4, 50)), ends_of(2, (0, 4, 50))]
    with pytest.raises(IncompleteLogEnds, match="the log ends of brokers 3 are missing"):
        decided(image_of((1, 2)), ends)
    assert events(decided(image_of((1, 2, 3)), ends, without=[3]).image).elr == (1, 2)
    with pytest.raises(IncompleteLogEnds, match="broker 2 is left out, and its log ends are given"):
        decided(image_of((1, 2, 3)), ends, without=[2, 3])
    with pytest.raises(IncompleteLogEnds, match="of broker 2 are given 2 times"):
        decided(image_of((1, 2)), [*ends, ends[1]], without=[3])


def test_a_partition_that_moved_is_where_its_log_is() -> None:
    """The backup has it on brokers 1 and 2; it moved to 3 and 4, and broker 2 has an old log."""
    ends = [ends_of(1), ends_of(2, (0, 4, 30)), ends_of(3, (0, 6, 80)), ends_of(4, (0, 6, 80))]
    made = decided(image_of((1, 2)), ends)
    partition = events(made.image)
    assert (partition.replicas, partition.elr) == ((4, 3), (3, 4))
    assert partition.directories == (directory(4), directory(3))
    assert made.notes == ["events-0: was moved later from brokers 1,2: is on 4,3"]


def test_a_reassignment_that_was_under_way_goes_on_if_its_replicas_have_the_longest_log() -> None:
    image = image_of((3, 1, 2), adding_replicas=(3,), removing_replicas=(1,))
    going_on = events(decided(image, [ends_of(1, (0, 4, 30)), ends_of(2, (0, 4, 30)), ends_of(3, (0, 4, 10))]).image)
    assert (going_on.replicas, going_on.adding_replicas, going_on.removing_replicas) == ((3, 1, 2), (3,), (1,))
    assert going_on.elr == (1, 2)


def test_a_topic_that_was_made_later_comes_back_and_keeps_its_records() -> None:
    logs = {1: [(0, 2, 7)], 2: [(0, 2, 7), (2, 1, 5)], 3: [(2, 1, 4)]}
    ends = [both(ends_of(it, (0, 4, 50)), ends_of(it, *logs[it], topic="later", topic_id=LATER)) for it in (1, 2, 3)]
    made = decided(image_of((1, 2, 3)), ends)
    later = made.image.topics.by_id[LATER]
    assert later.name == "later"
    assert (later.partitions[0].replicas, later.partitions[0].elr) == ((1, 2), (1, 2))
    assert later.partitions[1].awaits_decision, "nobody has its log"
    assert (later.partitions[2].replicas, later.partitions[2].elr) == ((2, 3), (2,))
    assert made.image.config(TOPIC_RESOURCE, "later") == {"retention.ms": "-1", "retention.bytes": "-1"}
    assert made.notes == [
        "topic later: was created later, has 3 partitions, and gets retention.bytes=-1, retention.ms=-1"
    ]


def test_partitions_that_were_added_later_come_back() -> None:
    ends = [ends_of(1, (0, 4, 50), (1, 0, 3)), ends_of(2, (0, 4, 50)), ends_of(3, (1, 0, 3))]
    made = decided(image_of((1, 2)), ends)
    assert (events(made.image, 1).replicas, events(made.image, 1).elr) == ((3, 1), (1, 3))
    assert made.notes == ["events-1: was created later"]


def test_a_topic_that_was_deleted_later_stays_deleted() -> None:
    made = decided(image_of((1, 2)), [ends_of(1), ends_of(2), ends_of(3)])
    assert (made.image.topics.by_name, made.image.configs) == ({}, {})
    assert made.notes == ["topic events: no broker has a log of it, so it was deleted later: left out"]
    kept = decided(image_of((1, 2)), [ends_of(1), ends_of(2)], without=[3])
    assert events(kept.image).awaits_decision, "the broker that is lost may have had it"


def test_a_topic_that_was_deleted_and_made_again_is_the_later_one() -> None:
    ends = [ends_of(it, (0, 0, 9), topic_id=LATER) for it in (1, 2, 3)]
    made = decided(image_of((1, 2)), ends)
    assert made.image.topics.by_name["events"].id == LATER
    # A broker that was down then still has the former topic: what others have is put aside, and nothing is removed.
    made = decided(image_of((1, 2)), [ends_of(1, (0, 4, 50)), *ends[1:]])
    assert made.image.topics.by_name["events"].id == EVENTS
    assert "some logs belong to another topic of that name" in made.notes[-1]


@pytest.mark.feature("RE-13")
def test_metadata_without_the_ends_of_logs_lets_nobody_lead() -> None:
    image = undecided(image_of((1, 2), (2, 3)))
    for index in (0, 1):
        assert events(image, index).awaits_decision
    assert all(it.fenced for it in image.cluster.brokers.values())


LOGS = st.fixed_dictionaries({it: st.none() | st.tuples(st.integers(0, 3), st.integers(0, 5)) for it in (1, 2, 3, 4)})


@given(logs=LOGS, replicas=st.permutations((1, 2, 3, 4)), count=st.integers(1, 4))
def test_only_longest_logs_may_lead_and_one_of_them_can(
    logs: dict[int, tuple[int, int] | None], replicas: list[int], count: int
) -> None:
    image = image_of(tuple(replicas[:count]), brokers=(1, 2, 3, 4))
    ends = [ends_of(it, *([] if end is None else [(0, *end)])) for it, end in logs.items()]
    made = decided(image, ends).image
    known = {it: end for it, end in logs.items() if end is not None}
    if not known:
        assert made.topics.by_name == {}
        return
    partition = events(made)
    longest = {it for it, end in known.items() if end == max(known.values())}
    assert partition.elr
    assert set(partition.elr) == longest & set(partition.replicas)
    assert len(partition.replicas) == count == len(set(partition.replicas))


@pytest.mark.feature("TS-01")
def test_a_topic_that_a_broker_saw_tiered_stays_tiered() -> None:
    """Without the config, brokers would forget what is only in the store."""
    ends = [
        BrokerLogEnds(
            "cluster",
            broker,
            7,
            (
                LogEnd("events", 0, EVENTS, directory(broker), 4, 50, is_tiered=broker == 2),
                LogEnd("later", 0, LATER, directory(broker), 4, 50, is_tiered=broker == 2),
            ),
        )
        for broker in (1, 2, 3)
    ]
    made = decided(image_of((1, 2, 3)), ends)
    assert made.image.config(TOPIC_RESOURCE, "events") == {"retention.ms": "1", "remote.storage.enable": "true"}
    assert made.image.config(TOPIC_RESOURCE, "later")["remote.storage.enable"] == "true"
    assert "topic events: was tiered later, and gets remote.storage.enable=true" in made.notes
    assert parse_log_ends(format_log_ends(ends[1]), "file") == ends[1]
    assert decided(made.image, ends).notes == [], "it is known now"


def test_the_file_says_what_was_listed() -> None:
    ends = both(ends_of(1, (0, -1, 0)), BrokerLogEnds("cluster", 1, 0, (LogEnd("old", 0, None, directory(1), 4, 5),)))
    assert parse_log_ends(format_log_ends(ends), "file") == ends


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "file: Expecting value"),
        ("[]", "file: must be an object of version 1"),
        ('{"version": 2}', "file: must be an object of version 1"),
        ('{"version": 1}', "file: cluster_id is missing"),
        ('{"version": 1, "cluster_id": "c", "broker_id": -1}', "file: -1 must be a whole number from 0"),
        ('{"version": 1, "cluster_id": "c", "broker_id": 1, "broker_epoch": 0, "logs": 5}', "not iterable"),
        ('{"version": 1, "cluster_id": "c", "broker_id": 1, "broker_epoch": 0, "logs": [{"topic": 1}]}', "1 must be a"),
    ],
)
def test_a_file_of_something_else_is_refused(text: str, problem: str) -> None:
    with pytest.raises(MalformedLogEnds, match=problem):
        parse_log_ends(text, "file")
