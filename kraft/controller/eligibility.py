"""Clearing of eligible leader replicas (KIP-966), and the decision notes of it.

Partitions without a leader are not cleared. Nothing is committed in them, so their eligible replicas still have all
that was committed, whatever min.insync.replicas is now. Their ISR is empty, and without an ELR nobody could lead them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas.kraft.controller.partition_notes import Located, note_change
from barnabas.kraft.controller.partitions import MAX_CHANGES_NOTED, PARTITIONS_PER_ITEM
from barnabas.kraft.controller.state import ControllerState, Steps
from barnabas.kraft.metadata.image import LEADER_RECOVERING, LEADER_RECOVERY_NO_CHANGE, NO_LEADER, TopicImage
from barnabas.protocol.messages.metadata_log import ClearElrRecord, PartitionChangeRecord
from barnabas.protocol.schema import Message
from barnabas.runtime.decisions import DecisionKind


def clear_of_topic(state: ControllerState, topic_name: str, cause: str) -> Steps[list[Message]]:
    """The records that clear the ELRs of a topic, except for partitions without a leader."""
    clearing = ClearElrRecord(topic_name=topic_name)
    return (yield from _clear(state, [state.image.topics.by_name[topic_name]], clearing, cause, _keep))


def clear_of_all(state: ControllerState, cause: str) -> Steps[list[Message]]:
    """The records that clear the ELRs of all topics, except for partitions without a leader."""
    return (yield from _clear(state, state.image.topics.by_name.values(), ClearElrRecord(), cause, _keep))


def replace_by_isrs(state: ControllerState, cause: str) -> Steps[list[Message]]:
    """The records that clear all ELRs because the feature is disabled. Without it an ISR is never empty: a partition
    without a leader gets one of those that it waits for, the last known leader if it was still eligible."""
    return (yield from _clear(state, state.image.topics.by_name.values(), ClearElrRecord(), cause, _move_to_isr))


def _keep(located: Located) -> PartitionChangeRecord:
    topic, partition_id, partition = located
    return PartitionChangeRecord(
        topic_id=topic.id,
        partition_id=partition_id,
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
    )


def _move_to_isr(located: Located) -> PartitionChangeRecord:
    """A last known leader that is no longer eligible may lack records, so it leads in recovery."""
    topic, partition_id, partition = located
    waited_for = [it for it in partition.last_known_elr if it in partition.elr or not partition.elr] or partition.elr
    return PartitionChangeRecord(
        topic_id=topic.id,
        partition_id=partition_id,
        isr=[waited_for[0]],
        eligible_leader_replicas=[],
        last_known_elr=[],
        leader_recovery_state=LEADER_RECOVERY_NO_CHANGE if partition.elr else LEADER_RECOVERING,
    )


def _clear(
    state: ControllerState,
    topics: Iterable[TopicImage],
    clearing: ClearElrRecord,
    cause: str,
    change_leaderless: Callable[[Located], PartitionChangeRecord],
) -> Steps[list[Message]]:
    """`clearing`, which clears the ELRs of `topics`, then `change_leaderless` of each partition without a leader."""
    records: list[Message] = [clearing]
    count = 0
    for topic in topics:
        for partition_id, partition in topic.partitions.items():
            if state.pace.is_full(per_item=PARTITIONS_PER_ITEM):
                yield None
            # A partition that has a member in its ISR waits for that one.
            is_leaderless = partition.leader == NO_LEADER and not partition.isr
            if not (partition.elr or (is_leaderless and partition.last_known_elr)):
                continue
            if state.pace.is_full():
                yield None
            located = (topic, partition_id, partition)
            change = PartitionChangeRecord(eligible_leader_replicas=[], last_known_elr=[])
            if is_leaderless:
                change = change_leaderless(located)
                records.append(change)
            if not is_leaderless or change.isr is not None:
                count += 1
            if count <= MAX_CHANGES_NOTED:
                brokers = tuple(f"broker {it}" for it in partition.elr)
                note_change(state, located, change, cause, also=brokers)
    if count > MAX_CHANGES_NOTED:
        what = f"{count - MAX_CHANGES_NOTED} more partitions no longer have eligible leader replicas"
        subject = f"topic {clearing.topic_name}" if clearing.topic_name else "quorum"
        state.notes.note(DecisionKind.ISR, subject, what, cause=cause, partitions=count)
    return records
