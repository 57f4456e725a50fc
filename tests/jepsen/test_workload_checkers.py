"""Each anomaly of the workloads bank, set, txn-eos, group, offsets, metadata and fences in its smallest story, beside
the nearest story that Kafka allows."""

from __future__ import annotations

from typing import Any

import pytest

from checkers.bank_transfers import BankChecker
from checkers.eos_once import OnceChecker
from checkers.fences_zombies import FencesChecker
from checkers.group_owners import GroupChecker
from checkers.metadata_topics import MetadataChecker
from checkers.offsets_registers import RegistersChecker
from checkers.set_elements import ElementsChecker
from operations import NEMESIS, Outcome
from tests.jepsen.attempt_stories import Story, bugs, legal

pytestmark = pytest.mark.feature("FI-02", "FI-11")


@pytest.fixture
def story() -> Story:
    return Story()


# ---- bank


def transfers(story: Story, number: int, type_: Outcome = "ok") -> tuple[list[int], list[int]]:
    """Five from partition 0 to partition 1; gives the legs."""
    legs = [number, 0, -5], [number, 1, 5]
    asked = {"id": number, "legs": [["bank", 0, legs[0]], ["bank", 1, legs[1]]]}
    story.did(number, "transfer", asked, type_)
    return legs


def test_a_transfer_that_is_there(story: Story) -> None:
    one, other = transfers(story, 1)
    story.read({("bank", 0): [(0, one)], ("bank", 1): [(0, other)]}, final=True)
    verdict = story.judged_by(BankChecker())
    assert verdict.valid == "true" and not verdict.findings
    assert verdict.figures["total"] == 0


@pytest.mark.parametrize("type_", ["ok", "info"])
def test_one_leg_of_two(story: Story, type_: Outcome) -> None:
    one, _ = transfers(story, 1, type_)
    story.read({("bank", 0): [(0, one)], ("bank", 1): []}, final=True)
    assert bugs(story.judged_by(BankChecker())) == {"torn-transaction", "total-changed"}


def test_a_reader_in_the_middle_may_have_one_leg(story: Story) -> None:
    one, other = transfers(story, 1)
    story.read({("bank", 0): [(0, one)], ("bank", 1): []})
    story.read({("bank", 0): [(0, one)], ("bank", 1): [(0, other)]}, process=91, final=True)
    verdict = story.judged_by(BankChecker())
    assert verdict.valid == "true"
    assert verdict.figures["largest sum on its way to a reader"] == 5


def test_a_transfer_that_is_gone(story: Story) -> None:
    transfers(story, 1)
    story.read({("bank", 0): [], ("bank", 1): []}, final=True)
    assert bugs(story.judged_by(BankChecker())) == {"lost-write"}


def test_a_transfer_of_which_nobody_knows_may_be_gone(story: Story) -> None:
    transfers(story, 1, "info")
    story.read({("bank", 0): [], ("bank", 1): []}, final=True)
    assert story.judged_by(BankChecker()).valid == "true"


def test_nobody_read_to_the_end(story: Story) -> None:
    one, _ = transfers(story, 1)
    story.read({("bank", 0): [(0, one)], ("bank", 1): []})
    verdict = story.judged_by(BankChecker())
    assert verdict.valid == "unknown" and verdict.unknown_because


@pytest.mark.parametrize("final", [True, False])
def test_an_aborted_leg_is_read(story: Story, final: bool) -> None:
    one, other = transfers(story, 1, "fail")
    story.read({("bank", 0): [(0, one)], ("bank", 1): [(0, other)]}, final=final)
    verdict = story.judged_by(BankChecker())
    assert bugs(verdict) == {"G1a"}
    assert verdict.findings[0].operations == [0, 1, 3]
    assert story.judged_by(BankChecker("read_uncommitted")).valid != "false"


def test_a_leg_that_is_there_twice(story: Story) -> None:
    one, other = transfers(story, 1)
    story.read({("bank", 0): [(0, one), (1, one)], ("bank", 1): [(0, other)]}, final=True)
    assert "duplicate" in bugs(story.judged_by(BankChecker()))


def test_money_from_nowhere(story: Story) -> None:
    story.read({("bank", 0): [(0, [8, 0, 3])], ("bank", 1): []}, final=True)
    assert bugs(story.judged_by(BankChecker())) == {"unexpected-read", "total-changed"}


def test_an_offset_with_two_values(story: Story) -> None:
    first, second = transfers(story, 1), transfers(story, 2, "info")
    story.read({("bank", 0): [(0, first[0])], ("bank", 1): [(0, first[1])]}, final=True)
    story.read({("bank", 0): [(0, second[0])]}, process=91)
    assert "inconsistent-offsets" in bugs(story.judged_by(BankChecker()))


