"""Work on groups that is cut into steps: what it yields, and when a step is full."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, TypeVar

import pytest

from barnabas.broker.groups import consumer_records as records
from barnabas.broker.groups.assignors import assignor
from barnabas.broker.groups.assignors.assignor import GroupSpec, MemberSpec
from barnabas.broker.groups.consumer_group import ConsumerGroup
from barnabas.broker.groups.consumer_member import ConsumerMember, Partitions
from barnabas.broker.groups.pattern_searches import STEPS_OF_A_RIGHT, STEPS_OF_COMPILING, find_topics
from barnabas.broker.groups.target_assignment import changed_targets, compute_targets, members_with
from barnabas.broker.patterns import Pattern
from barnabas.kraft.metadata.image import PartitionImage, TopicImage, TopicsImage
from barnabas.runtime.at_once import Stepwise
from tests.broker.groups.consumer_rig import GROUP

T = TypeVar("T")
STEP = 12
IMAGES = [
    TopicImage(name, bytes([place]) * 16, {it: PartitionImage((1,), (bytes(16),), (1,)) for it in range(2 * place)})
    for place, name in enumerate(("news", "sport", "art", "food"), 1)
]
TOPICS = TopicsImage({it.name: it for it in IMAGES}, {it.id: it for it in IMAGES})


def taken(work: Stepwise[T]) -> tuple[T, int]:
    """The result, and the number of pauses."""
    pauses = 0
    while True:
        try:
            next(work)
            pauses += 1
        except StopIteration as end:
            return end.value, pauses


def full(items: Iterable[int]) -> int:
    """How often so much work fills a step."""
    count = size = 0
    for it in items:
        size += it
        if size >= STEP:
            count, size = count + 1, 0
    return count


def some_target(chance: random.Random) -> Partitions:
    topics = chance.sample(list(TOPICS.by_name.values()), chance.randrange(3))
    return {it.id: frozenset(chance.sample(sorted(it.partitions), chance.randrange(1, 3))) for it in topics}


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignor, "STEP_ITEMS", STEP)


def group_of(chance: random.Random) -> ConsumerGroup:
    group = ConsumerGroup(GROUP)
    for number in range(chance.randrange(12)):
        member = ConsumerMember(
            f"m{number}",
            instance_id=f"i{number}" if chance.random() < 0.5 else None,
            topic_names=frozenset(chance.sample([*TOPICS.by_name, "gone"], chance.randrange(1, 4))),
        )
        written = [records.member_metadata(GROUP, member)]
        if chance.random() < 0.7:
            written.append(records.target_assignment(GROUP, member.member_id, some_target(chance)))
        for record in written:
            group.replay(record.key, record.value)  # type: ignore[arg-type]
    return group


@pytest.mark.feature("CG-13")
@pytest.mark.parametrize("seed", range(20))
def test_an_assignor_gets_all_members_their_topics_and_last_targets(seed: int) -> None:
    chance = random.Random(seed)
    group = group_of(chance)
    joins = ConsumerMember(
        "new", instance_id=chance.choice([None, "i1", "i2", "other"]), topic_names=frozenset(["art"])
    )
    again = ConsumerMember("m0", instance_id=chance.choice([None, "i0"]), topic_names=frozenset(["food", "gone"]))
    member = chance.choice([joins, again])
    members = members_with(group, member)
    replaced = [
        it for it in group.members.values() if member.instance_id is not None and it.instance_id == member.instance_id
    ]
    expected = {name: it for name, it in group.members.items() if it not in replaced}
    expected[member.member_id] = member
    assert list(members.items()) == list(expected.items())
    given: list[GroupSpec] = []

    def assign(spec: GroupSpec) -> Stepwise[dict[str, Partitions]]:
        given.append(spec)
        yield
        return {"a": {}}

    targets, pauses = taken(compute_targets(group, members, TOPICS, assign))
    assert targets == {"a": {}}
    specs, counts = {}, {}
    for name, it in expected.items():
        ids = frozenset(TOPICS.by_name[topic].id for topic in it.topic_names if topic != "gone")
        owner = (
            name
            if it.instance_id is None
            else next((old.member_id for old in group.members.values() if old.instance_id == it.instance_id), "")
        )
        specs[name] = MemberSpec(it.instance_id, ids, group.targets.get(owner, {}))
        counts.update({topic_id: len(TOPICS.by_id[topic_id].partitions) for topic_id in ids})
    assert given == [GroupSpec(specs, counts)]
    kinds = dict.fromkeys(it.topic_names for it in expected.values())
    read = [1 + len(it.topic_names) for it in expected.values()]
    counted = [1 + len(names - {"gone"}) for names in kinds]
    assert pauses == full([*read, *counted]) + 1, "and one of the assignor"


@pytest.mark.feature("CG-13")
@pytest.mark.parametrize("seed", range(10))
def test_only_changed_targets_are_written_the_last_first(seed: int) -> None:
    chance = random.Random(seed)
    targets = {f"m{number}": some_target(chance) for number in range(chance.randrange(20))}
    known: dict[str, Any] = {name: it if chance.random() < 0.5 else some_target(chance) for name, it in targets.items()}
    known = {name: it for name, it in known.items() if chance.random() < 0.9}
    changed, pauses = taken(changed_targets(known, targets))
    different = [(name, it) for name, it in targets.items() if known.get(name, "none") != it]
    assert changed == list(reversed(different))
    assert pauses == full(1 + sum(map(len, it.values())) for it in targets.values())


@pytest.mark.feature("CG-15")
@pytest.mark.parametrize("budget", [1, 10_000, STEPS_OF_COMPILING + 20_000, 3 * STEPS_OF_COMPILING])
def test_a_search_pauses_when_its_matches_have_cost_enough(budget: int) -> None:
    patterns = ["a+", "(", "b.*|a{1,200}", "c"]
    topics = ["a" * number for number in range(1, 12)] + ["bb", "c"]
    found: dict[str, set[str]] = {it: set() for it in patterns}
    spent = pauses = 0
    for text in ("a+", "b.*|a{1,200}", "c"):
        spent += STEPS_OF_COMPILING
        for topic in topics:
            if spent >= budget:
                spent, pauses = 0, pauses + 1
            is_found = text == topic or (set(topic) == {"a"} and "a" in text) or (topic == "bb" and text[0] == "b")
            spent += Pattern(text).cost(topic) + is_found * STEPS_OF_A_RIGHT
            if is_found and topic != "aaa":
                found[text].add(topic)
    turns = list(find_topics(patterns, topics, budget, lambda topic: topic != "aaa"))
    assert turns == [None] * pauses + [found]
