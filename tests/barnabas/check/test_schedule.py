"""The schedule of faults."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.check.schedule import Fault, Planned, schedule


def planned(seed: int, possible: frozenset[Fault], count: int) -> list[Planned]:
    return list(islice(schedule(random.Random(seed), possible), count))


@given(seed=st.integers(0, 2**32), possible=st.frozensets(st.sampled_from(list(Fault)), min_size=1))
def test_the_first_faults_have_every_possible_kind_and_no_other(seed: int, possible: frozenset[Fault]) -> None:
    found = planned(seed, possible, 2 * len(Fault))
    assert {it.fault for it in found} == possible
    assert [it.number for it in found] == list(range(len(found)))
    assert all(it.after_s > 0 and it.length_s >= 0 for it in found)


def test_a_seed_gives_the_same_faults_again() -> None:
    assert planned(5, frozenset(Fault), 50) == planned(5, frozenset(Fault), 50)
    assert planned(5, frozenset(Fault), 50) != planned(6, frozenset(Fault), 50)


def test_a_kill_comes_first() -> None:
    assert all(planned(seed, frozenset(Fault), 1)[0].fault is Fault.KILL for seed in range(20))


def test_no_kind_means_no_fault() -> None:
    assert planned(1, frozenset(), 1) == []


@pytest.mark.parametrize("choice", [0.0, 0.5, 0.999999, 1.0])
def test_the_choice_is_always_one_of_the_things(choice: float) -> None:
    assert 0 <= Planned(0, Fault.KILL, 0, 0, choice).choose(3) <= 2
