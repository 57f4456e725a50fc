"""Kafka's assignors by name, and how a setting names one. A core."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from barnabas.client.errors import ConfigException
from barnabas.client.groups.assignor import (
    Assignment,
    Assignor,
    GroupTopics,
    Subscriber,
    ranked,
    subscribed_topics,
)
from barnabas.client.groups.range_assignor import RangeAssignor
from barnabas.client.groups.sticky_assignor import CooperativeStickyAssignor, StickyAssignor
from barnabas.client.metadata import TopicPartition


class RoundRobinAssignor(Assignor):
    """All partitions in a row, dealt to the members in a circle."""

    name = "roundrobin"

    def assign(self, members: Sequence[Subscriber], topics: GroupTopics) -> Assignment:
        assignment: Assignment = {member.member_id: [] for member in members}
        order = ranked(members)
        place = 0
        for topic in subscribed_topics(members):
            for index in range(topics.count(topic)):
                while topic not in order[place % len(order)].topics:
                    place += 1
                assignment[order[place % len(order)].member_id].append(TopicPartition(topic, index))
                place += 1
        return assignment


ASSIGNORS: dict[str, type[Assignor]] = {
    assignor.name: assignor
    for assignor in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}

AssignorOption = str | Assignor | type[Assignor]
"""A name (`ASSIGNORS`), an object, or a class that is called without arguments."""


def assignors_of(options: Iterable[AssignorOption]) -> dict[str, Assignor]:
    """By name, in the order of preference. ConfigException for an unknown name, none at all, or one name twice."""
    assignors: dict[str, Assignor] = {}
    for option in options:
        if isinstance(option, str):
            if option not in ASSIGNORS:
                raise ConfigException(
                    f"partition_assignment_strategy: {option!r} is unknown; there are {', '.join(ASSIGNORS)}"
                )
            assignor = ASSIGNORS[option]()
        else:
            assignor = option() if isinstance(option, type) else option
        if not isinstance(assignor, Assignor) or not assignor.name:
            raise ConfigException(f"partition_assignment_strategy: {option!r} is no Assignor with a name")
        if assignor.name in assignors:
            raise ConfigException(f"partition_assignment_strategy: {assignor.name} is named twice")
        assignors[assignor.name] = assignor
    if not assignors:
        raise ConfigException("partition_assignment_strategy is empty")
    return assignors
