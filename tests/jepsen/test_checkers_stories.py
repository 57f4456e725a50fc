"""Each anomaly in the smallest story that shows it, beside the nearest story that Kafka allows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from checkers.all_checkers import check_all, of_every_run, standard
from checkers.legality import ANOMALIES, Conditions, is_legal, legal, printed, table
from checkers.verdict import Finding, Verdict
from histories.synthetic import Story, polled, sent
from operations import OperationType

pytestmark = pytest.mark.feature("FI-02", "FI-11")

ASSIGN = {"options": {"subscribe": False}}
UNCOMMITTED = {"options": {"isolation": "read_uncommitted"}}


def judged(story: Story) -> Verdict:
    history = story.history()
    workload = history.run["workload"]
    return check_all(history, [*standard(workload), *of_every_run(history.run)])


def bugs(story: Story) -> set[str]:
    return {finding.anomaly for finding in judged(story).findings if not finding.legal}


def allowed(story: Story) -> set[str]:
    return {finding.anomaly for finding in judged(story).findings if finding.legal}


def finding_of(story: Story, anomaly: str) -> Finding:
    return next(finding for finding in judged(story).findings if finding.anomaly == anomaly)


def reads_all(story: Story, found: dict[int, list[tuple[int, int]]]) -> None:
    """Somebody new reads everything, so that nothing is unseen."""
    story.poll(99, found)


# ---- offsets


def test_an_offset_with_two_values() -> None:
    story = Story()
    story.send(0, 1, 7, 0)
    story.send(1, 1, 8, 0)
    story.poll(2, {1: [(0, 7)]})
    story.poll(3, {1: [(0, 8)]})
    assert bugs(story) == {"inconsistent-offsets"}
    finding = finding_of(story, "inconsistent-offsets")
    assert finding.where == "t0-1" and finding.operations == [1, 3, 5, 7]


def test_an_unknown_send_may_hold_an_offset_that_another_has() -> None:
    story = Story()
    story.send(0, 1, 7, 0, "info")
    story.send(1, 1, 8, 0)
    reads_all(story, {1: [(0, 8)]})
    assert bugs(story) == set()


def test_a_value_at_two_offsets() -> None:
    story = Story()
    story.send(0, 1, 7, 0)
    story.poll(2, {1: [(0, 7), (1, 7)]})
    assert "duplicate" in bugs(story)


def test_a_value_twice_is_legal_without_idempotence() -> None:
    story = Story(options={"idempotence": False})
    story.send(0, 1, 7, 0)
    story.poll(2, {1: [(0, 7), (1, 7)]})
    assert bugs(story) == set() and "duplicate" in allowed(story)


# ---- loss


def test_an_acknowledged_record_that_readers_skip_is_lost() -> None:
    story = Story()
    story.send(0, 0, 1, 0)
    story.send(0, 0, 2, 1)
    story.send(0, 0, 3, 2)
    reads_all(story, {0: [(0, 1), (2, 3)]})
    assert {"lost-write", "unseen"} <= bugs(story)
    assert finding_of(story, "lost-write").operations == [3, 7]


def test_a_value_in_doubt_that_was_never_read_is_not_lost() -> None:
    story = Story()
    story.send(0, 0, 1, 0)
    story.send(1, 0, 2, 1, "info")
    story.send(0, 0, 3, 2)
    reads_all(story, {0: [(0, 1), (2, 3)]})
    assert bugs(story) == set()


def test_one_write_of_a_transaction_that_was_read_proves_the_others() -> None:
    story = Story()
    story.txn(1, [sent(0, 2, 1), sent(2, 5, 0)], "info")
    story.send(0, 0, 3, 2)
    reads_all(story, {0: [(2, 3)], 2: [(0, 5)]})
    assert bugs(story) == {"lost-write", "unseen"}


def test_half_of_a_transaction_of_which_nobody_knows_is_unseen() -> None:
    story = Story()
    story.txn(1, [sent(0, 2, None), sent(2, 5, None)], "info")
    reads_all(story, {2: [(0, 5)]})
    story.send(0, 4, 1, 0)
    story.poll(99, {4: [(0, 1)]})
    assert bugs(story) == {"unseen"}
    assert "something else was read" in finding_of(story, "unseen").description


def test_a_whole_transaction_of_which_nobody_knows_may_be_gone() -> None:
    story = Story()
    story.txn(1, [sent(0, 2, None), sent(2, 5, None)], "info")
    story.send(0, 4, 1, 0)
    reads_all(story, {4: [(0, 1)]})
    assert bugs(story) == set()


def test_an_uncommitted_read_does_not_prove_the_rest_of_a_transaction() -> None:
    story = Story(**UNCOMMITTED)
    story.txn(1, [sent(0, 2, None), sent(2, 5, None)], "info")
    reads_all(story, {2: [(0, 5)]})
    story.send(0, 4, 1, 0)
    story.poll(99, {4: [(0, 1)]})
    assert bugs(story) == set()


def test_an_incomplete_transaction_read_in_part_must_be_there_as_a_whole() -> None:
    story = Story()
    story.invoke(1, "txn", [["send", 0, 2], ["send", 2, 5]])
    story.send(0, 4, 1, 0)
    reads_all(story, {2: [(0, 5)], 4: [(0, 1)]})
    assert bugs(story) == {"unseen"}


def test_a_failed_value_that_was_sent_again_is_no_aborted_read() -> None:
    story = Story()
    story.send(0, 0, 1, None, "fail")
    story.send(0, 0, 1, 0)
    reads_all(story, {0: [(0, 1)]})
    assert bugs(story) == set()


def test_a_failed_value_acknowledged_on_its_second_send_must_not_be_lost() -> None:
    story = Story()
    story.send(0, 0, 1, None, "fail")
    story.send(0, 0, 1, 0)
    story.poll(1, {})
    assert bugs(story) == {"unseen"}


def test_a_last_record_that_is_never_polled_is_unseen() -> None:
    story = Story()
    story.send(0, 0, 1, 0)
    story.send(0, 0, 2, None)
    reads_all(story, {0: [(0, 1)]})
    assert bugs(story) == {"unseen"}


def test_a_record_polled_by_a_failed_operation_was_seen() -> None:
    story = Story()
    story.send(0, 0, 1, 0)
    story.poll(1, {0: [(0, 1)]}, "fail")
    story.poll(1, {})
    assert bugs(story) == set()


def test_nobody_knows_what_is_lost_if_nobody_read_to_the_end() -> None:
    story = Story(final_done=False)
    story.send(0, 0, 1, 0)
    story.poll(1, {})
    verdict = judged(story)
    assert verdict.valid == "unknown" and "read to its end" in verdict.unknown_because


def lost_after(power_cuts: tuple[str, ...], isr: list[int], *, seen_whole_again: bool = False) -> Story:
    """An acknowledged value that is gone after power cuts of some brokers."""
    story = Story()

    def look(*, without: tuple[str, ...] = ()) -> None:
        story.wait(5.0)
        rows = [[f"broker-{each}", "t0", 0, 1, 1, 3, 1, isr] for each in isr]
        story.look([row for row in rows if row[0] not in without])

    look()
    story.send(0, 0, 1, 0)
    for number, broker in enumerate(power_cuts, 1):
        story.fault("power", number, broker, kind="power")
        story.fault("start", number, broker, kind="power")
        look(without=() if seen_whole_again else power_cuts[:number])
    story.wait(5.0)
    story.poll(1, {})
    return story


def test_loss_within_the_budget_is_a_bug() -> None:
    assert "unseen" in bugs(lost_after(("broker-1", "broker-2"), [1, 2, 3]))


def test_loss_is_no_bug_when_everybody_in_sync_had_lost_something() -> None:
    story = lost_after(("broker-1", "broker-2"), [1, 2])
    assert bugs(story) == set()
    assert "beyond the budget" in finding_of(story, "unseen").description


def test_a_broker_that_was_whole_again_has_lost_nothing() -> None:
    assert "unseen" in bugs(lost_after(("broker-1", "broker-2"), [1, 2, 3], seen_whole_again=True))
    assert bugs(lost_after(("broker-1", "broker-2", "broker-3"), [1, 2, 3])) == set()
    assert "unseen" in bugs(lost_after(("broker-1", "broker-2", "broker-3"), [1, 2, 3], seen_whole_again=True))


def test_records_acknowledged_after_the_budget_was_spent_must_be_there() -> None:
    story = lost_after(("broker-1", "broker-2"), [1, 2])
    story.wait(60.0)
    story.send(0, 0, 2, 5)
    assert bugs(story) == {"unseen"}


# ---- reads


def test_an_aborted_read() -> None:
    story = Story()
    story.txn(0, [sent(0, 1, 0)], "fail")
    story.poll(1, {0: [(0, 1)]})
    assert bugs(story) == {"G1a"}


def test_reading_what_nobody_knows_about_proves_it() -> None:
    story = Story()
    story.txn(0, [sent(0, 1, 0)], "info")
    story.poll(1, {0: [(0, 1)]})
    assert bugs(story) == set()


def test_an_aborted_read_is_legal_for_who_reads_anything() -> None:
    story = Story(**UNCOMMITTED)
    story.txn(0, [sent(0, 1, 0)], "fail")
    story.poll(1, {0: [(0, 1)]})
    assert bugs(story) == set() and allowed(story) == {"G1a"}


def test_a_precommitted_read() -> None:
    story = Story()
    story.txn(0, [sent(0, 1, 0), polled({0: [(0, 1)]})])
    assert bugs(story) == {"precommitted-read"}


def test_reading_ones_own_value_in_the_next_operation() -> None:
    story = Story()
    story.txn(0, [sent(0, 1, 0)])
    story.txn(0, [polled({0: [(0, 1)]})])
    assert bugs(story) == set()


def test_an_unexpected_read() -> None:
    story = Story()
    story.send(0, 0, 1, 0)
    story.poll(1, {0: [(0, 1), (1, 77)]})
    assert bugs(story) == {"unexpected-read"}


# ---- order of polls


def three(story: Story, *, offsets: tuple[int, int, int] = (0, 1, 2)) -> Story:
    """Three values, in a log whose offsets may have gaps; somebody reads all of them."""
    for value, offset in enumerate(offsets, 1):
        story.send(8, 0, value, offset)
    reads_all(story, {0: [(offset, value) for value, offset in enumerate(offsets, 1)]})
    return story


def test_a_poll_that_goes_past_a_value() -> None:
    story = three(Story())
    story.poll(1, {0: [(0, 1), (2, 3)]})
    assert bugs(story) == {"int-poll-skip"}
    assert finding_of(story, "int-poll-skip").operations == [3, 9]


def test_a_gap_of_offsets_is_no_value() -> None:
    story = three(Story(), offsets=(0, 4, 9))
    story.poll(1, {0: [(0, 1), (4, 2), (9, 3)]})
    assert bugs(story) == set()


def test_a_poll_that_goes_back() -> None:
    story = three(Story())
    story.txn(1, [polled({0: [(0, 1), (1, 2)]}), polled({0: [(1, 2), (2, 3)]})])
    assert bugs(story) == {"int-nonmonotonic-poll"}


@pytest.mark.parametrize("place", [0, ["t0", 0], "t0-0"])
def test_a_rebalance_may_move_what_one_operation_polls(place: object) -> None:
    story = three(Story())
    note = {"rebalances": [{"kind": "assigned", "places": [place]}]}
    story.txn(1, [polled({0: [(0, 1)]}), polled({0: [(2, 3)]})], **note)
    story.txn(2, [polled({0: [(0, 1), (1, 2)]}), polled({0: [(0, 1)]})], **note)
    assert bugs(story) == set()


def test_a_process_that_goes_past_a_value() -> None:
    story = three(Story())
    story.assign(1, [0])
    story.poll(1, {0: [(0, 1)]})
    story.poll(1, {0: [(2, 3)]})
    assert bugs(story) == {"poll-skip"}


def test_a_process_that_goes_back() -> None:
    story = three(Story())
    story.assign(1, [0])
    story.poll(1, {0: [(0, 1), (1, 2)]})
    story.poll(1, {0: [(1, 2), (2, 3)]})
    assert bugs(story) == {"nonmonotonic-poll"}


def test_a_subscribed_consumer_may_be_moved() -> None:
    story = three(Story())
    story.assign(1, [0], "subscribe")
    story.poll(1, {0: [(0, 1)]})
    story.poll(1, {0: [(2, 3)]})
    story.poll(1, {0: [(0, 1)]})
    assert bugs(story) == set() and {"poll-skip", "nonmonotonic-poll"} <= allowed(story)


def test_an_assignment_that_surely_failed_leaves_a_subscription_as_it_was() -> None:
    def story_of(outcome: str) -> Story:
        story = three(Story())
        story.assign(1, [0], "subscribe")
        story.done(1, "assign", [0], outcome)
        story.poll(1, {0: [(0, 1)]})
        story.poll(1, {0: [(2, 3)]})
        return story

    assert bugs(story_of("fail")) == set() and "poll-skip" in allowed(story_of("fail"))
    assert bugs(story_of("ok")) == {"poll-skip"}
    assert bugs(story_of("info")) == set(), "nobody knows which of the two it was"


def again(change: Callable[[Story], object]) -> set[str]:
    """A process reads, something happens, and it reads from the beginning again."""
    story = three(Story())
    story.assign(1, [0, 1])
    story.poll(1, {0: [(0, 1), (1, 2)]})
    change(story)
    story.poll(1, {0: [(0, 1)]})
    return bugs(story)


def test_an_assignment_keeps_the_positions_of_the_keys_that_it_keeps() -> None:
    assert again(lambda story: story.assign(1, [0, 5])) == {"nonmonotonic-poll"}
    assert again(lambda story: story.assign(1, [1])) == set()
    assert again(lambda story: story.assign(1, [0], from_beginning=True)) == set()
    assert again(lambda story: story.assign(1, [0], "subscribe")) == set()


def test_records_polled_by_a_failed_operation_are_polled_again() -> None:
    story = three(Story())
    story.assign(1, [0])
    story.poll(1, {0: [(0, 1)]})
    story.poll(1, {0: [(1, 2), (2, 3)]}, "fail")
    story.poll(1, {0: [(1, 2), (2, 3)]})
    assert bugs(story) == set()


def test_lists_are_read_from_their_beginning() -> None:
    story = three(Story(workload="list-append", **ASSIGN))
    story.poll(1, {0: [(0, 1), (1, 2)]})
    story.poll(1, {0: [(0, 1), (1, 2), (2, 3)]})
    assert bugs(story) == set()
    story.poll(1, {0: [(0, 1), (2, 3)]})
    assert bugs(story) == {"int-poll-skip"}


# ---- order of sends


def test_a_later_send_with_a_lower_offset() -> None:
    story = Story()
    story.send(0, 0, 1, 5, "info")
    story.send(0, 0, 2, 3)
    reads_all(story, {0: [(3, 2), (5, 1)]})
    assert bugs(story) == {"nonmonotonic-send"}


def test_a_send_that_overtakes_one_that_was_still_under_way() -> None:
    story = Story()
    story.invoke(0, "send", [["send", 0, 1]])
    story.send(1, 0, 2, 3)
    story.line(0, "ok", "send", [sent(0, 1, 5)])
    reads_all(story, {0: [(3, 2), (5, 1)]})
    assert bugs(story) == set()


def test_a_send_that_stands_before_one_acknowledged_earlier() -> None:
    story = Story()
    story.send(0, 0, 1, 5)
    story.send(1, 0, 2, 3)
    reads_all(story, {0: [(3, 2), (5, 1)]})
    assert bugs(story) == {"reordered-send"}
    assert finding_of(story, "reordered-send").operations == [1, 3]


def test_sends_inside_of_a_transaction() -> None:
    story = Story()
    story.txn(0, [sent(0, 1, 5), sent(0, 2, 3)])
    reads_all(story, {0: [(3, 2), (5, 1)]})
    assert bugs(story) == {"int-nonmonotonic-send"}


def test_others_may_write_between_two_sends_of_a_transaction() -> None:
    story = Story()
    story.invoke(0, "txn", [["send", 0, 1], ["send", 0, 3]])
    story.send(1, 0, 2, 1)
    story.line(0, "ok", "txn", [sent(0, 1, 0), sent(0, 3, 2)])
    reads_all(story, {0: [(0, 1), (1, 2), (2, 3)]})
    assert bugs(story) == set() and "int-send-skip" in allowed(story)


# ---- cycles


def test_writers_that_stand_before_each_other_are_legal() -> None:
    story = Story()
    story.invoke(0, "txn", [["send", 0, 1], ["send", 2, 1]])
    story.invoke(1, "txn", [["send", 0, 2], ["send", 2, 2]])
    story.line(0, "ok", "txn", [sent(0, 1, 0), sent(2, 1, 1)])
    story.line(1, "ok", "txn", [sent(0, 2, 1), sent(2, 2, 0)])
    reads_all(story, {0: [(0, 1), (1, 2)], 2: [(0, 2), (1, 1)]})
    assert bugs(story) == set() and "G0" in allowed(story)
    assert finding_of(story, "G0").operations == [2, 3]


def test_transactions_that_read_each_other() -> None:
    story = Story()
    story.invoke(0, "txn", [["send", 0, 1], ["poll"]])
    story.invoke(1, "txn", [["send", 2, 1], ["poll"]])
    story.line(0, "ok", "txn", [sent(0, 1, 0), polled({2: [(0, 1)]})])
    story.line(1, "ok", "txn", [sent(2, 1, 0), polled({0: [(0, 1)]})])
    assert bugs(story) == {"G1c"}
    assert finding_of(story, "G1c").operations == [2, 3]


def test_a_cycle_of_reading_and_of_standing_before_is_legal() -> None:
    story = Story()
    story.invoke(0, "txn", [["send", 0, 1], ["poll"]])
    story.txn(1, [sent(0, 2, 1), sent(2, 1, 0)])
    story.line(0, "ok", "txn", [sent(0, 1, 0), polled({2: [(0, 1)]})])
    reads_all(story, {0: [(0, 1), (1, 2)], 2: [(0, 1)]})
    assert bugs(story) == set() and "G1c" in allowed(story)


def sees_half(f: str, *, all_of_it: bool = False) -> Story:
    """A reader is given a transaction's value of one key, and another key only as far as before it."""
    story = Story()
    story.send(0, 0, 1, 0)
    story.assign(1, [0, 2], f)
    story.txn(0, [sent(0, 2, 1), sent(2, 1, 0)])
    story.poll(1, {0: [(0, 1), (1, 2)] if all_of_it else [(0, 1)], 2: [(0, 1)]})
    reads_all(story, {0: [(0, 1), (1, 2)], 2: [(0, 1)]})
    return story


