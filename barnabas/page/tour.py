"""The tour: everything that the buttons do, in turn and under load, each step told; at the end what became of the
records.

Waits for the cluster, never for a time alone: a step is over when the cluster has come to terms with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import trio

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.status import ClusterStatus
from barnabas.demo.ledger import Verdict
from barnabas.demo.status_watch import is_whole
from barnabas.page.control import Faults, NotNow
from barnabas.page.feed import Feed
from barnabas.page.hosted import Hosted
from barnabas.page.load import PARTITIONS_COUNT, TOPIC, LoadRunner, TimedLedger

PATIENCE_SECONDS = 90.0
"""How long the cluster may take to come to terms with a step."""
LOOK_SECONDS = 0.25
BEAT_SECONDS = 3.0
"""How long people are given to see what happened."""
QUIET = "no fault"

Asked = Callable[[], ClusterStatus]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is done."""

    what: str
    """What its window is called in the summary."""
    do: Callable[[Tour], Awaitable[str]]
    """Does it and waits for the cluster; gives one line, which is told."""


class Tour(Hosted):
    """One at a time, on a cluster of this machine."""

    def __init__(self, faults: Faults, load: LoadRunner, feed: Feed, apache_kafka: Mapping[str, Any]) -> None:
        super().__init__()
        self.faults = faults
        self._load = load
        self._feed = feed
        self._apache_kafka = apache_kafka
        self._cluster = faults.side.cluster
        self.is_running = False
        self.victim = ""
        """Who was killed, or paused, and is to come back."""
        self.pair = ("", "")
        """Whose link is cut."""
        self._number = 0
        self.load_follows = False
        """It goes on when the tour has ended."""

    def start(self) -> None:
        """Raises `NotNow`."""
        if self.is_running:
            raise NotNow("the tour is under way")
        self.is_running = True
        self.load_follows = self._load.is_running
        self._begin(self._play)

    def stop(self) -> None:
        raise NotNow("the tour cannot be stopped; it ends by itself")

    @property
    def steps(self) -> list[Step]:
        return [
            Step(QUIET, begin),
            Step("kill leader", kill_leader),
            Step("start leader", start_again),
            Step("kill controller", kill_controller),
            Step("start controller", start_again),
            *([Step("cut link", cut_link), Step("heal link", heal_link)] if self.faults.side.links is not None else []),
            Step("pause leader", pause_leader),
            Step("resume leader", resume),
        ]

    async def _play(self) -> None:
        try:
            await self._play_all()
        except ClusterError as error:
            self._tell(f"the tour breaks off: {error}", finished=True)
            await self._put_back()
            if self._load.is_running and not self.load_follows:
                self._load.stop()
        finally:
            self.is_running = False

    async def _put_back(self) -> None:
        """As far as it can be done, nothing is broken any more."""
        faults, (one, other) = self.faults, self.pair
        states = faults.side.processes()
        try:
            if one and faults.side.links is not None and (one, other) in faults.side.cut:
                await faults.cut(one, other, cut=False)
            if states.get(self.victim) == "paused":
                await faults.resume(self.victim)
            if states.get(self.victim) in ("dead", "stopped"):
                await faults.start(self.victim)
        except ClusterError as error:
            self._tell(f"the tour breaks off, and what it broke is still broken: {error}", finished=True)

    async def _play_all(self) -> None:
        if self._load.is_running:
            # A run of its own, so that its accounts are of the tour alone.
            self._tell("the load that runs is read back to its end")
            self._load.stop()
            await self._load.ended()
        for number, step in enumerate(self.steps, 1):
            self._number = number
            if step.what != QUIET:
                self.ledger.begin_window(step.what, self.now_ms())
            self._tell(await step.do(self))
            await trio.sleep(BEAT_SECONDS)
        self._number += 1
        self._tell("the load stops, and everything that was acked is read back")
        self._load.stop()
        verdict = await self._load.ended()
        self._tell(_closing(verdict), finished=True, summary=self._summary(verdict))
        if self.load_follows:
            self._load.start()

    def tell(self, text: str) -> None:
        """Before a step has ended."""
        self._tell(text)

    def _tell(self, text: str, *, finished: bool = False, summary: Mapping[str, Any] | None = None) -> None:
        of = len(self.steps) + 1
        self._feed.tour({"step": self._number, "of": of, "text": text, "finished": finished, "summary": summary})

    def _summary(self, verdict: Verdict) -> dict[str, Any]:
        windows = []
        for window in self.ledger.windows:
            theirs = self._apache_kafka.get(window.name, {}).get("gap_ms")
            windows.append({"what": window.name, "gap_ms": window.gap_ms, "apache_kafka_gap_ms": theirs})
        return {
            "records": verdict.sent,
            "acked": verdict.acked,
            "lost": verdict.lost,
            "duplicated": verdict.duplicated,
            "out_of_order": verdict.out_of_order,
            "windows": windows,
        }

    # What steps do it with

    @property
    def ledger(self) -> TimedLedger:
        ledger = self._load.ledger
        if ledger is None:
            raise ClusterError("there is no load")
        return ledger

    def now_ms(self) -> int:
        """Of the ledger's clock."""
        return self.ledger.now_ms()

    async def begin_load(self) -> None:
        self._load.start()
        flowing = self._load.flowing
        with trio.move_on_after(PATIENCE_SECONDS):
            await flowing.wait()
            self.ledger.windows.clear()
            self.ledger.begin_window(QUIET, self.now_ms())
            return
        raise ClusterError(f"no record was acked within {PATIENCE_SECONDS:.0f} s")

    async def status(self) -> ClusterStatus:
        return await trio.to_thread.run_sync(self._cluster.status, [TOPIC], abandon_on_cancel=True)

    async def until(self, what: str, holds: Callable[[ClusterStatus], bool]) -> ClusterStatus:
        """Raises `ClusterError` when it takes too long."""
        with trio.move_on_after(PATIENCE_SECONDS):
            while True:
                status = await self.status()
                if holds(status):
                    return status
                await trio.sleep(LOOK_SECONDS)
        raise ClusterError(f"not within {PATIENCE_SECONDS:.0f} s: {what}")

    async def until_acked(self) -> int:
        """Until what has been sent up to now is decided, in each partition; gives for how many milliseconds at most no
        ack came in this step."""
        accounts = self.ledger.accounts
        before = [account.sent for account in accounts]
        with trio.move_on_after(PATIENCE_SECONDS):
            # Of one partition, outcomes come in the order of its records.
            while any(each.sent - each.undecided < sent for each, sent in zip(accounts, before, strict=True)):
                await trio.sleep(LOOK_SECONDS)
            return self.ledger.windows[-1].gap_ms
        raise ClusterError(f"no record was acked for {PATIENCE_SECONDS:.0f} s")

    async def whole(self) -> ClusterStatus:
        return await self.until("every node runs and every replica is in sync", is_whole)

    async def leader(self) -> str:
        """The broker that leads the first partition."""
        status = await self.until("somebody leads every partition", _is_led)
        return f"broker-{status.partitions[0].leader}"


