"""Core: Kafka's assignors by name, and their selection by a setting."""

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
    """Assigns all partitions in turn to the members."""

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
    """Assignors by name, in the order of preference. ConfigException for an unknown name, a duplicate, or none at
    all."""
    assignors: dict[str, Assignor] = {}
    for option in options:
        if isinstance(option, str):
            if option not in ASSIGNORS:
                raise ConfigException(
                    f"partition_assignment_strategy must be among {', '.join(ASSIGNORS)} or an Assignor; got {option!r}"
                )
            assignor = ASSIGNORS[option]()
        else:
            assignor = option() if isinstance(option, type) else option
        if not isinstance(assignor, Assignor) or not assignor.name:
            raise ConfigException(
                f"partition_assignment_strategy must have Assignor objects with a name; got {option!r}"
            )
        if assignor.name in assignors:
            raise ConfigException(
                f"partition_assignment_strategy must not repeat an assignor; got {assignor.name} twice"
            )
        assignors[assignor.name] = assignor
    if not assignors:
        raise ConfigException("partition_assignment_strategy must have at least one assignor; got none")
    return assignors
