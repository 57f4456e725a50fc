"""The searches of the checkers beside ones that simply try everything: cycles, and linear orders."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkers.arrays import first_in, pair_codes, running_max_in_runs, starts_of_runs
from checkers.graph import Edges, Graph, that_may_cycle
from checkers.linearizability import NEVER, Call, Linearizability, search
from histories.synthetic import Story
from tests.examples import examples

pytestmark = pytest.mark.feature("FI-02", "FI-11")

NODES = 5
pairs = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), max_size=14)


def edges_of(found: list[tuple[int, int]]) -> Edges:
    columns = np.array(found, dtype=np.int64).reshape(-1, 2)
    return Edges(columns[:, 0], columns[:, 1], np.arange(len(found)))


def shortest_by_trying(found: list[tuple[int, int]]) -> int:
    """Length of the shortest cycle of two nodes or more; 0 if there is none."""
    for length in range(2, NODES + 1):
        for nodes in permutations(range(NODES), length):
            if all((one, other) in found for one, other in zip(nodes, (*nodes[1:], nodes[0]), strict=True)):
                return length
    return 0


@given(pairs, st.permutations(range(NODES)))
@settings(max_examples=examples(60), deadline=None)
def test_a_shortest_cycle_is_found_if_there_is_one(found: list[tuple[int, int]], times: list[int]) -> None:
    edges = that_may_cycle(edges_of(found), np.array(times))
    graph = Graph(edges)
    cycles = [graph.shortest_cycle(component, 10_000) for component in graph.components()]
    for cycle in cycles:
        steps = [found[label] for label in cycle]
        assert all(one[1] == other[0] for one, other in zip(steps, (*steps[1:], steps[0]), strict=True))
    assert min(map(len, cycles), default=0) == shortest_by_trying(found)


def test_nodes_that_lie_on_no_cycle_are_left_out() -> None:
    chain = [(node, node + 1) for node in range(1_000)]
    times = np.arange(1_001)
    assert len(that_may_cycle(edges_of(chain), times)) == 0
    assert len(that_may_cycle(edges_of([*chain, (20, 10)]), times)) == 11


@given(st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(-(2**62), 2**62)), max_size=20))
@settings(max_examples=examples(40), deadline=None)
def test_codes_of_pairs_are_equal_and_ordered_as_the_pairs(found: list[tuple[int, int]]) -> None:
    columns = np.array(found, dtype=np.int64).reshape(-1, 2)
    codes = pair_codes(columns[:, 0], columns[:, 1]).tolist()
    for one, code in zip(found, codes, strict=True):
        assert [code < other for other in codes] == [one < other for other in found]


def test_the_running_maximum_restarts_with_each_run() -> None:
    keys, values = np.array([1, 1, 1, 4, 4]), np.array([3, 9, 2, -5, -6])
    assert running_max_in_runs(starts_of_runs(keys), values).tolist() == [3, 9, 9, -5, -5]
    assert first_in(np.array([2, 5]), np.array([5, 3, 2])).tolist() == [1, -1, 0]


class Register:
    """Read, write, and compare-and-set."""

    def initial(self, name: str) -> int:
        return 0

    def step(self, state: int, call: Call) -> Iterable[int]:
        if call.f == "write":
            return (call.asked,)
        if call.f == "cas":
            before, after = call.asked
            return (after,) if state == before else ()
        return (state,) if not call.known or call.given == state else ()


def explained_by_trying(calls: list[Call]) -> bool:
    register = Register()
    maybe = [call for call in calls if not call.known]
    for chosen in range(1 << len(maybe)):
        taken = [call for call in calls if call.known] + [
            call for place, call in enumerate(maybe) if chosen >> place & 1
        ]
        for order in permutations(taken):
            if any(order[j].completed < order[i].invoked for i in range(len(order)) for j in range(i + 1, len(order))):
                continue
            states = {0}
            for call in order:
                states = {after for state in states for after in register.step(state, call)}
            if states:
                return True
    return False


@st.composite
def histories(draw: Any) -> list[Call]:
    """Up to five calls of three processes, as they overlap."""
    calls: list[Call] = []
    open_: dict[int, tuple[int, str, Any]] = {}
    for i in range(draw(st.integers(2, 10))):
        process = draw(st.integers(0, 2))
        if process in open_:
            invoked, f, asked = open_.pop(process)
            known = draw(st.booleans()) or f == "read"
            given_ = draw(st.integers(0, 2)) if f == "read" else None
            calls.append(Call(f, asked, given_, known, invoked, i if known else NEVER, i))
        elif len(calls) + len(open_) < 5:
            f = draw(st.sampled_from(["read", "write", "cas"]))
            value = st.integers(0, 2)
            asked = {"read": None, "write": draw(value), "cas": (draw(value), draw(value))}[f]
            open_[process] = (i, f, asked)
    return calls


@given(histories())
@settings(max_examples=examples(100), deadline=None)
def test_an_order_is_found_exactly_if_there_is_one(calls: list[Call]) -> None:
    searched = search(calls, Register(), 0)
    assert searched.valid == ("true" if explained_by_trying(calls) else "false")
    if searched.valid == "true":
        assert {call.i for call in calls if call.known} <= {call.i for call in searched.explained}
    else:
        assert searched.stuck


def register() -> Linearizability[int]:
    return Linearizability(Register(), ("read", "write"), lambda f, asked: "x")


def test_a_stale_read_is_described_with_the_possible_next_values() -> None:
    story = Story()
    story.done(0, "write", 1)
    story.invoke(1, "read", None)
    story.line(1, "ok", "read", 0)
    verdict = register().check(story.history())
    assert verdict.valid == "false"
    [finding] = verdict.findings
    assert finding.anomaly == "nonlinearizable" and finding.where == "x"
    assert finding.operations == [1, 3] and "read None gave 0" in finding.description


def test_an_unknown_write_may_take_effect_late_or_never() -> None:
    story = Story()
    story.done(0, "write", 1, "info")
    for value in (0, 1, 1):
        story.invoke(1, "read", None)
        story.line(1, "ok", "read", value)
    story.invoke(2, "write", 7)
    assert register().check(story.history()).valid == "true"
    story.invoke(1, "read", None)
    story.line(1, "ok", "read", 0)
    assert register().check(story.history()).valid == "false"


def test_a_failed_write_has_no_effect() -> None:
    story = Story()
    story.done(0, "write", 1, "fail")
    story.invoke(1, "read", None)
    story.line(1, "ok", "read", 1)
    assert register().check(story.history()).valid == "false"


def test_a_search_out_of_steps_returns_unknown() -> None:
    calls = [Call("write", value, None, True, 0, 100, value) for value in range(12)]
    calls.append(Call("read", None, 99, True, 200, 201, 99))
    searched = search(calls, Register(), 0, 500)
    assert searched.valid == "unknown" and searched.steps == 501
    story = Story()
    for process in range(12):
        story.invoke(process, "write", process)
    for process in range(12):
        story.line(process, "ok", "write", None)
    story.invoke(0, "read", None)
    story.line(0, "ok", "read", 99)
    limited = Linearizability(Register(), ("read", "write"), lambda f, asked: "x", limit=500)
    verdict = limited.check(story.history())
    assert verdict.valid == "unknown" and "500 steps" in verdict.unknown_because


def test_long_histories_of_few_at_a_time_are_quick() -> None:
    calls = []
    for number in range(500):
        calls.append(Call("write", number, None, number % 50 != 7, 4 * number, 4 * number + 9, number))
        calls.append(Call("read", None, number, True, 4 * number + 5, 4 * number + 10, 1_000 + number))
    searched = search(calls, Register(), 0)
    assert searched.valid == "true" and searched.steps < 20_000
