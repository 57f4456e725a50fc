"""The follower's side of replication: fetched records, truncation, download of snapshots (KIP-595, KIP-630)."""

from __future__ import annotations

from dataclasses import replace

from barnabas.kraft.raft.config import RaftConfig
from barnabas.kraft.raft.elections import Elections
from barnabas.kraft.raft.messages import FetchAnswer, FetchSnapshotAnswer, VoterChangeAnswer
from barnabas.kraft.raft.own_log import OwnLog
from barnabas.kraft.raft.requests import Requests
from barnabas.kraft.raft.roles import Follower, SnapshotDownload
from barnabas.kraft.raft.voter_history import VoterHistory
from barnabas.protocol.errors import ErrorCode


class Following:
    """Handles the answers of the leader. Owned by `Raft`; its state is the role and the log."""

    def __init__(
        self, config: RaftConfig, voters: VoterHistory, log: OwnLog, requests: Requests, elections: Elections
    ) -> None:
        self._config = config
        self._voters = voters
        self._log = log
        self._requests = requests
        self._elections = elections

    def take_fetched(self, peer_id: int, answer: FetchAnswer) -> None:
        role = self._elections.role
        if not isinstance(role, Follower) or role.leader_id != peer_id:
            self.rest(peer_id)
            return
        if answer.error is not ErrorCode.NONE:
            self.rest(peer_id)
            if answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                # A leader that has stopped leading an epoch never leads it again.
                place = self._voters.current.place(self._config.local.id, without=peer_id)
                cause = f"controller {peer_id} answered that it does not lead epoch {role.epoch} now"
                self._elections.doubt_leader(place, cause)
            return
        download: SnapshotDownload | None = None
        if answer.diverging is not None:
            self._truncate(role, self._log.history.truncation_offset(answer.diverging))
        elif answer.snapshot is not None:
            if not self._log.is_wanted(answer.snapshot):
                self.rest(peer_id)
                return
            download = SnapshotDownload(snapshot=answer.snapshot)
            self._elections.notes.takes_snapshot(answer.snapshot, self._log.history.end_offset, peer_id)
            self._log.start_snapshot(answer.snapshot)
        elif not self._log.append_fetched(answer.spans, role.epoch):
            self.rest(peer_id)
            return
        else:
            self._voters.add(answer.quorum_records)
            if answer.high_watermark is not None:
                self._log.raise_high_watermark(min(answer.high_watermark, self._log.history.end_offset))
        self._leader_answered(role, download)

    def _leader_answered(self, role: Follower, download: SnapshotDownload | None) -> None:
        deadline = self._elections.now_ms + self._config.fetch_timeout_ms
        self._elections.leader_known()
        self._requests.was_of_use()
        self._elections.notes.leader_is_well()
        self._elections.role = replace(
            role, fetch_deadline_ms=deadline, has_fetched=True, leader_gone=False, download=download
        )

    def _truncate(self, role: Follower, offset: int) -> None:
        before = self._log.history.end_offset
        self._log.truncate(offset, f"leader {role.leader_id} of epoch {role.epoch}")
        self._voters.truncate_to(offset)
        if offset < before:
            self._elections.notes.cuts(before, offset, role.leader_id, role.epoch)

    def take_snapshot_chunk(self, peer_id: int, answer: FetchSnapshotAnswer) -> None:
        role = self._elections.role
        if not isinstance(role, Follower) or role.leader_id != peer_id or role.download is None:
            return
        download = role.download
        if answer.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
            # A newer snapshot replaced it: a fetch names that one.
            self._leader_answered(role, None)
            return
        end = download.position + answer.count
        if (
            answer.error is not ErrorCode.NONE
            or (answer.snapshot, answer.position) != (download.snapshot, download.position)
            or answer.count <= 0
            or end > answer.size_bytes
        ):
            self._requests.rest(peer_id, self._elections.now_ms)
            return
        self._log.write_chunk(download.snapshot, download.position)
        if end < answer.size_bytes:
            self._leader_answered(role, replace(download, position=end))
            return
        self._log.install_snapshot(download.snapshot)
        self._leader_answered(role, None)

    def take_voter_change(self, peer_id: int, answer: VoterChangeAnswer) -> None:
        """The leader answered what this replica asked about its own entry among the voters."""
        role, now_ms = self._elections.role, self._elections.now_ms
        if not isinstance(role, Follower) or role.leader_id != peer_id:
            return
        if answer.error in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION) and answer.epoch == role.epoch:
            role = replace(role, has_updated_leader=True, fetch_deadline_ms=now_ms + self._config.fetch_timeout_ms)
        self._elections.role = replace(role, update_voter_at_ms=now_ms + self._config.update_voter_period_ms)

    def rest(self, peer_id: int) -> None:
        """The peer's answer was useless: back off. Observers back off longer while the voters cannot agree."""
        if self._elections.is_voter:
            self._requests.rest(peer_id, self._elections.now_ms)
        else:
            self._requests.rest_longer(peer_id, self._elections.now_ms)