def test_reading_one_half_of_a_transaction_before_the_other_is_legal() -> None:
    story = sees_half("assign")
    assert bugs(story) == set() and "G-single" in allowed(story)
    assert finding_of(story, "G-single").operations == [5, 7]
    assert "polled t0-0 up to 1, which was followed by that of operation 5" in finding_of(story, "G-single").description
    assert "G-single" not in allowed(sees_half("assign", all_of_it=True))
    assert "G-single" not in allowed(sees_half("subscribe")), "its position may have been moved"


def test_two_readers_that_each_see_one_of_two_writes() -> None:
    story = Story()
    story.txn(0, [sent(0, 1, 0), sent(2, 1, 0)])
    story.invoke(3, "send", [["send", 0, 2]])
    story.invoke(4, "send", [["send", 2, 2]])
    story.poll(1, {0: [(0, 1), (1, 2)], 2: [(0, 1)]})
    story.poll(2, {0: [(0, 1)], 2: [(0, 1), (1, 2)]})
    story.line(3, "ok", "send", [sent(0, 2, 1)])
    story.line(4, "ok", "send", [sent(2, 2, 1)])
    assert bugs(story) == set() and "G2" in allowed(story)


def test_reading_each_other_is_legal_for_who_reads_anything() -> None:
    story = Story(**UNCOMMITTED)
    story.invoke(0, "txn", [["send", 0, 1], ["poll"]])
    story.invoke(1, "txn", [["send", 2, 1], ["poll"]])
    story.line(0, "ok", "txn", [sent(0, 1, 0), polled({2: [(0, 1)]})])
    story.line(1, "ok", "txn", [sent(2, 1, 0), polled({0: [(0, 1)]})])
    assert bugs(story) == set()


