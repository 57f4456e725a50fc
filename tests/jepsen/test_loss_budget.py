"""The loss budget: which faults it allows, and that whatever it allows keeps every acknowledged record."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loss_budget import Membership, ObservedBudget, loss_is_covered, one_whole_member_lives_on, records_may_be_gone
from operations import Place

BROKERS = (1, 2, 3)


def membership(node: str, isr: str, elr: str = "") -> Membership:
    return Membership(node, Place("t", 0), ("a", "b", "c"), tuple(isr), tuple(elr))


@pytest.mark.feature("FI-03")
def test_the_budget_in_one_partition() -> None:
    budget = ObservedBudget(["a", "b", "c"])
    running = dict.fromkeys("abc", "running")
    budget.observe(running, [membership(node, "abc") for node in "abc"])
    assert budget.may_end(["a", "b", "c"], losing=False), "a kill loses nothing"
    assert not budget.may_end(["a", "b"], losing=True), "two copies are all that is promised"
    assert budget.may_end(["a"], losing=True)
    assert not budget.may_end(["a"], losing=True, held=["b", "c"]), "the others may end at any moment"
    budget.ended(["a"], losing=True)
    budget.observe(running | {"a": "dead"}, [membership(node, "bc") for node in "bc"])
    assert not budget.may_end(["b"], losing=True)
    assert budget.may_end(["b"], losing=False), "c has everything and lives on"
    assert not budget.may_end(["b", "c"], losing=False)
    # Started, but not in sync: it still counts as lossy, also when it says nothing yet.
    budget.observe(running, [membership(node, "bc") for node in "bc"])
    assert budget.lossy == ["a"]
    budget.observe(running, [membership(node, "bc") for node in "abc"])
    assert not budget.may_end(["b", "c"], losing=False)
    budget.observe(running, [membership(node, "abc") for node in "abc"])
    assert not budget.lossy and budget.may_end(["b"], losing=True)


@pytest.mark.feature("FI-03")
def test_the_budget_asks_everybody() -> None:
    budget = ObservedBudget(["a", "b", "c"])
    running = dict.fromkeys("abc", "running")
    # b was cut off: it believes that all are in sync. a and c know that c alone has everything.
    budget.observe(running, [membership("a", "c"), membership("b", "abc"), membership("c", "c")])
    assert not budget.may_end(["c"], losing=True)
    # Eligible replicas have all that was acknowledged.
    budget.observe(running, [membership(node, "c", "b") for node in "abc"])
    assert budget.may_end(["c"], losing=True)
    assert not ObservedBudget(["a", "b", "c"], min_insync_replicas=1).may_end(["a"], losing=True)


class Partition:
    """One partition of three brokers under KIP-966: who has every acknowledged record, and who may lead."""

    def __init__(self, min_insync_replicas: int) -> None:
        self.min_insync_replicas = min_insync_replicas
        self.isr, self.elr = set(BROKERS), set[int]()
        self.lossy, self.down = set[int](), set[int]()

    def end(self, ending: list[int], *, losing: bool) -> None:
        for broker in ending:
            self.down.add(broker)
            if losing:
                self.lossy.add(broker)
            if broker in self.isr and len(self.isr) > 1:
                self.isr.remove(broker)
                if len(self.isr) < self.min_insync_replicas:
                    self.elr.add(broker)

    def come_back(self, broker: int) -> None:
        """It registers, which removes a lossy broker from ISR and ELR, and catches up if a leader can be elected."""
        self.down.discard(broker)
        if broker in self.lossy:
            self.elr.discard(broker)
            self.isr.discard(broker)
        if any(member not in self.down for member in (*self.isr, *self.elr)):
            self.lossy.discard(broker)
            self.isr.add(broker)
            self.isr |= {member for member in self.elr if member not in self.down}
            self.elr -= self.isr

    def may_end(self, ending: list[int], *, losing: bool) -> bool:
        members = (*self.isr, *self.elr)
        if losing and not loss_is_covered(ending, self.lossy, self.min_insync_replicas):
            return False
        if not losing and self.lossy <= set(ending):
            return True
        return one_whole_member_lives_on(members, ending, self.lossy, lambda broker: broker not in self.down)


@pytest.mark.feature("FI-03", "RE-11")
@settings(max_examples=200, deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from([1, 2, 3]))
def test_faults_within_the_budget_leave_a_member_that_has_everything(seed: int, min_insync_replicas: int) -> None:
    chance, partition, losses = random.Random(seed), Partition(min_insync_replicas), 0
    for _ in range(300):
        ending = chance.sample(BROKERS, chance.randint(1, 2))
        losing = chance.random() < 0.5
        if chance.random() < 0.4 and partition.down:
            partition.come_back(chance.choice(sorted(partition.down)))
        elif not partition.down & set(ending) and partition.may_end(ending, losing=losing):
            partition.end(ending, losing=losing)
            losses += losing
        members = partition.isr | partition.elr
        assert not records_may_be_gone(members, partition.lossy), f"{members} may lead, {partition.lossy} are lossy"
    assert losses or min_insync_replicas == 1, "some loss was allowed"


def test_records_are_gone_only_if_every_member_lost_something() -> None:
    assert records_may_be_gone({1, 2}, {1, 2, 3})
    assert not records_may_be_gone({1, 2}, {2, 3})
    assert not records_may_be_gone(set(), {1}), "nobody knows who was in sync"
