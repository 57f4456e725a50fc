"""Remote reads are few at a time, in order, and refused when too many wait; a request takes what comes in time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio

from barnabas.broker.remote.gathering import Answers, Gathering
from barnabas.broker.remote.read_queue import QueuedRead, ReadQueue
from barnabas.broker.timing_wheel import TimingWheel
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.background import Background
from tests.broker.remote.rig import Clock

pytestmark = pytest.mark.feature("TS-06")

Story = Callable[["Reads"], Awaitable[None]]


class Reads:
    """Reads that end when the story lets them."""

    def __init__(self, nursery: trio.Nursery, runners: int = 2, most_waiting: int = 3) -> None:
        self.runners = runners
        self.queue = ReadQueue(Background(nursery), lambda: self.runners, most_waiting)
        self.begun: list[str] = []
        self.ended: list[tuple[str, Any, Exception | None]] = []
        self._gates: dict[str, trio.Event] = {}
        self.failing: dict[str, Exception] = {}

    def ask(self, name: str) -> QueuedRead:
        self._gates[name] = trio.Event()

        async def work() -> str:
            self.begun.append(name)
            await self._gates[name].wait()
            if name in self.failing:
                raise self.failing[name]
            return name.upper()

        return self.queue.submit(work, lambda result, error: self.ended.append((name, result, error)))

    async def end(self, *names: str) -> None:
        for name in names:
            self._gates[name].set()
        await trio.testing.wait_all_tasks_blocked()


def play(story: Story) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await story(Reads(nursery))
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_they_run_in_order_and_no_more_than_allowed() -> None:
    async def story(reads: Reads) -> None:
        for name in "abcde":
            reads.ask(name)
        await trio.testing.wait_all_tasks_blocked()
        assert (sorted(reads.begun), reads.queue.running, reads.queue.waiting) == (["a", "b"], 2, 3)
        await reads.end("b")
        assert reads.begun[2:] == ["c"]
        await reads.end("a", "c", "d", "e")
        assert [name for name, _, _ in reads.ended] == ["b", "a", "c", "d", "e"]
        assert (reads.queue.running, reads.queue.waiting, reads.queue.idle_share) == (0, 0, 1.0)

    play(story)


def test_one_that_finds_the_queue_full_is_refused() -> None:
    async def story(reads: Reads) -> None:
        waiting = [reads.ask(name) for name in "abcde"]
        with pytest.raises(KafkaError, match=r"remote\.log\.reader\.max\.pending\.tasks") as caught:
            reads.ask("f")
        assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        waiting[3].cancel()
        reads.ask("g")

    play(story)


def test_a_cancelled_read_does_not_begin_and_its_result_is_dropped() -> None:
    async def story(reads: Reads) -> None:
        a, _, c = reads.ask("a"), reads.ask("b"), reads.ask("c")
        await trio.testing.wait_all_tasks_blocked()
        a.cancel()
        c.cancel()
        await reads.end("a", "b", "c")
        assert sorted(reads.begun) == ["a", "b"]
        assert [name for name, _, _ in reads.ended] == ["b"]

    play(story)


def test_an_error_ends_one_read_and_not_the_next() -> None:
    async def story(reads: Reads) -> None:
        reads.failing["a"] = ValueError("odd")
        for name in "abc":
            reads.ask(name)
        await reads.end("a", "b", "c")
        assert [(name, str(error)) for name, _, error in reads.ended] == [("a", "odd"), ("b", "None"), ("c", "None")]

    play(story)


def test_a_smaller_number_of_runners_holds_as_soon_as_reads_end() -> None:
    async def story(reads: Reads) -> None:
        for name in "abcde":
            reads.ask(name)
        await trio.testing.wait_all_tasks_blocked()
        reads.runners = 1
        await reads.end("a")
        assert (sorted(reads.begun), reads.queue.running) == (["a", "b"], 1)
        await reads.end("b", "c", "d", "e")
        assert len(reads.ended) == 5

    play(story)


# ---- several reads for one request


def gather(
    keys: str, act: Callable[[dict[str, Callable[[Any, ErrorCode], None]], TimingWheel], None]
) -> tuple[list[Answers[str]], list[str]]:
    """The answers of a request, and the other calls."""
    answered: dict[str, Callable[[Any, ErrorCode], None]] = {}
    cancelled, finished, clock = list[str](), list[Answers[str]](), Clock(0)

    class Read(QueuedRead):
        def __init__(self, key: str) -> None:
            super().__init__(lambda: trio.sleep(0), lambda _result, _error: None)
            self.key = key

        def cancel(self) -> None:
            cancelled.append(self.key)

    def begin(key: str, callback: Callable[[Any, ErrorCode], None]) -> QueuedRead:
        answered[key] = callback
        return Read(key)

    wheel = TimingWheel(0)
    gathering = Gathering[str](wheel, clock, lambda answers: finished.append(dict(answers)))
    gathering.begin({key: partial(begin, key) for key in keys}, 500, lambda: cancelled.append("expired"))
    act(answered, wheel)
    wheel.advance(10_000)
    return finished, cancelled


def test_a_request_is_answered_when_all_its_reads_have_ended() -> None:
    def act(answered: dict[str, Callable[[Any, ErrorCode], None]], _wheel: TimingWheel) -> None:
        answered["a"](1, ErrorCode.NONE)
        answered["b"](None, ErrorCode.OFFSET_OUT_OF_RANGE)

    finished, cancelled = gather("ab", act)
    assert finished == [{"a": (1, ErrorCode.NONE), "b": (None, ErrorCode.OFFSET_OUT_OF_RANGE)}]
    assert not cancelled


def test_at_its_deadline_a_request_takes_what_there_is_and_drops_the_rest() -> None:
    def act(answered: dict[str, Callable[[Any, ErrorCode], None]], wheel: TimingWheel) -> None:
        answered["b"](2, ErrorCode.NONE)
        wheel.advance(499)

    finished, cancelled = gather("abc", act)
    assert finished == [{"b": (2, ErrorCode.NONE)}]
    assert cancelled == ["a", "c", "expired"]


def test_reads_that_are_all_refused_answer_at_once() -> None:
    finished: list[Answers[str]] = []
    wheel = TimingWheel(0)
    gathering = Gathering[str](wheel, Clock(0), finished.append)

    def refuse(callback: Callable[[Any, ErrorCode], None]) -> None:
        callback(None, ErrorCode.UNKNOWN_SERVER_ERROR)

    gathering.begin({"a": refuse, "b": refuse}, 500, lambda: None)
    assert finished == [dict.fromkeys("ab", (None, ErrorCode.UNKNOWN_SERVER_ERROR))]