def test_reading_what_is_written_later() -> None:
    story = Story()
    story.poll(1, {0: [(0, 1)]})
    story.send(0, 0, 1, 0)
    assert bugs(story) == {"G1c-realtime"}


def test_reading_what_is_still_being_written() -> None:
    story = Story()
    story.invoke(0, "send", [["send", 0, 1]])
    story.poll(1, {0: [(0, 1)]})
    story.line(0, "ok", "send", [sent(0, 1, 0)])
    assert bugs(story) == set()


# ---- what nodes and coordinators say


def test_an_acknowledgement_of_an_old_leader() -> None:
    story = Story()
    story.send(0, 0, 1, 0, leader_epochs={"0": 4})
    story.send(1, 0, 2, 1, leader_epochs={"0": 3})
    reads_all(story, {0: [(0, 1), (1, 2)]})
    assert bugs(story) == {"stale-epoch-accept", "acked-in-other-epoch"}
    assert finding_of(story, "stale-epoch-accept").operations == [1, 3]


def test_an_old_leaders_acknowledgement_that_comes_late() -> None:
    story = Story()
    story.invoke(1, "send", [["send", 0, 1]])
    story.send(0, 0, 2, 1, leader_epochs={"0": 4})
    story.line(1, "ok", "send", [sent(0, 1, 0)], {"leader_epochs": {"0": 3}})
    story.send(2, 2, 1, 0, leader_epochs={"2": 1})
    reads_all(story, {0: [(0, 1), (1, 2)], 2: [(0, 1)]})
    assert bugs(story) == set()


