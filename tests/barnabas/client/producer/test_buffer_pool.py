"""Memory for batches: first come, first served, and nothing is lost on the way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.producer.buffer_pool import BufferPool, Waiter

pytestmark = pytest.mark.feature("PR-07")


def test_free_memory_is_granted_at_once_and_returned() -> None:
    pool = BufferPool(100)
    assert pool.try_allocate(60)
    assert not pool.try_allocate(60)
    pool.deallocate(60)
    assert pool.try_allocate(100)
    assert pool.available_bytes == 0


def test_more_than_there_ever_is_cannot_be_waited_for() -> None:
    with pytest.raises(ValueError, match="at most 100 bytes; got 101"):
        BufferPool(100).try_allocate(101)


def test_a_large_request_is_not_overtaken() -> None:
    pool = BufferPool(100)
    assert pool.try_allocate(100)
    served: list[str] = []
    pool.wait(80, lambda: served.append("large"))
    pool.wait(10, lambda: served.append("small"))
    pool.deallocate(50)
    assert served == [], "50 are free, and the first in line needs 80"
    assert not pool.try_allocate(10), "who comes now stands behind those who wait"
    pool.deallocate(50)
    assert served == ["large", "small"]
    assert (pool.available_bytes, pool.queued) == (10, 0)


def test_a_cancelled_request_lets_the_next_one_in() -> None:
    pool = BufferPool(100)
    assert pool.try_allocate(50)
    served: list[str] = []
    first = pool.wait(80, lambda: served.append("first"))
    pool.wait(40, lambda: served.append("second"))
    pool.cancel(first)
    assert served == ["second"]
    assert pool.available_bytes == 10


def test_memory_that_was_granted_to_somebody_who_left_goes_back() -> None:
    pool = BufferPool(100)
    assert pool.try_allocate(100)
    waiter = pool.wait(60, lambda: None)
    pool.deallocate(100)
    assert waiter.granted
    pool.cancel(waiter)
    assert pool.available_bytes == 100


@given(st.lists(st.tuples(st.sampled_from(["take", "wait", "give", "leave"]), st.integers(1, 100)), max_size=80))
def test_nothing_leaks_whatever_comes(steps: list[tuple[str, int]]) -> None:
    pool = BufferPool(100)
    held: list[int] = []
    line: list[Waiter] = []
    for what, number in steps:
        if what == "take" and pool.try_allocate(number):
            held.append(number)
        elif what == "wait":
            line.append(pool.wait(number, lambda: None))
        elif what == "give" and held:
            pool.deallocate(held.pop(number % len(held)))
        elif what == "leave" and line:
            pool.cancel(line.pop(number % len(line)))
        waiting = [waiter for waiter in line if not waiter.granted]
        taken = sum(held) + sum(waiter.size_bytes for waiter in line if waiter.granted)
        assert pool.available_bytes == 100 - taken >= 0
        assert pool.queued == len(waiting)
        assert not waiting or waiting[0].size_bytes > pool.available_bytes, "nobody waits for what is there"
    for waiter in line:
        pool.cancel(waiter)
    for number in held:
        pool.deallocate(number)
    assert (pool.available_bytes, pool.queued) == (100, 0)
