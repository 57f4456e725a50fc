"""Core: decision notes of share partitions: where they start, why they are dropped, and what is not delivered."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.broker.groups.decision_notes import subject_of
from barnabas.broker.shares.in_flight import OffsetRange
from barnabas.broker.shares.share_partition import DeadLetters
from barnabas.protocol.errors import KafkaError
from barnabas.runtime.decisions import DecisionKind, Notepad


def note_loaded(notes: Notepad, group_id: str, name: str, offsets: tuple[int, int], cause: str) -> None:
    """`name`: `flights-3`. `offsets`: start and end offset."""
    group, (start, end) = subject_of(group_id), offsets
    notes.note(
        DecisionKind.LIFECYCLE,
        group,
        f"{group} reads {name} from offset {start} on",
        also=[name],
        cause=cause,
        start_offset=start,
        end_offset=end,
        routine=True,
    )


def note_dropped(notes: Notepad, group_id: str, name: str, cause: str) -> None:
    group = subject_of(group_id)
    text = f"{group} loses its acquisition locks on {name}"
    notes.note(DecisionKind.LIFECYCLE, group, text, also=[name], cause=cause, routine=True)


def note_given_up(notes: Notepad, group_id: str, name: str, given_up: Sequence[OffsetRange], limit: int) -> None:
    """Records were delivered as often as allowed, and nobody has accepted them."""
    group, count = subject_of(group_id), sum(last - first + 1 for first, last in given_up)
    first, last = given_up[0].first_offset, given_up[-1].last_offset
    notes.note(
        DecisionKind.REBALANCE,
        group,
        f"{group} gives up {count} records of {name} between offsets {first} and {last}",
        also=[name],
        cause=f"each was delivered {limit} times, as share.delivery.count.limit allows, and not accepted",
        records=count,
        first_offset=first,
        last_offset=last,
        routine=True,
    )


def note_removed_from_log(notes: Notepad, group_id: str, name: str, offsets: tuple[int, int]) -> None:
    """`offsets`: start offset of the share partition before, and now."""
    group, (before, now) = subject_of(group_id), offsets
    notes.note(
        DecisionKind.LIFECYCLE,
        group,
        f"{group} continues with {name} at offset {now} instead of {before}",
        also=[name],
        cause="the log does not have the records before any more: retention or DeleteRecords removed them",
        start_offset=now,
        start_offset_before=before,
        routine=True,
    )


def note_not_copied(
    notes: Notepad, group_id: str, name: str, letters: Sequence[DeadLetters], error: KafkaError
) -> None:
    """The copy is tried again, and until then the records are not archived."""
    group, first, last = subject_of(group_id), letters[0].first_offset, letters[-1].last_offset
    notes.note(
        DecisionKind.LIFECYCLE,
        group,
        f"{group} keeps records of {name} between offsets {first} and {last}: they have no dead letter yet",
        also=[name],
        cause=f"{error.code.name}: {error.message}" if error.message else error.code.name,
        first_offset=first,
        last_offset=last,
    )
