"""Core: incremental fetch sessions (KIP-227), the leader's cache of who fetches which partitions.

A follower or consumer names its partitions and offsets once; later requests contain only what changed, and later
responses only partitions with news. Session id and session epoch number the requests, so that a lost or repeated one is
detected.

A session costs only what happens in it: it checks partitions that the request names again, that `changed` named, or
that the last response left open, and no others, however many it has.

Knows neither logs nor sockets: `open` returns a context with the partitions to read, `finish` turns what was read into
what is sent. Single-threaded.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Collection, Iterator, Sequence

from barnabas.broker.fetch_context import ErrorContext, FetchContext, IncrementalContext, InSteps
from barnabas.broker.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    LAST_EPOCH,
    WANTED_IN_A_STEP,
    Answer,
    CachedPartition,
    FetchSession,
    PartitionKey,
    SessionValue,
    Wanted,
    next_epoch,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.runtime.at_once import at_once
from barnabas.runtime.world import Chance

TOPIC_IDS_FROM_VERSION = 13

PARTITION_BYTES = 640
"""Memory of one partition in a session, with its places in the indexes."""

MAX_PARTITIONS = 1 << 17
"""Default limit of the partitions of all sessions together."""


def _wanted(request: FetchRequest, uses_topic_ids: bool) -> Iterator[Wanted]:
    for topic in request.topics:
        key = topic.topic_id if uses_topic_ids else topic.topic
        for partition in topic.partitions:
            yield key, partition


class _FullContext(FetchContext):
    """Creates a session at the end, if there is room."""

    def __init__(
        self, sessions: FetchSessions, wanted: Sequence[Wanted], uses_topic_ids: bool, from_follower: bool
    ) -> None:
        super().__init__(wanted)
        self._sessions = sessions
        self._uses_topic_ids = uses_topic_ids
        self._from_follower = from_follower

    @property
    def wants_session(self) -> bool:
        return self._sessions.has_places

    def finishing(
        self, answers: Sequence[Answer], now_ms: int, left_open: Collection[PartitionKey]
    ) -> InSteps[Sequence[Answer]]:
        sessions = self._sessions
        partitions: dict[PartitionKey, CachedPartition] = {}
        for place, (key, wanted) in enumerate(self.wanted, 1):
            partitions[key, wanted.partition] = CachedPartition(key, wanted)
            if place % WANTED_IN_A_STEP == 0:
                yield None
        for place, (key, data) in enumerate(answers, 1):
            cached = partitions.get((key, data.partition_index))
            if cached is not None:
                cached.sent(data)
            if place % WANTED_IN_A_STEP == 0:
                yield None
        session = sessions._create(self._from_follower, self._uses_topic_ids, len(partitions), now_ms)
        if session is not None:
            session.partitions = partitions
            session.moved = dict.fromkeys(partitions)
            sessions._touch(session, now_ms)
            for place, partition_key in enumerate(partitions, 1):
                sessions._watch(session, partition_key)
                if place % WANTED_IN_A_STEP == 0:
                    yield None
                    if not sessions._has(session):
                        return answers
            self.session_id = session.id
        return answers


class FetchSessions:
    """All sessions of a broker."""

    def __init__(
        self,
        chance: Chance,
        *,
        max_sessions: int = 1000,
        max_partitions: int = MAX_PARTITIONS,
        eviction_ms: int = 120_000,
    ) -> None:
        """`max_partitions` limits the partitions of all sessions together; followers may have as many again."""
        self._chance = chance
        self._max_sessions = max_sessions
        self._max_partitions = max_partitions
        self._eviction_ms = eviction_ms
        # Least recently used first.
        self._sessions: dict[int, FetchSession] = {}
        # Sessions by partition, then by session id.
        self._watching: dict[PartitionKey, dict[int, FetchSession]] = {}
        # Sorted by value: sessions that any new session may evict, and those that only a follower's may.
        self._evictable_by_all: list[SessionValue] = []
        self._evictable_by_followers: list[SessionValue] = []
        self.evictions = 0
        self.cached_partitions = 0
        """Partitions of all sessions together."""
        # Partitions of removed sessions, still in `_watching`: they are removed from it a few at a time.
        self._left: deque[tuple[FetchSession, PartitionKey]] = deque()

    def __len__(self) -> int:
        return len(self._sessions)

    def is_of_follower(self, session_id: int) -> bool:
        """True if this is the session of a follower, not of a consumer."""
        session = self._sessions.get(session_id)
        return session is not None and session.privileged

    def open(self, request: FetchRequest, version: int, *, from_follower: bool, now_ms: int) -> FetchContext:
        """The context of a request. Errors (70, 71, 106) are in the context, not raised."""
        return at_once(self.opening(request, version, from_follower=from_follower, now_ms=now_ms))

    def opening(
        self, request: FetchRequest, version: int, *, from_follower: bool, now_ms: int
    ) -> InSteps[FetchContext]:
        """`open` in steps."""
        uses_topic_ids = version >= TOPIC_IDS_FROM_VERSION
        session = self._sessions.get(request.session_id)
        epoch = request.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            # A full request closes the session it names.
            if session is not None:
                self._remove(session)
            wanted = yield from self._each_once(request, uses_topic_ids)
            if epoch == FINAL_EPOCH:
                return FetchContext(wanted)
            return _FullContext(self, wanted, uses_topic_ids, from_follower)
        if session is None:
            return ErrorContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return ErrorContext(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorContext(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        # From here on no other request can continue the session with this epoch.
        session.epoch = following = next_epoch(epoch)
        yield from self._update(session, request)
        if self._sessions.get(session.id) is not session:
            return ErrorContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != following:
            return ErrorContext(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if not session.partitions:
            self._remove(session)
            return FetchContext(())
        self._touch(session, now_ms)
        return IncrementalContext(session)

    def open_none(self, request: FetchRequest, uses_topic_ids: bool) -> InSteps[FetchContext]:
        """The context of a request that names too many partitions for a session, made in steps. The client has to name
        all of them in its next request."""
        if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            return ErrorContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session = self._sessions.get(request.session_id)
        if session is not None:
            self._remove(session)
        return FetchContext((yield from self._each_once(request, uses_topic_ids)))

    def _each_once(self, request: FetchRequest, uses_topic_ids: bool) -> InSteps[list[Wanted]]:
        """The partitions of the request; one that is named twice is read once, as named last."""
        each: dict[PartitionKey, Wanted] = {}
        for place, (key, partition) in enumerate(_wanted(request, uses_topic_ids), 1):
            each[key, partition.partition] = (key, partition)
            if place % WANTED_IN_A_STEP == 0:
                self._unwatch_some()
                yield None
        self._unwatch_some()
        return list(each.values())

    def changed(self, topic_id: bytes, topic: str, partition: int) -> list[FetchSession]:
        """Record that a partition has news. Returns the sessions that contain it."""
        interested: list[FetchSession] = []
        for key in ((topic_id, partition), (topic, partition)):
            watching = self._watching.get(key)
            if watching is not None:
                for session in watching.values():
                    session.moved[key] = session.fresh[key] = None
                    interested.append(session)
        return interested

    def _update(self, session: FetchSession, request: FetchRequest) -> InSteps[None]:
        steps = 0
        for topic in request.topics:
            topic_key = topic.topic_id if session.uses_topic_ids else topic.topic
            for wanted in topic.partitions:
                key = (topic_key, wanted.partition)
                if key not in session.partitions:
                    if self.cached_partitions >= self._most_partitions(session.privileged):
                        self._remove(session)
                        return
                    self.cached_partitions += 1
                    self._watch(session, key)
                session.asks(key, wanted)
                steps += 1
                if steps % WANTED_IN_A_STEP == 0:
                    yield None
                    if not self._has(session):
                        return
        for gone in request.forgotten_topics_data:
            forgotten = gone.topic_id if session.uses_topic_ids else gone.topic
            for partition in gone.partitions:
                self.cached_partitions -= (forgotten, partition) in session.partitions
                session.forgets((forgotten, partition))
                self._unwatch(session, (forgotten, partition))
                steps += 1
                if steps % WANTED_IN_A_STEP == 0:
                    yield None
                    if not self._has(session):
                        return

    def _has(self, session: FetchSession) -> bool:
        return self._sessions.get(session.id) is session

    @property
    def has_places(self) -> bool:
        return self._max_sessions > 0

    def _watch(self, session: FetchSession, key: PartitionKey) -> None:
        watching = self._watching.get(key)
        if watching is None:
            watching = self._watching[key] = {}
        watching[session.id] = session

    def _unwatch(self, session: FetchSession, key: PartitionKey) -> None:
        watching = self._watching.get(key)
        if watching is not None and watching.get(session.id) is session and key not in session.partitions:
            del watching[session.id]
            if not watching:
                del self._watching[key]

    def _unwatch_some(self) -> None:
        """Unwatch some partitions of removed sessions."""
        for _ in range(min(len(self._left), 2 * WANTED_IN_A_STEP)):
            self._unwatch(*self._left.popleft())

    def _create(self, privileged: bool, uses_topic_ids: bool, size: int, now_ms: int) -> FetchSession | None:
        """None if the cache is full of sessions that may not be evicted, or if the session would be empty."""
        if size == 0 or self._max_sessions == 0:
            return None
        newcomer = (privileged, size, 0)
        if len(self._sessions) >= self._max_sessions and not self._evict_for(newcomer, now_ms):
            return None
        if self.cached_partitions + size > self._max_partitions and not self._make_room_for(newcomer, now_ms):
            return None
        while True:
            session_id = self._chance.randrange(1, LAST_EPOCH)
            if session_id not in self._sessions:
                break
        session = FetchSession(session_id, privileged, uses_topic_ids, now_ms)
        self._sessions[session_id] = session
        self.cached_partitions += size
        return session

    def _most_partitions(self, privileged: bool) -> int:
        return self._max_partitions * (2 if privileged else 1)

    def _make_room_for(self, newcomer: SessionValue, now_ms: int) -> bool:
        """Push out sessions until the partitions of a newcomer fit; False if they do not."""
        privileged, size, _ = newcomer
        if size > self._most_partitions(privileged):
            return False
        while self._sessions and self.cached_partitions + size > self._max_partitions:
            if not self._evict_for(newcomer, now_ms):
                break
        return self.cached_partitions + size <= self._most_partitions(privileged)

    def _evict_for(self, newcomer: SessionValue, now_ms: int) -> bool:
        """Evict a session that was idle for too long; otherwise the least valuable evictable one, if it has less value
        than the new one."""
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms <= self._eviction_ms:
            evictable = self._evictable_by_followers if newcomer[0] else self._evictable_by_all
            if not evictable or newcomer < evictable[0]:
                return False
            oldest = self._sessions[evictable[0][2]]
        self._remove(oldest)
        self.evictions += 1
        return True

    def _remove(self, session: FetchSession) -> None:
        del self._sessions[session.id]
        self._unlist(session)
        partitions, session.partitions, session.moved = session.partitions, {}, {}
        self.cached_partitions -= len(partitions)
        self._left.extend((session, key) for key in partitions)
        self._unwatch_some()

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        session.last_used_ms = now_ms
        del self._sessions[session.id]
        self._sessions[session.id] = session
        # A consumer's session may be evicted for a follower's at once; all others only after `eviction_ms`.
        value = session.value
        old = now_ms - session.created_ms > self._eviction_ms
        if value == session.listed_value and old == session.listed_as_old:
            return
        self._unlist(session)
        session.listed_value, session.listed_as_old = value, old
        if old or not session.privileged:
            insort(self._evictable_by_followers, value)
        if old:
            insort(self._evictable_by_all, value)

    def _unlist(self, session: FetchSession) -> None:
        if session.listed_value is not None:
            _discard(self._evictable_by_followers, session.listed_value)
            _discard(self._evictable_by_all, session.listed_value)
            session.listed_value = None


def _discard(values: list[SessionValue], value: SessionValue) -> None:
    position = bisect_left(values, value)
    if position < len(values) and values[position] == value:
        del values[position]
