"""One run: processes that work, the nemesis beside them, a look at all nodes each second; then the end in good order.

    work (time_seconds) -> the nemesis undoes everything -> quiet -> final phase: everything is read to its end

The same in every world: time is trio's and the cluster's, chance comes from streams that are handed in, and all is done
by tasks of one nursery, so that a simulation replays it from its seed.

A process is a number with a client. After `info`, and whenever its client is no longer usable, the number never comes
again: the next client of that thread has the number of processes more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

import trio

from barnabas.cluster.errors import ClusterError
from barnabas.runtime.world import Chance
from clients.client import ClientError, ClientLibrary, ClientSettings, WorkClient
from histories.recorder import HistoryError, Recorder
from operations import NEMESIS, Completion, Invocation, Moment, OperationType
from running.pace import Pace
from workloads.workload import Workload
from worlds.cluster import ClusterUnderTest

VIEW_SECONDS = 1.0
VIEW_PATIENCE_SECONDS = 5.0
IDLE_SECONDS = 0.05
"""A process that has nothing to do looks again after this."""
HUNG_SECONDS = 120.0
"""Timeout of an operation. It is never reached, since every call of a client is bounded."""
RETRY_SECONDS = 0.5
SET_UP_SECONDS = 60.0
READY_SECONDS = 120.0
COMING_SECONDS = 60.0
"""Maximum time to wait for clients before the work begins."""

Report = Callable[[OperationType, str, Any], int]
"""Writes an operation of the nemesis into the history: its type, `f` and value; gives its `i`."""


class Nemesis(Protocol):
    """Breaks the cluster."""

    async def run(self, report: Report) -> None:
        """Breaks and mends, until it is cancelled."""

    async def undo(self, report: Report) -> None:
        """Mends everything: all nodes run, and all reach each other."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of one run, in every world."""

    time_seconds: float = 60.0
    rate: float = 100.0
    """Operations a second, over all processes."""
    concurrency: int = 12
    """Processes at a time."""
    quiet_seconds: float = 10.0
    """After everything was mended, before everything is read."""
    final_seconds: float = 200.0
    resting: Sequence[int] = ()
    """Threads that do nothing in the main phase."""
    left_out: Sequence[range] = ()
    """Operations of the main phase that nobody does, in the order in which the workload thinks of them."""
    settings: ClientSettings = field(default_factory=lambda: ClientSettings("", "jepsen"))
    """Settings of every client; `bootstrap_servers` comes from the cluster if there are none."""


@dataclass(slots=True)
class Ended:
    """The end of a run."""

    final_done: bool = False
    """Everything was read that can be, so that what nobody saw is not there."""
    stopped: bool = False
    """Somebody asked it to end before its time."""
    failure: str | None = None
    """Reason why it ended early: one line."""
    thought_of: int = 0
    """Operations of the main phase, with those that were left out."""


class Phase(Enum):
    """Phases of a run."""

    WORK = "work"
    REST = "rest"
    READ = "read"
    OVER = "over"


