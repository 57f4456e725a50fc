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
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData
from barnabas.runtime.world import Chance

NO_SESSION = 0
INITIAL_EPOCH = 0
"""Session epoch of a full request that opens a session."""
FINAL_EPOCH = -1
"""Session epoch of a full request without a session; it closes the session that it names."""
LAST_EPOCH = 0x7FFFFFFF
TOPIC_IDS_FROM_VERSION = 13

WANTED_IN_A_STEP = 500
"""Partitions of a request that one step handles."""

PARTITION_BYTES = 640
"""Memory of one partition in a session, with its places in the indexes."""

MAX_PARTITIONS = 1 << 17
"""Default limit of the partitions of all sessions together."""

TopicKey = bytes | str
"""A topic's id from Fetch v13 on, its name before."""
PartitionKey = tuple[TopicKey, int]
Wanted = tuple[TopicKey, FetchPartition]
Answer = tuple[TopicKey, PartitionData]

T = TypeVar("T")
InSteps = Generator[None, Any, T]
"""Work in steps, with its result; the event loop runs between two steps."""


def next_epoch(epoch: int) -> int:
    """The last epoch is followed by 1: 0 would open a new session."""
    return 1 if epoch == LAST_EPOCH else epoch + 1


def session_key(session_id: int) -> PartitionKey:
    """The purgatory key of a session's waiting fetch: the session knows the partitions. (No topic has an empty
    name.)"""
    return "", session_id


class _CachedPartition:
    """One partition of a session: the last request for it, and what the last response said of it."""

    __slots__ = ("high_watermark", "log_start_offset", "topic", "wanted")

    def __init__(self, topic: TopicKey, wanted: FetchPartition) -> None:
        self.topic = topic
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1

    def asks(self, wanted: FetchPartition) -> None:
        """Record a new request for this partition. Only a fetcher that continues from a later offset in the same leader
        epoch is known to have processed the last response: a follower that truncates its log, or learns of a new epoch
        first, has dropped it.
        """
        before, self.wanted = self.wanted, wanted
        if wanted.fetch_offset <= before.fetch_offset or wanted.current_leader_epoch != before.current_leader_epoch:
            self.high_watermark = -1

    def is_news(self, data: PartitionData) -> bool:
        """True if a response has to contain `data`."""
        return bool(
            data.records
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
            or _must_be_repeated(data)
        )

    def sent(self, data: PartitionData) -> None:
        # After an error nothing counts as known, so that the partition is news when the error is gone.
        self.high_watermark = data.high_watermark if data.error_code == 0 else -1
        self.log_start_offset = data.log_start_offset


# (is a follower's, partitions, id): a session may be evicted for one that is greater in this order.
_Value = tuple[bool, int, int]


class _Session:
    __slots__ = (
        "created_ms",
        "epoch",
        "fresh",
        "id",
        "last_used_ms",
        "listed_as_old",
        "listed_value",
        "moved",
        "partitions",
        "privileged",
        "uses_topic_ids",
    )

    def __init__(self, session_id: int, privileged: bool, uses_topic_ids: bool, now_ms: int) -> None:
        self.id = session_id
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        # In the order in which they are read: one that had data moves to the end, so that none starves (RP-05).
        self.partitions: dict[PartitionKey, _CachedPartition] = {}
        # Partitions that have to be checked, in this order.
        self.moved: dict[PartitionKey, None] = {}
        # Partitions that moved since the waiting request checked them. Each request has a dict of its own.
        self.fresh: dict[PartitionKey, None] = {}
        # The entry in the lists of evictable sessions.
        self.listed_value: _Value | None = None
        self.listed_as_old = False

    @property
    def value(self) -> _Value:
        return (self.privileged, len(self.partitions), self.id)

    def asks(self, key: PartitionKey, wanted: FetchPartition) -> None:
        cached = self.partitions.get(key)
        if cached is None:
            self.partitions[key] = _CachedPartition(key[0], wanted)
        else:
            cached.asks(wanted)
        self.moved[key] = None

    def forgets(self, key: PartitionKey) -> None:
        self.partitions.pop(key, None)
        self.moved.pop(key, None)


def _must_be_repeated(data: PartitionData) -> bool:
    """True if this answer is sent with every response until the fetcher reacts: a consumer that cannot reach its
    preferred replica fetches from the leader again, and does not name the partition.
    """
    return bool(data.error_code != 0 or data.preferred_read_replica >= 0 or data.diverging_epoch.epoch >= 0)


