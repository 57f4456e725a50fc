"""One partition as it is read: when it asks, whom it believes, what it gives."""

from __future__ import annotations

import pytest

from barnabas.client.consumer.completed_fetch import FetchPosition, Unpacking, survey
from barnabas.client.consumer.partition_state import FetchState, Flight, PartitionState, Truncation
from barnabas.client.consumer.reset_policy import FROM_EARLIEST
from barnabas.client.metadata import Leadership, TopicPartition
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record

T0 = TopicPartition("t", 0)


class Waits:
    def __init__(self) -> None:
        self.failures = 0

    def next_ms(self) -> int:
        self.failures += 1
        return 100 * self.failures

    def reset(self) -> None:
        self.failures = 0


def fresh() -> PartitionState:
    return PartitionState(T0, Waits())


def arrive(state: PartitionState, *values: bytes, epoch: int = 0) -> None:
    """The answer to a fetch from where it is."""
    records = [Record(0, 0, None, value) for value in values]
    data = build_batch(records, base_offset=state.next.offset, leader_epoch=epoch)
    state.arrived(survey(T0, data, state.next))


def now(state: PartitionState) -> FetchState:
    return state.state


def given(state: PartitionState, limit: int = 100) -> list[bytes]:
    return [record.value for record in state.give(limit, Unpacking())]


def test_it_fetches_on_while_records_wait() -> None:
    state = fresh()
    assert now(state) is FetchState.INITIALIZING
    assert not state.may_fetch(0)
    state.seek(0)
    arrive(state, b"a", b"b")
    arrive(state, b"c")
    assert state.next.offset == 3
    assert given(state, 1) == [b"a"]
    assert state.position == FetchPosition(1, 0)
    assert given(state) == [b"b", b"c"]
    assert state.position == state.next == FetchPosition(3, 0)


def test_a_seek_forgets_everything() -> None:
    state = fresh()
    state.seek(0)
    arrive(state, b"a")
    state.flight = Flight()
    state.fail(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), 0)
    state.seek(7)
    assert state.may_fetch(0)
    assert state.next.offset == 7
    assert given(state) == []


def test_a_pause_keeps_what_waits() -> None:
    state = fresh()
    state.seek(0)
    arrive(state, b"a")
    state.is_paused = True
    assert not state.may_fetch(0)
    assert not state.can_give
    state.is_paused = False
    assert given(state) == [b"a"]


def test_failures_are_put_off_longer_and_longer_until_one_works() -> None:
    state = fresh()
    state.seek(0)
    state.put_off(1000)
    assert not state.may_fetch(1099)
    assert state.may_fetch(1100)
    state.put_off(1100)
    assert not state.may_fetch(1299)
    arrive(state, b"a")
    state.put_off(2000)
    assert state.may_fetch(2100)


@pytest.mark.feature("CG-22")
class TestANewLeader:
    def test_is_asked_only_about_records_that_were_read(self) -> None:
        state = fresh()
        state.seek(0)
        state.follow(Leadership(1, 4))
        assert now(state) is FetchState.FETCHING, "there is nothing to compare"
        arrive(state, b"a", epoch=4)
        state.follow(Leadership(1, 4))
        assert now(state) is FetchState.FETCHING, "no news"
        flight = state.flight = Flight()
        state.follow(Leadership(2, 5))
        assert now(state) is FetchState.AWAIT_VALIDATION
        assert state.flight is not flight, "the old leader's response no longer counts"
        assert not state.can_give

    def test_has_the_same_log(self) -> None:
        state = reading_in_epoch_4()
        state.follow(Leadership(2, 5))
        assert state.validated(4, 3) is None
        assert now(state) is FetchState.FETCHING
        assert given(state) == [b"a", b"b", b"c"]

    def test_lacks_what_was_not_given_yet(self) -> None:
        state = reading_in_epoch_4()
        assert given(state, 1) == [b"a"]
        state.follow(Leadership(2, 5))
        assert state.validated(4, 2) is None
        assert given(state) == [], "what waited is fetched again"
        assert state.next == state.position == FetchPosition(1, 4)

    def test_lacks_what_was_given(self) -> None:
        state = reading_in_epoch_4()
        assert given(state) == [b"a", b"b", b"c"]
        state.follow(Leadership(2, 5))
        assert state.validated(3, 1) == Truncation(FetchPosition(3, 4), FetchPosition(1, 3))
        assert now(state) is FetchState.AWAIT_VALIDATION
        assert state.validated(-1, -1) == Truncation(FetchPosition(3, 4), None)

    def test_without_epochs_is_believed(self) -> None:
        state = reading_in_epoch_4()
        state.follow(Leadership(2, -1))
        assert now(state) is FetchState.FETCHING

    def test_takes_the_preferred_replica_away(self) -> None:
        state = reading_in_epoch_4()
        state.prefer(3, 1000)
        assert state.preferred(1000) == 3
        assert state.preferred(1001) is None, "the leader is asked again"
        state.prefer(3, 9000)
        state.follow(Leadership(2, 5))
        assert state.preferred(2000) is None


def reading_in_epoch_4() -> PartitionState:
    state = fresh()
    state.follow(Leadership(1, 4))
    state.seek(0)
    arrive(state, b"a", b"b", b"c", epoch=4)
    return state


def test_a_committed_position_is_validated_first() -> None:
    state = fresh()
    state.follow(Leadership(1, 4))
    state.seek(3, 2)
    state.follow(Leadership(1, 4))
    assert now(state) is FetchState.AWAIT_VALIDATION
    assert state.validated(2, 3) is None
    assert state.may_fetch(0)


def test_an_offset_from_the_leader_itself_needs_no_validation() -> None:
    state = fresh()
    state.follow(Leadership(1, 4))
    state.request_reset(FROM_EARLIEST)
    assert state.position is None
    state.settle(10, 3, 4)
    state.follow(Leadership(1, 4))
    assert now(state) is FetchState.FETCHING
    state.request_reset(FROM_EARLIEST)
    state.settle(10, 3, 4)
    state.follow(Leadership(2, 5))
    assert now(state) is FetchState.AWAIT_VALIDATION, "the offset is from another leader"


def test_corrupt_data_is_fetched_again() -> None:
    state = fresh()
    state.seek(0)
    data = bytearray(build_batch([Record(0, 0, None, b"evil")]))
    data[-2] ^= 1
    state.arrived(survey(T0, data, state.next))
    assert state.next.offset == 1
    with pytest.raises(KafkaError) as caught:
        given(state)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert state.next == state.position == FetchPosition(0)
    assert state.may_fetch(0)


def test_the_lag_is_known_with_the_position_and_the_end() -> None:
    state = fresh()
    assert state.lag(committed_only=False) is None
    state.seek(3)
    assert state.lag(committed_only=False) is None
    state.high_watermark, state.last_stable_offset = 10, 8
    assert state.lag(committed_only=False) == 7
    assert state.lag(committed_only=True) == 5
