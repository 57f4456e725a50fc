"""State of a leader for one epoch, besides its role: progress of the others, its high watermark, and the voters that do
not know yet that it leads. Created when a replica becomes leader, dropped when it stops."""

from __future__ import annotations

from barnabas.kraft.raft.config import RaftConfig
from barnabas.kraft.raft.own_log import OwnLog
from barnabas.kraft.raft.progress import Progress
from barnabas.kraft.raft.voters import VoterSet


class Leadership:
    """Mutable; owned by `Raft`. Times are its `now_ms`."""

    def __init__(self, config: RaftConfig, voters: VoterSet, log: OwnLog, now_ms: int) -> None:
        self._period_ms = config.announce_period_ms
        self.progress = Progress(config.local.id, voters, config.check_quorum_timeout_ms, now_ms)
        self.progress.local_synced(log.synced_end_offset)
        self.high_watermark: int | None = None
        """Established in this epoch, None until then: an older one may be behind what the last leader reported to
        clients."""
        self.unannounced: tuple[int, ...] = ()
        """Voters that get a BeginQuorumEpoch as soon as no other request to them is in flight."""
        self.announce_at_ms: int | None = now_ms if len(voters.keys) > 1 else None
        """Time of the next look for voters that do not fetch; None for an only voter."""

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
            self.announce_at_ms = now_ms + self._period_ms