def reads_in(story: Story, process: int, epochs: list[list[int]], values: dict[int, int]) -> int:
    """Polls of key 0 what stands at these offsets; `epochs`: first and last offset, leader epoch."""
    return story.poll(process, {0: sorted(values.items())}, read_epochs=[[0, *range_] for range_ in epochs])


def three_sent(*, unknown: bool = False, **more: object) -> Story:
    story = Story(**more)
    for value in (1, 2, 3):
        story.send(0, 0, value, value - 1, "info" if unknown else "ok")
    return story


def test_an_offset_that_was_read_in_two_epochs() -> None:
    story = three_sent()
    reads_in(story, 1, [[0, 2, 3]], {0: 1, 1: 2, 2: 3})
    first = len(story.operations) - 1
    reads_in(story, 2, [[0, 0, 3], [1, 2, 4]], {0: 1, 1: 2, 2: 3})
    assert bugs(story) == {"two-epochs"}
    # Neighbours are one finding.
    [finding] = [each for each in judged(story).findings if not each.legal]
    assert finding.operations == [first, first + 2] and "offset 1 in epoch 3" in finding.description

    story = three_sent()
    reads_in(story, 1, [[0, 0, 3], [1, 2, 4]], {0: 1, 1: 2, 2: 3})
    reads_in(story, 2, [[0, 0, 3], [1, 2, 4]], {0: 1, 1: 2, 2: 3})
    reads_in(story, 3, [[1, 1, 4]], {1: 2})
    assert bugs(story) == set()