class Run:
    """One run. `stop` may be called at any time, for example by a signal handler."""

    def __init__(
        self,
        options: RunOptions,
        workload: Workload,
        libraries: Sequence[ClientLibrary],
        *,
        chance_of: Callable[[str], Chance],
        nemesis: Nemesis | None = None,
    ) -> None:
        """`chance_of` gives the stream of a purpose, always the same from the same seed. `libraries`: the threads take
        them in turn."""
        self.options = options
        self.ended = Ended()
        self.phase = Phase.WORK
        self._workload = workload
        self._libraries = libraries
        self._chance_of = chance_of
        self._nemesis = nemesis
        self._cluster: ClusterUnderTest
        self._recorder: Recorder
        self._everything = trio.CancelScope()
        self._pausing = trio.CancelScope()
        """Cancels the wait for the end of the present phase."""
        self._turns: dict[int, trio.CancelScope] = {}
        """Cancel the waits of processes for their next moment."""
        self._busy = 0
        """Operations under way."""
        self._coming = dict.fromkeys(range(options.concurrency))
        """Threads whose first client is not there yet."""
        self._all_came = trio.Event()

    def stop(self) -> None:
        """End the main phase now, mend, and read everything; called again: end at once."""
        if self.ended.stopped:
            self._everything.cancel()
        self.ended.stopped = True
        if self.phase is Phase.WORK:
            self._pausing.cancel()

    async def run(self, cluster: ClusterUnderTest, recorder: Recorder) -> Ended:
        """Returns whenever there is nothing more to record; raises only what is a mistake of the suite."""
        self._cluster, self._recorder = cluster, recorder
        with self._everything:
            if await self._set_up():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._look)
                    async with trio.open_nursery() as threads:
                        pace = Pace(self.options.rate, self._chance_of("pace"))
                        for thread in range(self.options.concurrency):
                            threads.start_soon(self._live, thread, pace)
                        await self._lead()
                    nursery.cancel_scope.cancel()
        return self.ended

    def end(self, reason: str) -> None:
        """Ends the run where it is."""
        if self.ended.failure is None:
            self.ended.failure = reason
        self._everything.cancel()

    def _fail(self, error: Exception) -> None:
        """Nothing more can be done, or recorded."""
        self.end(str(error))

    # ---- phases

    async def _set_up(self) -> bool:
        settings = self._workload.client_settings(self._base_settings("client-0"), 0)
        with trio.move_on_after(SET_UP_SECONDS):
            failure: ClientError | None = None
            while True:
                try:
                    async with self._libraries[0].open(settings, "client-0") as client:
                        try:
                            await self._workload.set_up(client)
                            return True
                        except ClientError as error:
                            failure = error
                except ClientError as error:
                    failure = error
                if trio.current_effective_deadline() - trio.current_time() < RETRY_SECONDS:
                    break
                await trio.sleep(RETRY_SECONDS)
        self._fail(ClusterError(f"the cluster does not create the topics of the workload: {failure or 'no answer'}"))
        return False

    async def _lead(self) -> None:
        """Through all phases. The first begins when everybody is there: a JVM takes its time to come up."""
        async with trio.open_nursery() as nursery:
            with self._pausing:
                with trio.move_on_after(COMING_SECONDS):
                    await self._all_came.wait()
                self._all_came.set()
                if self._nemesis is not None:
                    nursery.start_soon(self._nemesis.run, self._report)
                await trio.sleep(self.options.time_seconds)
            nursery.cancel_scope.cancel()
        self._all_came.set()
        self._begin(Phase.REST)
        try:
            if self._nemesis is not None:
                await self._nemesis.undo(self._report)
                await self._cluster.wait_ready(READY_SECONDS)
        except (ClusterError, HistoryError) as error:
            self._fail(error)
        await trio.sleep(self.options.quiet_seconds)
        while self._busy:
            await trio.sleep(IDLE_SECONDS)
        self._workload.begin_final()
        self._begin(Phase.READ)
        with trio.move_on_after(self.options.final_seconds):
            while not self._workload.final_is_done():
                await trio.sleep(IDLE_SECONDS)
        self.ended.final_done = self._workload.final_is_done()
        self._begin(Phase.OVER)

    def _begin(self, phase: Phase) -> None:
        self.phase = phase
        for turn in self._turns.values():
            turn.cancel()

    # ---- processes

    async def _live(self, thread: int, pace: Pace) -> None:
        """One client after the other."""
        library = self._libraries[thread % len(self._libraries)]
        chance = self._chance_of(f"process/{thread}")
        process = thread
        host = f"client-{thread}"
        while not self._is_over():
            settings = self._workload.client_settings(self._base_settings(host), process)
            try:
                async with library.open(settings, host) as client:
                    await self._came(thread)
                    while not self._is_over():
                        if not await self._turn(thread, pace):
                            continue
                        if await self._operate(process, client, library.name, chance):
                            break
            except ClientError:
                # It could not even be made; nothing was done by it.
                await self._came(thread)
                await trio.sleep(RETRY_SECONDS)
            process += self.options.concurrency

    async def _came(self, thread: int) -> None:
        """Its first client is there, or cannot be. Returns when there is work."""
        self._coming.pop(thread, None)
        if not self._coming:
            self._all_came.set()
        await self._all_came.wait()

    async def _turn(self, thread: int, pace: Pace) -> bool:
        """Waits until something is to be done; False if the phase changed meanwhile."""
        with trio.CancelScope() as self._turns[thread]:
            if self.phase is Phase.WORK:
                if thread in self.options.resting:
                    await trio.sleep_forever()
                await pace.turn()
                return self.phase is Phase.WORK
            if self.phase is Phase.READ:
                await trio.lowlevel.checkpoint()
                return True
            await trio.sleep(IDLE_SECONDS)
        return False

    async def _operate(self, process: int, client: WorkClient, library: str, chance: Chance) -> bool:
        """Performs one operation, if there is one; True if the client is no longer usable."""
        invocation = self._workload.invoke(process, chance, self._cluster.now_ns())
        if invocation is None:
            await trio.sleep(IDLE_SECONDS)
            return False
        if self.phase is Phase.WORK:
            number = self.ended.thought_of
            self.ended.thought_of += 1
            if any(number in each for each in self.options.left_out):
                return False
        self._write(process, "invoke", Completion("info", invocation.value), invocation.f, library)
        self._busy += 1
        try:
            completion = await self._perform(process, invocation, client, chance)
        finally:
            self._busy -= 1
        self._write(process, completion.type, completion, invocation.f, library)
        self._workload.completed(process, invocation, completion)
        return completion.type == "info" or completion.ends_process

    async def _perform(self, process: int, invocation: Invocation, client: WorkClient, chance: Chance) -> Completion:
        with trio.move_on_after(HUNG_SECONDS):
            return await self._workload.perform(process, invocation, client, chance)
        text = f"the client did not return within {HUNG_SECONDS:.0f} s, though its calls are bounded"
        return Completion("info", invocation.value, ("DidNotReturn", text))

    def _is_over(self) -> bool:
        return self.phase is Phase.OVER

    def _base_settings(self, host: str) -> ClientSettings:
        servers = self.options.settings.bootstrap_servers or self._cluster.bootstrap_servers
        return replace(self.options.settings, bootstrap_servers=servers, client_id=host)

    # ---- the record

    def _write(
        self, process: int | str, type_: OperationType, completion: Completion, f: str, library: str | None
    ) -> int:
        try:
            at = Moment(self._cluster.now_ns(), self._cluster.wall_ms())
            return self._recorder.write(at, process, type_, f, completion, library)
        except HistoryError as error:
            self._fail(error)
            return -1

    def _report(self, type_: OperationType, f: str, value: Any) -> int:
        return self._write(NEMESIS, type_, Completion("info", value), f, None)

    async def _look(self) -> None:
        """At all nodes, each second."""
        cluster = self._cluster
        while True:
            began = trio.current_time()
            with trio.move_on_after(VIEW_PATIENCE_SECONDS):
                try:
                    t_ns = cluster.now_ns()
                    views = await cluster.views()
                    states = await cluster.states()
                    if views or states:
                        self._recorder.view(t_ns, views, states, await cluster.active_controller())
                except ClusterError:
                    pass  # nobody can be asked just now
                except HistoryError as error:
                    self._fail(error)
            await trio.sleep_until(max(trio.current_time(), began + VIEW_SECONDS))
