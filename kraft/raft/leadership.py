"""State of a leader for one epoch, besides its role: progress of the others, its high watermark, and the voters that do
not know yet that it leads. Created when a replica becomes leader, dropped when it stops."""

from __future__ import annotations

from barnabas.kraft.raft.config import RaftConfig
from barnabas.kraft.raft.own_log import OwnLog
from barnabas.kraft.raft.progress import Progress
from barnabas.kraft.raft.voter_history import VoterHistory
from barnabas.kraft.raft.voters import VoterSet


class Leadership:
    """Mutable; owned by `Raft`. Times are its `now_ms`."""

    def __init__(self, config: RaftConfig, voters: VoterHistory, log: OwnLog, now_ms: int) -> None:
        self._period_ms = config.announce_period_ms
        self.progress = Progress(config.local, voters.current, config.check_quorum_timeout_ms, now_ms)
        self.progress.local_synced(log.synced_end_offset)
        self.high_watermark: int | None = None
        """Established in this epoch, None until then: an older one may be behind what the last leader reported to
        clients."""
        self.reported_voters: VoterSet | None = None
        """At level 0, the voters of the configuration with what they reported of themselves since this epoch began:
        an upgrade to level 1 writes them into the log. None from level 1 on."""
        if not voters.is_dynamic:
            self.reported_voters = voters.current.with_updated(config.local_voter, any_directory=True)
        self.unannounced: tuple[int, ...] = ()
        """Voters that get a BeginQuorumEpoch as soon as no other request to them is in flight."""
        self._announce_at_ms = now_ms

    @property
    def announce_at_ms(self) -> int | None:
        """Time of the next look for voters that do not fetch; None for an only voter."""
        is_alone = len(self.progress.voters) == 1 and self.progress.counts_itself
        return None if is_alone else self._announce_at_ms

    def advance(self, epoch_start_offset: int) -> int | None:
        """The new high watermark, if a majority got further and has the epoch's first record."""
        offset = self.progress.majority_offset()
        if offset is None or offset <= epoch_start_offset:
            return None
        if self.high_watermark is not None and offset <= self.high_watermark:
            return None
        self.high_watermark = offset
        return offset

    def find_silent(self, now_ms: int) -> None:
        """Once a period: voters that do not fetch get a BeginQuorumEpoch, perhaps again."""
        if self.announce_at_ms is not None and self.announce_at_ms <= now_ms:
            self.unannounced = self.progress.silent_voters(now_ms - self._period_ms)
            self._announce_at_ms = now_ms + self._period_ms