def at_once(steps: Generator[Any, Any, T]) -> T:
    """Run all steps now."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def _wanted(request: FetchRequest, uses_topic_ids: bool) -> Iterator[Wanted]:
    for topic in request.topics:
        key = topic.topic_id if uses_topic_ids else topic.topic
        for partition in topic.partitions:
            yield key, partition


class FetchContext:
    """One fetch request: full and without a session, unless a subclass differs."""

    error = ErrorCode.NONE
    """If set, the whole response is this error."""
    session_id = NO_SESSION
    """The session id of the response; valid after `finish`."""

    is_incremental = False
    """True if `to_read` may be smaller than `wanted`, and grow while the request waits."""

    def __init__(self, wanted: Sequence[Wanted]) -> None:
        self._wanted = wanted

    @property
    def wants_session(self) -> bool:
        """True if `finish` may create a session."""
        return False

    @property
    def wanted(self) -> Sequence[Wanted]:
        """All partitions of the request and its session."""
        return self._wanted

    @property
    def to_read(self) -> Sequence[Wanted]:
        """The part of `wanted` that may have news, in the order in which it is to be read."""
        return self._wanted

    def take_moved(self) -> Sequence[Wanted]:
        """The part of `to_read` that changed since the request arrived, or since the last call. Only if the context is
        incremental.
        """
        return ()

    def finish(
        self, answers: Sequence[Answer], now_ms: int, left_open: Collection[PartitionKey] = ()
    ) -> Sequence[Answer]:
        """Takes an answer for each of `to_read` and returns those that have to be sent. Call once.

        The next request checks the partitions in `left_open` again, even if nothing changes in them.
        """
        return at_once(self.finishing(answers, now_ms, left_open))

    def finishing(
        self, answers: Sequence[Answer], now_ms: int, left_open: Collection[PartitionKey]
    ) -> InSteps[Sequence[Answer]]:
        """`finish` in steps."""
        yield from ()
        return answers

    def has_news(self, answer: Answer) -> bool:
        """True if `finish` would return this answer."""
        return True


class _ErrorContext(FetchContext):
    def __init__(self, error: ErrorCode) -> None:
        super().__init__(())
        self.error = error


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
        partitions: dict[PartitionKey, _CachedPartition] = {}
        for place, (key, wanted) in enumerate(self.wanted, 1):
            partitions[key, wanted.partition] = _CachedPartition(key, wanted)
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


class _IncrementalContext(FetchContext):
    """Reads the partitions of the session that may have news."""

    is_incremental = True

    def __init__(self, session: _Session) -> None:
        super().__init__(())
        self._session = session
        self._epoch = session.epoch
        self._fresh = session.fresh = {}
        self.session_id = session.id

    @property
    def wanted(self) -> Sequence[Wanted]:
        return [(cached.topic, cached.wanted) for cached in self._session.partitions.values()]

    @property
    def to_read(self) -> Sequence[Wanted]:
        partitions = self._session.partitions
        return [(key[0], partitions[key].wanted) for key in self._session.moved if key in partitions]

    def take_moved(self) -> Sequence[Wanted]:
        partitions = self._session.partitions
        moved = [(key[0], partitions[key].wanted) for key in self._fresh if key in partitions]
        self._fresh.clear()
        return moved

    def finishing(
        self, answers: Sequence[Answer], now_ms: int, left_open: Collection[PartitionKey]
    ) -> InSteps[Sequence[Answer]]:
        session = self._session
        news = []
        served: list[PartitionKey] = []
        for place, answer in enumerate(answers):
            if place % WANTED_IN_A_STEP == 0 and place > 0:
                yield None
            if session.epoch != self._epoch:
                break
            if self._take_in(answer, left_open, served):
                news.append(answer)
        if session.epoch != self._epoch:
            # Another request used the session while this one waited: this one is a duplicate.
            self.error = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            return ()
        # Partitions without records come before those with records, or a large partition would starve the others.
        session.moved.update(dict.fromkeys(served))
        return news

    def _take_in(self, answer: Answer, left_open: Collection[PartitionKey], served: list[PartitionKey]) -> bool:
        """Record an answer; returns whether it is to be sent."""
        partitions, moved = self._session.partitions, self._session.moved
        data = answer[1]
        key = (answer[0], data.partition_index)
        moved.pop(key, None)
        cached = partitions.get(key)
        if cached is None:
            return False
        # The fetcher gets the same again until it fetches from a later offset.
        if data.records:
            served.append(key)
        elif _must_be_repeated(data) or key in left_open or key in self._fresh:
            moved[key] = None
        if not cached.is_news(data):
            return False
        cached.sent(data)
        if data.records:
            del partitions[key]
            partitions[key] = cached
        return True

    def has_news(self, answer: Answer) -> bool:
        cached = self._session.partitions.get((answer[0], answer[1].partition_index))
        return cached is not None and cached.is_news(answer[1])


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
        self._sessions: dict[int, _Session] = {}
        # Sessions by partition, then by session id.
        self._watching: dict[PartitionKey, dict[int, _Session]] = {}
        # Sorted by value: sessions that any new session may evict, and those that only a follower's may.
        self._evictable_by_all: list[_Value] = []
        self._evictable_by_followers: list[_Value] = []
        self.evictions = 0
        self.cached_partitions = 0
        """Partitions of all sessions together."""
        # Partitions of removed sessions, still in `_watching`: they are removed from it a few at a time.
        self._left: deque[tuple[_Session, PartitionKey]] = deque()

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
            return _ErrorContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return _ErrorContext(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return _ErrorContext(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        # From here on no other request can continue the session with this epoch.
        session.epoch = next_epoch(epoch)
        yield from self._update(session, request)
        if not self._has(session):
            return _ErrorContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != next_epoch(epoch):
            return _ErrorContext(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if not session.partitions:
            self._remove(session)
            return FetchContext(())
        self._touch(session, now_ms)
        return _IncrementalContext(session)

    def open_none(self, request: FetchRequest, uses_topic_ids: bool) -> InSteps[FetchContext]:
        """The context of a request that names too many partitions for a session, made in steps. The client has to name
        all of them in its next request."""
        if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            return _ErrorContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
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

    def changed(self, topic_id: bytes, topic: str, partition: int) -> list[int]:
        """Record that a partition has news. Returns the ids of the sessions that contain it."""
        interested: list[int] = []
        for key in ((topic_id, partition), (topic, partition)):
            watching = self._watching.get(key)
            if watching is not None:
                for session in watching.values():
                    session.moved[key] = session.fresh[key] = None
                interested += watching
        return interested

    def _update(self, session: _Session, request: FetchRequest) -> InSteps[None]:
        steps = 0
        for topic_key, wanted in _wanted(request, session.uses_topic_ids):
            key = (topic_key, wanted.partition)
            if key not in session.partitions:
                if self.cached_partitions >= self._most_partitions(session.privileged):
                    self._remove(session)
                    return
                self.cached_partitions += 1
            session.asks(key, wanted)
            self._watch(session, key)
            steps += 1
            if steps % WANTED_IN_A_STEP == 0:
                yield None
                if not self._has(session):
                    return
        for topic in request.forgotten_topics_data:
            forgotten = topic.topic_id if session.uses_topic_ids else topic.topic
            for partition in topic.partitions:
                self.cached_partitions -= (forgotten, partition) in session.partitions
                session.forgets((forgotten, partition))
                self._unwatch(session, (forgotten, partition))
                steps += 1
                if steps % WANTED_IN_A_STEP == 0:
                    yield None
                    if not self._has(session):
                        return

    def _has(self, session: _Session) -> bool:
        return self._sessions.get(session.id) is session

    @property
    def has_places(self) -> bool:
        return self._max_sessions > 0

    def _watch(self, session: _Session, key: PartitionKey) -> None:
        watching = self._watching.get(key)
        if watching is None:
            watching = self._watching[key] = {}
        watching[session.id] = session

    def _unwatch(self, session: _Session, key: PartitionKey) -> None:
        watching = self._watching.get(key)
        if watching is not None and watching.get(session.id) is session and key not in session.partitions:
            del watching[session.id]
            if not watching:
                del self._watching[key]

    def _unwatch_some(self) -> None:
        """Unwatch some partitions of removed sessions."""
        for _ in range(min(len(self._left), 2 * WANTED_IN_A_STEP)):
            self._unwatch(*self._left.popleft())

    def _create(self, privileged: bool, uses_topic_ids: bool, size: int, now_ms: int) -> _Session | None:
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
        session = _Session(session_id, privileged, uses_topic_ids, now_ms)
        self._sessions[session_id] = session
        self.cached_partitions += size
        return session

    def _most_partitions(self, privileged: bool) -> int:
        return self._max_partitions * (2 if privileged else 1)

    def _make_room_for(self, newcomer: _Value, now_ms: int) -> bool:
        """Push out sessions until the partitions of a newcomer fit; False if they do not."""
        privileged, size, _ = newcomer
        if size > self._most_partitions(privileged):
            return False
        while self._sessions and self.cached_partitions + size > self._max_partitions:
            if not self._evict_for(newcomer, now_ms):
                break
        return self.cached_partitions + size <= self._most_partitions(privileged)

    def _evict_for(self, newcomer: _Value, now_ms: int) -> bool:
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

    def _remove(self, session: _Session) -> None:
        del self._sessions[session.id]
        self._unlist(session)
        partitions, session.partitions, session.moved = session.partitions, {}, {}
        self.cached_partitions -= len(partitions)
        self._left.extend((session, key) for key in partitions)
        self._unwatch_some()

    def _touch(self, session: _Session, now_ms: int) -> None:
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

    def _unlist(self, session: _Session) -> None:
        if session.listed_value is not None:
            _discard(self._evictable_by_followers, session.listed_value)
            _discard(self._evictable_by_all, session.listed_value)
            session.listed_value = None


def by_topic(
    answers: Iterable[Answer], runs: list[tuple[TopicKey, list[PartitionData]]] | None = None
) -> list[tuple[TopicKey, list[PartitionData]]]:
    """Answers in their order, grouped where neighbours belong to one topic, as a response has them. They are appended
    to `runs`, if given."""
    runs = [] if runs is None else runs
    for topic, data in answers:
        if runs and runs[-1][0] == topic:
            runs[-1][1].append(data)
        else:
            runs.append((topic, [data]))
    return runs


def _discard(values: list[_Value], value: _Value) -> None:
    position = bisect_left(values, value)
    if position < len(values) and values[position] == value:
        del values[position]