def test_a_higher_epoch_in_front_of_a_lower_one() -> None:
    story = three_sent(unknown=True)
    reads_in(story, 1, [[0, 0, 3], [1, 1, 5], [2, 2, 4]], {0: 1, 1: 2, 2: 3})
    assert bugs(story) == {"epochs-went-back"}
    assert "offset 1 in epoch 5" in finding_of(story, "epochs-went-back").description

    # By two readers, neither of whom can see it.
    story = three_sent(unknown=True)
    reads_in(story, 1, [[0, 1, 5]], {0: 1, 1: 2})
    reads_in(story, 2, [[2, 2, 4]], {2: 3})
    assert bugs(story) == {"epochs-went-back"}

    story = three_sent(unknown=True)
    reads_in(story, 1, [[0, 1, 4]], {0: 1, 1: 2})
    reads_in(story, 2, [[2, 2, 5]], {2: 3})
    # Another partition has other leaders.
    story.send(0, 2, 1, 7)
    story.poll(3, {2: [(7, 1)]}, read_epochs=[[2, 7, 7, 1]])
    assert bugs(story) == set()


def test_a_stretch_that_lies_inside_of_another_one_of_a_lower_epoch() -> None:
    story = three_sent(unknown=True)
    reads_in(story, 1, [[0, 2, 3]], {0: 1, 2: 3})
    reads_in(story, 2, [[1, 1, 4]], {1: 2})
    assert bugs(story) == {"epochs-went-back", "int-poll-skip"}


