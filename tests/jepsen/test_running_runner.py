"""The runner: phases, processes that retire, and ends that are not good."""

from __future__ import annotations

import errno
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.cluster.errors import ClusterError
from clients.client import ClientError, ClientSettings
from histories.history import History
from histories.recorder import HistoryError, Recorder
from operations import Completion, Invocation
from running.runner import HUNG_SECONDS, Ended, Phase, Run, RunOptions
from tests.jepsen.fake_client import FakeWorld
from tests.jepsen.fake_kafka import FakeKafka

pytestmark = pytest.mark.feature("FI-01")


class Steps:
    """A workload whose operations end as the test scripts them."""

    name = "steps"

    def __init__(self, outcome: Callable[[int], Completion | None]) -> None:
        self._outcome = outcome
        self.count = 0
        self.under_way = 0
        self.final = False
        self.final_steps = 0
        self.begun_while_under_way = False

    def client_settings(self, base: ClientSettings, process: int) -> ClientSettings:
        return base

    async def set_up(self, client: Any) -> None:
        await trio.lowlevel.checkpoint()

    def invoke(self, process: int, chance: Any, now_ns: int) -> Invocation | None:
        if self.final and self.final_steps >= 3:
            return None
        self.final_steps += self.final
        self.count += 1
        return Invocation("step", self.count)

    async def perform(self, process: int, invocation: Invocation, client: Any, chance: Any) -> Completion:
        self.under_way += 1
        await trio.sleep(0.5)
        completion = self._outcome(invocation.value)
        if completion is None:
            await trio.sleep_forever()
        self.under_way -= 1
        assert completion is not None
        return completion

    def completed(self, process: int, invocation: Invocation, completion: Completion) -> None: ...

    def begin_final(self) -> None:
        self.final = True
        self.begun_while_under_way = self.under_way > 0

    def final_is_done(self) -> bool:
        return self.final and self.final_steps >= 3

    def checkers(self) -> list[Any]:
        return []


class Library:
    """Counts its clients; some cannot be made."""

    name = "counted"

    def __init__(self, fails: int = 0) -> None:
        self.opened = 0
        self.open_now = 0
        self._fails = fails

    @asynccontextmanager
    async def open(self, settings: ClientSettings, host: str) -> AsyncIterator[Any]:
        await trio.lowlevel.checkpoint()
        if self._fails:
            self._fails -= 1
            raise ClientError("TimeoutException", "nobody is there", definite=True)
        self.opened += 1
        self.open_now += 1
        try:
            yield object()
        finally:
            self.open_now -= 1


def ok(_count: int) -> Completion:
    return Completion("ok")


def prepared(workload: Steps, library: Library, nemesis: Any = None, **options: Any) -> Run:
    given = RunOptions(**{"time_seconds": 5.0, "rate": 20.0, "concurrency": 3, "quiet_seconds": 1.0, **options})
    return Run(given, workload, [library], chance_of=random.Random, nemesis=nemesis)


async def carry(run: Run, directory: Path) -> tuple[Ended, History]:
    world = FakeWorld(FakeKafka(1))
    with Recorder(directory, {"name": "steps", "workload": "steps"}) as recorder:
        ended = await run.run(world, recorder)  # type: ignore[arg-type]
    return ended, History.load(directory)


async def test_a_run_works_rests_reads_and_is_over(autojump_clock: Any, tmp_path: Path) -> None:
    workload, library = Steps(ok), Library()
    run = prepared(workload, library)
    ended, history = await carry(run, tmp_path)

    assert (ended, run.phase) == (Ended(final_done=True, thought_of=run.ended.thought_of), Phase.OVER)
    assert not workload.begun_while_under_way
    assert workload.final_steps == 3
    assert library.open_now == 0
    assert len(history.operations) == workload.count
    assert set(history.operations.process.tolist()) == {0, 1, 2}


async def test_resting_processes_and_left_out_operations_are_in_no_history(autojump_clock: Any, tmp_path: Path) -> None:
    whole = prepared(Steps(ok), Library())
    await carry(whole, tmp_path / "whole")
    workload = Steps(ok)
    run = prepared(workload, Library(), resting=(0, 2), left_out=(range(3), range(5, 6)))
    ended, history = await carry(run, tmp_path / "part")

    main_phase = history.operations.process[: -workload.final_steps]
    assert set(main_phase.tolist()) == {1}, "those who rest read at the end, as the others do"
    assert ended.thought_of == len(main_phase) + 4
    assert whole.ended.thought_of > 20


