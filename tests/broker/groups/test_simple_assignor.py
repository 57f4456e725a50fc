"""The assignor of share groups: many members of one partition, evenly."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.groups.assignors.assignor import MemberSpec
from barnabas.broker.groups.assignors.simple import assign_shares
from barnabas.broker.groups.consumer_member import Partitions
from barnabas.runtime.at_once import at_once

pytestmark = pytest.mark.feature("CG-18")

TOPICS = [bytes([number]) * 16 for number in range(1, 4)]


@st.composite
def groups(draw: st.DrawFn, *, same: bool) -> tuple[dict[str, MemberSpec], dict[bytes, frozenset[int]]]:
    assignable = {
        topic_id: frozenset(range(draw(st.integers(0, 6)))) for topic_id in TOPICS if draw(st.booleans())
    }
    everywhere = frozenset(draw(st.sets(st.sampled_from(TOPICS), min_size=1)))
    members = {}
    for number in range(draw(st.integers(1, 9))):
        topics = everywhere if same else frozenset(draw(st.sets(st.sampled_from(TOPICS))))
        target = draw(
            st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 8), min_size=1), max_size=3)
        )
        members[f"member-{number}"] = MemberSpec(None, topics, target)
    return members, assignable


def shares(members: dict[str, MemberSpec], assignable: Partitions) -> dict[str, Partitions]:
    return at_once(assign_shares(members, assignable))


def owners(targets: dict[str, Partitions]) -> Counter[tuple[bytes, int]]:
    return Counter(
        (topic_id, index) for target in targets.values() for topic_id, some in target.items() for index in some
    )


@given(groups(same=True))
def test_members_of_the_same_topics_have_equal_parts(
    group: tuple[dict[str, MemberSpec], dict[bytes, frozenset[int]]],
) -> None:
    members, assignable = group
    targets = shares(members, assignable)
    assert targets.keys() == members.keys()
    topics = next(iter(members.values())).topics
    wanted = {(topic_id, index) for topic_id in topics & assignable.keys() for index in assignable[topic_id]}
    found = owners(targets)
    assert found.keys() == wanted, "every partition has a member, and no other is assigned"
    if wanted:
        assert max(found.values()) - min(found.values()) <= 1
        sizes = [sum(map(len, target.values())) for target in targets.values()]
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) >= 1, "no member is idle"
    again = shares(
        {member_id: it._replace(target=targets[member_id]) for member_id, it in members.items()}, assignable
    )
    assert again == targets, "a balanced assignment stays"


@given(groups(same=False))
def test_members_of_different_topics_get_only_their_own(
    group: tuple[dict[str, MemberSpec], dict[bytes, frozenset[int]]],
) -> None:
    members, assignable = group
    targets = shares(members, assignable)
    for member_id, target in targets.items():
        assert target.keys() <= members[member_id].topics
        assert all(some <= assignable[topic_id] for topic_id, some in target.items())
    subscribed = frozenset[bytes]().union(*(member.topics for member in members.values()))
    wanted = {(topic_id, index) for topic_id in subscribed & assignable.keys() for index in assignable[topic_id]}
    assert owners(targets).keys() == wanted


def test_a_new_member_takes_from_those_that_have_too_much() -> None:
    (topic_id, *_) = TOPICS
    alone = {"a": MemberSpec(None, frozenset([topic_id]), {topic_id: frozenset(range(4))})}
    both = {**alone, "b": MemberSpec(None, frozenset([topic_id]), {})}
    targets = shares(both, {topic_id: frozenset(range(4))})
    assert {member_id: sorted(target[topic_id]) for member_id, target in targets.items()} == {"a": [0, 1], "b": [2, 3]}
