"""The task of one membership: sends the requests of a `Member`, and gets the metadata that it needs.

One task for each membership, whatever the application does meanwhile. `change` is the next change for the application;
`on_change` is called when there is one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass

import trio

from barnabas.client.cluster import Cluster, NoBrokerAvailable
from barnabas.client.groups.classic_member import ClassicMember
from barnabas.client.groups.consumer_member import ConsumerMember
from barnabas.client.groups.coordinators import STALE_COORDINATOR, CoordinatorLink
from barnabas.client.groups.membership import Change, ConsumerGroupMetadata, GroupSettings, Leaving, Subscription
from barnabas.client.groups.share_member import ShareMember
from barnabas.client.groups.topic_directory import TopicDirectory, ask_all_topics, ask_topic_ids, ask_topics
from barnabas.protocol.errors import ErrorCode, KafkaError, UnsupportedFieldError
from barnabas.protocol.primitives import uuid_to_string
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import ChannelError, UnsupportedVersion

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A subscription of an application: topics, or a pattern that the broker or the client matches."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """Matched by the broker (KIP-848)."""
    matcher: re.Pattern[str] | None = None
    """Matched by the client against whole names of all topics, every metadata.max.age.ms."""
    with_internal: bool = False
    """Whether the matcher may match internal topics."""

    def found_in(self, directory: TopicDirectory) -> tuple[str, ...]:
        """Topics that match."""
        matcher = self.matcher
        return tuple(
            sorted(
                topic
                for topic in directory.topics
                if matcher is not None
                and matcher.fullmatch(topic)
                and (self.with_internal or topic not in directory.internal)
            )
        )


class Participant:
    """One membership, from `subscribe` to `unsubscribe`."""

    def __init__(
        self,
        cluster: Cluster,
        coordinator: CoordinatorLink,
        settings: GroupSettings,
        wanted: Wanted,
        on_change: Callable[[], None],
    ) -> None:
        """The caller runs `run`. `on_change` is called when there may be a change, or a fatal error."""
        self._cluster = cluster
        self._coordinator = coordinator
        self._settings = settings
        self._wanted = wanted
        self._on_change = on_change
        self.topics = wanted.topics
        """Subscribed topics, as far as the client knows them."""
        self.member: ClassicMember | ConsumerMember = self._new_member()
        self.rebalances = 0
        """Number of changes that the application has carried out."""
        self.heartbeats = 0
        """Number of requests that the coordinator accepted."""
        self.heard_by: int | None = None
        """The node that accepted the last of them."""
        self.on_heartbeat: Callable[[int], None] = lambda sent_ms: None
        """Called when the coordinator has accepted a request, with the time at which it was sent."""
        self._confirmed_ms = cluster.now_ms()
        self._running = trio.CancelScope()
        self._woken = trio.Event()
        self._resubscribed = trio.Event()
        self._matched = wanted.matcher is None
        """Whether the topics of the subscription are known."""

    def __repr__(self) -> str:
        return repr(self.member)

    @property
    def group_id(self) -> str:
        return self._settings.group_id

    def _new_member(self) -> ClassicMember | ConsumerMember:
        now_ms, subscription = self._cluster.now_ms(), self._subscription()
        if self._settings.group_protocol == "classic":
            return ClassicMember(self._settings, subscription, now_ms)
        member_id = uuid_to_string(self._cluster.world.chance.randbytes(16))
        kind = ShareMember if self._settings.group_protocol == "share" else ConsumerMember
        return kind(self._settings, subscription, member_id, now_ms)

    def _subscription(self) -> Subscription:
        return Subscription(self.topics, self._wanted.pattern)

    # ---- the application

    @property
    def stamp(self) -> ConsumerGroupMetadata | None:
        return self.member.stamp

    @property
    def last_stamp(self) -> ConsumerGroupMetadata | None:
        return self.member.last_stamp

    @property
    def change(self) -> Change | None:
        return self.member.change

    @property
    def fatal(self) -> KafkaError | None:
        return self.member.fatal

    def changed(self, change: Change) -> None:
        """The application has carried out `change`."""
        self.rebalances += 1
        self.member.changed(change)
        self._wake()

    def polled(self) -> None:
        """The application has called `poll`."""
        self.member.polled(self._cluster.now_ms())
        if self.member.stamp is None:
            self._wake()

    def fenced(self, error: KafkaError, stamp: ConsumerGroupMetadata) -> None:
        self.member.fenced(error.code, stamp, self._cluster.now_ms())
        self._wake()

    def subscribe(self, wanted: Wanted) -> None:
        """The application has a new subscription."""
        self._wanted = wanted
        if wanted.matcher is None:
            self.topics = wanted.topics
            self.member.subscribe(self._subscription())
        # The matching topics are looked up next; until then it keeps its partitions.
        self._resubscribed.set()
        self._wake()

    def rejoin(self, reason: str) -> bool:
        """Start a rebalance; False if only the broker can do so."""
        if not isinstance(self.member, ClassicMember):
            return False
        self.member.rejoin(reason)
        self._wake()
        return True

    def unheard_ms(self) -> int:
        """Time since the last request that the coordinator accepted was sent: for session.timeout.ms from then on it
        counts this member in.
        """
        return self._cluster.now_ms() - self._confirmed_ms

    # ---- the coordinator

    async def run(self) -> None:
        """Be a member until `leave`."""
        with self._running:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_topics)
                nursery.start_soon(self._learn)
                while True:
                    woken = self._woken
                    request = self._next_request()
                    if request is not None:
                        await self._call(request)
                        self._wake()
                        self._notify()
                        continue
                    wake_at_ms = self._wake_at_ms()
                    wait_ms = float("inf") if wake_at_ms is None else max(0, wake_at_ms - self._cluster.now_ms())
                    with trio.move_on_after(wait_ms / 1000):
                        await woken.wait()

    def _wake(self) -> None:
        """Wake all waiting tasks."""
        self._woken.set()
        self._woken = trio.Event()

    def _next_request(self) -> Message | None:
        if not self._matched:
            return None
        try:
            return self.member.next_request(self._cluster.now_ms())
        except Exception as error:  # of the application's own assignor
            failure = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the assignor raised {type(error).__name__}: {error}")
            failure.__cause__ = error
            self._fail(failure)
            return None

    def _wake_at_ms(self) -> int | None:
        if not self._matched:
            return None
        return self.member.wake_at_ms(self._cluster.now_ms())

    def _notify(self) -> None:
        if self.member.change is not None or self.member.fatal is not None:
            self._on_change()

    def _fail(self, error: KafkaError) -> None:
        """It can never be in the group again."""
        self.member.fail(error)
        self._wake()
        self._notify()

    async def _call(self, request: Message) -> None:
        member = self.member
        timeout_ms = member.answer_timeout_ms(request, self._cluster.settings.request_timeout_ms)
        sent_ms = self._cluster.now_ms()
        try:
            response = await self._coordinator.call(request, timeout_ms)
        except (UnsupportedVersion, UnsupportedFieldError) as error:
            member.unanswered(self._cluster.now_ms())
            member.fail(KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"group {self._settings.group_id}: {error}"))
            return
        except ChannelError as error:
            log.debug("%r: %s", member, error)
            member.unanswered(self._cluster.now_ms())
            return
        except KafkaError as error:  # there will never be a coordinator
            member.unanswered(self._cluster.now_ms())
            member.fail(error)
            return
        code = member.answered(response, self._cluster.now_ms())
        if code is ErrorCode.NONE:
            self._was_heard(sent_ms)
        elif code in STALE_COORDINATOR:
            self._coordinator.forget()

    def _was_heard(self, sent_ms: int) -> None:
        """The coordinator accepted a request that was sent at `sent_ms`."""
        self._confirmed_ms = sent_ms
        self.heard_by = self._coordinator.answered_by
        self.heartbeats += 1
        self.on_heartbeat(sent_ms)

    # ---- metadata

    async def _learn(self) -> None:
        """Get the metadata that the member waits for."""
        backoff = self._cluster.backoff()
        while True:
            member = self.member
            names, ids = member.topics_to_learn(), member.ids_to_learn()
            if not names and not ids:
                backoff.reset()
                await self._woken.wait()
                continue
            asked = ask_topic_ids(self._cluster, ids) if ids else ask_topics(self._cluster, names)
            try:
                directory = await asked
            except (ChannelError, NoBrokerAvailable) as error:
                log.debug("%r: metadata request failed: %s", member, error)
            except KafkaError as error:
                self._fail(error)
                return
            else:
                member.learnt(directory)
                self._wake()
                self._notify()
            if member.topics_to_learn() or member.ids_to_learn():
                await trio.sleep(backoff.next_ms() / 1000)

    async def _watch_topics(self) -> None:
        """Detect new topics and partitions: the client matches patterns, and the leader of a classic group rebalances
        for new partitions."""
        backoff = self._cluster.backoff()
        while True:
            try:
                await self._check_topics()
            except (ChannelError, NoBrokerAvailable) as error:
                log.debug("%r: metadata request failed: %s", self.member, error)
                await trio.sleep(backoff.next_ms() / 1000)
                continue
            except KafkaError as error:
                self._fail(error)
                return
            backoff.reset()
            with trio.move_on_after(self._settings.metadata_max_age_ms / 1000):
                await self._resubscribed.wait()

    async def _check_topics(self) -> None:
        wanted, self._resubscribed = self._wanted, trio.Event()
        if wanted.matcher is not None:
            directory = await ask_all_topics(self._cluster)
            if self._wanted is wanted:
                self.topics, self._matched = wanted.found_in(directory), True
                self.member.subscribe(self._subscription())
        watched = self.member.topics_to_watch()
        if watched:
            directory = await ask_topics(self._cluster, watched)
            if self.member.topics_to_watch() == watched:
                self.member.learnt(directory)
        self._wake()
        self._notify()

    # ---- the end

    def stop(self) -> None:
        """Send nothing more, except by `leave`."""
        self._running.cancel()

    async def leave(self, leaving: Leaving = Leaving.DEFAULT, reason: str | None = None) -> None:
        """Leave the group; the coordinator may not learn of it if it cannot be reached."""
        self.stop()
        request = self.member.leave(leaving, reason)
        if request is not None:
            try:
                await self._coordinator.call(request)
            except (ChannelError, KafkaError) as error:
                log.debug("%r: leaving the group failed: %s", self.member, error)