# ---- set


def adds(story: Story, element: int, offset: int | None, type_: Outcome = "ok") -> None:
    asked = {"element": element, "place": ["set", 0]}
    story.did(element, "add", asked, type_, {**asked, "offset": offset} if type_ == "ok" else None)


def test_a_reader_that_goes_past_an_element(story: Story) -> None:
    adds(story, 1, 0)
    adds(story, 2, 1)
    story.read({("set", 0): [(1, 2)]})
    story.read({("set", 0): [(0, 1), (1, 2)]}, process=91, final=True)
    verdict = story.judged_by(ElementsChecker())
    assert bugs(verdict) == {"skipped-record"}
    assert verdict.findings[0].operations == [5, 7]


def test_a_reader_that_has_not_come_so_far(story: Story) -> None:
    adds(story, 1, 0)
    adds(story, 2, 1)
    story.read({("set", 0): [(0, 1)]}, ends={("set", 0): 1})
    story.read({("set", 0): [(0, 1), (1, 2)]}, process=91, final=True)
    verdict = story.judged_by(ElementsChecker())
    assert verdict.valid == "true" and legal(verdict) == {"stale-read"}
    assert verdict.figures["longest staleness ms"] == 1.0


def test_a_reader_that_began_before_the_acknowledgement(story: Story) -> None:
    story.begins(90, "read", {"final": False})
    adds(story, 1, 0)
    story.ends(90, "ok", {"parts": [["set", 0, 0, 0, []]], "ends": [["set", 0, 0]], "end": True})
    story.read({("set", 0): [(0, 1)]}, process=91, final=True)
    verdict = story.judged_by(ElementsChecker())
    assert verdict.valid == "true" and not verdict.findings


def test_offsets_between_elements_may_be_markers(story: Story) -> None:
    adds(story, 1, 0)
    adds(story, 2, 5)
    story.read({("set", 0): [(0, 1), (5, 2)]}, ends={("set", 0): 7}, final=True)
    assert story.judged_by(ElementsChecker()).valid == "true"


def test_an_element_that_nobody_ever_read(story: Story) -> None:
    adds(story, 1, 0)
    adds(story, 2, 1)
    story.read({("set", 0): [(0, 1)]}, final=True)
    assert bugs(story.judged_by(ElementsChecker())) == {"unseen"}


def test_an_element_that_was_read_and_is_gone(story: Story) -> None:
    adds(story, 1, 0)
    adds(story, 2, 1, "info")
    story.read({("set", 0): [(0, 1), (1, 2)]})
    story.read({("set", 0): [(0, 1)]}, process=91, final=True)
    assert bugs(story.judged_by(ElementsChecker())) == {"lost-write"}


def test_a_reader_who_is_stuck_says_nothing_about_what_is_behind(story: Story) -> None:
    adds(story, 1, 0)
    adds(story, 2, 1)
    story.read({("set", 0): [(0, 1), (1, 2)]}, final=True)
    story.read({("set", 0): []}, process=91, named={("set", 0): 2}, final=True)
    verdict = story.judged_by(ElementsChecker())
    assert bugs(verdict) == {"unseen"}
    assert "a reader got nothing from offset 0 of set-0 on, and others 2 records" in verdict.findings[0].description


def test_a_reader_before_the_last_marker_has_read_everything(story: Story) -> None:
    adds(story, 1, 0)
    story.read({("set", 0): [(0, 1)]}, named={("set", 0): 2}, final=True)
    assert story.judged_by(ElementsChecker()).valid == "true"


def test_a_reader_at_the_end_of_a_log_that_was_longer_finds_a_loss(story: Story) -> None:
    adds(story, 1, 0)
    adds(story, 2, 1, "info")
    story.read({("set", 0): [(0, 1), (1, 2)]})
    story.read({("set", 0): [(0, 1)]}, process=91, named={("set", 0): 1}, final=True)
    assert bugs(story.judged_by(ElementsChecker())) == {"lost-write"}


def test_duplicates_are_legal_without_idempotence(story: Story) -> None:
    adds(story, 1, 1)
    story.read({("set", 0): [(0, 1), (1, 1)]}, final=True)
    assert bugs(story.judged_by(ElementsChecker())) == {"duplicate"}
    verdict = story.judged_by(ElementsChecker(idempotence=False))
    assert verdict.valid == "true" and legal(verdict) == {"duplicate"}


def test_an_element_at_another_offset_than_its_acknowledgement(story: Story) -> None:
    adds(story, 1, 4)
    story.read({("set", 0): [(0, 1)]}, final=True)
    assert bugs(story.judged_by(ElementsChecker())) == {"inconsistent-offsets"}


