"""What a replica of the metadata log tells of elections: who stands and why, who votes, who leads, who gives up.

The Raft core tells it what happens, in its own words; it makes notes for people of it. It decides nothing, and keeps
nothing but the reason of the election that is under way, and who was told of in it.
"""

from __future__ import annotations

from kraft.raft.history import OffsetAndEpoch
from kraft.raft.messages import Vote
from runtime.decisions import DecisionKind, Fact, Note, Notes

QUORUM = "quorum"
MAX_REFUSED = 20
"""Refusals that are told in one epoch."""


class Story:
    """One replica's. `take` gives what is new."""

    def __init__(self, node_id: int, *, is_voter: bool) -> None:
        self._name = f"controller {node_id}" if is_voter else f"broker {node_id}"
        self._notes = Notes()
        self._cause = ""
        """Why this replica stands, or would."""
        self._attempts = 0
        """How often in a row it stood in vain, or without an end so far."""
        self._refused: dict[tuple[int, str], None] = {}
        self._refused_in = -1
        """Who was refused what, in one epoch."""

    def take(self) -> Notes:
        """What happened since the last call."""
        notes, self._notes = self._notes, Notes()
        return notes

    def _note(
        self,
        told: str,
        *,
        cause: str,
        also: str = "",
        kind: DecisionKind = DecisionKind.QUORUM,
        routine: bool = False,
        **facts: Fact,
    ) -> None:
        """All that is told here is of the quorum and of this replica; `also` is who else it is of."""
        names = (self._name, also) if also else (self._name,)
        self._notes.keep(Note(kind, QUORUM, told, names, cause, facts, routine))

    def leader_is_well(self) -> None:
        """It answered."""
        self._attempts = 0
        self._cause = ""

    def leader_doubted(self, cause: str) -> None:
        """There is evidence that the leader leads no more: once this replica stands, it is for that."""
        self._cause = cause

    def stands(self, epoch: int, leader_id: int | None, log_end: OffsetAndEpoch, otherwise: str) -> None:
        """It asks for pre-votes, for `otherwise` if nothing else is known. Of many attempts in a row only the first,
        second, fourth … is told."""
        self._cause = self._cause or otherwise
        self._attempts += 1
        if self._attempts & (self._attempts - 1):
            return
        again = "" if self._attempts == 1 else f", its attempt {self._attempts}"
        told = f"{self._name} asks in epoch {epoch} whether it would be elected{again}"
        self._note(
            told,
            cause=self._cause,
            epoch=epoch,
            leader=leader_id,
            log_end_offset=log_end.offset,
            log_end_epoch=log_end.epoch,
            attempt=self._attempts,
        )

    def is_candidate(self, epoch: int, pre_votes: tuple[int, ...], log_end: OffsetAndEpoch) -> None:
        if self._attempts & (self._attempts - 1):
            return
        self._note(
            f"{self._name} stands for election in epoch {epoch}",
            cause=f"{self._cause}; {list(pre_votes)} would vote for it",
            epoch=epoch,
            votes=pre_votes,
            log_end_offset=log_end.offset,
            log_end_epoch=log_end.epoch,
        )

    def votes(self, candidate_id: int, epoch: int, log_end: OffsetAndEpoch) -> None:
        self._note(
            f"{self._name} votes for controller {candidate_id} in epoch {epoch}",
            also=f"controller {candidate_id}",
            cause="it had no vote in that epoch yet, and the candidate's log has all that its own has",
            epoch=epoch,
            log_end_offset=log_end.offset,
            log_end_epoch=log_end.epoch,
        )

    def refuses(self, request: Vote, log_end: OffsetAndEpoch, cause: str) -> None:
        """Told once for each candidate and epoch, of its pre-vote and of its vote; and, as anybody may ask, as
        something that pushes out nothing."""
        if request.epoch != self._refused_in:
            self._refused_in = request.epoch
            self._refused.clear()
        what = "would not vote" if request.pre_vote else "does not vote"
        if (request.candidate.id, what) in self._refused or len(self._refused) >= MAX_REFUSED:
            return
        self._refused[request.candidate.id, what] = None
        self._note(
            f"{self._name} {what} for controller {request.candidate.id} in epoch {request.epoch}",
            also=f"controller {request.candidate.id}",
            cause=cause,
            routine=True,
            epoch=request.epoch,
            log_end_offset=log_end.offset,
            log_end_epoch=log_end.epoch,
            its_log_end_offset=request.log_end.offset,
            its_log_end_epoch=request.log_end.epoch,
        )

    def leads(self, epoch: int, votes: tuple[int, ...], start_offset: int) -> None:
        cause = f"{self._cause}; elected by {list(votes)}"
        self._note(
            f"{self._name} leads the quorum in epoch {epoch}",
            cause=cause,
            leader_epoch=epoch,
            leader=int(self._name.rpartition(" ")[2]),
            votes=votes,
            offset=start_offset,
        )
        self.leader_is_well()

    def follows(self, leader_id: int, epoch: int, log_end: OffsetAndEpoch) -> None:
        self._note(
            f"controller {leader_id} leads the quorum in epoch {epoch}",
            also=f"controller {leader_id}",
            cause=f"so {self._name} heard, and fetches from it",
            leader_epoch=epoch,
            leader=leader_id,
            log_end_offset=log_end.offset,
            hearsay=2,
        )
        self.leader_is_well()

    def resigns(self, epoch: int, cause: str) -> None:
        self._note(
            f"{self._name} resigns as leader of epoch {epoch}",
            cause=cause,
            epoch=epoch,
        )
        self._cause = ""

    def cuts(self, before_offset: int, offset: int, leader_id: int | None, epoch: int) -> None:
        self._note(
            f"{self._name} cuts its metadata log from {before_offset} to {offset}",
            cause=f"from there on controller {leader_id}, the leader of epoch {epoch}, has other records",
            kind=DecisionKind.TRUNCATION,
            epoch=epoch,
            offset_before=before_offset,
            offset=offset,
        )

    def takes_snapshot(self, snapshot: OffsetAndEpoch, log_end_offset: int, leader_id: int) -> None:
        self._note(
            f"{self._name} replaces its metadata log by a snapshot up to {snapshot.offset}",
            cause=f"controller {leader_id} has no records as old as {log_end_offset}, where its log ends, any more",
            kind=DecisionKind.LOG,
            offset=snapshot.offset,
            log_end_offset=log_end_offset,
        )
