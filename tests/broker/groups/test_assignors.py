"""Assignors: every partition has exactly one subscribed owner, loads are even, and few partitions move."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.groups.assignors import ASSIGNORS
from barnabas.broker.groups.assignors.assignor import GroupSpec, MemberSpec
from barnabas.broker.groups.assignors.range import assign_ranges
from barnabas.broker.groups.assignors.uniform import assign_uniformly
from barnabas.broker.groups.consumer_member import Partitions
from barnabas.runtime.at_once import at_once

A, B, C, D = (bytes([letter]) * 16 for letter in b"abcd")
NOTHING: Partitions = {}


def spec(
    counts: Mapping[bytes, int],
    members: Mapping[str, frozenset[bytes]],
    targets: Mapping[str, Partitions] | None = None,
    instances: Mapping[str, str] | None = None,
) -> GroupSpec:
    return GroupSpec(
        {
            member_id: MemberSpec((instances or {}).get(member_id), topics, (targets or {}).get(member_id, NOTHING))
            for member_id, topics in members.items()
        },
        {topic: count for topic, count in counts.items() if any(topic in topics for topics in members.values())},
    )


def sizes(targets: Mapping[str, Partitions]) -> dict[str, int]:
    return {member_id: sum(map(len, target.values())) for member_id, target in targets.items()}


def moves(before: Mapping[str, Partitions], after: Mapping[str, Partitions]) -> int:
    """Number of partitions whose owner changed."""
    owners = {
        (topic, number): member_id
        for member_id, target in before.items()
        for topic, numbers in target.items()
        for number in numbers
    }
    return sum(
        owners.get((topic, number), member_id) != member_id
        for member_id, target in after.items()
        for topic, numbers in target.items()
        for number in numbers
    )


def check_complete(group: GroupSpec, targets: Mapping[str, Partitions]) -> None:
    assert list(targets) == list(group.members)
    given_out = [
        (topic, number) for target in targets.values() for topic, numbers in target.items() for number in numbers
    ]
    assert len(given_out) == len(set(given_out)), "one owner"
    subscribed = {topic for member in group.members.values() for topic in member.topics}
    assert set(given_out) == {
        (topic, number) for topic in subscribed for number in range(group.partition_counts[topic])
    }
    for member_id, target in targets.items():
        assert set(target) <= group.members[member_id].topics
        assert all(target.values()), "no topic without partitions"


def uniform(group: GroupSpec) -> dict[str, Partitions]:
    return at_once(assign_uniformly(group))


def ranges(group: GroupSpec) -> dict[str, Partitions]:
    return at_once(assign_ranges(group))


COUNTS = st.fixed_dictionaries({topic: st.integers(0, 9) for topic in (A, B, C, D)})
TOPICS = st.frozensets(st.sampled_from([A, B, C, D]))
NAMES = st.lists(st.sampled_from("pqrstuvw"), unique=True, min_size=1)


@pytest.mark.feature("CG-13")
@given(COUNTS, st.data(), st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_has_one_owner(counts: dict[bytes, int], data: st.DataObject, assignor: str) -> None:
    members = data.draw(st.dictionaries(st.sampled_from("pqrstuvw"), TOPICS, min_size=1))
    group = spec(counts, members)
    targets = at_once(ASSIGNORS[assignor](group))
    check_complete(group, targets)
    # Again from the result, after the change.
    changed = data.draw(st.dictionaries(st.sampled_from("pqrstuvw"), TOPICS, min_size=1))
    next_group = spec(data.draw(COUNTS), changed, targets)
    check_complete(next_group, at_once(ASSIGNORS[assignor](next_group)))


@pytest.mark.feature("CG-13")
@given(COUNTS, TOPICS, NAMES, NAMES)
def test_members_with_equal_subscriptions_have_equal_shares(
    counts: dict[bytes, int], topics: frozenset[bytes], first: list[str], second: list[str]
) -> None:
    before = uniform(spec(counts, dict.fromkeys(first, topics)))
    assert max(sizes(before).values()) - min(sizes(before).values()) <= 1
    group = spec(counts, dict.fromkeys(second, topics), before)
    after = uniform(group)
    assert max(sizes(after).values()) - min(sizes(after).values()) <= 1
    # A member loses only partitions above its share.
    total = sum(sizes(after).values())
    quota, with_one_more = divmod(total, len(second))
    stayed = sorted((sizes(before)[name] for name in second if name in before), reverse=True)
    shares = [quota + 1] * with_one_more + [quota] * (len(second) - with_one_more)
    kept = sum(min(had, share) for had, share in zip(stayed, shares, strict=False))
    owners_kept = sum(
        len(after[name].get(topic, frozenset()) & numbers)
        for name in second
        for topic, numbers in before.get(name, NOTHING).items()
    )
    assert owners_kept == kept


@pytest.mark.feature("CG-13")
@given(COUNTS, st.dictionaries(st.sampled_from("pqrstuvw"), TOPICS, min_size=1))
def test_an_assignment_that_is_good_stays(counts: dict[bytes, int], members: dict[str, frozenset[bytes]]) -> None:
    targets = uniform(spec(counts, members))
    again = uniform(spec(counts, members, targets))
    assert again == targets


@pytest.mark.feature("CG-13")
@given(COUNTS, st.dictionaries(st.sampled_from("pqrs"), TOPICS, min_size=2))
def test_no_single_move_would_make_it_more_even(counts: dict[bytes, int], members: dict[str, frozenset[bytes]]) -> None:
    group = spec(counts, members)
    targets = uniform(group)
    loads = sizes(targets)
    for giver, target in targets.items():
        for topic in target:
            for taker, member in group.members.items():
                if topic in member.topics:
                    assert loads[giver] - loads[taker] <= 1, (giver, taker, topic)


@pytest.mark.feature("CG-13")
def test_different_subscriptions_are_balanced_as_far_as_they_allow() -> None:
    members = {"p": frozenset({A}), "q": frozenset({A, B}), "r": frozenset({B, C})}
    targets = uniform(spec({A: 6, B: 2, C: 1}, members))
    assert sizes(targets) == {"p": 3, "q": 3, "r": 3}


@pytest.mark.feature("CG-13")
def test_a_newcomer_takes_only_its_share() -> None:
    topics = frozenset({A, B})
    before = uniform(spec({A: 5, B: 4}, {"p": topics, "q": topics}))
    after = uniform(spec({A: 5, B: 4}, {"p": topics, "q": topics, "r": topics}, before))
    assert moves(before, after) == 3


@pytest.mark.feature("CG-13")
def test_ranges_of_topics_of_one_size_meet() -> None:
    topics = frozenset({A, B})
    targets = ranges(spec({A: 5, B: 5}, {"p": topics, "q": topics}))
    assert targets == {
        "p": {A: frozenset({0, 1, 2}), B: frozenset({0, 1, 2})},
        "q": {A: frozenset({3, 4}), B: frozenset({3, 4})},
    }
    assert ranges(spec({A: 1, B: 0}, {"p": topics, "q": topics})) == {"p": {A: frozenset({0})}, "q": {}}


@pytest.mark.feature("CG-13")
def test_static_members_keep_their_ranges_under_new_ids() -> None:
    topics = frozenset({A})
    first = ranges(spec({A: 4}, dict.fromkeys("pqr", topics), None, {"q": "one", "r": "two"}))
    second = ranges(spec({A: 4}, dict.fromkeys("zyp", topics), None, {"z": "one", "y": "two"}))
    assert (first["q"], first["r"], first["p"]) == (second["z"], second["y"], second["p"])