def test_an_element_whose_adding_failed(story: Story) -> None:
    adds(story, 1, None, "fail")
    story.read({("set", 0): [(0, 1)]}, final=True)
    assert bugs(story.judged_by(ElementsChecker())) == {"G1a"}


def test_a_final_reading_in_pieces(story: Story) -> None:
    adds(story, 1, 0)
    adds(story, 2, 1)
    story.read_from({("set", 0): 0}, {("set", 0): [(0, 1)]}, final=True)
    story.read_from({("set", 0): 1}, {("set", 0): [(1, 2)]}, final=True)
    assert story.judged_by(ElementsChecker()).valid == "true"


def test_a_final_reading_without_its_beginning_proves_nothing(story: Story) -> None:
    adds(story, 1, 0)
    story.read_from({("set", 0): 1}, {("set", 0): []}, final=True)
    assert story.judged_by(ElementsChecker()).valid == "unknown"


# ---- txn-eos


def feeds(story: Story, number: int, type_: Outcome = "ok") -> None:
    story.did(0, "feed", {"feed": number, "records": [["in", 0, number]]}, type_)


def transforms(story: Story, attempt: int, inputs: list[tuple[int, int]], type_: Outcome = "ok") -> None:
    value = {
        "attempt": attempt,
        "parts": [["in", 0, inputs[0][0], inputs[-1][0] + 1, [list(each) for each in inputs]]],
        "records": [["out", 0, [number, attempt]] for _, number in inputs],
    }
    story.did(attempt, "transform", {"attempt": attempt}, type_, value)


def eos_ends(story: Story, inputs: list[Any], outputs: list[Any], committed: int) -> None:
    story.did(95, "committed", {"final": True}, "ok", {"offsets": [["in", 0, committed]]})
    story.read({("in", 0): inputs, ("out", 0): outputs}, final=True)


def test_each_input_once(story: Story) -> None:
    feeds(story, 1)
    feeds(story, 2)
    transforms(story, 1, [(0, 1), (1, 2)], "fail")
    transforms(story, 2, [(0, 1)])
    transforms(story, 3, [(1, 2)], "info")
    eos_ends(story, [(0, 1), (1, 2)], [(0, [1, 2]), (1, [2, 3])], 2)
    verdict = story.judged_by(OnceChecker())
    assert verdict.valid == "true" and not verdict.findings
    assert verdict.figures["outputs"] == 2


def test_an_input_with_two_outputs(story: Story) -> None:
    feeds(story, 1)
    transforms(story, 1, [(0, 1)])
    transforms(story, 2, [(0, 1)])
    eos_ends(story, [(0, 1)], [(0, [1, 1]), (2, [1, 2])], 1)
    assert bugs(story.judged_by(OnceChecker())) == {"duplicate-output"}


def test_an_input_that_was_passed_without_an_output(story: Story) -> None:
    feeds(story, 1)
    transforms(story, 1, [(0, 1)], "info")
    eos_ends(story, [(0, 1)], [], 1)
    assert bugs(story.judged_by(OnceChecker())) == {"lost-output"}


def test_an_input_to_which_the_group_never_came(story: Story) -> None:
    feeds(story, 1)
    eos_ends(story, [(0, 1)], [], 0)
    assert bugs(story.judged_by(OnceChecker())) == {"untransformed"}


def test_outputs_in_another_order(story: Story) -> None:
    feeds(story, 1)
    feeds(story, 2)
    transforms(story, 1, [(0, 1)])
    transforms(story, 2, [(1, 2)])
    eos_ends(story, [(0, 1), (1, 2)], [(0, [2, 2]), (1, [1, 1])], 2)
    assert bugs(story.judged_by(OnceChecker())) == {"out-of-order"}


def test_offsets_of_a_transaction_that_are_gone(story: Story) -> None:
    feeds(story, 1)
    transforms(story, 1, [(0, 1)])
    eos_ends(story, [(0, 1)], [(0, [1, 1])], 0)
    assert bugs(story.judged_by(OnceChecker())) == {"lost-offsets"}


def test_a_transformer_that_is_given_an_aborted_input(story: Story) -> None:
    feeds(story, 1, "fail")
    transforms(story, 1, [(0, 1)], "fail")
    eos_ends(story, [], [], 1)
    assert "G1a" in bugs(story.judged_by(OnceChecker()))


def test_half_of_a_try(story: Story) -> None:
    feeds(story, 1)
    feeds(story, 2)
    transforms(story, 1, [(0, 1), (1, 2)], "info")
    eos_ends(story, [(0, 1), (1, 2)], [(0, [1, 1])], 2)
    assert bugs(story.judged_by(OnceChecker())) == {"torn-transaction", "lost-output"}


