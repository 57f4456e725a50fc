"""Core: the partitions behind the endpoints of a streams group's members, for interactive queries (KIP-1071).

Members get the whole list whenever it has changed. Entries are kept until their member changes, because a group may
have thousands of members; a heartbeat computes a bounded number of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.broker.groups.streams.configured_topology import ConfiguredSubtopology
from barnabas.broker.groups.streams.member import StreamsMember
from barnabas.broker.groups.streams.tasks import number_of
from barnabas.kraft.metadata.image import TopicsImage
from barnabas.protocol.messages.streams_group_heartbeat import Endpoint, EndpointToPartitions, TopicPartition

MOST_NEW = 1000
"""Tasks and members whose entries one heartbeat computes."""


class EndpointPartitions:
    """Soft state of one group."""

    __slots__ = ("_entries", "epoch")

    def __init__(self) -> None:
        self.epoch = 0
        """Grows whenever an entry changes; a new coordinator begins at 0."""
        self._entries: dict[str, EndpointToPartitions] = {}

    def changed(self, member: StreamsMember) -> None:
        """The member has other tasks now."""
        self.forget(member.member_id)
        if member.endpoint is not None:
            self.epoch += 1

    def forget(self, member_id: str) -> None:
        self._entries.pop(member_id, None)

    def forget_all(self) -> None:
        self._entries.clear()

    def entries(
        self,
        members: Iterable[StreamsMember],
        subtopologies: Mapping[str, ConfiguredSubtopology],
        topics: TopicsImage,
    ) -> list[EndpointToPartitions] | None:
        """Entries of the members that have an endpoint; None if there is more to compute than one step allows: the next
        heartbeat continues."""
        found: list[EndpointToPartitions] = []
        new = 0
        for member in members:
            if member.endpoint is None:
                continue
            entry = self._entries.get(member.member_id)
            if entry is None:
                if new >= MOST_NEW:
                    return None
                new += 1 + number_of(member.assigned.active) + number_of(member.assigned.standby)
                entry = self._entries[member.member_id] = EndpointToPartitions(
                    user_endpoint=Endpoint(host=member.endpoint.host, port=member.endpoint.port),
                    active_partitions=_partitions(member.assigned.active, subtopologies, topics),
                    standby_partitions=_partitions(member.assigned.standby, subtopologies, topics),
                )
            found.append(entry)
        return found


def _partitions(
    tasks: Mapping[str, Iterable[int]], subtopologies: Mapping[str, ConfiguredSubtopology], topics: TopicsImage
) -> list[TopicPartition]:
    """Partitions of source topics, of which some may have fewer than the subtopology has tasks."""
    found: list[TopicPartition] = []
    for subtopology_id in sorted(tasks):
        subtopology = subtopologies.get(subtopology_id)
        partitions = sorted(tasks[subtopology_id])
        for name in () if subtopology is None else subtopology.sources:
            topic = topics.by_name.get(name)
            if topic is not None:
                existing = [it for it in partitions if it < len(topic.partitions)]
                found.append(TopicPartition(topic=name, partitions=existing))
    return found
