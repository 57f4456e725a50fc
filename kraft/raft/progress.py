"""A leader's view of the replicas that fetch from it: the end offset of each one, and whether a majority still
fetches.

A replica's end offset is the offset it last fetched from; its own end offset counts only as far as it is
synced, and only while it is a voter: a leader that was removed leads until the removal commits.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.kraft.raft.quorum import majority, majority_offset
from barnabas.kraft.raft.voters import ReplicaKey, VoterSet

OBSERVER_SESSION_TIMEOUT_MS = 300_000
CATCH_UP_MS = 3_600_000
MAX_OBSERVERS = 10_000
"""More than any cluster has; beyond it a stranger's fetches are answered but leave no entry."""


@dataclass(slots=True)
class ReplicaProgress:
    """One replica as its leader sees it; times are the leader's `now_ms`, None before the first fetch."""

    key: ReplicaKey
    end_offset: int | None = None
    last_fetch_ms: int | None = None
    last_caught_up_ms: int | None = None
    leader_end_at_last_fetch: int = -1

    def fetched(self, fetch_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """A replica is caught up if it has all that the leader had at this fetch or at the replica's previous one."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif 0 < self.leader_end_at_last_fetch <= fetch_offset:
            self.last_caught_up_ms = self.last_fetch_ms
        self.leader_end_at_last_fetch = leader_end_offset
        self.last_fetch_ms = now_ms
        self.end_offset = fetch_offset


class Progress:
    """Mutable; made when a replica becomes leader, dropped when it stops."""

    def __init__(self, local: ReplicaKey, voters: VoterSet, check_quorum_timeout_ms: int, now_ms: int) -> None:
        self._local = local
        self._local_end_offset = 0
        self._check_quorum_timeout_ms = check_quorum_timeout_ms
        self.voters = {key.id: ReplicaProgress(key) for key in voters.keys}
        self.observers: dict[ReplicaKey, ReplicaProgress] = {}
        self._fetched_lately: dict[int, bool] = {}
        self._last_majority_ms = now_ms

    @property
    def counts_itself(self) -> bool:
        voter = self.voters.get(self._local.id)
        return voter is not None and voter.key.matches(self._local)

    def local_synced(self, end_offset: int) -> None:
        self._local_end_offset = end_offset
        if self.counts_itself:
            self.voters[self._local.id].end_offset = end_offset

    def set_voters(self, voters: VoterSet, now_ms: int) -> None:
        """Another set counts from now on: new voters bring their progress as observers, removed ones observe."""
        self._last_majority_ms = now_ms
        old, self.voters = self.voters, {}
        for key in voters.keys:
            known = old.get(key.id)
            if known is not None and known.key.matches(key):
                del old[key.id]
                known.key = key
            else:
                known = self.observers.pop(key, None) or ReplicaProgress(key)
            self.voters[key.id] = known
        for removed in old.values():
            if removed.key.id != self._local.id:
                self.observers.setdefault(removed.key, removed)
        self._fetched_lately = {key: True for key in self._fetched_lately if key in self.voters}
        self.local_synced(self._local_end_offset)

    def is_caught_up(self, replica: ReplicaKey, now_ms: int) -> bool:
        """True for an observer that reached the end of the log once, and fetched within the last hour."""
        observer = self.observers.get(replica)
        return (
            observer is not None
            and observer.last_caught_up_ms is not None
            and observer.last_fetch_ms is not None
            and observer.last_fetch_ms > now_ms - CATCH_UP_MS
        )

    def fetched(self, replica: ReplicaKey, fetch_offset: int, leader_end_offset: int, now_ms: int) -> None:
        self._of(replica, now_ms).fetched(fetch_offset, leader_end_offset, now_ms)
        self.contacted(replica, now_ms)

    def contacted(self, replica: ReplicaKey, now_ms: int) -> None:
        """A replica fetched (records or a snapshot): it takes this node for the leader."""
        voter = self.voters.get(replica.id)
        if voter is None or not voter.key.matches(replica):
            return
        self._fetched_lately[replica.id] = True
        if len(self._fetched_lately) + self.counts_itself >= majority(len(self.voters)):
            self._fetched_lately.clear()
            self._last_majority_ms = now_ms

    def check_quorum_deadline_ms(self) -> int | None:
        """Time at which the leader resigns unless more voters fetch (KAFKA-15489); None for an only voter."""
        if len(self.voters) == 1 and self.counts_itself:
            return None
        return self._last_majority_ms + self._check_quorum_timeout_ms

    def majority_offset(self) -> int | None:
        return majority_offset([voter.end_offset for voter in self.voters.values()])

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, most complete log first."""
        others = [voter for voter in self.voters.values() if voter.key.id != self._local.id]
        others.sort(key=lambda voter: (-(-1 if voter.end_offset is None else voter.end_offset), voter.key.id))
        return tuple(voter.key for voter in others)

    def silent_voters(self, since_ms: int) -> tuple[int, ...]:
        """Other voters that have not fetched since then."""
        return tuple(
            voter.key.id
            for voter in self.voters.values()
            if voter.key.id != self._local.id and (voter.last_fetch_ms is None or voter.last_fetch_ms < since_ms)
        )

    def active_observers(self, now_ms: int) -> tuple[ReplicaProgress, ...]:
        self._forget_observers(now_ms)
        return tuple(self.observers.values())

    def _of(self, replica: ReplicaKey, now_ms: int) -> ReplicaProgress:
        voter = self.voters.get(replica.id)
        if voter is not None and voter.key.matches(replica):
            return voter
        if replica in self.observers:
            return self.observers[replica]
        self._forget_observers(now_ms)
        observer = ReplicaProgress(replica)
        if len(self.observers) < MAX_OBSERVERS:
            self.observers[replica] = observer
        return observer

    def _forget_observers(self, now_ms: int) -> None:
        for key in [
            key
            for key, replica in self.observers.items()
            if replica.last_fetch_ms is not None and now_ms - replica.last_fetch_ms >= OBSERVER_SESSION_TIMEOUT_MS
        ]:
            del self.observers[key]