# ---- group


def given(kind: str, generation: int, *partitions: int) -> dict[str, Any]:
    return {"kind": kind, "places": [["group", each] for each in partitions], "generation": generation, "t_ns": 0}


def works(
    story: Story,
    process: int,
    events: list[dict[str, Any]],
    polled: list[int],
    committed: int | None = None,
    **more: Any,
) -> None:
    """`polled`: offsets of partition 0, each holding its own number."""
    story.begins(process, "work", {"member": more.get("member", f"process-{process}")})
    ends_work(story, process, events, polled, committed, **more)


def ends_work(
    story: Story,
    process: int,
    events: list[dict[str, Any]],
    polled: list[int],
    committed: int | None = None,
    **more: Any,
) -> None:
    parts = [["group", 0, polled[0], polled[-1] + 1, [[each, each] for each in polled]]] if polled else []
    value = {"parts": parts, "committed": None if committed is None else [["group", 0, committed]]}
    story.ends(process, more.get("type_", "ok"), value, note={"rebalances": events} if events else {})


def group_has(story: Story, records: int) -> None:
    for number in range(records):
        asked = {"value": number, "place": ["group", 0]}
        story.did(50, "feed", asked, "ok", {**asked, "offset": number})


def group_ends(story: Story, records: int, committed: int) -> None:
    story.did(95, "committed", {"final": True}, "ok", {"offsets": [["group", 0, committed]]})
    story.read({("group", 0): [(number, number) for number in range(records)]}, final=True)


def test_a_partition_that_changes_hands(story: Story) -> None:
    group_has(story, 4)
    works(story, 1, [given("assigned", 1, 0, 1)], [0, 1], 2)
    works(story, 1, [given("revoked", 1, 0, 1), given("assigned", 2, 1)], [])
    works(story, 2, [given("assigned", 2, 0)], [2, 3], 4)
    group_ends(story, 4, 4)
    verdict = story.judged_by(GroupChecker())
    assert verdict.valid == "true" and not verdict.findings
    assert verdict.figures["generations"] == 2


def test_two_owners_in_one_generation(story: Story) -> None:
    works(story, 1, [given("assigned", 1, 0)], [])
    works(story, 2, [given("assigned", 1, 0)], [])
    group_ends(story, 0, 0)
    verdict = story.judged_by(GroupChecker())
    assert bugs(verdict) == {"two-owners"}
    assert verdict.findings[0].where == "group-0"


def test_a_group_of_both_protocols_may_begin_again(story: Story) -> None:
    """An empty classic group gives way to a consumer group, whose first generation is another one."""
    works(story, 1, [given("assigned", 1, 0)], [])
    works(story, 3, [given("assigned", 2, 1)], [])
    works(story, 2, [given("assigned", 1, 0)], [])
    group_ends(story, 0, 0)
    assert bugs(story.judged_by(GroupChecker(protocol="mixed"))) == set()
    assert bugs(story.judged_by(GroupChecker(protocol="consumer"))) == {"two-owners"}


def test_a_partition_that_is_kept_through_a_rebalance_has_an_owner_there(story: Story) -> None:
    works(story, 1, [given("assigned", 1, 0)], [])
    works(story, 1, [given("assigned", 2, 1)], [])
    works(story, 2, [given("assigned", 2, 0)], [])
    group_ends(story, 0, 0)
    assert bugs(story.judged_by(GroupChecker())) == {"two-owners"}


def test_a_zombie_overlaps_in_time_and_not_in_generation(story: Story) -> None:
    group_has(story, 1)
    works(story, 1, [given("assigned", 1, 0)], [0])
    works(story, 2, [given("assigned", 2, 0)], [0], 1)
    works(story, 1, [], [])
    works(story, 1, [given("lost", 1, 0)], [])
    group_ends(story, 1, 1)
    assert story.judged_by(GroupChecker()).valid == "true"


def test_a_static_member_is_the_same_in_its_next_life(story: Story) -> None:
    works(story, 1, [given("assigned", 1, 0)], [], member="s")
    works(story, 7, [given("assigned", 1, 0)], [], member="s")
    group_ends(story, 0, 0)
    assert story.judged_by(GroupChecker()).valid == "true"


def test_a_generation_that_goes_back(story: Story) -> None:
    works(story, 1, [given("assigned", 5, 0)], [])
    works(story, 1, [given("revoked", 5, 0), given("assigned", 4, 0)], [])
    group_ends(story, 0, 0)
    assert bugs(story.judged_by(GroupChecker())) == {"generation-regress"}


