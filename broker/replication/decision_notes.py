"""Core: decision notes of a partition's replica: leadership, ISR changes, truncations, and their causes.

Texts only; the replica core and the follower core made the decisions.
"""

from __future__ import annotations

from barnabas.broker.replication.replica import IsrChangeWanted, Replica
from barnabas.runtime.decisions import DecisionKind, Notepad


def note_leading(notepad: Notepad, name: str, replica: Replica, start_offset: int) -> None:
    """This replica leads, or leads in a new epoch."""
    notepad.note(
        DecisionKind.ELECTION,
        name,
        f"broker {replica.node_id} leads {name} in epoch {replica.leader_epoch} from offset {start_offset} on",
        cause="the metadata log says so",
        leader=replica.node_id,
        leader_epoch=replica.leader_epoch,
        isr=sorted(replica.isr),
        offset=start_offset,
        high_watermark=replica.high_watermark,
        hearsay=2,
    )


def note_deposed(notepad: Notepad, name: str, replica: Replica) -> None:
    """This replica no longer leads."""
    end = replica.log_end_offset
    notepad.note(
        DecisionKind.ELECTION,
        name,
        f"broker {replica.node_id} no longer leads {name} since epoch {replica.leader_epoch}",
        cause=f"the metadata log says so; its own log ends at {end}, its high watermark is {replica.high_watermark}",
        leader_epoch=replica.leader_epoch,
        offset=end,
        high_watermark=replica.high_watermark,
        hearsay=2,
    )


def note_isr_wanted(notepad: Notepad, name: str, replica: Replica, wanted: IsrChangeWanted) -> None:
    """The leader asks the controller for another ISR."""
    members, present = sorted(wanted.members), sorted(replica.isr)
    end = replica.log_end_offset
    causes = []
    for node_id, offset, behind_ms in wanted.because_of:
        if node_id in wanted.members:
            since = f"the high watermark is {replica.high_watermark} and the log ends at {end}"
            causes.append(f"replica {node_id} has caught up: it is at offset {offset}, {since}")
        else:
            late = "has never caught up" if behind_ms is None else f"has not caught up for {behind_ms} ms"
            at = f"is at offset {offset} of {end}" if offset >= 0 else f"has fetched nothing, the log ends at {end}"
            causes.append(
                f"replica {node_id} {late}, {replica.settings.replica_lag_time_max_ms} ms are allowed; it {at}"
            )
    notepad.note(
        DecisionKind.ISR,
        name,
        f"broker {replica.node_id}, the leader of {name}, asks for ISR {members} instead of {present}",
        cause="; ".join(causes),
        leader=replica.node_id,
        leader_epoch=wanted.leader_epoch,
        partition_epoch=wanted.partition_epoch,
        isr=present,
        isr_wanted=members,
        offset=end,
        high_watermark=replica.high_watermark,
        replica_offsets=[it[1] for it in wanted.because_of],
        replica_behind_ms=[-1 if it[2] is None else it[2] for it in wanted.because_of],
    )


def note_isr_refused(notepad: Notepad, name: str, replica: Replica, wanted: IsrChangeWanted, code: str) -> None:
    """The controller refused the proposed ISR."""
    notepad.note(
        DecisionKind.ISR,
        name,
        f"the controller refuses ISR {sorted(wanted.members)} of {name}",
        cause=f"it answered broker {replica.node_id} with {code}",
        leader_epoch=wanted.leader_epoch,
        partition_epoch=wanted.partition_epoch,
        isr_wanted=sorted(wanted.members),
    )


def note_truncation(notepad: Notepad, name: str, replica: Replica, ends: tuple[int, int], cause: str) -> None:
    """`ends`: the log end offset before and after."""
    before, after = ends
    committed = replica.high_watermark
    lost = f"{before - after} records are removed that the in-sync replicas never all acknowledged"
    if after < committed:
        lost = f"its own high watermark {committed} is above that: committed records are lost"
    notepad.note(
        DecisionKind.TRUNCATION,
        name,
        f"broker {replica.node_id} truncates its log of {name} from {before} to {after}",
        also=(f"broker {replica.node_id}",),
        cause=f"{cause}; {lost}",
        leader=replica.leader_id,
        leader_epoch=replica.leader_epoch,
        offset_before=before,
        offset=after,
        high_watermark=committed,
    )
