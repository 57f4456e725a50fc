"""Taking back who was eligible to lead without being in sync (KIP-966), and telling whom that costs."""

from __future__ import annotations

from collections.abc import Iterable

from kraft.controller.partition_notes import note_change
from kraft.controller.partitions import MAX_CHANGES_TOLD
from kraft.controller.state import ControllerState
from kraft.metadata.image import TopicImage
from protocol.messages.metadata_log import ClearElrRecord, PartitionChangeRecord
from protocol.schema import Message
from runtime.decisions import DecisionKind


def clear_of_topic(state: ControllerState, topic_name: str, cause: str) -> list[Message]:
    """Nobody of the topic is eligible any more."""
    _note_cleared(state, [state.image.topics.by_name[topic_name]], cause, f"topic {topic_name}")
    return [ClearElrRecord(topic_name=topic_name)]


def clear_of_all(state: ControllerState, cause: str) -> list[Message]:
    """Nobody is eligible any more, wherever."""
    _note_cleared(state, state.image.topics.by_name.values(), cause, "quorum")
    return [ClearElrRecord()]


def _note_cleared(state: ControllerState, topics: Iterable[TopicImage], cause: str, subject: str) -> None:
    count = 0
    for topic in topics:
        for partition_id, partition in topic.partitions.items():
            if not partition.elr:
                continue
            count += 1
            if count <= MAX_CHANGES_TOLD:
                cleared = PartitionChangeRecord(eligible_leader_replicas=[], last_known_elr=[])
                who = tuple(f"broker {it}" for it in partition.elr)
                note_change(state, (topic, partition_id, partition), cleared, cause, also=who)
    if count > MAX_CHANGES_TOLD:
        told = f"{count - MAX_CHANGES_TOLD} more partitions have no eligible leader replicas any more"
        state.notes.note(DecisionKind.ISR, subject, told, cause=cause, partitions=count)