def test_a_gap_in_what_a_group_processed(story: Story) -> None:
    group_has(story, 4)
    works(story, 1, [given("assigned", 1, 0)], [0, 1], 2)
    works(story, 2, [given("assigned", 2, 0)], [3], 4)
    group_ends(story, 4, 4)
    assert bugs(story.judged_by(GroupChecker())) == {"gap", "unprocessed"}


def test_a_poll_before_the_commit_may_complete_after_it(story: Story) -> None:
    group_has(story, 3)
    story.begins(1, "work", {"member": "process-1"})
    works(story, 2, [given("assigned", 2, 0)], [2], 3)
    ends_work(story, 1, [given("assigned", 1, 0), given("lost", 1, 0)], [0, 1], 2)
    group_ends(story, 3, 3)
    assert story.judged_by(GroupChecker()).valid == "true"


def test_a_record_first_polled_after_the_commit_was_a_gap(story: Story) -> None:
    group_has(story, 2)
    works(story, 1, [given("assigned", 1, 0)], [1], 2)
    works(story, 2, [given("assigned", 2, 0)], [0, 1], 2)
    group_ends(story, 2, 2)
    assert "gap" in bugs(story.judged_by(GroupChecker()))


def test_a_member_that_never_completed_may_have_polled_it(story: Story) -> None:
    group_has(story, 2)
    story.begins(1, "work", {"member": "process-1"})
    works(story, 2, [given("assigned", 2, 0)], [1], 2)
    group_ends(story, 2, 2)
    verdict = story.judged_by(GroupChecker())
    assert "gap" in legal(verdict) and "gap" not in bugs(verdict)


def test_an_owner_that_begins_below_a_commit(story: Story) -> None:
    group_has(story, 2)
    works(story, 1, [given("assigned", 1, 0)], [0, 1], 2)
    works(story, 2, [given("assigned", 2, 0)], [1], 2)
    group_ends(story, 2, 2)
    assert bugs(story.judged_by(GroupChecker())) == {"lost-commit"}


def test_an_owner_that_was_given_the_partition_before_that_commit(story: Story) -> None:
    group_has(story, 2)
    story.begins(2, "work", {"member": "process-2"})
    works(story, 1, [given("assigned", 1, 0)], [0, 1], 2)
    ends_work(story, 2, [given("assigned", 2, 0)], [1], 2)
    group_ends(story, 2, 2)
    assert story.judged_by(GroupChecker()).valid == "true"


def test_commits_that_are_gone_at_the_end(story: Story) -> None:
    group_has(story, 2)
    works(story, 1, [given("assigned", 1, 0)], [0, 1], 2)
    group_ends(story, 2, 1)
    assert bugs(story.judged_by(GroupChecker())) == {"lost-commit"}


def test_a_commit_of_which_nobody_knows_may_be_gone(story: Story) -> None:
    group_has(story, 2)
    works(story, 1, [given("assigned", 1, 0)], [0, 1], type_="info")
    group_ends(story, 2, 0)
    assert story.judged_by(GroupChecker()).valid == "true"


def test_commits_that_go_back_within_a_generation(story: Story) -> None:
    group_has(story, 2)
    works(story, 1, [given("assigned", 1, 0)], [0, 1], 2)
    works(story, 1, [], [0], 1)
    group_ends(story, 2, 2)
    assert bugs(story.judged_by(GroupChecker())) == {"commit-regress"}


def test_a_commit_of_a_generation_that_is_over(story: Story) -> None:
    group_has(story, 2)
    works(story, 1, [given("assigned", 1, 0)], [0], 1)
    works(story, 2, [given("assigned", 2, 0)], [1], 2)
    works(story, 1, [], [], 2)
    group_ends(story, 2, 2)
    assert bugs(story.judged_by(GroupChecker())) == {"stale-generation"}
    # With KIP-848 members have epochs of their own.
    assert story.judged_by(GroupChecker(protocol="consumer")).valid == "true"


def test_a_record_that_was_given_to_no_member(story: Story) -> None:
    group_has(story, 2)
    works(story, 1, [given("assigned", 1, 0)], [0], 1)
    group_ends(story, 2, 1)
    assert bugs(story.judged_by(GroupChecker())) == {"unprocessed"}


# ---- offsets


def commits(story: Story, number: int, type_: Outcome = "ok") -> None:
    story.did(1, "commit", {"group": "g", "offsets": [["offsets", 0, number]]}, type_)


def fetches(story: Story, number: int | None, *, final: bool = True) -> None:
    found = [] if number is None else [["offsets", 0, number]]
    asked = {"group": "g", "final": final}
    story.did(2, "fetch", asked, "ok", {**asked, "offsets": found})