def _is_led(status: ClusterStatus) -> bool:
    return len(status.partitions) >= PARTITIONS_COUNT and all(each.leader >= 0 for each in status.partitions)


def _leads_nothing(name: str) -> Callable[[ClusterStatus], bool]:
    number = int(name.rpartition("-")[2])
    return lambda status: _is_led(status) and all(each.leader != number for each in status.partitions)


async def begin(tour: Tour) -> str:
    await tour.begin_load()
    await tour.whole()
    return "500 records/s are written with acks=all and read; every replica is in sync"


async def kill_leader(tour: Tour) -> str:
    gap_ms = await _lose_leader(tour, tour.faults.kill, f", leader of {TOPIC}-0, is killed")
    return f"others lead what {tour.victim} has led; no ack came for {gap_ms} ms at most"


async def pause_leader(tour: Tour) -> str:
    told = " is paused: nobody can tell it from a slow one until its session ends"
    gap_ms = await _lose_leader(tour, tour.faults.pause, told)
    return f"its session has ended, others lead; no ack came for {gap_ms} ms at most"


async def _lose_leader(tour: Tour, lose: Callable[[str], Awaitable[None]], told: str) -> int:
    """`told`: what is done to it. Gives for how many milliseconds at most no ack came."""
    tour.victim = await tour.leader()
    tour.tell(tour.victim + told)
    await lose(tour.victim)
    await tour.until("others lead", _leads_nothing(tour.victim))
    return await tour.until_acked()


async def kill_controller(tour: Tour) -> str:
    status = await tour.until("a controller is active", lambda each: each.quorum is not None)
    assert status.quorum is not None
    epoch = status.quorum.epoch
    tour.victim = f"controller-{status.quorum.leader}"
    tour.tell(f"{tour.victim}, the active controller, is killed")
    await tour.faults.kill(tour.victim)
    status = await tour.until(
        "another controller is active", lambda each: each.quorum is not None and each.quorum.epoch > epoch
    )
    assert status.quorum is not None
    gap_ms = await tour.until_acked()
    heir = f"controller-{status.quorum.leader} is active in epoch {status.quorum.epoch}"
    return f"{heir}; records went on, no ack came for {gap_ms} ms at most"


async def start_again(tour: Tour) -> str:
    tour.tell(f"{tour.victim} is started again")
    await tour.faults.start(tour.victim)
    await tour.whole()
    return f"{tour.victim} is back, and every replica is in sync"


async def cut_link(tour: Tour) -> str:
    leader = await tour.leader()
    follower = next(node.name for node in tour.faults.side.cluster.layout.brokers if node.name != leader)
    number = int(follower.rpartition("-")[2])
    tour.pair = min(leader, follower), max(leader, follower)
    tour.tell(f"the link between {leader} and {follower} is cut: acks wait until {follower} is out of the ISR")
    await tour.faults.cut(*tour.pair, cut=True)
    await tour.until(
        f"{follower} is out of the ISR of {TOPIC}-0",
        lambda each: _is_led(each) and number not in each.partitions[0].isr,
    )
    gap_ms = await tour.until_acked()
    return f"{follower} is out of the ISR, and records go on; no ack came for {gap_ms} ms at most"


async def heal_link(tour: Tour) -> str:
    tour.tell("the link is healed")
    await tour.faults.cut(*tour.pair, cut=False)
    await tour.whole()
    return "what was left behind has caught up, and is in the ISR again"


async def resume(tour: Tour) -> str:
    tour.tell(f"{tour.victim} wakes up and believes that it still leads")
    await tour.faults.resume(tour.victim)
    await tour.whole()
    return f"{tour.victim} was refused in its old epoch, follows, and is in sync"


def _closing(verdict: Verdict) -> str:
    if verdict.clean:
        return f"{verdict.acked} records were acked, and all were read: none lost, none twice, all in order"
    return (
        f"{verdict.acked} records were acked: {verdict.lost} lost, {verdict.duplicated} twice, "
        f"{verdict.out_of_order} out of order, {verdict.misplaced} elsewhere"
    )
