"""Delayed operations: once, never missed, never kept; and the short way of produce acks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.purgatory import PURGE_INTERVAL, DelayedOperation, Purgatory, WaitingAck, WaitingAcks
from barnabas.broker.timing_wheel import TimingWheel
from tests.examples import examples


class Wait(DelayedOperation):
    """Done when `ready` says so; notes what happened to it."""

    def __init__(self, ready: Callable[[], bool], then: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.ready = ready
        self.then = then
        self.completions = 0
        self.expirations = 0

    def try_complete(self) -> bool:
        return self.ready() and self.force_complete()

    def on_complete(self) -> None:
        self.completions += 1
        self.then()

    def on_expiration(self) -> None:
        self.expirations += 1


class Room:
    """A purgatory with a wheel, and a set of facts that operations wait for."""

    def __init__(self) -> None:
        self.wheel = TimingWheel(0)
        self.purgatory: Purgatory[str] = Purgatory(self.wheel)
        self.facts: dict[str, bool] = {}

    def wait_for(self, *keys: str, then: Callable[[], object] = lambda: None, deadline_ms: int = 500) -> Wait:
        operation = Wait(lambda: all(self.facts.get(key, False) for key in keys), then)
        self.purgatory.try_complete_else_watch(operation, keys, deadline_ms)
        return operation

    def happen(self, key: str) -> int:
        self.facts[key] = True
        return self.purgatory.check_and_complete(key)


@pytest.mark.feature("RP-06", "RP-07")
def test_a_satisfied_operation_completes_at_once() -> None:
    room = Room()
    room.facts["a"] = True
    operation = room.wait_for("a")
    assert operation.completions == 1
    assert (room.purgatory.delayed, room.purgatory.watched, len(room.wheel)) == (0, 0, 0)


@pytest.mark.feature("RP-06", "RP-07")
def test_it_completes_when_the_last_of_its_keys_changes_and_leaves_no_timer() -> None:
    room = Room()
    operation = room.wait_for("a", "b")
    assert room.happen("a") == 0
    assert room.happen("b") == 1
    assert (operation.completions, operation.expirations) == (1, 0)
    assert (room.purgatory.delayed, len(room.wheel)) == (0, 0)
    assert room.happen("a") == 0, "the lingering entry is cleaned, not run"
    assert room.purgatory.watched == 0


@pytest.mark.feature("RP-07")
def test_it_expires_once_and_is_deaf_afterwards() -> None:
    room = Room()
    operation = room.wait_for("a", deadline_ms=30)
    room.wheel.advance(29)
    assert operation.completions == 0
    room.wheel.advance(30)
    assert room.happen("a") == 0
    assert not operation.force_complete()
    assert (operation.completions, operation.expirations) == (1, 1)


@pytest.mark.feature("RP-06")
def test_a_change_between_the_first_look_and_the_watching_is_not_missed() -> None:
    """Between the two looks of try_complete_else_watch something happens that nobody announces afterwards."""
    room = Room()
    looks = 0

    def ready() -> bool:
        nonlocal looks
        looks += 1
        return looks == 2

    operation = Wait(ready)
    assert room.purgatory.try_complete_else_watch(operation, ["a"], 500)
    assert (operation.completions, room.purgatory.delayed, len(room.wheel)) == (1, 0, 0)


@pytest.mark.feature("RP-07")
def test_a_change_seen_during_a_look_causes_another_look() -> None:
    """The look of one operation itself triggers its key: the inner call hands over to the outer one."""
    room = Room()
    looks = 0

    def ready() -> bool:
        nonlocal looks
        looks += 1
        if looks == 3:
            room.happen("a")
            return False  # decided before the change, as a racing thread would have
        return room.facts.get("a", False)

    operation = Wait(ready)
    room.purgatory.try_complete_else_watch(operation, ["a"], 500)
    assert looks == 2
    assert room.purgatory.check_and_complete("a") == 1
    assert (operation.completions, looks) == (1, 4)


@pytest.mark.feature("RP-06")
def test_completions_may_come_back_to_the_same_key() -> None:
    """The first one's completion makes the second's fact true, waits again itself, and asks for the key
    again."""
    room = Room()
    successors: list[Wait] = []

    def then() -> None:
        successors.append(room.wait_for("a", "c"))
        room.happen("b")
        room.purgatory.check_and_complete("a")

    second = room.wait_for("a", "b")
    first = room.wait_for("a", then=then)
    third = room.wait_for("a", "b")
    room.happen("a")
    assert [first.completions, second.completions, third.completions] == [1, 1, 1]
    assert room.purgatory.delayed == 1
    room.happen("c")
    assert successors[0].completions == 1
    room.happen("a")
    assert room.purgatory.watched == 0


@pytest.mark.feature("RP-06")
def test_completed_operations_are_purged_from_quiet_keys_every_1000() -> None:
    """Each operation watches one busy key and one that never changes: there it would linger for ever."""
    room = Room()
    for number in range(PURGE_INTERVAL - 1):
        room.wait_for(f"busy {number}", "quiet")
    for number in range(PURGE_INTERVAL - 1):
        room.facts["quiet"] = True
        room.happen(f"busy {number}")
    room.facts["quiet"] = False
    waiting = room.wait_for("quiet")
    assert room.purgatory.watched >= PURGE_INTERVAL
    room.wait_for("last")
    room.happen("last")
    assert room.purgatory.watched == 1, "only the one that waits"
    assert room.happen("quiet") == 1
    assert waiting.completions == 1


@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.just("wait"), st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True)
            ),
            st.tuples(st.just("happen"), st.sampled_from("abcd")),
            st.tuples(st.just("unhappen"), st.sampled_from("abcd")),
            st.tuples(st.just("advance"), st.integers(1, 400)),
        ),
        max_size=40,
    )
)
@settings(max_examples=examples(200), deadline=None)
@pytest.mark.feature("RP-06", "RP-07")
def test_no_completable_operation_waits_and_none_completes_twice(steps: list[tuple[str, object]]) -> None:
    room = Room()
    now_ms = 0
    operations: list[tuple[Wait, int]] = []
    for step, value in steps:
        if step == "wait":
            assert isinstance(value, list)
            operations.append((room.wait_for(*value, deadline_ms=now_ms + 300), now_ms + 300))
        elif step == "happen":
            assert isinstance(value, str)
            room.happen(value)
        elif step == "unhappen":
            assert isinstance(value, str)
            room.facts[value] = False
        else:
            assert isinstance(value, int)
            now_ms += value
            room.wheel.advance(now_ms)
        for operation, deadline_ms in operations:
            assert operation.completions == (1 if operation.completed else 0)
            assert operation.completed or not operation.ready(), "a lost wake-up"
            assert operation.completed or deadline_ms > now_ms, "a lost deadline"
        assert room.purgatory.delayed == sum(not operation.completed for operation, _ in operations)
        assert len(room.wheel) == room.purgatory.delayed


class Acks:
    def __init__(self) -> None:
        self.waiting: WaitingAcks[str] = WaitingAcks()
        self.answers: list[tuple[int, str | None]] = []

    def add(self, required_offset: int) -> WaitingAck[str]:
        return self.waiting.add(required_offset, lambda error: self.answers.append((required_offset, error)))


@pytest.mark.feature("RE-09")
def test_the_high_watermark_pops_what_it_satisfies() -> None:
    acks = Acks()
    for offset in (10, 20, 20, 30):
        acks.add(offset)
    assert acks.waiting.complete_up_to(9) == 0
    assert acks.waiting.complete_up_to(20) == 3
    assert acks.answers == [(10, None), (20, None), (20, None)]
    assert acks.waiting.complete_up_to(100, "too few") == 1
    assert acks.answers[-1] == (30, "too few")


@pytest.mark.feature("RE-09")
def test_a_retry_of_an_old_batch_does_not_queue_behind_younger_ones() -> None:
    acks = Acks()
    for offset in (10, 20, 30):
        acks.add(offset)
    acks.add(15)
    acks.waiting.complete_up_to(17)
    assert acks.answers == [(10, None), (15, None)]


@pytest.mark.feature("RE-09")
def test_lost_leadership_answers_all_and_a_timed_out_one_is_silent() -> None:
    acks = Acks()
    acks.add(10)
    late = acks.add(20)
    acks.add(30)
    late.cancel()
    late.cancel()
    assert len(acks.waiting) == 2
    assert acks.waiting.fail_all("not leader") == 2
    assert acks.answers == [(10, "not leader"), (30, "not leader")]
    assert len(acks.waiting) == 0


@pytest.mark.feature("RE-09")
def test_an_answer_may_append_and_move_the_watermark_again() -> None:
    acks = Acks()

    def append_another(error: str | None) -> None:
        acks.add(11)
        acks.waiting.complete_up_to(11)

    acks.waiting.add(10, append_another)
    acks.add(11)
    acks.add(12)
    acks.waiting.complete_up_to(10)
    assert acks.answers == [(11, None), (11, None)]
    assert len(acks.waiting) == 1


@given(
    st.lists(st.tuples(st.sampled_from(["add", "cancel", "move", "fail"]), st.integers(0, 60)), max_size=60)
)
@settings(max_examples=examples(200), deadline=None)
@pytest.mark.feature("RE-09")
def test_every_ack_is_answered_at_most_once_and_in_time(steps: list[tuple[str, int]]) -> None:
    acks = Acks()
    handles: list[WaitingAck[str]] = []
    expected: list[tuple[WaitingAck[str], int]] = []
    answered = 0
    for step, value in steps:
        if step == "add":
            handle = acks.add(value)
            handles.append(handle)
            expected.append((handle, value))
        elif step == "cancel" and handles:
            victim = handles[value % len(handles)]
            victim.cancel()
            expected = [item for item in expected if item[0] is not victim]
        elif step == "move":
            due = [item for item in expected if item[1] <= value]
            expected = [item for item in expected if item[1] > value]
            assert acks.waiting.complete_up_to(value) == len(due)
            answered += len(due)
        elif step == "fail":
            assert acks.waiting.fail_all("gone") == len(expected)
            answered += len(expected)
            expected = []
        assert len(acks.waiting) == len(expected)
        assert len(acks.answers) == answered


def test_cancelled_acks_do_not_pile_up_under_a_stuck_watermark() -> None:
    acks = Acks()
    stuck = acks.add(1)
    for number in range(5 * PURGE_INTERVAL):
        acks.add(number + 2).cancel()
    assert len(acks.waiting) == 1
    assert len(acks.waiting._waiting) <= 2 * PURGE_INTERVAL
    stuck.cancel()