def test_an_acknowledged_record_whose_place_another_epoch_has() -> None:
    def acked(epoch: int, read: list[list[int]]) -> set[str]:
        story = Story()
        story.send(0, 0, 1, 0)
        story.send(0, 0, 2, 1, "ok", leader_epochs={"0": epoch})
        story.send(0, 0, 3, 2)
        reads_in(story, 1, read, {0: 1, 1: 2, 2: 3})
        return bugs(story)

    assert acked(3, [[0, 2, 3]]) == set()
    assert "acked-in-other-epoch" in acked(2, [[0, 2, 3]])
    assert "acked-in-other-epoch" in acked(4, [[0, 2, 3]])
    assert acked(3, [[0, 0, 2], [1, 1, 3], [2, 2, 4]]) == set()

    # Nobody reads it, and around it stands what another leader took.
    story = Story()
    story.send(0, 0, 1, 0)
    story.send(0, 0, 2, 1, "ok", leader_epochs={"0": 2})
    story.send(0, 0, 3, 2)
    reads_in(story, 1, [[0, 2, 3]], {0: 1, 2: 3})
    assert bugs(story) >= {"acked-in-other-epoch", "lost-write"}


def test_an_old_leader_that_took_a_record_by_the_epochs_readers_saw() -> None:
    def sent_in(first: int, second: int) -> Story:
        story = Story()
        story.send(0, 0, 1, 1)
        story.send(1, 0, 2, 0)
        reads_in(story, 2, [[0, 0, second], [1, 1, first]], {0: 2, 1: 1})
        return story

    assert "stale-epoch-accept" in bugs(sent_in(5, 4))
    assert finding_of(sent_in(5, 4), "stale-epoch-accept").operations == [1, 3]
    assert "stale-epoch-accept" not in bugs(sent_in(5, 5))


def test_epochs_may_overlap_after_every_in_sync_replica_lost_records() -> None:
    def cut(isr: list[int]) -> Story:
        story = Story()
        story.look([["broker-1", "t0", 0, 5, 9, 3, 1, isr]])
        story.send(0, 0, 1, 0)
        story.send(0, 0, 2, 1)
        reads_in(story, 1, [[0, 1, 3]], {0: 1, 1: 2})
        story.fault("power", 1, "broker-1", kind="power")
        story.fault("start", 1, "broker-1", kind="power")
        story.wait(10.0)
        story.look([["broker-1", "t0", 0, 0, 0, 4, 1, isr]])
        story.send(0, 0, 3, 0)
        reads_in(story, 2, [[0, 0, 4]], {0: 3})
        return story

    whole = {"two-epochs", "inconsistent-offsets", "epochs-went-back"}
    assert whole <= bugs(cut([1, 2])) | {"epochs-went-back"}
    lost = cut([1])
    assert bugs(lost) == set() and {"two-epochs", "inconsistent-offsets"} <= allowed(lost)


def works(story: Story) -> Story:
    story.send(0, 0, 1, 0)
    story.poll(1, {0: [(0, 1)]})
    return story


def test_a_deposed_leader_whose_high_watermark_moves() -> None:
    def watermarks(*old_leaders: int) -> Story:
        story = works(Story())
        story.look([["broker-1", "t0", 0, 5, 9, 3, 1, [1]], ["broker-2", "t0", 0, 5, 5, 3, 1, [1]]])
        for high_watermark in old_leaders:
            old = ["broker-1", "t0", 0, high_watermark, 9, 3, 1, [1]]
            story.look([old, ["broker-2", "t0", 0, 6, 6, 4, 2, [2, 3]]])
        return story

    assert bugs(watermarks(5, 7)) == {"stale-epoch-accept"}
    assert bugs(watermarks(5, 5)) == set()
    # The newer leader had this offset when it began; a follower's report of it may arrive much later.
    assert bugs(watermarks(5, 6)) == set()
    # It may have moved before the other one led.
    assert bugs(watermarks(7, 7)) == set()


