"""Shell: follows leaders, with one task and one connection for each broker that leads partitions of this broker.

All partitions with the same leader share one incremental fetch session; the records of a response are appended, and the
next fetch leaves at once. `follower.py` decides what to fetch and what a response means.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import trio

from barnabas.broker.replication.follower import BoundsWanted, EpochWanted, FetchWanted
from barnabas.broker.replication.leader_epochs import ask_epochs
from barnabas.broker.replication.leader_offsets import EARLIEST, LATEST, ask_offsets, ask_tiers
from barnabas.broker.replication.leader_session import LeaderSession, PartitionKey
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.throttles import Throttle
from barnabas.broker.replication.tier_start import RemoteState, StateWanted, TierWanted
from barnabas.kraft.metadata.image import NO_LEADER
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse, ReplicaState
from barnabas.runtime.channel import ChannelError
from barnabas.runtime.world import World
from barnabas.settings.broker import BrokerSettings

log = logging.getLogger(__name__)

FIRST_RETRY_MS = 100
LAST_RETRY_MS = 1_000
THROTTLED_WAIT_MS = 100
"""Time until a partition is looked at again that a throttle holds back."""
NEW_PARTITION_WAIT_MS = 20
"""Longest delay of a new partition by a fetch that already waits at the leader without it, if there are few others."""
MOST_ADDED = 250
"""Partitions that come into a fetch session by one request. A follower of thousands sends several requests at first,
and none of them is a long step of either broker."""
PARTITIONS_PER_MS = 10
"""A fetch that is restarted names all partitions, which costs both brokers about 10 microseconds for each. With many of
them, new ones wait ten times as long as that, or for the response: otherwise two brokers that create thousands of
partitions would do nothing but begin again."""


class LeaderChannel(Protocol):
    """The part of `runtime.channel.Channel` that is used here."""

    async def call(self, request: Any, *, timeout_ms: float) -> Any:
        """Raises ChannelError."""

    async def converse(self, request: Any, answered: Callable[[Any], Any], *, timeout_ms: float) -> None:
        """Raises ChannelError, and what `answered` raises."""

    def close(self) -> None: ...


class RemoteStates(Protocol):
    """Reads the state at the ends of remote segments; `broker.remote.follower_states` has it."""

    def ask(self, partition: Partition, wanted: StateWanted, answered: Callable[[RemoteState | None], None]) -> None:
        """Call `answered` later, with None if the state cannot be had now."""


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """The `replica.fetch.*` settings of this broker."""

    node_id: int
    fetch_wait_max_ms: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 1_048_576
    """Limit for each partition."""
    fetch_response_max_bytes: int = 10_485_760
    socket_timeout_ms: int = 30_000

    @classmethod
    def of(cls, settings: BrokerSettings) -> FetchSettings:
        return cls(
            node_id=settings.node_id,
            fetch_wait_max_ms=settings.replica_fetch_wait_max_ms,
            fetch_min_bytes=settings.replica_fetch_min_bytes,
            fetch_max_bytes=settings.replica_fetch_max_bytes,
            fetch_response_max_bytes=settings.replica_fetch_response_max_bytes,
            socket_timeout_ms=settings.replica_socket_timeout_ms,
        )


class Fetchers:
    """All followed leaders. `follow` is a `PartitionHost.follow`."""

    def __init__(
        self,
        world: World,
        nursery: trio.Nursery,
        settings: FetchSettings,
        broker_epoch: Callable[[], int],
        channel_to: Callable[[int], LeaderChannel | None],
        throttle: Throttle | None = None,
    ) -> None:
        """`channel_to` opens a channel to a broker at its present address; None if it has none. `throttle` limits
        partitions that are not in sync (KIP-73)."""
        self._world = world
        self._nursery = nursery
        self._settings = settings
        self._broker_epoch = broker_epoch
        self._channel_to = channel_to
        self._throttle = throttle
        self.remote_states: RemoteStates | None = None
        """None: there is no tiered storage. To be set before the first `follow`."""
        self._fetchers: dict[int, LeaderFetcher] = {}
        self._leaders: dict[PartitionKey, int] = {}
        self._holds = False
        self._stopped = False

    def follow(self, partition: Partition, leader_id: int) -> None:
        """Fetch `partition` from `leader_id` from now on; NO_LEADER: from none."""
        if self._stopped:
            return
        before = self._leaders.pop(partition.key, NO_LEADER)
        if before not in (NO_LEADER, leader_id):
            self._fetchers[before].remove(partition)
        if leader_id != NO_LEADER:
            self._leaders[partition.key] = leader_id
            fetcher = self._fetchers.get(leader_id)
            if fetcher is None:
                fetcher = self._fetchers[leader_id] = LeaderFetcher(
                    leader_id, self._world, self._settings, self._broker_epoch, self._channel_to
                )
                fetcher.throttle = self._throttle
                fetcher.remote_states = self.remote_states
                if self._holds:
                    fetcher.hold()
                self._nursery.start_soon(fetcher.run)
            fetcher.add(partition)

    def hold(self) -> None:
        """A step of the metadata is about to be applied, perhaps in many steps of the event loop. Leaders apply it at
        the same time: until `release`, they are not asked for the partitions that come with it, of whose epochs they
        would not know yet."""
        for fetcher in self._fetchers.values():
            fetcher.hold()
        self._holds = True

    def release(self) -> None:
        """The step is applied."""
        self._holds = False
        for fetcher in self._fetchers.values():
            fetcher.release()

    def stop(self) -> None:
        """Stop following: the logs are about to be closed."""
        self._stopped = True
        for fetcher in self._fetchers.values():
            fetcher.stop()

    def metadata_changed(self) -> None:
        """Retry all fetches in backoff now: brokers may be reachable that were not."""
        for fetcher in self._fetchers.values():
            fetcher.wake()

    def lag(self, partition: Partition) -> int | None:
        """Records by which the partition is known to be behind its leader; None if it is not followed."""
        leader_id = self._leaders.get(partition.key)
        if leader_id is None:
            return None
        return max(
            0, self._fetchers[leader_id].high_watermarks.get(partition.key, 0) - partition.log.log_end_offset
        )


class LeaderFetcher:
    """The task that follows one broker. It sleeps while there is nothing to fetch from it."""

    def __init__(
        self,
        leader_id: int,
        world: World,
        settings: FetchSettings,
        broker_epoch: Callable[[], int],
        channel_to: Callable[[int], LeaderChannel | None],
    ) -> None:
        self.leader_id = leader_id
        self.high_watermarks: dict[PartitionKey, int] = {}
        """High watermarks of the leader's last responses."""
        self.throttle: Throttle | None = None
        self.remote_states: RemoteStates | None = None
        self._clock = world.monotonic
        self._settings = settings
        self._broker_epoch = broker_epoch
        self._channel_to = channel_to
        self._channel: LeaderChannel | None = None
        self._session = LeaderSession()
        self._partitions: dict[PartitionKey, Partition] = {}
        # Partitions whose next request may differ from the last one.
        self._moved: dict[PartitionKey, None] = {}
        # Partitions that come into the session by this request or a later one.
        self._later: dict[PartitionKey, None] = {}
        self._holds = False
        self._backing_off: dict[PartitionKey, int] = {}
        self._asking_bounds: dict[PartitionKey, BoundsWanted] = {}
        self._asking_epochs: dict[PartitionKey, EpochWanted] = {}
        self._asking_tiers: dict[PartitionKey, TierWanted] = {}
        self._building: dict[PartitionKey, StateWanted] = {}
        """Partitions whose state is read from remote segments meanwhile."""
        self._bell = trio.Event()
        self._waiting_at_leader: trio.CancelScope | None = None
        self._longest_wait_ms = 0
        """The time for which the leader may delay its response to the present request."""
        self._scope = trio.CancelScope()
        self._retry_ms = FIRST_RETRY_MS
        self._refused = 0
        """Error code of the last fetch response."""

    def add(self, partition: Partition) -> None:
        self._partitions[partition.key] = partition
        self._take_in(partition.key)

    def _take_in(self, key: PartitionKey) -> None:
        """Fetch this partition soon, too."""
        self._later[key] = None
        if not self._holds:
            self._hurry()

    def _hurry(self) -> None:
        self.wake()
        wait_ms = max(NEW_PARTITION_WAIT_MS, len(self._partitions) // PARTITIONS_PER_MS)
        if self._waiting_at_leader is not None and wait_ms < self._longest_wait_ms:
            # The leader delays its response until there is news. A new partition does not wait for that: after a short
            # time the fetch is restarted on another connection.
            deadline = trio.current_time() + wait_ms / 1000
            self._waiting_at_leader.deadline = min(self._waiting_at_leader.deadline, deadline)

    def hold(self) -> None:
        """Take no new partition in until `release`."""
        self._holds = True

    def release(self) -> None:
        self._holds = False
        if self._later:
            self._hurry()

    def remove(self, partition: Partition) -> None:
        key = partition.key
        if self._partitions.get(key) is partition:
            del self._partitions[key]
            self.high_watermarks.pop(key, None)
            self._building.pop(key, None)
            self._moved.pop(key, None)
            self._later.pop(key, None)
            self._waits_no_longer(key)
            self._session.forget(key)
        self.wake()

    def _waits_no_longer(self, key: PartitionKey) -> None:
        """The partition no longer waits."""
        self._backing_off.pop(key, None)
        self._asking_bounds.pop(key, None)
        self._asking_epochs.pop(key, None)
        self._asking_tiers.pop(key, None)

    def stop(self) -> None:
        """End the task. Nothing is appended from now on, whatever the leader still answers."""
        self._partitions, self._moved, self._later = {}, {}, {}
        self._scope.cancel()

    def wake(self) -> None:
        self._bell.set()

    async def run(self) -> None:
        """Run until cancelled, or until `stop`."""
        with self._scope:
            await self._run()

    async def _run(self) -> None:
        try:
            while True:
                self._bell = trio.Event()
                self._gather()
                if self._session.idle and not self._asks_first:
                    if self._later and not self._holds:
                        await trio.lowlevel.checkpoint()
                        continue
                    if not self._partitions:
                        self._disconnect()
                    await self._sleep(self._next_retry_ms())
                    continue
                if not await self._exchange():
                    await self._sleep(self._clock.now_ms() + self._retry_ms)
                    self._retry_ms = min(2 * self._retry_ms, LAST_RETRY_MS)
        finally:
            self._disconnect()

    async def _sleep(self, until_ms: int | None) -> None:
        """Sleep until then, or until something changes."""
        if until_ms is None:
            await self._bell.wait()
        else:
            with trio.move_on_after(max(1, until_ms - self._clock.now_ms()) / 1000):
                await self._bell.wait()

    def _next_retry_ms(self) -> int | None:
        return min(self._backing_off.values(), default=None)

    def _gather(self) -> None:
        """Collect the next requests of all partitions that changed, and of some of those that come later."""
        now_ms = self._clock.now_ms()
        if self._backing_off:
            for key in [key for key, retry_at_ms in self._backing_off.items() if retry_at_ms <= now_ms]:
                self._moved[key] = None
        if len(self._partitions) > MOST_ADDED:
            for key in self._session.put_off(MOST_ADDED):
                self._later[key] = None
        if self._later and not self._holds:
            for key in list(islice(self._later, MOST_ADDED)):
                del self._later[key]
                self._moved[key] = None
        some_wait = bool(self._backing_off) or self._asks_first
        for key in self._moved:
            if some_wait:
                self._waits_no_longer(key)
            partition = self._partitions.get(key)
            wanted = None if partition is None else partition.follower.next(now_ms)
            if isinstance(wanted, FetchWanted):
                if partition is not None and self._is_throttled(partition, now_ms):
                    self._session.forget(key)
                    self._backing_off[key] = now_ms + THROTTLED_WAIT_MS
                else:
                    self._session.wants(key, wanted)
                continue
            self._session.forget(key)
            if isinstance(wanted, EpochWanted):
                self._asking_epochs[key] = wanted
            elif isinstance(wanted, TierWanted):
                self._asking_tiers[key] = wanted
            elif isinstance(wanted, StateWanted):
                assert partition is not None
                self._build_state(key, partition, wanted)
            elif wanted is not None:
                self._asking_bounds[key] = wanted
            elif partition is not None and partition.follower.retry_at_ms is not None:
                self._backing_off[key] = partition.follower.retry_at_ms
        self._moved = {}

    def _build_state(self, key: PartitionKey, partition: Partition, wanted: StateWanted) -> None:
        if self._building.get(key) == wanted:
            return
        self._building[key] = wanted

        def built(state: RemoteState | None) -> None:
            if self._building.get(key) is wanted:
                del self._building[key]
            if self._partitions.get(key) is partition:
                partition.state_built(wanted, state)
                self._take_in(key)

        if self.remote_states is None:
            log.warning("%s: its leader has remote segments, and this broker has no tiered storage", partition)
            del self._building[key]
            partition.follower.back_off(self._clock.now_ms())
            self._backing_off[key] = partition.follower.retry_at_ms or 0
        else:
            self.remote_states.ask(partition, wanted, built)

    def _is_throttled(self, partition: Partition, now_ms: int) -> bool:
        """True if the partition has to wait; one that has all that its leader had committed is in sync."""
        if self.throttle is None or not self.throttle.replicas.topics:
            return False
        high_watermark = self.high_watermarks.get(partition.key)
        in_sync = high_watermark is not None and high_watermark <= partition.log.log_end_offset
        return self.throttle.holds_back((partition.topic, partition.index), now_ms, in_sync=in_sync)

    @property
    def _asks_first(self) -> bool:
        """True if requests other than Fetch are due: a waiting fetch would delay them."""
        return bool(self._asking_bounds or self._asking_epochs or self._asking_tiers)

    async def _exchange(self) -> bool:
        """One exchange with the leader; False if it failed."""
        if self._channel is None:
            self._channel = self._channel_to(self.leader_id)
            if self._channel is None:
                return False
        try:
            if self._asking_bounds:
                await self._ask_bounds(self._channel)
            elif self._asking_epochs:
                await self._ask_epochs(self._channel)
            elif self._asking_tiers:
                await self._ask_tiers(self._channel)
            elif not await self._fetch(self._channel):
                return False
        except ChannelError as error:
            log.info("fetching from broker %d failed: %s", self.leader_id, error)
            self._disconnect()
            return False
        except Exception:
            # A bug must end neither replication from this leader nor the broker.
            log.exception("fetching from broker %d failed", self.leader_id)
            self._disconnect()
            return False
        self._retry_ms = FIRST_RETRY_MS
        return True

    async def _fetch(self, channel: LeaderChannel) -> bool:
        """Fetch repeatedly until something else has to be done; False if the leader refused."""
        with trio.CancelScope() as scope:
            self._waiting_at_leader = scope
            try:
                await channel.converse(
                    self._request(), self._answered, timeout_ms=self._settings.socket_timeout_ms
                )
            finally:
                self._waiting_at_leader = None
        if scope.cancelled_caught:
            self._session.lost()
            self._disconnect()
            return True
        # FETCH_SESSION_ID_NOT_FOUND and INVALID_FETCH_SESSION_EPOCH need no backoff: the next request is a full one.
        return self._refused in (0, 70, 71)

    def _request(self) -> FetchRequest:
        settings = self._settings
        request = self._session.request(settings.fetch_max_bytes)
        request.replica_state = ReplicaState(replica_id=settings.node_id, replica_epoch=self._broker_epoch())
        request.min_bytes = settings.fetch_min_bytes
        request.max_bytes = settings.fetch_response_max_bytes
        # The leader must not delay its response beyond the backoff of a partition.
        request.max_wait_ms = settings.fetch_wait_max_ms
        if self._backing_off:
            left_ms = max(0, min(self._backing_off.values()) - self._clock.now_ms())
            request.max_wait_ms = min(settings.fetch_wait_max_ms, left_ms)
        if self._later and not self._holds:
            request.max_wait_ms = 0
        self._longest_wait_ms = request.max_wait_ms
        return request

    def _answered(self, response: FetchResponse) -> FetchRequest | None:
        """Process a response in the step in which it arrived. Returns the next request, which leaves at once."""
        self._refused = response.error_code
        if not self._session.answered(response):
            log.info("broker %d answered a fetch with error %d", self.leader_id, response.error_code)
            return None
        self._retry_ms = FIRST_RETRY_MS
        self._apply(response)
        self._gather()
        if self._asks_first or self._session.idle:
            return None
        waiting = self._waiting_at_leader
        if waiting is not None and waiting.deadline < math.inf:
            # The new partitions are in this request.
            waiting.deadline = math.inf
        return self._request()

    def _apply(self, response: FetchResponse) -> None:
        asked = self._session.wanted
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                partition = self._partitions.get(key)
                wanted = asked.get(key)
                if partition is None or wanted is None:
                    continue
                self._moved[key] = None
                self.high_watermarks[key] = data.high_watermark
                if self.throttle is not None and self.throttle.replicas.topics and data.records:
                    self.throttle.passed((partition.topic, partition.index), len(data.records), self._clock.now_ms())
                try:
                    partition.fetched(wanted, data)
                except Exception:
                    # A bug in one partition must not stop the others.
                    log.exception("%s: the fetched data could not be processed", partition)
                    partition.follower.back_off(self._clock.now_ms())

    async def _ask_bounds(self, channel: LeaderChannel) -> None:
        """Ask where the leader's logs start and end, for partitions whose own end is outside the leader's log."""
        asked = dict(self._asking_bounds)
        wanted = [(self._partitions[key], each) for key, each in asked.items() if key in self._partitions]
        node_id, timeout_ms = self._settings.node_id, self._settings.socket_timeout_ms
        ends = await ask_offsets(channel, node_id, wanted, LATEST, timeout_ms)
        starts = await ask_offsets(channel, node_id, wanted, EARLIEST, timeout_ms)
        for key, each in asked.items():
            partition = self._partitions.get(key)
            self._moved[key] = None
            if partition is not None:
                place = (partition.topic, partition.index)
                bounds = (starts[place][0], ends[place][0]) if place in starts and place in ends else None
                partition.bounds_answered(each, bounds)

    async def _ask_tiers(self, channel: LeaderChannel) -> None:
        """Ask where the leader's logs and their local parts start, for partitions of whose records some are remote."""
        asked = dict(self._asking_tiers)
        partitions = {key: self._partitions[key] for key in asked if key in self._partitions}
        wanted = {(each.topic, each.index): (each, asked[key]) for key, each in partitions.items()}
        settings = self._settings
        bounds = await ask_tiers(channel, settings.node_id, wanted, settings.socket_timeout_ms)
        for key, tier in asked.items():
            self._moved[key] = None
            partition = self._partitions.get(key)
            if partition is not None:
                partition.tier_answered(tier, bounds.get((partition.topic, partition.index)))

    async def _ask_epochs(self, channel: LeaderChannel) -> None:
        """Ask where the next older epochs end, for partitions with a gap in which epochs may have begun."""
        asked = dict(self._asking_epochs)
        wanted = [(self._partitions[key], epoch) for key, epoch in asked.items() if key in self._partitions]
        settings = self._settings
        ends = await ask_epochs(channel, settings.node_id, wanted, settings.socket_timeout_ms)
        for key, epoch in asked.items():
            self._moved[key] = None
            partition = self._partitions.get(key)
            if partition is not None:
                partition.epoch_answered(epoch, ends.get((partition.topic, partition.index)))

    def _disconnect(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
            self._session.lost()
