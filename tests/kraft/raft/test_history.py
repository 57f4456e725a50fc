"""The divergence of two logs: the arithmetic on epochs against a plain comparison of whole logs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.kraft.raft.history import LOG_ORIGIN, LogHistory, OffsetAndEpoch
from barnabas.kraft.raft.own_log import OwnLog
from barnabas.kraft.raft.quorum import Votes, majority, majority_offset

Epochs = list[int]
"""A log as the epoch of each record."""

logs = st.lists(st.integers(1, 5), max_size=12).map(sorted)


@st.composite
def two_logs(draw: st.DrawFn) -> tuple[Epochs, Epochs]:
    """Two logs of one quorum: each epoch has one leader, whose log began as a part of an older one."""
    pool: list[Epochs] = [[]]
    for epoch in range(1, draw(st.integers(2, 6))):
        older = draw(st.sampled_from(pool))
        kept = older[: draw(st.integers(0, len(older)))]
        pool.append(kept + [epoch] * draw(st.integers(1, 4)))
    one, other = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
    return one[: draw(st.integers(0, len(one)))], other[: draw(st.integers(0, len(other)))]


def history(log: Epochs) -> LogHistory:
    result = LogHistory()
    for offset, epoch in enumerate(log):
        result = result.appended(epoch, offset + 1)
    return result


def common_prefix(one: Epochs, other: Epochs) -> int:
    """Two logs of one quorum agree up to an offset exactly if the epochs do."""
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return length


@pytest.mark.feature("KR-08")
@given(two_logs())
def test_a_follower_ends_with_a_prefix_of_the_leaders_log(two: tuple[Epochs, Epochs]) -> None:
    """KIP-595: each round of divergence and truncation gets closer, and never cuts what both have."""
    leader, follower = two
    shared = common_prefix(leader, follower)
    for _ in range(len(leader) + len(follower) + 1):
        own = history(follower)
        divergence = history(leader).divergence(own.end_offset, own.last_epoch)
        if divergence is None:
            break
        offset = own.truncation_offset(divergence)
        assert shared <= offset < len(follower), "cut what both have, or nothing"
        follower = follower[:offset]
    assert follower == leader[: len(follower)]
    assert len(follower) == shared


@given(logs, st.integers(0, 12))
def test_truncation_forgets_the_epochs_behind_it(log: Epochs, offset: int) -> None:
    offset = min(offset, len(log))
    assert history(log).truncated_to(offset) == history(log[:offset])


@given(logs.filter(bool), st.data())
def test_a_log_that_starts_at_a_snapshot_has_the_same_history_of_the_rest(log: Epochs, data: st.DataObject) -> None:
    start = data.draw(st.integers(1, len(log)))
    whole = history(log)
    cut = whole.started_at(OffsetAndEpoch(epoch=log[start - 1], offset=start))
    assert cut.end == whole.end
    for offset in range(start, len(log)):
        assert cut.epoch_of(offset) == log[offset]
    for epoch in range(log[start - 1], 7):
        assert cut.end_offset_for_epoch(epoch) == whole.end_offset_for_epoch(epoch)


@pytest.mark.feature("KR-11")
@given(two_logs().filter(lambda two: bool(two[0])), st.data())
def test_a_replica_that_parts_before_the_start_needs_the_snapshot(
    two: tuple[Epochs, Epochs], data: st.DataObject
) -> None:
    leader, follower = two
    start = data.draw(st.integers(1, len(leader)))
    cut = history(leader).started_at(OffsetAndEpoch(epoch=leader[start - 1], offset=start))
    own = history(follower)
    if cut.needs_snapshot(own.end_offset, own.last_epoch):
        assert common_prefix(leader, follower) <= start
    else:
        divergence = cut.divergence(own.end_offset, own.last_epoch)
        if divergence is None:
            assert follower == leader[: len(follower)]
        else:
            assert divergence.offset >= start


def test_a_follower_that_ends_at_the_start_but_in_another_epoch_needs_the_snapshot() -> None:
    cut = history([1, 2, 2, 3]).started_at(OffsetAndEpoch(epoch=2, offset=2))
    assert not cut.needs_snapshot(2, 2)
    assert cut.needs_snapshot(2, 3)
    assert cut.needs_snapshot(1, 2)
    assert cut.needs_snapshot(3, 1)
    assert not LogHistory().needs_snapshot(0, 0)
    assert LogHistory().end == LOG_ORIGIN


@given(st.lists(st.one_of(st.none(), st.integers(0, 9)), min_size=1, max_size=7))
def test_the_majority_offset_equals_a_plain_count(ends: list[int | None]) -> None:
    reached = [
        offset for offset in range(10) if sum(end is not None and end >= offset for end in ends) >= majority(len(ends))
    ]
    assert majority_offset(ends) == max(reached, default=None)


@pytest.mark.feature("KR-03")
@given(st.integers(1, 7), st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=12))
def test_an_election_is_won_or_lost_never_both_and_a_second_answer_changes_nothing(
    voters: int, answers: list[tuple[int, bool]]
) -> None:
    votes = Votes(tuple(range(1, voters + 1))).record(1, True)
    first: dict[int, bool] = {1: True}
    for voter, granted in answers:
        votes = votes.record(voter, granted)
        if voter in votes.voters:
            first.setdefault(voter, granted)
        assert not (votes.won and votes.lost)
    assert votes.won == (sum(first.values()) >= majority(voters))
    assert votes.lost == (voters - sum(not granted for granted in first.values()) < majority(voters))


@pytest.mark.feature("KR-06")
@pytest.mark.parametrize(("offset", "is_cut"), [(2, True), (4, False), (9, False)])
def test_a_log_that_ends_there_is_not_truncated(offset: int, is_cut: bool) -> None:
    """Its syncs go on to count."""
    log = OwnLog(LogHistory().appended(1, 4), None)
    log.truncate(offset, "a leader")
    assert log.take_work().truncate_to == (offset if is_cut else None)
    assert log.history.end_offset == min(offset, 4)
    assert log.generation == is_cut
    assert log.synced(3, 0) is False and log.synced_end_offset == min(offset, 4)
