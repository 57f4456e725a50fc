"""The judge: stories of single mistakes, and any mixture of them."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.check.judge import Observed, judge
from barnabas.check.promises import Kind
from barnabas.check.records import Input, Output
from tests.barnabas.check.histories import inputs, judged, kinds, outputs
from tests.examples import examples


def test_each_input_once_and_in_order_has_no_finding() -> None:
    assert judged(inputs(6), outputs(range(1, 7))) == []


def test_an_input_that_later_ones_overtook_is_lost() -> None:
    [finding] = judged(inputs(4), outputs([1, 3, 4]))
    assert finding.kind is Kind.LOST
    assert finding.text == "input 2 (key k1) has no output"
    assert finding.input is not None and finding.input.offset == 1


def test_the_last_input_is_lost_if_the_group_committed_past_it() -> None:
    assert kinds(judged(inputs(3), outputs([1, 2]), committed={0: 3})) == [Kind.LOST]


def test_the_last_input_is_stuck_if_the_group_did_not_reach_it() -> None:
    found = judged(inputs(3), outputs([1, 2]), committed={0: 2}, calm=[(0.0, 1000.0)], stuck_s=30.0)
    assert kinds(found) == [Kind.STUCK]
    assert "stood still for 998 s without a fault; input 3 waited" in found[0].text


def test_an_input_that_waits_shorter_is_not_stuck() -> None:
    assert judged(inputs(3), outputs([1, 2]), committed={0: 2}, end_s=12.0, calm=[(0.0, 12.0)], stuck_s=30.0) == []


def test_time_with_faults_does_not_count() -> None:
    late = outputs([1, 2, 3], at_s=100.0)
    assert judged(inputs(3), late, calm=[(0.0, 20.0), (80.0, 100.0)], stuck_s=30.0) == []
    assert kinds(judged(inputs(3), late, calm=[(0.0, 20.0), (60.0, 100.0)], stuck_s=30.0)) == [Kind.STUCK]


def test_a_slow_application_is_not_stuck() -> None:
    given_ = inputs(50)
    slow = [Output(it.id, "output-0", place, 20.0 * (place + 1)) for place, it in enumerate(given_)]
    assert judged(given_, slow, calm=[(0.0, 1000.0)], stuck_s=30.0) == []


def test_a_standstill_of_one_partition_is_seen_while_another_goes_on() -> None:
    given_ = inputs(60, keys=2, partitions=2)
    made = [Output(it.id, f"output-{it.partition}", it.offset, it.at_s + 0.5) for it in given_ if it.partition == 0]
    made += [Output(it.id, "output-1", it.offset, 200.0) for it in given_ if it.partition == 1]
    [finding] = judged(given_, made, calm=[(0.0, 200.0)], stuck_s=30.0)
    assert finding.kind is Kind.STUCK
    assert finding.text.startswith("partition 1 stood still")


def test_an_output_that_comes_again_is_doubled() -> None:
    [finding] = judged(inputs(3), outputs([1, 2, 3, 2]))
    assert finding.kind is Kind.DOUBLED
    assert finding.text == "input 2 (key k1) is in the output 2 times: output-0@1, output-0@3"


def test_an_input_may_ask_for_two_outputs_of_the_same_id() -> None:
    given_ = [Input("1", "k", 0, 0, 0.0, ("1", "1"))]
    assert judged(given_, outputs([1, 1])) == []
    assert kinds(judged(given_, outputs([1, 1, 1]))) == [Kind.DOUBLED]


def test_an_input_may_ask_for_no_output() -> None:
    given_ = [Input("1", "k", 0, 0, 0.0, ()), Input("2", "k", 0, 1, 1.0, ("2",))]
    assert judged(given_, outputs([2])) == []
    assert kinds(judged(given_, outputs([1, 2]))) == [Kind.INVENTED]


def test_one_of_several_outputs_may_be_lost() -> None:
    given_ = [Input("1", "k", 0, 0, 0.0, ("1a", "1b")), Input("2", "k", 0, 1, 1.0, ("2",))]
    made = [Output("1a", "o", 0, 1.0), Output("2", "o", 1, 1.0)]
    [finding] = judged(given_, made)
    assert finding.text == "input 1 (key k) has no output 1b"


def test_order_counts_within_a_key_only() -> None:
    assert judged(inputs(4, keys=2), outputs([2, 1, 4, 3])) == []
    [finding] = judged(inputs(4, keys=2), outputs([3, 1, 2, 4]))
    assert finding.kind is Kind.REORDERED
    assert finding.text == "key k0: input 3 came after 1, and its output output-0@0 is before output-0@1"


def test_order_counts_within_a_place_only() -> None:
    assert judged(inputs(2, keys=1), [*outputs([2], "a"), *outputs([1], "b")]) == []


def test_a_repetition_is_no_change_of_order() -> None:
    assert kinds(judged(inputs(3, keys=1), outputs([1, 2, 1, 2, 3]))) == [Kind.DOUBLED, Kind.DOUBLED]


def test_outputs_that_nobody_asked_for_have_their_kinds() -> None:
    found = judged(
        inputs(2), outputs([1, 2, 77, 88, 99]), aborted={"77"}, uncertain={"88"}, unreadable=["output-0@9 is not JSON"]
    )
    assert kinds(found) == [Kind.ABORTED, Kind.INVENTED, Kind.UNREADABLE]
    assert "isolation.level" in found[0].text


PLANTS = st.fixed_dictionaries(
    {name: st.sets(st.integers(1, 30), max_size=5) for name in ("dropped", "doubled", "aborted")}
)


@settings(max_examples=examples(100), deadline=None)
@given(plants=PLANTS, seed=st.integers(0, 1000), keys=st.integers(1, 5), partitions=st.integers(1, 3))
def test_planted_mistakes_are_found_and_nothing_else(
    plants: dict[str, set[int]], seed: int, keys: int, partitions: int
) -> None:
    """Whatever is dropped, doubled or invented is found, and no order is broken by that."""
    given_ = inputs(31, keys, partitions)
    wanted = [it.id for it in given_ if int(it.id) not in plants["dropped"]]
    made = outputs([*wanted, *(each for each in wanted if int(each) in plants["doubled"])])
    phantoms = {f"-{each}" for each in plants["aborted"]}
    made += [Output(each, "output-0", len(made) + place, 50.0) for place, each in enumerate(sorted(phantoms))]
    random.Random(seed).shuffle(given_)
    ends = {it.partition: max(o.offset for o in given_ if o.partition == it.partition) + 1 for it in given_}
    found = judge(Observed(given_, made, aborted=phantoms, committed=ends, end_s=60.0))
    by_kind = {kind: {it.input.id for it in found if it.kind is kind and it.input} for kind in Kind}
    assert by_kind[Kind.LOST] == {str(each) for each in plants["dropped"]}
    assert by_kind[Kind.DOUBLED] == {str(each) for each in plants["doubled"] - plants["dropped"]}
    assert {it.outputs[0].id for it in found if it.kind is Kind.ABORTED} == phantoms
    assert {it.kind for it in found} <= {Kind.LOST, Kind.DOUBLED, Kind.ABORTED}


@settings(max_examples=examples(100), deadline=None)
@given(order=st.permutations(list(range(1, 9))), keys=st.integers(1, 3))
def test_order_is_broken_exactly_if_a_key_has_an_inversion(order: list[int], keys: int) -> None:
    found = judged(inputs(8, keys), outputs(order))
    inverted = any(
        (order[a] - 1) % keys == (order[b] - 1) % keys and order[a] > order[b]
        for a in range(8)
        for b in range(a + 1, 8)
    )
    assert (Kind.REORDERED in kinds(found)) is inverted
    assert set(kinds(found)) <= {Kind.REORDERED}
