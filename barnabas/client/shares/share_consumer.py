"""The public consumer in share groups (KIP-932): a queue with acknowledgements, made of partitions.

Members of a share group do not divide the partitions among themselves: each record is acquired by one of them for the
time of a lock, and is available to all again unless it is acknowledged before. All work is done by tasks of the `async
with` block; none outlives it.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Unpack

import trio

from barnabas.client.errors import IllegalStateException, TimeoutException
from barnabas.client.groups.participant import Wanted
from barnabas.client.life import CLOSE_TIMEOUT_MS, Life, time_to_close
from barnabas.client.metadata import TopicPartition
from barnabas.client.shares.acknowledgements import Acknowledged
from barnabas.client.shares.deliveries import Commit, Deliveries, Due, reported
from barnabas.client.shares.lock_keeper import LockKeeper
from barnabas.client.shares.meters import ShareMeters
from barnabas.client.shares.record import ShareRecord
from barnabas.client.shares.settings import ShareConsumerOptions, ShareConsumerSettings
from barnabas.client.shares.share_fetcher import Fetched
from barnabas.client.shares.share_membership import ShareMembership
from barnabas.client.shares.share_session import Result
from barnabas.client.telemetry.metrics_push import MetricsPush, pushing
from barnabas.protocol.acknowledge_type import AcknowledgeType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.otlp import Sample
from barnabas.runtime.world import World

OnAcknowledged = Callable[[Acknowledged], Awaitable[None] | None]
"""Called with the result of acknowledgements; a plain function or a coroutine function."""


class ShareConsumer(Life):
    """`async with ShareConsumer("jobs", group_id="workers", bootstrap_servers=…) as consumer:`
    `for record in await consumer.poll(timeout_ms=1_000): …`

    For one task at a time; records may be acknowledged by other tasks meanwhile. All coroutines may be cancelled. At
    the end of the block the consumer acknowledges what is decided, releases its other records, and leaves the group.

    Any call may raise IllegalStateException (closed, not open yet, or used by two tasks at once); KafkaError of a class
    named as in Kafka (`barnabas.errors`) for a broker's error.
    """

    _keeper: LockKeeper

    def __init__(self, *topics: str, world: World | None = None, **options: Unpack[ShareConsumerOptions]) -> None:
        """No connection is made before the block begins. With `topics` it subscribes to them.

        ConfigException: a setting is unknown, missing, or invalid.
        """
        self.settings = ShareConsumerSettings.of(options)
        super().__init__(self.settings, world)
        self._topics = topics
        self._deliveries = Deliveries()
        self._membership: ShareMembership | None = None
        self._left = trio.Event()
        self._left.set()
        self._callback: OnAcknowledged | None = None
        self._results: deque[Acknowledged] = deque()
        """Results for the callback."""
        self._refused: dict[TopicPartition, KafkaError] = {}
        """Errors of acknowledgements that could not even be sent, since the last commit."""
        self._commit: Commit | None = None
        self._news = trio.Event()
        self._push: MetricsPush | None = None
        self._meters = ShareMeters()

    # ---- life

    def _begin(self) -> None:
        self._keeper = LockKeeper(
            self._deliveries, self.settings, self._cluster.now_ms, self._locks_due, self._cannot_send
        )
        self._nursery.start_soon(self._keeper.run)
        if self.settings.enable_metrics_push:
            self._push = MetricsPush(self._cluster, self._samples, self._describe)
            self._nursery.start_soon(self._push.run)
        if self._topics:
            self.subscribe(self._topics)

    async def _end(self, *, in_good_order: bool) -> None:
        await self.close()

    async def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Acknowledge what is decided, release all other records, leave the group: within `timeout_ms`. The end of the
        block does the same. A cancelled close still has two seconds for it; what was not acknowledged by then is
        available to others when its lock expires.
        """
        if not self._is_open:
            return
        self._is_open = False
        membership, self._membership = self._membership, None
        with time_to_close(timeout_ms):
            await self._left.wait()
            if membership is not None:
                await membership.close()
            await self._report()
            if self._push is not None:
                await self._push.close()
        self._deliveries.forget()

    # ---- what to read

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to these topics, in place of those before. Without topics: `unsubscribe`."""
        self._check_open()
        names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
        if not all(isinstance(name, str) and name.strip() for name in names):
            raise ValueError(f"topics must be names that are not empty; got {names}")
        if not names:
            self.unsubscribe()
            return
        wanted = Wanted(tuple(sorted(names)))
        if self._membership is not None and self._membership.participant.fatal is None:
            self._membership.participant.subscribe(wanted)
            return
        self.unsubscribe()
        self._membership = ShareMembership(
            self._cluster, self._nursery, self.settings, wanted, self._deliveries, self._meters
        )
        self._membership.start(self._nursery, self._finished, self._notify)

    def unsubscribe(self) -> None:
        """Read nothing any longer. In the background decided records are acknowledged, the others released, and the
        group is left.
        """
        self._check_open()
        membership, self._membership = self._membership, None
        if membership is not None:
            self._deliveries.forget()
            left = self._left = trio.Event()
            self._nursery.start_soon(self._leave, membership, left)

    async def _leave(self, membership: ShareMembership, left: trio.Event) -> None:
        try:
            await membership.close_in_background()
        finally:
            left.set()

    def subscription(self) -> tuple[str, ...]:
        """Subscribed topics."""
        self._check_open()
        return () if self._membership is None else self._membership.participant.topics

    def assignment(self) -> tuple[TopicPartition, ...]:
        """Partitions that it reads now; other members may read them, too."""
        self._check_open()
        return () if self._membership is None else tuple(sorted(self._membership.participant.member.owned))

    # ---- records

    async def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> list[ShareRecord]:
        """Up to `max_records` (max_poll_records without it; see share_acquire_mode); [] after `timeout_ms` without any.
        Acknowledgements go along with the fetch.

        In implicit mode it accepts all records of the last poll. In explicit mode IllegalStateException unless all of
        them are acknowledged, renewed, or held by `async with`.

        RecordDeserializationException for a record that is released, CorruptRecordException or UnreadableBatchException
        for a batch whose records are rejected; TopicAuthorizationException; the fatal error of its membership. It can
        be polled again after any of them. A cancelled poll has returned nothing. The callback of
        `set_acknowledgement_callback` is called from here, and its exceptions are raised.
        """
        limit = self.settings.max_poll_records if max_records is None else max_records
        if limit < 1:
            raise ValueError(f"max_records must be at least 1; got {limit}")
        with self._one_task():
            await trio.lowlevel.checkpoint()
            membership = self._membership
            if membership is None:
                raise IllegalStateException("poll needs a subscription")
            self._end_last_poll()
            membership.participant.polled()
            began_ms, deadline = self._cluster.now_ms(), trio.current_time() + timeout_ms / 1000
            try:
                return await self._poll(membership, limit, deadline)
            finally:
                membership.fetcher.want(0)
                if self._cluster.meters.is_measuring:
                    self._meters.polls.polled(began_ms, self._cluster.now_ms())

    async def _poll(self, membership: ShareMembership, limit: int, deadline: float) -> list[ShareRecord]:
        fetcher = membership.fetcher
        while True:
            self._news = news = trio.Event()
            await self._report()
            if membership.participant.fatal is not None:
                raise membership.participant.fatal
            records = self._take(membership, limit)
            if records:
                self._meters.given(len(records), self._cluster.now_ms())
                return records
            if fetcher.errors:
                raise fetcher.errors.popleft()
            fetcher.want(limit)
            if trio.current_time() >= deadline:
                return []
            wake_at_ms = fetcher.wake_at_ms()
            wait_ms = float("inf") if wake_at_ms is None else max(1, wake_at_ms - self._cluster.now_ms())
            with trio.move_on_at(min(deadline, trio.current_time() + wait_ms / 1000)):
                await news.wait()

    def _end_last_poll(self) -> None:
        undecided = self._deliveries.undecided
        if self.settings.is_explicit and undecided:
            raise IllegalStateException(f"all records must be acknowledged before the next poll: {undecided[0].name}")
        self._accept_all()

    def _accept_all(self) -> None:
        """In implicit mode the application has processed what it got."""
        if not self.settings.is_explicit:
            for delivery in self._deliveries.undecided:
                self._keeper.decide(delivery, AcknowledgeType.ACCEPT)

    def _take(self, membership: ShareMembership, limit: int) -> list[ShareRecord]:
        fetcher = membership.fetcher
        taken: list[ShareRecord] = []
        while len(taken) < limit:
            fetcher.drop_lost()
            if not fetcher.waiting:
                break
            try:
                taken += self._give(fetcher.waiting[0], limit - len(taken))
            except KafkaError as error:
                fetcher.errors.append(error)
                break
            finally:
                if fetcher.waiting[0].records.is_empty:
                    fetcher.waiting.popleft()
        return taken

    def _give(self, fetched: Fetched, limit: int) -> list[ShareRecord]:
        place, session = fetched.records.place, fetched.session
        given = fetched.records.give(limit, whole_batches=self.settings.keeps_batches_whole)
        if given.decided:
            session.acknowledge(place, given.decided)
        if given.error is not None:
            raise given.error
        return [
            ShareRecord(
                *record,
                delivery_count,
                self._deliveries.take(place, record.offset, session, fetched.arrived_ms),
                self._keeper,
            )
            for record, delivery_count in given.records
        ]

    # ---- metrics

    def metrics(self) -> dict[str, float]:
        """Metrics under Kafka's names: totals since the consumer was opened; rates, averages and maxima of the last
        minute, nan without a sample.
        """
        self._check_open()
        return self._meters.readings(self._cluster.now_ms())

    async def client_instance_id(self, timeout_ms: int = 60_000) -> str:
        """The id that brokers give this client to push its metrics (KIP-714), in base64. TimeoutException after
        `timeout_ms`; UnsupportedVersionException if the brokers take no metrics; IllegalStateException with
        enable_metrics_push=False.
        """
        self._check_open()
        return await pushing(self._push).client_instance_id(timeout_ms)

    def _samples(self, now_ms: int) -> Iterator[Sample]:
        # Kafka gives connections of a share consumer the names of a consumer's.
        yield from self._cluster.meters.samples("consumer", now_ms)
        yield from self._meters.samples(now_ms)

    def _describe(self) -> dict[str, str]:
        settings, membership = self.settings, self._membership
        stamp = None if membership is None else membership.participant.stamp
        described = {
            "client_rack": settings.client_rack,
            "group_id": settings.group_id,
            "group_member_id": None if stamp is None else stamp.member_id,
        }
        return {key: text for key, text in described.items() if text}

    # ---- acknowledgements

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Decide about a record: ACCEPT, RELEASE (deliver it again), REJECT (never again), or RENEW its lock and decide
        later. Sent with the next fetch, by `commit`, or halfway through the lock.

        IllegalStateException in implicit mode, or if it was decided before.
        """
        self._check_open()
        if not self.settings.is_explicit:
            raise IllegalStateException('acknowledge needs share_acknowledgement_mode="explicit"')
        if kind not in (1, 2, 3, 4):
            raise ValueError(f"kind must be ACCEPT, RELEASE, REJECT or RENEW; got {kind!r}")
        self._keeper.decide(record.delivery, AcknowledgeType(kind))
        if kind == AcknowledgeType.RENEW:
            self._flush()

    async def commit(self, timeout_ms: int | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Send all decisions, and wait for their results: by partition, None if the broker has stored them. In implicit
        mode it first accepts all records of the last poll.

        The error is InvalidRecordStateException if a record's lock was lost, TimeoutException if there is no result
        within `timeout_ms` (default_api_timeout_ms without it). After a cancel the decisions are sent nevertheless.
        """
        with self._one_task():
            await trio.lowlevel.checkpoint()
            self._accept_all()
            membership = self._membership
            sessions = [] if membership is None else membership.fetcher.sessions
            commit = Commit([item for session in sessions for item in session.unfinished.items()])
            refused, self._refused = self._refused, {}
            limit_ms = self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
            self._commit = commit
            try:
                with trio.move_on_after(limit_ms / 1000):
                    while not commit.is_done:
                        self._news = news = trio.Event()
                        self._flush()
                        await news.wait()
            finally:
                self._commit = None
            commit.give_up(TimeoutException(ErrorCode.REQUEST_TIMED_OUT, f"no result within {limit_ms} ms"))
            await self._report()
            return {**commit.results, **refused}

    def set_acknowledgement_callback(self, callback: OnAcknowledged | None) -> None:
        """Call this function with the result of acknowledgements, inside of `poll`, `commit` and `close`. None: no
        longer.
        """
        self._check_open()
        self._callback = callback
        self._results.clear()

    def acquisition_lock_timeout_ms(self) -> int | None:
        """Time of acquisition locks, as a broker reported last; None before the first fetch."""
        self._check_open()
        return self._deliveries.lock_ms or None

    async def _report(self) -> None:
        """Call the callback."""
        while self._results:
            acknowledged = self._results.popleft()
            if self._callback is not None:
                called = self._callback(acknowledged)
                if inspect.isawaitable(called):
                    await called

    def _finished(self, result: Result) -> None:
        if self._commit is not None:
            self._commit.note(result)
        acknowledged = reported(result)
        if acknowledged is not None and self._callback is not None:
            self._results.append(acknowledged)

    def _cannot_send(self, result: Result) -> None:
        assert result.error is not None
        self._refused[result.place.topic_partition] = result.error
        self._finished(result)

    def _flush(self) -> None:
        if self._membership is not None:
            self._membership.fetcher.flush()

    def _locks_due(self, due: Due) -> None:
        if due.renewals and self._membership is not None:
            # A block that processes a record is as good as a poll.
            self._membership.participant.polled()
        self._flush()

    def _notify(self) -> None:
        self._news.set()
