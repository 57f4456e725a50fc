"""The memory that connections may hold, and the connection that is closed above the limit."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.runtime.memory import ANSWERS_PART, REQUESTS_PART, MemoryBudget


@dataclass(eq=False)
class Held:
    """A connection that holds memory until it is closed."""

    budget: MemoryBudget
    request_bytes: int = 0
    answer_bytes: int = 0
    reasons: list[str] = field(default_factory=list)

    def abort(self, reason: str) -> None:
        self.reasons.append(reason)
        requests, answers = self.request_bytes, self.answer_bytes
        self.request_bytes = self.answer_bytes = 0
        self.budget.requests_changed(-requests)
        self.budget.answers_changed(-answers)

    def hold(self, requests: int = 0, answers: int = 0) -> None:
        self.request_bytes += requests
        self.answer_bytes += answers
        if requests:
            self.budget.requests_changed(requests)
        if answers:
            self.budget.answers_changed(answers)


def connections(budget: MemoryBudget, count: int) -> list[Held]:
    held = [Held(budget) for _ in range(count)]
    budget.holders = lambda: held
    return held


def test_the_limits_are_parts_of_the_nodes_memory() -> None:
    assert MemoryBudget.of(1 << 30, -1).most_request_bytes == (1 << 30) // REQUESTS_PART
    assert MemoryBudget.of(1 << 30, -1).most_answer_bytes == (1 << 30) // ANSWERS_PART
    assert MemoryBudget.of(1 << 30, 1000).most_request_bytes == 1000


def test_the_peer_that_leaves_most_answers_unread_is_closed() -> None:
    budget = MemoryBudget(most_request_bytes=1000, most_answer_bytes=100)
    first, second, third = connections(budget, 3)
    first.hold(answers=30)
    second.hold(answers=60)
    assert not second.reasons
    third.hold(answers=20)
    assert [len(each.reasons) for each in (first, second, third)] == [0, 1, 0]
    assert "it does not take its answers (60 bytes)" in second.reasons[0]
    assert (budget.answer_bytes, budget.closed) == (50, 1)


def test_room_for_requests_is_reported() -> None:
    budget = MemoryBudget(most_request_bytes=100, most_answer_bytes=100)
    found: list[int] = []
    budget.on_room = lambda: found.append(budget.request_bytes)
    (held,) = connections(budget, 1)
    held.hold(requests=99)
    assert not budget.is_full
    held.hold(requests=10)
    assert budget.is_full and not held.reasons
    budget.requests_changed(-50)
    assert found == [59]


def test_work_that_grows_beyond_the_limit_costs_the_largest_connection() -> None:
    budget = MemoryBudget(most_request_bytes=100, most_answer_bytes=100, most_grown_bytes=200)
    small, large = connections(budget, 2)
    small.hold(requests=90)
    large.hold(requests=100)
    budget.make_room_for_growth()
    assert budget.is_full and not large.reasons, "clients are not read, and work under way may go on"
    small.hold(requests=20)
    budget.make_room_for_growth()
    assert (len(small.reasons), len(large.reasons)) == (1, 0)
    assert budget.request_bytes == 100


def test_requests_that_never_arrive_whole_go_largest_first() -> None:
    budget = MemoryBudget(most_request_bytes=100, most_answer_bytes=100)
    small, large = connections(budget, 2)
    small.hold(requests=30)
    large.hold(requests=80)
    budget.make_room()
    assert (len(small.reasons), len(large.reasons), budget.request_bytes) == (0, 1, 30)
