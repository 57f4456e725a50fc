"""The page's load: produces with acks=all, consumes, and accounts for every record.

It can be started and stopped repeatedly. Each run has a ledger of its own, whose memory is bounded.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from typing import Any

import trio

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.demo.ledger import Ledger, Verdict
from barnabas.demo.workload import CLIENT, Load, run_load
from barnabas.page.background_task import BackgroundTask
from barnabas.page.control import NotNow
from barnabas.page.feed import Feed
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.world import World

TOPIC = "demo"
PARTITIONS_COUNT = 3
REPLICAS_COUNT = 3
RECORDS_PER_SECOND = 500
LATENCY_WINDOW_MS = 5_000
"""Period of the latency percentiles."""
RATE_WINDOW_MS = 1_000
AGAIN_SECONDS = 1.0
SETTLE_SECONDS = 1.0
_FAULT = "fault"
_SUBJECT = "load"


class TimedLedger(Ledger):
    """A ledger with latencies and current rates."""

    def __init__(self, run: str, partitions_count: int, now_ms: Callable[[], int]) -> None:
        super().__init__(run, partitions_count, now_ms())
        self.now_ms = now_ms
        self._sent_ms: list[dict[int, int]] = [{} for _ in range(partitions_count)]
        self._acks: deque[tuple[int, int]] = deque()
        """(time of the ack, latency) of the last seconds."""
        self._reads: deque[tuple[int, int]] = deque()
        """(time, number of records)."""

    def send(self, partition: int) -> tuple[int, bytes]:
        number, value = super().send(partition)
        self._sent_ms[partition][number] = self.now_ms()
        return number, value

    def acked(self, partition: int, number: int, offset: int, now_ms: int) -> None:
        super().acked(partition, number, offset, now_ms)
        self.accounts[partition].acks.clear()  # not used by the page, and unbounded
        self._acks.append((now_ms, now_ms - self._sent_ms[partition].pop(number)))

    def failed(self, partition: int, number: int) -> None:
        super().failed(partition, number)
        del self._sent_ms[partition][number]

    def unknown(self, partition: int, number: int) -> None:
        super().unknown(partition, number)
        del self._sent_ms[partition][number]

    def read(self, partition: int, offset: int, value: bytes | None) -> None:
        super().read(partition, offset, value)
        now_ms = self.now_ms()
        count = 1
        if self._reads and self._reads[-1][0] == now_ms:
            count += self._reads.pop()[1]
        self._reads.append((now_ms, count))

    def event(self, *, running: bool) -> dict[str, Any]:
        """The event `load`."""
        now_ms = self.now_ms()
        for account in self.accounts:
            account.settle()
        while self._acks and self._acks[0][0] < now_ms - LATENCY_WINDOW_MS:
            self._acks.popleft()
        while self._reads and self._reads[0][0] < now_ms - RATE_WINDOW_MS:
            self._reads.popleft()
        took_ms = sorted(latency for _at, latency in self._acks)
        acked = sum(at_ms >= now_ms - RATE_WINDOW_MS for at_ms, _latency in self._acks)
        accounts = self.accounts
        return {
            "running": running,
            "acked_per_second": acked,
            "read_per_second": sum(count for _at, count in self._reads),
            "p50_ms": took_ms[len(took_ms) // 2] if took_ms else None,
            "p99_ms": took_ms[len(took_ms) * 99 // 100] if took_ms else None,
            "acked": sum(each.forgotten + len(each.acked) for each in accounts),
            "read": sum(each.forgotten + len(each.read) for each in accounts),
            "lost": sum(each.skipped for each in accounts),
            "duplicated": sum(each.duplicated for each in accounts),
            "out_of_order": sum(each.out_of_order for each in accounts),
            "longest_gap_ms": self.longest_gap_ms(now_ms),
            "undecided": sum(each.undecided for each in accounts),
        }

    def longest_gap_ms(self, now_ms: int) -> int:
        """The longest gap of all windows, including a current one."""
        waiting = [
            self.silence_ms(index, now_ms)
            for index, account in enumerate(self.accounts)
            if account.undecided and account.last_ack_ms is not None
        ]
        return max([window.gap_ms for window in self.windows] + waiting, default=0)


class LoadRunner(BackgroundTask):
    """The load, one run at a time."""

    def __init__(self, world: World, bootstrap_servers: str, feed: Feed) -> None:
        """`bootstrap_servers` as in `LocalCluster`."""
        super().__init__()
        self._world = world
        parts = [each.rpartition(":") for each in bootstrap_servers.split(",")]
        self._bootstrap = [(host, int(port)) for host, _, port in parts]
        self._bootstrap_servers = bootstrap_servers
        self._feed = feed
        self._stop: trio.Event | None = None
        self._ended = trio.Event()
        self._ended.set()
        self.ledger: TimedLedger | None = None
        """The ledger of the current or last run."""
        self.flowing = trio.Event()
        """Set when a record of each partition is acked in this run."""

    @property
    def is_running(self) -> bool:
        return not self._ended.is_set()

    def start(self) -> None:
        """Raises `NotNow`."""
        if self.is_running:
            raise NotNow("the load is running, or is still being read back")
        self._ended, self._stop, self.flowing = trio.Event(), trio.Event(), trio.Event()
        self._mark(f"the load starts: {RECORDS_PER_SECOND} records/s with acks=all")
        self._begin(self._run, self._stop)

    def stop(self) -> None:
        """Stops sending; outstanding records are still awaited and read back. Raises `NotNow`."""
        if not self.is_running or self._stop is None:
            raise NotNow("the load is not running")
        if not self._stop.is_set():
            self._stop.set()
            self._mark("the load stops")

    async def ended(self) -> Verdict:
        """Waits until everything is read back. Returns the final verdict."""
        await self._ended.wait()
        assert self.ledger is not None
        return self.ledger.verdict()

    def publish(self) -> None:
        """Publishes the event `load`; called twice a second while a browser is connected."""
        if self.ledger is None:
            return
        event = {"at_ms": self._world.wall_clock.now_ms(), **self.ledger.event(running=self.is_running)}
        before = self._feed.newest.get("load")
        if self.is_running or before is None or before["running"]:
            self._feed.load(event)

    async def _run(self, stop: trio.Event) -> None:
        try:
            while not stop.is_set():
                try:
                    await self._run_once(stop)
                except* (KafkaError, OSError) as group:
                    self._mark(f"the load failed and is restarted: {' '.join(str(_first(group)).split())}")
                    with trio.move_on_after(AGAIN_SECONDS):
                        await stop.wait()
        finally:
            self._ended.set()

    async def _run_once(self, stop: trio.Event) -> None:
        async with trio.open_nursery() as nursery:
            client = Cluster(self._world, nursery, self._bootstrap, client_id="barnabas-page", settings=CLIENT)
            await _make_topic(client)
            self.ledger = ledger = TimedLedger(secrets.token_hex(4), PARTITIONS_COUNT, client.now_ms)
            ledger.begin_window("the load", client.now_ms())
            nursery.start_soon(_settle, ledger)
            load = Load(TOPIC, RECORDS_PER_SECOND, self._bootstrap_servers)
            async with trio.open_nursery() as running:
                await running.start(run_load, client, load, ledger, stop)
                self.flowing.set()
            client.close()
            nursery.cancel_scope.cancel()

    def _mark(self, text: str) -> None:
        self._feed.mark(_FAULT, _SUBJECT, text, at_ms=self._world.wall_clock.now_ms())


async def _settle(ledger: Ledger) -> None:
    """Bounds the ledger's memory while no browser is connected."""
    while True:
        await trio.sleep(SETTLE_SECONDS)
        for account in ledger.accounts:
            account.settle()


async def _make_topic(client: Cluster) -> None:
    topic = NewTopic(TOPIC, PARTITIONS_COUNT, REPLICAS_COUNT, configs={"min.insync.replicas": "2"})
    try:
        await Admin.over(client).create_topics([topic])
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