@pytest.mark.parametrize("number", [1, None])
def test_a_commit_that_is_lost(story: Story, number: int | None) -> None:
    commits(story, 1)
    commits(story, 2)
    fetches(story, number)
    assert bugs(story.judged_by(RegistersChecker())) == {"lost-commit"}


def test_a_deposed_coordinator_may_answer(story: Story) -> None:
    commits(story, 1)
    commits(story, 2)
    fetches(story, 1, final=False)
    fetches(story, 2)
    verdict = story.judged_by(RegistersChecker())
    assert verdict.valid == "true" and legal(verdict) == {"stale-commit"}


SECOND_NS = 1_000_000_000
SESSION_MS = 3_000


def breaks(story: Story, number: int, kind: str) -> None:
    """The nemesis begins a fault, which lasts to the end."""
    for type_ in ("invoke", "info"):
        story._line(NEMESIS, type_, kind, {"number": number, "kind": kind, "targets": ["broker-1"]})


@pytest.mark.parametrize(
    ("kinds", "seconds", "is_a_bug"),
    [
        (["cut-off"], 7, True),
        (["cut-off"], 5, False),
        (["partition"], 7, False),
        (["partition", "cut-off"], 7, False),
        (["cut-off", "pause"], 7, False),
        (["kill", "cut-off"], 7, True),
    ],
)
def test_a_coordinator_that_is_cut_off_has_to_know_after_two_sessions(
    story: Story, kinds: list[str], seconds: int, is_a_bug: bool
) -> None:
    """Two controllers are legal only under asymmetric links: one may receive some messages, but not those that
    announce its successor."""
    commits(story, 1)
    for number, kind in enumerate(kinds, 1):
        breaks(story, number, kind)
    commits(story, 2)
    story.now_ns += seconds * SECOND_NS
    fetches(story, 1, final=False)
    fetches(story, 2)
    verdict = story.judged_by(RegistersChecker(SESSION_MS))
    assert bugs(verdict) == ({"deposed-coordinator"} if is_a_bug else set())
    assert legal(verdict) == (set() if is_a_bug else {"stale-commit"})


def test_a_commit_that_was_on_its_way_may_overtake(story: Story) -> None:
    commits(story, 1, "info")
    commits(story, 2)
    fetches(story, 1)
    verdict = story.judged_by(RegistersChecker())
    assert verdict.valid == "true" and legal(verdict) == {"late-commit"}


def test_a_later_commit_of_which_nobody_knows(story: Story) -> None:
    commits(story, 1)
    commits(story, 2, "info")
    fetches(story, 2)
    verdict = story.judged_by(RegistersChecker())
    assert verdict.valid == "true" and not verdict.findings


@pytest.mark.parametrize("type_", ["fail", None])
def test_an_offset_that_nobody_committed(story: Story, type_: Outcome | None) -> None:
    commits(story, 1)
    if type_ is not None:
        commits(story, 2, type_)
    fetches(story, 2)
    assert bugs(story.judged_by(RegistersChecker())) == {"unexpected-offset"}


def test_a_group_that_nobody_asked_for_at_the_end(story: Story) -> None:
    commits(story, 1)
    fetches(story, 1, final=False)
    assert story.judged_by(RegistersChecker()).valid == "unknown"


# ---- metadata

EXISTS, UNKNOWN, TOO_FEW = "TopicExistsException", "UnknownTopicOrPartitionException", "InvalidPartitionsException"


def changes(story: Story, f: str, type_: Outcome = "ok", error: str | None = None, **more: Any) -> None:
    story.did(1, f, {"topic": "t", **more}, type_, error=error)


def looks(story: Story, partitions: int | None, config: str | None) -> None:
    story.did(2, "look", {"topic": "t"}, "ok", {"topic": "t", "partitions": partitions, "config": config})


def test_a_life_of_a_topic(story: Story) -> None:
    changes(story, "alter", "fail", UNKNOWN, config="8")
    changes(story, "create", partitions=1, config="9")
    changes(story, "create", "fail", EXISTS, partitions=1, config="10")
    changes(story, "partitions", total=3)
    changes(story, "partitions", "fail", TOO_FEW, total=2)
    changes(story, "alter", config="11")
    looks(story, 3, "11")
    changes(story, "delete")
    changes(story, "delete", "fail", UNKNOWN)
    looks(story, None, None)
    verdict = story.judged_by(MetadataChecker())
    assert verdict.valid == "true" and not verdict.findings


