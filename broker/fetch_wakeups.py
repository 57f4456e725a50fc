"""Shell: wakes waiting fetches when partitions change.

If records arrive one at a time, each wakes the followers at once. If a follower is still busy with earlier records when
the next arrive, the partition is crowded: then all changes of one pass of the event loop wake it together, leave in one
response, and are acknowledged by one fetch. Knows neither logs nor responses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas.broker.fetch_session import PartitionKey
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.purgatory import Purgatory
from barnabas.broker.replication.partition import Partition

log = logging.getLogger(__name__)

Work = Callable[[], None]

STAYS_CROWDED = 16
"""Consecutive wake-ups with at most one change each until changes wake followers at once again."""


class FetchWakeups:
    """`changed` and `committed` are those of `PartitionHost`."""

    def __init__(
        self,
        sessions: FetchSessions,
        fetches: Purgatory[PartitionKey],
        afterwards: Callable[[Work], None],
    ) -> None:
        """`afterwards` runs a callback at the end of this pass of the event loop."""
        self._sessions = sessions
        self._fetches = fetches
        self._afterwards = afterwards
        self._due: dict[PartitionKey, None] = {}
        """Keys whose waiting fetches have to be checked."""
        self._changes = 0
        """Changes since the last check."""
        self._crowded = 0

    def committed(self, partition: Partition) -> None:
        """There may be more to read for consumers. Followers already have it, or are about to get it."""
        self.changed(partition, for_followers=False)

    def changed(self, partition: Partition, *, for_followers: bool = True) -> None:
        """There may be more to read, or an error to report."""
        topic_id, topic, index = partition.topic_id, partition.topic, partition.index
        watchers, due = self._fetches.watchers, self._due
        is_first = not due
        for session in self._sessions.changed(topic_id, topic, index):
            if session.privileged and not for_followers:
                # It gets the new high watermark with the next records.
                continue
            if session.key in watchers:
                due[session.key] = None
            elif session.privileged:
                self._crowded = STAYS_CROWDED
        for key in ((topic_id, index), (topic, index)):
            if key in watchers:
                due[key] = None
        if not due:
            return
        self._changes += 1
        if not self._crowded:
            self._check()
        elif is_first:
            self._afterwards(self._check)

    def _check(self) -> None:
        due, self._due = self._due, {}
        if self._crowded and self._changes <= 1:
            self._crowded -= 1
        self._changes = 0
        for key in due:
            try:
                self._fetches.check_and_complete(key)
            except Exception:
                # A bug in one fetch must not stop the others; that one ends by its deadline.
                log.exception("a waiting fetch failed")