async def test_after_info_and_after_a_dead_client_the_process_never_comes_again(
    autojump_clock: Any, tmp_path: Path
) -> None:
    def outcome(count: int) -> Completion:
        return Completion("info") if count == 2 else Completion("fail", ends_process=count == 4)

    workload, library = Steps(outcome), Library()
    _ended, history = await carry(prepared(workload, library, concurrency=1), tmp_path)

    processes = history.operations.process.tolist()
    assert processes[:5] == [0, 0, 1, 1, 2]
    assert library.opened == 1 + 3, "one to set up, and one for each process"


async def test_a_client_that_cannot_be_made_is_made_later(autojump_clock: Any, tmp_path: Path) -> None:
    workload = Steps(ok)
    ended, history = await carry(prepared(workload, Library(fails=4), concurrency=1), tmp_path)

    assert ended.final_done and len(history.operations) > 3


async def test_an_operation_that_never_ends_becomes_info(autojump_clock: Any, tmp_path: Path) -> None:
    workload = Steps(lambda count: None if count == 1 else Completion("ok"))
    began = trio.current_time()
    ended, history = await carry(prepared(workload, Library(), concurrency=1), tmp_path)

    assert ended.final_done and trio.current_time() - began > HUNG_SECONDS
    assert history.operation(1).type == "info"
    assert history.operation(1).error is not None and history.operation(1).error[0] == "DidNotReturn"


async def test_one_stop_lets_a_run_finish_and_a_second_one_abandons_it(autojump_clock: Any, tmp_path: Path) -> None:
    for times, final_done in ((1, True), (2, False)):
        run = prepared(Steps(ok), Library(), time_seconds=1_000.0)
        began = trio.current_time()
        async with trio.open_nursery() as nursery:

            async def stop(run: Run = run, times: int = times) -> None:
                await trio.sleep(2.0)
                for _ in range(times):
                    run.stop()

            nursery.start_soon(stop)
            ended, history = await carry(run, tmp_path / str(times))
        assert (ended.stopped, ended.final_done, ended.failure) == (True, final_done, None)
        assert trio.current_time() - began < 10.0
        assert len(history.operations) > 3


async def test_a_full_disk_ends_the_run_and_keeps_what_there_is(
    autojump_clock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written = Recorder.write, 0

    def full(self: Recorder, *words: Any, **more: Any) -> int:
        nonlocal written
        written += 1
        if written > 20:
            raise HistoryError(f"history.jsonl: {errno.errorcode[errno.ENOSPC]}: the run ends here")
        return write(self, *words, **more)

    monkeypatch.setattr(Recorder, "write", full)
    library = Library()
    ended, history = await carry(prepared(Steps(ok), library, time_seconds=1_000.0), tmp_path)

    assert ended.failure == "history.jsonl: ENOSPC: the run ends here"
    assert not ended.final_done and library.open_now == 0
    assert len(history.lines) == 20


class Breaker:
    """A nemesis that cannot undo its fault."""

    def __init__(self) -> None:
        self.broke = False

    async def run(self, report: Any) -> None:
        report("invoke", "kill", {"number": 1})
        self.broke = True
        await trio.sleep_forever()

    async def undo(self, report: Any) -> None:
        await trio.sleep(1.0)
        raise ClusterError("broker-1 does not start")


async def test_a_cluster_that_does_not_recover_is_reported(autojump_clock: Any, tmp_path: Path) -> None:
    breaker = Breaker()
    ended, history = await carry(prepared(Steps(ok), Library(), breaker), tmp_path)

    assert breaker.broke
    assert ended.failure == "broker-1 does not start" and not ended.final_done
    assert [fault.f for fault in history.faults] == ["kill"]


async def test_a_cluster_that_creates_no_topics_is_reported(autojump_clock: Any, tmp_path: Path) -> None:
    ended, _history = await carry(prepared(Steps(ok), Library(fails=10_000)), tmp_path)

    assert ended.failure is not None and "does not create the topics" in ended.failure