@pytest.mark.parametrize("seen", [(None, None), (1, "9"), (2, "10")])
def test_a_change_that_is_gone(story: Story, seen: tuple[int | None, str | None]) -> None:
    changes(story, "create", partitions=1, config="9")
    changes(story, "alter", config="10")
    looks(story, *seen)
    assert bugs(story.judged_by(MetadataChecker())) == {"nonlinearizable"}


def test_two_creations_without_a_deletion(story: Story) -> None:
    changes(story, "create", partitions=1, config="9")
    changes(story, "create", partitions=1, config="10")
    assert bugs(story.judged_by(MetadataChecker())) == {"nonlinearizable"}


def test_a_deletion_of_which_nobody_knows_may_be_between(story: Story) -> None:
    changes(story, "create", partitions=1, config="9")
    changes(story, "delete", "info", "TimeoutException")
    changes(story, "create", partitions=1, config="10")
    assert story.judged_by(MetadataChecker()).valid == "true"


def test_a_refusal_of_a_deposed_controller(story: Story) -> None:
    changes(story, "create", partitions=1, config="9")
    story.passes(5)
    changes(story, "alter", "fail", UNKNOWN, config="10")
    verdict = story.judged_by(MetadataChecker())
    assert verdict.valid == "true" and legal(verdict) == {"refusal-out-of-order"}


def test_a_refusal_that_no_deposed_controller_explains(story: Story) -> None:
    changes(story, "create", partitions=1, config="9")
    story.passes(60)
    changes(story, "alter", "fail", UNKNOWN, config="10")
    assert bugs(story.judged_by(MetadataChecker())) == {"nonlinearizable"}


def test_a_refusal_of_what_the_same_request_did_before(story: Story) -> None:
    changes(story, "create", "fail", EXISTS, partitions=1, config="9")
    looks(story, 1, "9")
    verdict = story.judged_by(MetadataChecker())
    assert verdict.valid == "true" and legal(verdict) == {"refusal-out-of-order"}


def test_a_search_that_is_too_long_proves_nothing(story: Story) -> None:
    changes(story, "create", partitions=1, config="9")
    changes(story, "create", "fail", EXISTS, partitions=1, config="10")
    verdict = story.judged_by(MetadataChecker(steps=1))
    assert verdict.valid == "unknown" and "t:" in verdict.unknown_because


def describes(story: Story, config: str, node: str | None) -> None:
    story.did(3, "describe", {"topic": "t"}, "ok", {"topic": "t", "config": config}, node=node)


def test_a_broker_that_goes_back(story: Story) -> None:
    changes(story, "create", partitions=1, config="9")
    changes(story, "alter", config="10")
    describes(story, "10", "broker-1")
    describes(story, "9", "broker-1")
    assert bugs(story.judged_by(MetadataChecker())) == {"metadata-went-back"}


@pytest.mark.parametrize("node", ["broker-2", None])
def test_another_broker_may_be_late(story: Story, node: str | None) -> None:
    changes(story, "create", partitions=1, config="9")
    changes(story, "alter", config="10")
    describes(story, "10", "broker-1")
    describes(story, "9", node)
    assert story.judged_by(MetadataChecker()).valid == "true"


def test_a_config_that_nobody_gave(story: Story) -> None:
    changes(story, "create", partitions=1, config="9")
    describes(story, "77", "broker-1")
    assert bugs(story.judged_by(MetadataChecker())) == {"unexpected-read"}


def test_a_config_that_had_failed(story: Story) -> None:
    changes(story, "create", partitions=1, config="9")
    changes(story, "alter", "fail", "PolicyViolationException", config="10")
    describes(story, "10", None)
    assert bugs(story.judged_by(MetadataChecker())) == {"G1a"}


# ---- fences


def takes(story: Story, process: int) -> None:
    story.did(process, "init", {"id": "x"})


def appends(story: Story, process: int, number: int, type_: Outcome = "ok") -> None:
    story.did(process, "append", append_of(process, number), type_)


def append_of(process: int, number: int) -> dict[str, Any]:
    return {"id": "x", "transaction": number, "records": [["fences", 0, [process, number, 0]]]}


def ends(story: Story, process: int, number: int, f: str = "commit", type_: Outcome = "ok") -> None:
    story.did(process, f, {"id": "x", "transaction": number}, type_)


def fences_end(story: Story, committed: list[Any], everything: list[Any]) -> None:
    story.read({("fences", 0): committed}, process=90, final=True)
    story.read({("fences", 0): everything}, process=91, final=True, isolation="read_uncommitted")


