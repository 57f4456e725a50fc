"""Core: the topics of a share group by the life of their states at the share coordinator (KIP-932).

A state is initialized before its partition is assigned for the first time, and deleted with the group or with the
group's offsets of the topic. Each change is one record with all topics of the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from barnabas.broker.groups.consumer_member import Partitions
from barnabas.protocol.messages.group_log import (
    ShareGroupStatePartitionMetadataTopicInfo,
    ShareGroupStatePartitionMetadataValue,
    TopicPartitionsInfo,
)


class TopicStates(NamedTuple):
    """Partitions of one topic."""

    name: str
    partitions: frozenset[int]


States = Mapping[bytes, TopicStates]
"""By topic id."""


@dataclass(frozen=True, slots=True)
class ShareTopics:
    """The states of a group's share partitions."""

    initializing: States = field(default_factory=dict)
    initialized: States = field(default_factory=dict)
    deleting: Mapping[bytes, str] = field(default_factory=dict)
    """Names by topic id."""

    @classmethod
    def from_record(cls, value: ShareGroupStatePartitionMetadataValue) -> ShareTopics:
        return cls(
            _from_infos(value.initializing_topics),
            _from_infos(value.initialized_topics),
            {topic.topic_id: topic.topic_name for topic in value.deleting_topics},
        )

    def value(self) -> ShareGroupStatePartitionMetadataValue:
        return ShareGroupStatePartitionMetadataValue(
            initializing_topics=_to_infos(self.initializing),
            initialized_topics=_to_infos(self.initialized),
            deleting_topics=[
                ShareGroupStatePartitionMetadataTopicInfo(topic_id=topic_id, topic_name=name)
                for topic_id, name in self.deleting.items()
            ],
        )

    def partitions(self) -> Partitions:
        """The partitions that may be assigned."""
        return {topic_id: states.partitions for topic_id, states in self.initialized.items()}

    # -- changes

    def beginning(self, states: States) -> ShareTopics:
        """The states are being initialized."""
        deleting = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in states}
        return replace(self, initializing=_united(self.initializing, states), deleting=deleting)

    def initialized_now(self, states: States) -> ShareTopics:
        return replace(
            self, initializing=_without(self.initializing, states), initialized=_united(self.initialized, states)
        )

    def given_up(self, states: States) -> ShareTopics:
        """The initialization of these failed; the next heartbeat begins again."""
        return replace(self, initializing=_without(self.initializing, states))

    def deleting_these(self, topic_ids: Iterable[bytes]) -> ShareTopics:
        """The states of these topics are being deleted."""
        chosen = set(topic_ids)
        known = {**self.initializing, **self.initialized}
        names = {topic_id: known[topic_id].name for topic_id in chosen if topic_id in known}
        return ShareTopics(
            {topic_id: it for topic_id, it in self.initializing.items() if topic_id not in chosen},
            {topic_id: it for topic_id, it in self.initialized.items() if topic_id not in chosen},
            {**self.deleting, **names},
        )

    def without(self, topic_ids: Iterable[bytes]) -> ShareTopics:
        """The topics, or their states, do not exist any more."""
        gone = set(topic_ids)
        return ShareTopics(
            {topic_id: it for topic_id, it in self.initializing.items() if topic_id not in gone},
            {topic_id: it for topic_id, it in self.initialized.items() if topic_id not in gone},
            {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in gone},
        )


def _united(one: States, other: States) -> dict[bytes, TopicStates]:
    united = dict(one)
    for topic_id, states in other.items():
        before = united.get(topic_id)
        if before is not None:
            states = states._replace(partitions=before.partitions | states.partitions)
        united[topic_id] = states
    return united


def _without(one: States, other: States) -> dict[bytes, TopicStates]:
    left = dict(one)
    for topic_id, states in other.items():
        if topic_id in left:
            left[topic_id] = left[topic_id]._replace(partitions=left[topic_id].partitions - states.partitions)
            if not left[topic_id].partitions:
                del left[topic_id]
    return left


def _from_infos(infos: Iterable[TopicPartitionsInfo]) -> dict[bytes, TopicStates]:
    return {it.topic_id: TopicStates(it.topic_name, frozenset(it.partitions)) for it in infos}


def _to_infos(states: States) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id=topic_id, topic_name=it.name, partitions=sorted(it.partitions))
        for topic_id, it in states.items()
    ]
