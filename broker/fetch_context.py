"""Core: one fetch request: the partitions it reads, and which of the answers are sent."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Sequence
from typing import Any, TypeVar

from barnabas.broker.fetch_session import (
    NO_SESSION,
    WANTED_IN_A_STEP,
    Answer,
    FetchSession,
    PartitionKey,
    TopicKey,
    Wanted,
    must_be_repeated,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import PartitionData
from barnabas.runtime.at_once import at_once

T = TypeVar("T")
InSteps = Generator[None, Any, T]
"""Work in steps, with its result; the event loop runs between two steps."""


class FetchContext:
    """One fetch request: full and without a session, unless a subclass differs."""

    error = ErrorCode.NONE
    """If set, the whole response is this error."""
    session_id = NO_SESSION
    """The session id of the response; valid after `finish`."""

    is_incremental = False
    """True if `to_read` may be smaller than `wanted`, and grow while the request waits."""

    keys: Sequence[PartitionKey] = ()
    """The key under which a request of a session is watched."""

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

    def ignore_moved(self) -> None:
        """Leave out the present changes in the next `take_moved`."""

    @property
    def has_moved(self) -> bool:
        """True if `take_moved` may return something."""
        return True

    def reads_more_than(self, most: int) -> bool:
        """True if `to_read` has more partitions."""
        return len(self._wanted) > most

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

    def throttled_error(self) -> ErrorCode:
        """The error of a response without records that a quota causes. The session stays as it is."""
        return self.error


class ErrorContext(FetchContext):
    def __init__(self, error: ErrorCode) -> None:
        super().__init__(())
        self.error = error


class IncrementalContext(FetchContext):
    """Reads the partitions of the session that may have news."""

    is_incremental = True

    def __init__(self, session: FetchSession) -> None:
        self._wanted = ()
        self._session = session
        self._epoch = session.epoch
        self._fresh = session.fresh = {}
        self.session_id = session.id
        self.keys = (session.key,)

    @property
    def wanted(self) -> Sequence[Wanted]:
        return [(cached.topic, cached.wanted) for cached in self._session.partitions.values()]

    @property
    def to_read(self) -> Sequence[Wanted]:
        partitions = self._session.partitions
        found: list[Wanted] = []
        for key in self._session.moved:
            if (cached := partitions.get(key)) is not None:
                found.append((cached.topic, cached.wanted))
        return found

    def take_moved(self) -> Sequence[Wanted]:
        if not self._fresh:
            return ()
        partitions = self._session.partitions
        moved: list[Wanted] = []
        for key in self._fresh:
            if (cached := partitions.get(key)) is not None:
                moved.append((cached.topic, cached.wanted))
        self._fresh.clear()
        return moved

    def ignore_moved(self) -> None:
        self._fresh.clear()

    @property
    def has_moved(self) -> bool:
        return bool(self._fresh)

    def reads_more_than(self, most: int) -> bool:
        return len(self._session.moved) > most

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
        elif must_be_repeated(data) or key in left_open or key in self._fresh:
            moved[key] = None
        if not cached.is_news(data):
            return False
        cached.sent(data)
        if data.records:
            del partitions[key]
            partitions[key] = cached
        return True

    def throttled_error(self) -> ErrorCode:
        # Another request used the session while this one waited: this one is a duplicate.
        return self.error if self._session.epoch == self._epoch else ErrorCode.INVALID_FETCH_SESSION_EPOCH

    def has_news(self, answer: Answer) -> bool:
        cached = self._session.partitions.get((answer[0], answer[1].partition_index))
        return cached is not None and cached.is_news(answer[1])


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