def test_one_after_the_other(story: Story) -> None:
    takes(story, 1)
    appends(story, 1, 1)
    ends(story, 1, 1)
    takes(story, 2)
    appends(story, 2, 2)
    ends(story, 2, 2)
    appends(story, 1, 3, "fail")
    records = [(0, [1, 1, 0]), (2, [2, 2, 0])]
    fences_end(story, records, records)
    verdict = story.judged_by(FencesChecker())
    assert verdict.valid == "true" and not verdict.findings
    assert verdict.figures["begun by zombies"] == 1


def test_a_zombie_commits(story: Story) -> None:
    takes(story, 1)
    appends(story, 1, 1)
    takes(story, 2)
    ends(story, 1, 1)
    fences_end(story, [(0, [1, 1, 0])], [(0, [1, 1, 0])])
    assert bugs(story.judged_by(FencesChecker())) == {"zombie-commit"}


def test_a_zombies_commit_of_which_nobody_knows(story: Story) -> None:
    takes(story, 1)
    appends(story, 1, 1)
    takes(story, 2)
    ends(story, 1, 1, type_="info")
    fences_end(story, [], [(0, [1, 1, 0])])
    assert story.judged_by(FencesChecker()).valid == "true"


def test_a_zombies_commit_that_was_carried_out_all_the_same(story: Story) -> None:
    takes(story, 1)
    appends(story, 1, 1)
    takes(story, 2)
    ends(story, 1, 1, type_="info")
    fences_end(story, [(0, [1, 1, 0])], [(0, [1, 1, 0])])
    assert bugs(story.judged_by(FencesChecker())) == {"zombie-commit"}


def test_a_commit_that_was_asked_for_before(story: Story) -> None:
    takes(story, 1)
    appends(story, 1, 1)
    story.begins(1, "commit", {"id": "x", "transaction": 1})
    takes(story, 2)
    story.ends(1)
    fences_end(story, [(0, [1, 1, 0])], [(0, [1, 1, 0])])
    assert story.judged_by(FencesChecker()).valid == "true"


def test_a_zombie_appends(story: Story) -> None:
    takes(story, 1)
    takes(story, 2)
    appends(story, 1, 1, "fail")
    fences_end(story, [], [(0, [1, 1, 0])])
    assert bugs(story.judged_by(FencesChecker())) == {"zombie-append"}


def test_an_append_that_was_under_way(story: Story) -> None:
    takes(story, 1)
    story.begins(1, "append", append_of(1, 1))
    takes(story, 2)
    story.ends(1, "fail")
    fences_end(story, [], [(0, [1, 1, 0])])
    assert story.judged_by(FencesChecker()).valid == "true"


def test_an_append_that_was_under_way_and_lands_behind_the_newer_ones(story: Story) -> None:
    takes(story, 1)
    story.begins(1, "append", append_of(1, 1))
    takes(story, 2)
    appends(story, 2, 2)
    story.ends(1, "fail")
    ends(story, 2, 2)
    fences_end(story, [(0, [2, 2, 0])], [(0, [2, 2, 0]), (1, [1, 1, 0])])
    assert bugs(story.judged_by(FencesChecker())) == {"zombie-append"}


def test_either_of_two_concurrent_inits_may_be_the_newer(story: Story) -> None:
    for process in (1, 2):
        story.begins(process, "init", {"id": "x"})
    for process in (1, 2):
        story.ends(process)
    appends(story, 1, 1)
    appends(story, 2, 2)
    ends(story, 2, 2)
    fences_end(story, [(1, [2, 2, 0])], [(0, [1, 1, 0]), (1, [2, 2, 0])])
    assert story.judged_by(FencesChecker()).valid == "true"


def test_but_they_must_not_alternate(story: Story) -> None:
    for process in (1, 2):
        story.begins(process, "init", {"id": "x"})
    for process in (1, 2):
        story.ends(process)
    appends(story, 1, 1)
    appends(story, 2, 2)
    appends(story, 1, 3)
    fences_end(story, [], [(0, [1, 1, 0]), (1, [2, 2, 0]), (2, [1, 3, 0])])
    assert bugs(story.judged_by(FencesChecker())) == {"zombie-append"}


def test_an_init_of_which_nobody_knows_fences_nobody(story: Story) -> None:
    takes(story, 1)
    appends(story, 1, 1)
    story.did(2, "init", {"id": "x"}, "info")
    ends(story, 1, 1)
    fences_end(story, [(0, [1, 1, 0])], [(0, [1, 1, 0])])
    assert story.judged_by(FencesChecker()).valid == "true"


def test_records_of_an_uncommitted_transaction_are_never_read(story: Story) -> None:
    takes(story, 1)
    appends(story, 1, 1)
    fences_end(story, [(0, [1, 1, 0])], [(0, [1, 1, 0])])
    assert bugs(story.judged_by(FencesChecker())) == {"G1a"}
