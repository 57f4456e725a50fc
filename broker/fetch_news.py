"""Shell: tells fetches that wait of partitions that changed.

Where records come one at a time, followers get each at once. Where a follower is still busy with the last ones when
the next come, they come from many sides: then all that happens in one turn of the broker's tasks is told together, goes
to a follower with one answer, and comes back as one report. Knows neither logs nor answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker.apis.fetch import session_key
from broker.fetch_sessions import FetchSessions, PartitionKey
from broker.purgatory import Purgatory
from broker.replication.partition import Partition

log = logging.getLogger(__name__)

Work = Callable[[], None]

STAYS_CROWDED = 16
"""So many looks in a row have to find no more than one partition each before changes are told at once again."""


class FetchNews:
    """`changed` and `committed` are those of `PartitionHost`."""

    def __init__(
        self,
        sessions: FetchSessions,
        fetches: Purgatory[PartitionKey],
        afterwards: Callable[[Work], None],
    ) -> None:
        """`afterwards` has something done once all tasks had their turn."""
        self._sessions = sessions
        self._fetches = fetches
        self._afterwards = afterwards
        self._stirred: dict[PartitionKey, None] = {}
        """What fetches wait under that have to be looked at."""
        self._changes = 0
        """How many led to that."""
        self._crowded = 0

    def changed(self, partition: Partition) -> None:
        """There may be more to read, or another answer to give."""
        self._stir(partition, for_followers=True)

    def committed(self, partition: Partition) -> None:
        """There may be more to read for consumers. Followers have it, or are about to get it."""
        self._stir(partition, for_followers=False)

    def _stir(self, partition: Partition, *, for_followers: bool) -> None:
        topic_id, topic, index = partition.topic_id, partition.topic, partition.index
        sessions, fetches, stirred = self._sessions, self._fetches, self._stirred
        is_first = not stirred
        for session_id in sessions.changed(topic_id, topic, index):
            is_follower = sessions.is_of_follower(session_id)
            if is_follower and not for_followers:
                # It hears of it with the next records.
                continue
            key = session_key(session_id)
            if fetches.watches(key):
                stirred[key] = None
            elif is_follower:
                self._crowded = STAYS_CROWDED
        if fetches.delayed:
            for key in ((topic_id, index), (topic, index)):
                if fetches.watches(key):
                    stirred[key] = None
        if not stirred:
            return
        self._changes += 1
        if not self._crowded:
            self._look()
        elif is_first:
            self._afterwards(self._look)

    def _look(self) -> None:
        stirred, self._stirred = self._stirred, {}
        if self._crowded and self._changes <= 1:
            self._crowded -= 1
        self._changes = 0
        for key in stirred:
            try:
                self._fetches.check_and_complete(key)
            except Exception:
                # A mistake of ours in one fetch must not stop the others; its own time will be over some time.
                log.exception("a fetch that waits cannot be answered")
