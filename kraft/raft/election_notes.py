"""Turns transitions of Raft into decision notes: candidacies and their reasons, votes, leaders, resignations.

Decides nothing. Keeps only the reason of the current election and the candidates that were refused in it.
"""

from __future__ import annotations

from barnabas.kraft.raft.history import OffsetAndEpoch
from barnabas.kraft.raft.messages import Vote
from barnabas.runtime.decisions import DecisionKind, Fact, Note, Notes

QUORUM = "quorum"
MAX_REFUSED = 20
"""Refusals that are noted in one epoch."""


class ElectionNotes:
    """Decision notes of one replica. `take` returns the new ones."""

    def __init__(self, node_id: int, *, is_controller: bool) -> None:
        self._name = f"controller {node_id}" if is_controller else f"broker {node_id}"
        self._notes = Notes()
        self._cause = ""
        """Reason of this replica's candidacy, or of one that may follow."""
        self._attempts = 0
        """Candidacies in a row without a leader since."""
        self._refused: dict[tuple[int, str], None] = {}
        self._refused_in = -1
        """Epoch of the refusals in `_refused`."""

    def take(self) -> Notes:
        """Notes since the last call."""
        notes, self._notes = self._notes, Notes()
        return notes

    def _note(
        self,
        what: str,
        *,
        cause: str,
        also: str = "",
        kind: DecisionKind = DecisionKind.QUORUM,
        routine: bool = False,
        **facts: Fact,
    ) -> None:
        """Every note is about the quorum and this replica; `also` is a third subject."""
        names = (self._name, also) if also else (self._name,)
        self._notes.keep(Note(kind, QUORUM, what, names, cause, facts, routine))

    def leader_is_well(self) -> None:
        """The leader answered a fetch."""
        self._attempts = 0
        self._cause = ""

    def leader_doubted(self, cause: str) -> None:
        """There is evidence that the leader no longer leads: the reason of a candidacy that follows."""
        self._cause = cause

    def stands(self, epoch: int, leader_id: int | None, log_end: OffsetAndEpoch, otherwise: str) -> None:
        """It asks for pre-votes, because of `otherwise` if no other reason is known. Of attempts in a row only the
        first, second, fourth … is noted."""
        self._cause = self._cause or otherwise
        self._attempts += 1
        if self._attempts & (self._attempts - 1):
            return
        again = "" if self._attempts == 1 else f", its attempt {self._attempts}"
        self._note(
            f"{self._name} asks in epoch {epoch} whether it would be elected{again}",
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
        """Noted once for each candidate and epoch, for its pre-vote and for its vote. Anybody may ask, so these notes
        are routine: they push out no others."""
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
            cause=f"{self._name} learned of it, and fetches from it",
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
            cause=f"controller {leader_id} no longer has records as old as {log_end_offset}, the end of its log",
            kind=DecisionKind.LOG,
            offset=snapshot.offset,
            log_end_offset=log_end_offset,
        )