def test_a_high_watermark_that_goes_back() -> None:
    def watermarks(*, killed: bool) -> Story:
        story = works(Story())
        story.look([["broker-1", "t0", 0, 5, 9, 3, 1, [1, 2]], ["broker-2", "t0", 0, 4, 9, 3, 1, [1, 2]]])
        if killed:
            story.fault("kill", 1, "broker-1", kind="kill")
            story.fault("start", 1, "broker-1", kind="kill")
        story.look([["broker-1", "t0", 0, 3, 9, 3, 1, [1, 2]], ["broker-2", "t0", 0, 4, 9, 3, 1, [1, 2]]])
        return story

    assert bugs(watermarks(killed=False)) == {"high-watermark-regress"}
    assert bugs(watermarks(killed=True)) == set()


def test_a_high_watermark_may_go_back_when_everybody_in_sync_had_lost_something() -> None:
    def watermarks(isr: list[int]) -> Story:
        story = works(Story())
        story.look([["broker-2", "t0", 0, 5, 9, 3, 1, isr]])
        story.fault("power", 1, "broker-1", kind="power")
        story.fault("start", 1, "broker-1", kind="power")
        story.wait(1.0)
        story.look([["broker-2", "t0", 0, 3, 3, 4, 1, isr]])
        return story

    assert bugs(watermarks([1, 2])) == {"high-watermark-regress"}
    assert bugs(watermarks([1])) == set() and allowed(watermarks([1])) == {"high-watermark-regress"}


def test_an_epoch_that_goes_back_and_one_with_two_leaders() -> None:
    story = works(Story())
    story.look([["broker-1", "t0", 0, 5, 9, 3, 1, [1]]])
    story.look([["broker-1", "t0", 0, 5, 9, 2, 1, [1]]])
    assert bugs(story) == {"epoch-regress"}
    story = works(Story())
    story.look([["broker-1", "t0", 0, 5, 9, 3, 1, [1]], ["broker-2", "t0", 0, 5, 9, 3, 2, [2]]])
    assert "two-leaders" in bugs(story)
    story = works(Story())
    story.look([["broker-1", "t0", 0, 5, 9, 3, 1, [1]], ["broker-2", "t0", 0, 5, 9, 4, 2, [2]]])
    assert bugs(story) == set()


def test_committed_offsets_that_go_back_in_one_generation() -> None:
    def commits(later_generation: int, later_process: int = 0) -> set[str]:
        story = works(Story())
        story.poll(0, {}, committed={"0": 9}, group="g", generation=4)
        story.poll(later_process, {}, committed={"0": 7}, group="g", generation=later_generation)
        return bugs(story)

    assert commits(4) == {"commit-regress"}
    assert commits(4, 1) == {"commit-regress"}, "one generation has one owner, in whatever life"
    assert commits(5) == set()
    assert commits(5, 1) == set()


def test_commits_of_one_generation_that_were_under_way_together() -> None:
    story = works(Story())
    story.invoke(0, "poll", [["poll"]])
    story.poll(1, {}, committed={"0": 9}, group="g", generation=4)
    story.line(0, "ok", "poll", [polled({})], {"committed": {"0": 7}, "group": "g", "generation": 4})
    assert bugs(story) == set()


def test_a_coordinator_that_forgot_a_commit() -> None:
    def seen(offset: int, *, lower_commit: bool = False, settled: bool = True) -> Story:
        story = works(Story())
        story.poll(0, {}, committed={"0": 9}, group="g")
        if lower_commit:
            story.poll(1, {}, "info", committed={"0": 5}, group="g")
        story.poll(2, {}, committed_seen={"0": offset}, group="g", settled=settled)
        story.poll(3, {}, committed_seen={"0": offset}, group="another", settled=settled)
        return story

    assert bugs(seen(5)) == bugs(seen(-1)) == {"commit-regress"}
    assert bugs(seen(5, lower_commit=True)) == bugs(seen(9)) == set()
    assert bugs(seen(4, lower_commit=True)) == {"commit-regress"}
    # One that does not know that it coordinates no more.
    assert bugs(seen(5, settled=False)) == set() and allowed(seen(5, settled=False)) == {"commit-regress"}


def test_a_group_may_stand_where_it_stood_before_when_everybody_in_sync_had_lost_something() -> None:
    def forgotten(**run: object) -> Story:
        story = works(Story(**run))
        story.poll(0, {}, committed={"0": 9}, group="g")
        story.fault("power", 1, "broker-1", kind="power")
        story.wait(10.0)
        story.poll(2, {}, committed_seen={"0": 5}, group="g", settled=True)
        return story

    # Nobody watches the coordinators' partitions: the nemesis spares them, unless beyond_budget is set.
    assert bugs(forgotten()) == {"commit-regress"}
    assert bugs(forgotten(beyond_budget=True)) == set()


# ---- availability and stats


