"""Assignors: each partition once, balanced, and none assigned while another member owns it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.errors import ConfigException
from barnabas.client.groups.assignor import Assignment, Assignor, GroupTopics, Subscriber
from barnabas.client.groups.assignors import ASSIGNORS, RoundRobinAssignor, assignors_of
from barnabas.client.groups.range_assignor import RangeAssignor
from barnabas.client.groups.sticky_assignor import CooperativeStickyAssignor, StickyAssignor
from barnabas.client.metadata import TopicPartition

pytestmark = pytest.mark.feature("CG-11")

COUNTS = GroupTopics({"a": 5, "b": 2})
FOUR = GroupTopics({"a": 4})
A = [TopicPartition("a", index) for index in range(12)]


def members(*names: str, topics: tuple[str, ...] = ("a", "b")) -> list[Subscriber]:
    return [Subscriber(name, None, topics) for name in names]


def shown(assignment: Assignment) -> dict[str, str]:
    return {name: " ".join(map(str, partitions)) for name, partitions in assignment.items()}


def remembering(name: str, owned: tuple[TopicPartition, ...], generation: int) -> Subscriber:
    """A member of a `sticky` group."""
    assignor = StickyAssignor()
    assignor.assigned(owned, generation)
    return Subscriber(name, None, ("a",), user_data=assignor.user_data(("a",)))


def test_range_gives_stretches_of_each_topic() -> None:
    assert shown(RangeAssignor().assign(members("m2", "m1"), COUNTS)) == {"m1": "a-0 a-1 a-2 b-0", "m2": "a-3 a-4 b-1"}


def test_round_robin_deals_out() -> None:
    dealt = RoundRobinAssignor().assign(members("m1", "m2"), COUNTS)
    assert shown(dealt) == {"m1": "a-0 a-2 a-4 b-1", "m2": "a-1 a-3 b-0"}


@pytest.mark.feature("CG-10")
def test_a_static_member_keeps_its_place_under_another_member_id() -> None:
    before = [Subscriber("x", "one", ("a",)), Subscriber("m", None, ("a",))]
    after = [Subscriber("z", "one", ("a",)), Subscriber("m", None, ("a",))]
    ranges = RangeAssignor()
    assert shown(ranges.assign(before, COUNTS))["x"] == shown(ranges.assign(after, COUNTS))["z"] == "a-0 a-1 a-2"


def test_cooperative_sticky_takes_a_partition_away_before_it_gives_it() -> None:
    assignor = CooperativeStickyAssignor()
    old, new = Subscriber("old", None, ("a",), tuple(A[:4]), 3), Subscriber("new", None, ("a",))
    first = assignor.assign([old, new], FOUR)
    assert len(first["old"]) == 2 and first["new"] == []
    second = assignor.assign([Subscriber("old", None, ("a",), tuple(first["old"]), 4), new], FOUR)
    assert second["old"] == first["old"]
    assert sorted(first["old"] + second["new"]) == A[:4]


def test_a_partition_claimed_twice_in_one_generation_is_given_up_first() -> None:
    both = [Subscriber(name, None, ("a",), (A[0],), 3) for name in ("one", "two")]
    assert CooperativeStickyAssignor().assign(both, GroupTopics({"a": 1})) == {"one": [], "two": []}


def test_the_later_generation_wins_a_partition_claimed_twice() -> None:
    stale, owner = remembering("stale", (A[0],), 3), remembering("owner", (A[0],), 4)
    assert StickyAssignor().assign([stale, owner], GroupTopics({"a": 1})) == {"stale": [], "owner": [A[0]]}


def test_user_data_may_have_an_older_format_or_be_garbage() -> None:
    before_generations = remembering("old", (A[3], A[1]), 7)
    assert before_generations.user_data is not None
    subscribers = [
        Subscriber("old", None, ("a",), user_data=before_generations.user_data[:-4]),
        Subscriber("odd", None, ("a",), user_data=b"\x7f\xff\xff\xff"),
    ]
    assert shown(StickyAssignor().assign(subscribers, FOUR)) == {"old": "a-1 a-3", "odd": "a-0 a-2"}


def test_a_generation_is_read_from_the_note_where_the_subscription_has_none() -> None:
    noted = CooperativeStickyAssignor()
    noted.assigned((), 9)
    older = Subscriber("older", None, ("a",), (A[0],), 8)
    newer = Subscriber("newer", None, ("a",), (A[0],), user_data=noted.user_data(("a",)))
    assert shown(noted.assign([older, newer], GroupTopics({"a": 1}))) == {"older": "", "newer": "a-0"}


RACKS = GroupTopics({"a": 4}, {A[index]: frozenset({"x"} if index < 2 else {"y"}) for index in range(4)})


@pytest.mark.parametrize("assignor", [RangeAssignor(), StickyAssignor(), CooperativeStickyAssignor()])
def test_members_read_in_their_racks(assignor: Assignor) -> None:
    far = [Subscriber("m1", None, ("a",), rack="y"), Subscriber("m2", None, ("a",), rack="x")]
    assert shown(assignor.assign(far, RACKS)) == {"m1": "a-2 a-3", "m2": "a-0 a-1"}
    everywhere = GroupTopics({"a": 4}, {partition: frozenset({"x", "y"}) for partition in A[:4]})
    lists = assignor.assign(far, everywhere).values()
    assert sorted(len(each) for each in lists) == [2, 2]


def test_an_even_load_counts_more_than_racks() -> None:
    one_rack = GroupTopics({"a": 4}, {A[index]: frozenset({"x"} if index < 3 else {"y"}) for index in range(4)})
    near = [Subscriber("m1", None, ("a",), rack="x"), Subscriber("m2", None, ("a",), rack="z")]
    for assignor in (RangeAssignor(), StickyAssignor()):
        assert sorted(len(each) for each in assignor.assign(near, one_rack).values()) == [2, 2]


def test_topics_of_one_size_are_divided_alike_whatever_their_racks() -> None:
    racks = {TopicPartition(topic, index): frozenset({"xy"[index % 2]}) for topic in "ab" for index in range(4)}
    far = [Subscriber("m1", None, ("a", "b"), rack="y"), Subscriber("m2", None, ("a", "b"), rack="x")]
    assert shown(RangeAssignor().assign(far, GroupTopics({"a": 4, "b": 4}, racks))) == {
        "m1": "a-1 a-3 b-1 b-3",
        "m2": "a-0 a-2 b-0 b-2",
    }


@pytest.mark.parametrize("options", [(), ("sticky-ish",), ("range", RangeAssignor), (Assignor(),), (3,)])
def test_invalid_assignors(options: tuple[object, ...]) -> None:
    with pytest.raises(ConfigException, match="partition_assignment_strategy"):
        assignors_of(options)  # type: ignore[arg-type]


TOPICS = st.frozensets(st.sampled_from(("a", "b", "c")), min_size=1).map(lambda topics: tuple(sorted(topics)))
GROUPS = st.dictionaries(st.sampled_from([f"m{index}" for index in range(5)]), TOPICS, min_size=1)
SIZES = st.fixed_dictionaries({topic: st.integers(0, 6) for topic in ("a", "b", "c")})
RACK = st.sampled_from(("", "x", "y"))


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=GROUPS, counts=SIZES, draw=st.data())
def test_everything_is_read_by_one_who_wants_it(
    name: str, group: dict[str, tuple[str, ...]], counts: dict[str, int], draw: st.DataObject
) -> None:
    subscribers = [Subscriber(member, None, topics, rack=draw.draw(RACK)) for member, topics in group.items()]
    partitions = [TopicPartition(topic, index) for topic, count in counts.items() for index in range(count)]
    racks = {partition: frozenset({draw.draw(RACK)} - {""}) for partition in partitions}
    assignment = ASSIGNORS[name]().assign(subscribers, GroupTopics(counts, racks))
    assert set(assignment) == set(group)
    given_out = sorted(partition for partitions in assignment.values() for partition in partitions)
    wanted = {topic for topics in group.values() for topic in topics}
    assert given_out == sorted(partition for partition in partitions if partition.topic in wanted)
    assert all(partition.topic in group[member] for member, has in assignment.items() for partition in has)
    if name != "roundrobin" and len(set(group.values())) == 1 and name != "range":
        loads = [len(partitions) for partitions in assignment.values()]
        assert max(loads) - min(loads) <= 1


@given(sizes=st.lists(st.integers(0, 6), min_size=1, max_size=5), count=st.integers(0, 12))
def test_sticky_is_even_and_moves_no_more_than_it_must(sizes: list[int], count: int) -> None:
    place, subscribers, had = 0, [], {}
    for index, size in enumerate(sizes):
        owned = tuple(A[place : min(place + size, count)])
        place += size
        had[f"m{index}"] = owned
        subscribers.append(remembering(f"m{index}", owned, 1))
    assignment = StickyAssignor().assign(subscribers, GroupTopics({"a": count}))
    loads = sorted(len(partitions) for partitions in assignment.values())
    assert loads[-1] - loads[0] <= 1
    for member, owned in had.items():
        assert len(set(owned) & set(assignment[member])) >= min(len(owned), count // len(sizes))


def test_a_sticky_member_notes_what_javas_does() -> None:
    assignor = StickyAssignor()
    assert assignor.user_data(("a",)) is None
    assignor.assigned((A[0], A[2]), 5)
    noted = bytes.fromhex("00000001 0001 61 00000002 00000000 00000002 00000005")
    assert assignor.user_data(("a",)) == noted
    cooperative = CooperativeStickyAssignor()
    assert cooperative.user_data(("a",)) == b"\xff\xff\xff\xff"
    cooperative.assigned((), 5)
    assert cooperative.user_data(("a",)) == bytes.fromhex("00000005")
