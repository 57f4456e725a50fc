"""The tour: all faults one after another under load, with a line for each step, and a verdict on the records.

A step ends when the cluster has recovered from it, not after a fixed time.
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
from barnabas.page.background_task import BackgroundTask
from barnabas.page.control import Faults, NotNow
from barnabas.page.feed import Feed
from barnabas.page.load import PARTITIONS_COUNT, TOPIC, LoadRunner, TimedLedger

RECOVERY_SECONDS = 90.0
"""Time limit for the cluster to recover from a step."""
POLL_SECONDS = 0.25
BEAT_SECONDS = 3.0
"""Pause after each step, for the viewer."""
QUIET = "no fault"

Asked = Callable[[], ClusterStatus]


@dataclass(frozen=True, slots=True)
class Step:
    """One fault or repair."""

    what: str
    """Name of its window in the summary."""
    do: Callable[[Tour], Awaitable[str]]
    """Does it, waits for the cluster, and returns a line for the viewer."""


class Tour(BackgroundTask):
    """The tour on a local cluster; one at a time."""

    def __init__(self, faults: Faults, load: LoadRunner, feed: Feed, apache_kafka: Mapping[str, Any]) -> None:
        super().__init__()
        self.faults = faults
        self._load = load
        self._feed = feed
        self._apache_kafka = apache_kafka
        self._cluster = faults.side.cluster
        self.is_running = False
        self.victim = ""
        """The node that was killed or paused last."""
        self.pair = ("", "")
        """The nodes whose link was cut last."""
        self._number = 0
        self.load_follows = False
        """Whether the load is restarted after the tour."""

    def start(self) -> None:
        """Raises `NotNow`."""
        if self.is_running:
            raise NotNow("the tour is running")
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
            self._publish(f"the tour was aborted: {error}", finished=True)
            await self._repair()
            if self._load.is_running and not self.load_follows:
                self._load.stop()
        finally:
            self.is_running = False

    async def _repair(self) -> None:
        """Repairs the current faults as far as possible."""
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
            self._publish(f"the tour was aborted, and its faults could not be repaired: {error}", finished=True)

    async def _play_all(self) -> None:
        if self._load.is_running:
            # A run of its own, whose ledger covers the tour only.
            self._publish("the running load is stopped and read back first")
            self._load.stop()
            await self._load.ended()
        for number, step in enumerate(self.steps, 1):
            self._number = number
            if step.what != QUIET:
                self.ledger.begin_window(step.what, self.now_ms())
            self._publish(await step.do(self))
            await trio.sleep(BEAT_SECONDS)
        self._number += 1
        self._publish("the load stops, and all acked records are read back")
        self._load.stop()
        verdict = await self._load.ended()
        self._publish(_closing(verdict), finished=True, summary=self._summary(verdict))
        if self.load_follows:
            self._load.start()

    def report(self, text: str) -> None:
        """Publishes a line within a step."""
        self._publish(text)

    def _publish(self, text: str, *, finished: bool = False, summary: Mapping[str, Any] | None = None) -> None:
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

    # Operations for steps

    @property
    def ledger(self) -> TimedLedger:
        ledger = self._load.ledger
        if ledger is None:
            raise ClusterError("the load is not running")
        return ledger

    def now_ms(self) -> int:
        """Time of the ledger's clock."""
        return self.ledger.now_ms()

    async def begin_load(self) -> None:
        self._load.start()
        flowing = self._load.flowing
        with trio.move_on_after(RECOVERY_SECONDS):
            await flowing.wait()
            self.ledger.windows.clear()
            self.ledger.begin_window(QUIET, self.now_ms())
            return
        raise ClusterError(f"no record was acked within {RECOVERY_SECONDS:.0f} s")

    async def status(self) -> ClusterStatus:
        return await trio.to_thread.run_sync(self._cluster.status, [TOPIC], abandon_on_cancel=True)

    async def until(self, what: str, holds: Callable[[ClusterStatus], bool]) -> ClusterStatus:
        """Polls until `holds`. Raises `ClusterError` after the timeout."""
        with trio.move_on_after(RECOVERY_SECONDS):
            while True:
                status = await self.status()
                if holds(status):
                    return status
                await trio.sleep(POLL_SECONDS)
        raise ClusterError(f"not within {RECOVERY_SECONDS:.0f} s: {what}")

    async def until_acked(self) -> int:
        """Waits until all records sent so far have an outcome. Returns the longest gap without an ack in this step."""
        accounts = self.ledger.accounts
        before = [account.sent for account in accounts]
        with trio.move_on_after(RECOVERY_SECONDS):
            # Outcomes of a partition arrive in the order of its records.
            while any(each.sent - each.undecided < sent for each, sent in zip(accounts, before, strict=True)):
                await trio.sleep(POLL_SECONDS)
            return self.ledger.windows[-1].gap_ms
        raise ClusterError(f"no record was acked for {RECOVERY_SECONDS:.0f} s")

    async def recovered(self) -> ClusterStatus:
        return await self.until("every node runs and every replica is in sync", is_whole)

    async def leader(self) -> str:
        """The broker that leads the first partition."""
        status = await self.until("every partition has a leader", _is_led)
        return f"broker-{status.partitions[0].leader}"


