"""Clearing of eligible leader replicas (KIP-966), and the decision notes of it."""

from __future__ import annotations

from collections.abc import Iterable

from kraft.controller.partition_notes import note_change
from kraft.controller.partitions import MAX_CHANGES_NOTED, PARTITIONS_PER_ITEM
from kraft.controller.state import ControllerState, Steps
from kraft.metadata.image import TopicImage
from protocol.messages.metadata_log import ClearElrRecord, PartitionChangeRecord
from protocol.schema import Message
from runtime.decisions import DecisionKind


def clear_of_topic(state: ControllerState, topic_name: str, cause: str) -> Steps[list[Message]]:
    """The record that clears the ELRs of a topic."""
    yield from _note_cleared(state, [state.image.topics.by_name[topic_name]], cause, f"topic {topic_name}")
    return [ClearElrRecord(topic_name=topic_name)]


def clear_of_all(state: ControllerState, cause: str) -> Steps[list[Message]]:
    """The record that clears the ELRs of all topics."""
    yield from _note_cleared(state, state.image.topics.by_name.values(), cause, "quorum")
    return [ClearElrRecord()]


def _note_cleared(state: ControllerState, topics: Iterable[TopicImage], cause: str, subject: str) -> Steps[None]:
    count = seen = 0
    for topic in topics:
        for partition_id, partition in topic.partitions.items():
            seen += 1
            if seen % PARTITIONS_PER_ITEM == 0 and state.pace.is_full():
                yield None
            if not partition.elr:
                continue
            if state.pace.is_full():
                yield None
            count += 1
            if count <= MAX_CHANGES_NOTED:
                cleared = PartitionChangeRecord(eligible_leader_replicas=[], last_known_elr=[])
                brokers = tuple(f"broker {it}" for it in partition.elr)
                note_change(state, (topic, partition_id, partition), cleared, cause, also=brokers)
    if count > MAX_CHANGES_NOTED:
        what = f"{count - MAX_CHANGES_NOTED} more partitions no longer have eligible leader replicas"
        state.notes.note(DecisionKind.ISR, subject, what, cause=cause, partitions=count)
