"""Requests that a replica sends to its peers in each role, and the time of the next one.

`Requests` keeps at most one request in flight to each peer. `Raft` handles the answers.
"""

from __future__ import annotations

from barnabas.kraft.raft.config import RaftConfig
from barnabas.kraft.raft.leadership import Leadership
from barnabas.kraft.raft.messages import (
    AddVoter,
    BeginQuorumEpoch,
    EndQuorumEpoch,
    Fetch,
    FetchSnapshot,
    RemoveVoter,
    UpdateVoter,
    Vote,
    VoterChange,
)
from barnabas.kraft.raft.own_log import OwnLog
from barnabas.kraft.raft.requests import Requests
from barnabas.kraft.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Role, Unattached
from barnabas.kraft.raft.voter_history import VoterHistory


class OutgoingRequests:
    """One replica's. Its only state is the voter that an observer asks next."""

    def __init__(self, config: RaftConfig, voters: VoterHistory, log: OwnLog, requests: Requests) -> None:
        self._config = config
        self._voters = voters
        self._log = log
        self._requests = requests
        self._rotation = 0

    @property
    def _is_voter(self) -> bool:
        return self._voters.may_stand(self._log.high_watermark)

    @property
    def _seed_ids(self) -> tuple[int, ...]:
        """Nodes that may know the leader: the bootstrap servers, then the voters."""
        ids = (*self._config.bootstrap_ids, *self._voters.current.ids)
        return tuple(peer_id for peer_id in ids if peer_id != self._config.local.id)

    def send_due(self, role: Role, leadership: Leadership | None, now_ms: int) -> None:
        """Send all that the role wants sent to peers that are free."""
        match role:
            case Prospective() | Candidate():
                for voter_id in role.votes.missing:
                    self._requests.send_if_free(voter_id, self._vote(voter_id, role), now_ms)
            case Resigned():
                end = EndQuorumEpoch(
                    leader_id=self._config.local.id,
                    epoch=role.epoch,
                    preferred_candidates=role.preferred_candidates,
                )
                for voter_id in role.unacknowledged:
                    self._requests.send_if_free(voter_id, end, now_ms)
            case Leader() if leadership is not None:
                self._announce(role, leadership, now_ms)
            case Follower() if self._is_voter:
                if self._may_fetch():
                    self._requests.send_if_free(role.leader_id, self._fetch(role), now_ms)
            case Follower() | Unattached() if not self._is_voter:
                self._observe(role, now_ms)
            case _:
                pass

    def next_times_ms(self, role: Role, leadership: Leadership | None, now_ms: int) -> list[int]:
        """Times at which there may be something to send that waits for time alone."""
        match role:
            case Prospective() | Candidate():
                return self._requests.free_times_ms(role.votes.missing, now_ms)
            case Resigned():
                return self._requests.free_times_ms(role.unacknowledged, now_ms)
            case Leader() if leadership is not None:
                return self._requests.free_times_ms(leadership.unannounced, now_ms)
            case Follower() if self._is_voter:
                return self._requests.free_times_ms((role.leader_id,), now_ms)
            case Unattached() | Follower() if not self._is_voter:
                leader = () if role.leader_id is None else (role.leader_id,)
                return self._requests.free_times_ms((*leader, *self._seed_ids), now_ms)
            case _:
                return []

    def _announce(self, role: Leader, leadership: Leadership, now_ms: int) -> None:
        leadership.find_silent(now_ms)
        waiting = []
        for voter_id in leadership.unannounced:
            begin = BeginQuorumEpoch(
                voter=self._voters.current.key(voter_id), leader_id=role.leader_id, epoch=role.epoch
            )
            if not self._requests.send_if_free(voter_id, begin, now_ms):
                waiting.append(voter_id)
        leadership.unannounced = tuple(waiting)

    def _observe(self, role: Follower | Unattached, now_ms: int) -> None:
        """Fetch from the leader; while it does not answer, ask the voters in turn who leads."""
        if not self._may_fetch() or self._requests.any_in_flight():
            return
        if (
            isinstance(role, Follower)
            and now_ms < role.fetch_deadline_ms
            and self._requests.send_if_free(role.leader_id, self._fetch(role), now_ms)
        ):
            return
        peers = self._seed_ids
        for step in range(len(peers)):
            peer_id = peers[(self._rotation + step) % len(peers)]
            if self._requests.send_if_free(peer_id, self._plain_fetch(role.epoch), now_ms):
                self._rotation = (self._rotation + step + 1) % len(peers)
                return

    def _may_fetch(self) -> bool:
        """A voter's fetch acknowledges what it has on disk, so it waits for the sync; observers' offsets do not
        count."""
        must_sync = self._is_voter or self._config.can_vote
        return self._log.installing is None and (not must_sync or self._log.is_synced)

    def voter_change_due(self, role: Follower) -> VoterChange | None:
        """A change of this replica's own entry among the voters that it asks the leader for now (KIP-853).

        At level 0 each new leader gets the directory, listeners and versions, which it needs for level 1.
        """
        voters, local = self._voters.current, self._config.local_voter
        known = voters.voter(local.id)
        if self._voters.is_voter:
            is_known = known == local if self._voters.is_dynamic else role.has_updated_leader
            return None if is_known or not local.endpoints else UpdateVoter(epoch=role.epoch, voter=local)
        if not (self._voters.is_dynamic and self._config.can_vote and self._config.joins):
            return None
        if known is not None:
            return RemoveVoter(voter=known.key)
        return AddVoter(voter=local, ack_when_committed=False)

    def _vote(self, voter_id: int, role: Prospective | Candidate) -> Vote:
        return Vote(
            voter=self._voters.current.key(voter_id),
            candidate=self._config.local,
            epoch=role.epoch,
            log_end=self._log.history.end,
            pre_vote=isinstance(role, Prospective),
        )

    def _fetch(self, role: Follower) -> Fetch | FetchSnapshot:
        if role.download is None:
            return self._plain_fetch(role.epoch)
        return FetchSnapshot(
            replica=self._config.local,
            epoch=role.epoch,
            snapshot=role.download.snapshot,
            position=role.download.position,
        )

    def _plain_fetch(self, epoch: int) -> Fetch:
        return Fetch(
            replica=self._config.local,
            epoch=epoch,
            fetch_offset=self._log.history.end_offset,
            last_fetched_epoch=self._log.history.last_epoch,
            high_watermark=self._log.high_watermark,
            max_wait_ms=self._config.fetch_max_wait_ms,
        )