def _is_led(status: ClusterStatus) -> bool:
    return len(status.partitions) >= PARTITIONS_COUNT and all(each.leader >= 0 for each in status.partitions)


def _leads_nothing(name: str) -> Callable[[ClusterStatus], bool]:
    number = int(name.rpartition("-")[2])
    return lambda status: _is_led(status) and all(each.leader != number for each in status.partitions)


async def begin(tour: Tour) -> str:
    await tour.begin_load()
    await tour.recovered()
    return "500 records/s are produced with acks=all and consumed; every replica is in sync"


async def kill_leader(tour: Tour) -> str:
    gap_ms = await _lose_leader(tour, tour.faults.kill, f", leader of {TOPIC}-0, is killed")
    return f"other brokers lead the partitions of {tour.victim}; longest gap without an ack: {_duration(gap_ms)}"


async def pause_leader(tour: Tour) -> str:
    text = " is paused: it cannot be distinguished from a slow broker until its session expires"
    gap_ms = await _lose_leader(tour, tour.faults.pause, text)
    return f"its session has expired, other brokers lead; longest gap without an ack: {_duration(gap_ms)}"


async def _lose_leader(tour: Tour, lose: Callable[[str], Awaitable[None]], text: str) -> int:
    """Makes the leader of the first partition fail. Returns the longest gap without an ack."""
    tour.victim = await tour.leader()
    tour.report(tour.victim + text)
    await lose(tour.victim)
    await tour.until("other brokers lead", _leads_nothing(tour.victim))
    return await tour.until_acked()


async def kill_controller(tour: Tour) -> str:
    status = await tour.until("a controller is active", lambda each: each.quorum is not None)
    assert status.quorum is not None
    epoch = status.quorum.epoch
    tour.victim = f"controller-{status.quorum.leader}"
    tour.report(f"{tour.victim}, the active controller, is killed")
    await tour.faults.kill(tour.victim)
    status = await tour.until(
        "another controller is active", lambda each: each.quorum is not None and each.quorum.epoch > epoch
    )
    assert status.quorum is not None
    gap_ms = await tour.until_acked()
    heir = f"controller-{status.quorum.leader} is active in epoch {status.quorum.epoch}"
    return f"{heir}; producing continued, longest gap without an ack: {_duration(gap_ms)}"


async def start_again(tour: Tour) -> str:
    tour.report(f"{tour.victim} is restarted")
    await tour.faults.start(tour.victim)
    await tour.recovered()
    return f"{tour.victim} is back, and every replica is in sync"


async def cut_link(tour: Tour) -> str:
    leader = await tour.leader()
    follower = next(node.name for node in tour.faults.side.cluster.layout.brokers if node.name != leader)
    number = int(follower.rpartition("-")[2])
    tour.pair = min(leader, follower), max(leader, follower)
    tour.report(f"the link between {leader} and {follower} is cut: acks wait until {follower} is out of the ISR")
    await tour.faults.cut(*tour.pair, cut=True)
    await tour.until(
        f"{follower} is out of the ISR of {TOPIC}-0",
        lambda each: _is_led(each) and number not in each.partitions[0].isr,
    )
    gap_ms = await tour.until_acked()
    return f"{follower} is out of the ISR, producing continues; longest gap without an ack: {_duration(gap_ms)}"


async def heal_link(tour: Tour) -> str:
    tour.report("the link is healed")
    await tour.faults.cut(*tour.pair, cut=False)
    await tour.recovered()
    return "the follower has caught up and is in the ISR again"


async def resume(tour: Tour) -> str:
    tour.report(f"{tour.victim} resumes with a stale view of its leadership")
    await tour.faults.resume(tour.victim)
    await tour.recovered()
    return f"{tour.victim} was refused in its old leader epoch, follows, and is in sync"


def _duration(ms: int) -> str:
    """The format of the page's numbers: `640 ms`, `1.84 s`, `12.9 s`."""
    if ms < 1_000:
        return f"{ms} ms"
    return f"{ms / 1000:.2f} s" if ms < 9_995 else f"{ms / 1000:.1f} s"


def _closing(verdict: Verdict) -> str:
    if verdict.clean:
        return f"{verdict.acked} records were acked, and all were read: none lost, none duplicated, none out of order"
    return (
        f"{verdict.acked} records were acked: {verdict.lost} lost, {verdict.duplicated} duplicated, "
        f"{verdict.out_of_order} out of order, {verdict.misplaced} misplaced"
    )
