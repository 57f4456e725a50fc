"""Who reads which partition: everything exactly once, evenly, and nothing taken from an owner that still has it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.cluster import TopicPartition
from barnabas.client.groups.assignors import (
    ASSIGNORS,
    Assignment,
    Subscriber,
    assign_cooperative_sticky,
    assign_range,
    assign_round_robin,
    assign_sticky,
)

pytestmark = pytest.mark.feature("CG-11")

COUNTS = {"a": 5, "b": 2}


def members(*names: str, topics: tuple[str, ...] = ("a", "b")) -> list[Subscriber]:
    return [Subscriber(name, None, topics) for name in names]


def shown(assignment: Assignment) -> dict[str, str]:
    return {name: " ".join(map(str, partitions)) for name, partitions in assignment.items()}


def test_range_gives_stretches_of_each_topic() -> None:
    assert shown(assign_range(members("m2", "m1"), COUNTS)) == {"m1": "a-0 a-1 a-2 b-0", "m2": "a-3 a-4 b-1"}


def test_round_robin_deals_out() -> None:
    assert shown(assign_round_robin(members("m1", "m2"), COUNTS)) == {"m1": "a-0 a-2 a-4 b-1", "m2": "a-1 a-3 b-0"}


def test_a_static_member_keeps_its_place_under_another_member_id() -> None:
    before = [Subscriber("x", "one", ("a",)), Subscriber("m", None, ("a",))]
    after = [Subscriber("z", "one", ("a",)), Subscriber("m", None, ("a",))]
    assert shown(assign_range(before, COUNTS))["x"] == shown(assign_range(after, COUNTS))["z"] == "a-0 a-1 a-2"


def test_cooperative_sticky_takes_a_partition_away_before_it_gives_it() -> None:
    had = tuple(TopicPartition("a", index) for index in range(4))
    old = Subscriber("old", None, ("a",), had, 3)
    new = Subscriber("new", None, ("a",))
    first = assign_cooperative_sticky([old, new], {"a": 4})
    assert len(first["old"]) == 2 and first["new"] == []
    kept = Subscriber("old", None, ("a",), tuple(first["old"]), 4)
    second = assign_cooperative_sticky([kept, new], {"a": 4})
    assert second["old"] == first["old"]
    assert sorted(first["old"] + second["new"]) == list(had)


def test_of_two_that_claim_a_partition_the_later_generation_has_it() -> None:
    stale = Subscriber("stale", None, ("a",), (TopicPartition("a", 0),), 3)
    owner = Subscriber("owner", None, ("a",), (TopicPartition("a", 0),), 4)
    assert assign_sticky([stale, owner], {"a": 1}) == {"stale": [], "owner": [TopicPartition("a", 0)]}


TOPICS = st.frozensets(st.sampled_from(("a", "b", "c")), min_size=1).map(lambda topics: tuple(sorted(topics)))
GROUPS = st.dictionaries(st.sampled_from([f"m{index}" for index in range(5)]), TOPICS, min_size=1)
SIZES = st.fixed_dictionaries({topic: st.integers(0, 6) for topic in ("a", "b", "c")})


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=GROUPS, counts=SIZES)
def test_everything_is_read_by_one_who_wants_it(
    name: str, group: dict[str, tuple[str, ...]], counts: dict[str, int]
) -> None:
    subscribers = [Subscriber(member, None, topics) for member, topics in group.items()]
    assignment = ASSIGNORS[name](subscribers, counts)
    assert set(assignment) == set(group)
    given_out = sorted(partition for partitions in assignment.values() for partition in partitions)
    wanted = {topic for topics in group.values() for topic in topics}
    assert given_out == sorted(TopicPartition(topic, index) for topic in wanted for index in range(counts[topic]))
    assert all(partition.topic in group[member] for member, has in assignment.items() for partition in has)


@given(sizes=st.lists(st.integers(0, 6), min_size=1, max_size=5), count=st.integers(0, 12))
def test_sticky_is_even_and_moves_no_more_than_it_must(sizes: list[int], count: int) -> None:
    place, subscribers = 0, []
    for index, size in enumerate(sizes):
        owned = tuple(TopicPartition("a", each) for each in range(place, min(place + size, count)))
        place += size
        subscribers.append(Subscriber(f"m{index}", None, ("a",), owned, 1))
    assignment = assign_sticky(subscribers, {"a": count})
    loads = sorted(len(partitions) for partitions in assignment.values())
    assert loads[-1] - loads[0] <= 1
    for subscriber in subscribers:
        kept = set(subscriber.owned) & set(assignment[subscriber.member_id])
        assert len(kept) >= min(len(subscriber.owned), count // len(sizes))
