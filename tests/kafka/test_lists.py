"""The lists of Kafka's tests fit together."""

from __future__ import annotations

import re
from collections import Counter

from tests.kafka import lists


def test_every_class_is_listed_once() -> None:
    names = Counter(each.name for each in lists.classes())
    assert [name for name, count in names.items() if count > 1] == []


def test_known_and_never_name_classes_that_run() -> None:
    listed = {each.simple_name for each in lists.classes()}
    for test in [*lists.known(), *lists.never()]:
        assert test.partition(".")[0] in listed, f"{test}: no class of classes.tsv"


def test_a_test_that_is_known_to_fail_is_not_left_out_as_well() -> None:
    patterns = [re.compile(gap.pattern) for gap in lists.gaps() if gap.by == "name"]
    for test in lists.known():
        assert not any(pattern.search(test) for pattern in patterns), f"{test} never runs, says gaps.tsv"


def test_a_gap_goes_by_name_or_by_setting() -> None:
    assert {gap.by for gap in lists.gaps()} == {"name", "setting"}


def test_the_selection_fits_whole_names_of_methods() -> None:
    pattern = re.compile(lists.selection_pattern())
    assert pattern.match("TransactionsTest.testBasicTransactions")
    assert not pattern.match("TransactionsTest.testBasicTransactionsAndMore")
    assert not pattern.match("MoreTransactionsTest.testBasicTransactions")


def test_the_selection_leaves_out_what_is_known_to_fail() -> None:
    pattern = re.compile(lists.selection_pattern())
    assert [test for test in lists.known() if pattern.match(test)] == []
