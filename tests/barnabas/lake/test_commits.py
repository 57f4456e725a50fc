"""Whether a commit happened: what follows from the snapshots that the table has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.lake.commits import SnapshotView, Standing, TableView, claim, latest_progress, standing
from barnabas.lake.errors import Fenced, TableChanged, TopicChanged
from barnabas.lake.progress import OFFSETS, Progress, progress_of

FIRST = Progress("orders", "id-1", {0: 10, 1: 0}, 1, "first")
SECOND = replace(FIRST, offsets={0: 20, 1: 5}, commit_id="second")
THIRD = replace(SECOND, offsets={0: 30, 1: 5}, commit_id="third")
TAKEN_OVER = replace(SECOND, epoch=2, commit_id="taken over")


def view(*newest_first: Progress | None, is_cut: bool = False) -> TableView:
    """None is a snapshot of another program."""
    snapshots = [
        SnapshotView(len(newest_first) - place, {} if each is None else each.properties())
        for place, each in enumerate(newest_first)
    ]
    return TableView("lake.orders", tuple(snapshots), is_cut)


def test_the_summary_keeps_the_progress() -> None:
    full = replace(THIRD, skipped={1: ((0, 5), (7, 9))})
    assert progress_of(full.properties()) == full
    assert full.properties()[OFFSETS] == '{"id-1":{"0":30,"1":5}}'


@pytest.mark.parametrize(
    "offsets", ["", "[]", '{"id":{"0":-1}}', '{"id":{"x":1}}', '{"a":{},"b":{}}', '{"id":{"0":true}}']
)
def test_a_damaged_summary_is_an_error(offsets: str) -> None:
    with pytest.raises(TableChanged, match=r"barnabas\.offsets"):
        progress_of({**FIRST.properties(), OFFSETS: offsets})


def test_an_empty_table_is_claimed_in_the_first_epoch() -> None:
    base, wanted = claim(view(), replace(FIRST, epoch=77))
    assert base is None and wanted == FIRST


def test_a_claim_goes_on_from_what_the_table_has() -> None:
    base, wanted = claim(view(None, SECOND, FIRST), Progress("orders", "id-1", {0: 0}, 1, "new"))
    assert base == SECOND
    assert wanted == replace(SECOND, epoch=2, commit_id="new")


def test_a_topic_that_was_created_again_is_refused() -> None:
    with pytest.raises(TopicChanged, match=r"deleted and created again.*id-1.*id-2"):
        claim(view(SECOND), Progress("orders", "id-2", {}, 1, "new"))
    with pytest.raises(TopicChanged, match="of topic orders, not of sales"):
        claim(view(SECOND), Progress("sales", "id-1", {}, 1, "new"))


def test_a_table_of_somebody_else_is_refused() -> None:
    with pytest.raises(TableChanged, match="written by something else"):
        latest_progress(view(None, None))
    with pytest.raises(TableChanged, match="were expired"):
        latest_progress(view(None, None, is_cut=True))


def test_a_commit_is_found_by_its_id() -> None:
    assert standing(view(THIRD, SECOND), SECOND, THIRD) is Standing.LANDED
    assert standing(view(None, THIRD, SECOND), SECOND, THIRD) is Standing.LANDED


def test_a_commit_that_is_not_there_may_be_sent_on_top_of_snapshots_of_others() -> None:
    assert standing(view(SECOND), SECOND, THIRD) is Standing.OPEN
    assert standing(view(None, None, SECOND), SECOND, THIRD) is Standing.OPEN
    assert standing(view(), None, FIRST) is Standing.OPEN


def test_a_process_that_was_replaced_is_fenced() -> None:
    with pytest.raises(Fenced, match="epoch 2; this one has 1"):
        standing(view(TAKEN_OVER, SECOND), SECOND, THIRD)


def test_the_second_of_two_claims_of_one_epoch_is_fenced() -> None:
    with pytest.raises(Fenced):
        standing(view(TAKEN_OVER, SECOND), SECOND, replace(TAKEN_OVER, commit_id="too late"))
    with pytest.raises(Fenced):
        standing(view(FIRST), None, replace(FIRST, commit_id="too late"))


def test_a_claim_that_was_overtaken_begins_again() -> None:
    claim_of_second = replace(SECOND, epoch=2, commit_id="claim")
    assert standing(view(THIRD, SECOND), SECOND, claim_of_second) is Standing.OVERTAKEN
    assert standing(view(None, FIRST), SECOND, claim_of_second) is Standing.OVERTAKEN


def test_a_commit_before_a_take_over_has_happened() -> None:
    assert standing(view(TAKEN_OVER, THIRD, SECOND), SECOND, THIRD) is Standing.LANDED


def test_a_table_that_was_rolled_back_stops_the_process() -> None:
    for changed in (view(FIRST), view(), view(None, is_cut=True)):
        with pytest.raises(TableChanged, match="rolled back"):
            standing(changed, SECOND, THIRD)