def waits(seconds: float, **run: object) -> Story:
    story = Story(**run)
    story.send(0, 0, 1, 0)
    story.fault("kill", 1, "broker-1", kind="kill")
    story.wait(seconds)
    story.fault("start", 1, "broker-1", kind="kill")
    story.send(0, 0, 2, 1)
    reads_all(story, {0: [(0, 1), (1, 2)]})
    return story


def test_a_wait_that_is_longer_than_the_run_allows() -> None:
    assert bugs(waits(7.0, budgets={"kill": 5})) == {"budget"}
    assert bugs(waits(4.0, budgets={"kill": 5})) == set()
    assert bugs(waits(4.0, budgets={"any": 3})) == {"budget"}
    figures = judged(waits(7.0)).figures["availability"]
    assert figures["longest gap"] == pytest.approx(7.0, abs=0.1)
    assert figures["gap by kind"]["kill"]["1"] == pytest.approx(7.0, abs=0.1)
    assert figures["recovery by kind"]["kill"]["1"] < 0.1


def ends_in(outcome: OperationType, seconds: float, **run: object) -> Story:
    """After a fault writes end so, and time goes by."""
    story = Story(**run)
    story.send(0, 0, 1, 0)
    story.fault("kill", 1, "broker-1", kind="kill")
    story.fault("start", 1, "broker-1", kind="kill")
    story.wait(seconds)
    story.send(0, 0, 2, 1 if outcome == "ok" else None, outcome)
    reads_all(story, {0: [(0, 1), *([(1, 2)] if outcome == "ok" else [])]})
    return story


@pytest.mark.parametrize("outcome", ["fail", "info"])
def test_a_cluster_that_never_took_a_write_again_kept_its_clients_waiting(outcome: OperationType) -> None:
    assert bugs(ends_in(outcome, 7.0, budgets={"kill": 5})) == {"budget"}
    assert bugs(ends_in(outcome, 7.0, budgets={"recovery": 5})) == {"budget"}
    assert bugs(ends_in(outcome, 4.0, budgets={"any": 5})) == set()


def test_a_client_that_ended_does_not_wait() -> None:
    story = waits(0.1, budgets={"any": 5})
    story.wait(60.0)
    story.poll(1, {})
    assert bugs(story) == set()


def test_a_run_in_which_nothing_succeeded_proves_nothing() -> None:
    story = Story()
    story.send(0, 0, 1, None, "info")
    story.poll(1, {})
    verdict = judged(story)
    assert verdict.valid == "unknown" and "no send ever succeeded" in verdict.unknown_because
    assert judged(Story()).valid == "unknown"


def test_lag_is_the_age_of_what_a_reader_had_not_seen() -> None:
    story = Story()
    story.send(0, 0, 1, 0)
    story.poll(1, {0: [(0, 1)]})
    story.send(0, 0, 2, 1)
    story.wait(3.0)
    story.poll(1, {0: [(1, 2)]})
    figures = judged(story).figures["lag"]
    assert figures["worst"]["seconds"] == pytest.approx(3.0, abs=0.1) and figures["worst"]["place"] == "t0-0"
    # A consumer with another assignment does not lag.
    story.assign(1, [2])
    story.send(0, 0, 3, 2)
    story.wait(60.0)
    story.assign(1, [0])
    story.poll(1, {0: [(2, 3)]})
    assert judged(story).figures["lag"]["worst"]["seconds"] == figures["worst"]["seconds"]


def test_a_consumer_that_reads_from_the_beginning_does_not_lag() -> None:
    """A run of two minutes reported a lag of 126 s: that of its last reads, which take several polls."""
    story = Story()
    for offset in range(3):
        story.send(0, 0, offset + 1, offset)
    story.wait(60.0)
    story.assign(1, [0])
    story.poll(1, {0: [(0, 1)]})
    story.poll(1, {0: [(1, 2)]})
    assert "worst" not in judged(story).figures["lag"]
    # From the end on it is.
    story.poll(1, {0: [(2, 3)]})
    story.send(0, 0, 4, 3)
    story.wait(2.0)
    story.poll(1, {0: [(3, 4)]})
    assert judged(story).figures["lag"]["worst"]["seconds"] == pytest.approx(2.0, abs=0.1)


# ---- the table


def test_one_table_lists_legal_anomalies() -> None:
    safe = Conditions()
    assert legal(safe) == {"int-send-skip", "G0", "G0-process", "G0-realtime", "G-single", "G2"}
    assert legal(safe._replace(via="subscribe")) - legal(safe) == {"poll-skip", "nonmonotonic-poll"}
    assert legal(safe._replace(idempotence=False)) - legal(safe) == {"duplicate"}
    assert legal(safe._replace(ww=True)) - legal(safe) == {"G1c", "G1c-process", "G1c-realtime"}
    assert not any(
        is_legal(name, conditions) for conditions, _ in table() for name in ("lost-write", "of another room")
    )
    assert len(printed().splitlines()) == 17
    assert all(rule.why for rule in ANOMALIES.values() if rule.legal_when)
