"""Core: the topology of a streams group: its subtopologies with the topics that they read and write (KIP-1071).

Everything that grows with the topology is a generator of short steps, because a topology may have thousands of topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from barnabas.broker.groups.group_memory import size_of_names
from barnabas.broker.groups.limits import MOST_TOPOLOGY_ELEMENTS
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import streams_group_heartbeat as sent
from barnabas.protocol.messages.group_log import (
    CopartitionGroup,
    StreamsGroupTopologyTopicInfo,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
)
from barnabas.runtime.at_once import Stepwise, at_once

ELEMENTS_OF_ONE_STEP = 200
ELEMENT_BYTES = 300
"""Memory of one element, without its name."""


@dataclass(frozen=True, slots=True)
class Topology:
    """A topology as the group's record has it."""

    value: StreamsGroupTopologyValue
    """Must not be changed."""
    subtopologies: Mapping[str, Subtopology]
    """By id, in the order of ids."""
    reading: Mapping[str, str]
    """Source and repartition source topics, each with the id of a subtopology that reads it."""
    required: tuple[str, ...]
    """All topics that tasks need, in order: sources, repartition sources and changelogs."""
    only_written: tuple[str, ...]
    """Repartition sinks that no subtopology reads, in order. Not in a valid topology."""
    required_names: frozenset[str]
    size_bytes: int
    """Memory that it takes, about."""

    @property
    def epoch(self) -> int:
        return self.value.epoch

    def topics(self) -> Iterator[str]:
        """Every topic that the topology names."""
        yield from self.required
        yield from self.only_written


def topology_of(value: StreamsGroupTopologyValue) -> Topology:
    """All at once: for values of the log."""
    return at_once(_topology_in_steps(value))


def _topology_in_steps(value: StreamsGroupTopologyValue) -> Stepwise[Topology]:
    by_id: dict[str, Subtopology] = {}
    reading: dict[str, str] = {}
    changelogs: dict[str, None] = {}
    sinks: dict[str, None] = {}
    done = size_bytes = 0
    for subtopology in value.subtopologies:
        size_bytes += _size_of(subtopology)
        subtopology_id = subtopology.subtopology_id
        by_id[subtopology_id] = subtopology
        reading.update(dict.fromkeys(subtopology.source_topics, subtopology_id))
        reading.update(dict.fromkeys((it.name for it in subtopology.repartition_source_topics), subtopology_id))
        changelogs.update(dict.fromkeys(it.name for it in subtopology.state_changelog_topics))
        sinks.update(dict.fromkeys(subtopology.repartition_sink_topics))
        done += elements_of(subtopology)
        if done >= ELEMENTS_OF_ONE_STEP:
            done = 0
            yield
    ordered = {subtopology_id: by_id[subtopology_id] for subtopology_id in sorted(by_id)}
    required = tuple(sorted(reading.keys() | changelogs.keys()))
    names = frozenset(required)
    return Topology(value, ordered, reading, required, tuple(sorted(sinks.keys() - names)), names, size_bytes)


def invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def elements_of(subtopology: Subtopology | sent.Subtopology) -> int:
    """Measure of the work that a subtopology costs."""
    infos = [*subtopology.state_changelog_topics, *subtopology.repartition_source_topics]
    copartitioned = sum(
        1 + len(it.source_topics) + len(it.repartition_source_topics) for it in subtopology.copartition_groups
    )
    names = len(subtopology.source_topics) + len(subtopology.repartition_sink_topics)
    return 1 + names + len(infos) + sum(len(it.topic_configs) for it in infos) + copartitioned


def _size_of(subtopology: Subtopology) -> int:
    infos = [*subtopology.state_changelog_topics, *subtopology.repartition_source_topics]
    names = [*subtopology.source_topics, *subtopology.repartition_sink_topics, *(it.name for it in infos)]
    configs = sum(len(config.key) + len(config.value) for it in infos for config in it.topic_configs)
    return ELEMENT_BYTES * elements_of(subtopology) + size_of_names(names) + configs


# -- from a heartbeat


def received_topology(topology: sent.Topology) -> Stepwise[Topology]:
    """The topology that a joining member sends. Raises KafkaError: STREAMS_INVALID_TOPOLOGY, INVALID_REQUEST."""
    if topology.epoch < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Topology epoch must be non-negative; got {topology.epoch}.")
    value = StreamsGroupTopologyValue(epoch=topology.epoch)
    elements = done = 0
    for subtopology in topology.subtopologies:
        cost = elements_of(subtopology)
        elements += cost
        done += cost
        if elements > MOST_TOPOLOGY_ELEMENTS:
            raise invalid(
                f"The topology must have at most {MOST_TOPOLOGY_ELEMENTS} elements (subtopologies, topics, configs,"
                " copartitioned topics)."
            )
        value.subtopologies.append(_recorded(subtopology))
        if done >= ELEMENTS_OF_ONE_STEP:
            done = 0
            yield
    read = yield from _topology_in_steps(value)
    if len(read.subtopologies) < len(value.subtopologies):
        raise invalid("The topology must name each of its subtopologies once.")
    return read


def _recorded(subtopology: sent.Subtopology) -> Subtopology:
    """Raises KafkaError STREAMS_INVALID_TOPOLOGY."""
    for info in subtopology.state_changelog_topics:
        if info.partitions != 0:
            raise invalid(
                f"Changelog topic {info.name} must have an undefined partition count, but it is set to"
                f" {info.partitions}."
            )
    for info in subtopology.repartition_source_topics:
        if info.partitions < 0:
            raise invalid(f"Repartition topic {info.name} must not have a negative partition count.")
    for group in subtopology.copartition_groups:
        _check_places(group.source_topics, len(subtopology.source_topics), subtopology.subtopology_id)
        places = len(subtopology.repartition_source_topics)
        _check_places(group.repartition_source_topics, places, subtopology.subtopology_id)
    return Subtopology(
        subtopology_id=subtopology.subtopology_id,
        source_topics=subtopology.source_topics,
        source_topic_regex=subtopology.source_topic_regex,
        state_changelog_topics=[_topic_info(it) for it in subtopology.state_changelog_topics],
        repartition_sink_topics=subtopology.repartition_sink_topics,
        repartition_source_topics=[_topic_info(it) for it in subtopology.repartition_source_topics],
        copartition_groups=[
            CopartitionGroup(
                source_topics=it.source_topics,
                source_topic_regex=it.source_topic_regex,
                repartition_source_topics=it.repartition_source_topics,
            )
            for it in subtopology.copartition_groups
        ],
    )


def _check_places(places: Iterable[int], number: int, subtopology_id: str) -> None:
    for place in places:
        if not 0 <= place < number:
            raise invalid(
                f"A copartition group of subtopology {subtopology_id} refers to topic {place} of {number}."
            )


def _topic_info(info: sent.TopicInfo) -> StreamsGroupTopologyTopicInfo:
    return StreamsGroupTopologyTopicInfo(
        name=info.name,
        partitions=info.partitions,
        replication_factor=info.replication_factor,
        topic_configs=[TopicConfig(key=it.key, value=it.value) for it in info.topic_configs],
    )


def are_equal(one: Topology, other: Topology) -> Stepwise[bool]:
    """True if both have the same epoch and subtopologies."""
    if one is other:
        return True
    if one.epoch != other.epoch or one.subtopologies.keys() != other.subtopologies.keys():
        return False
    done = 0
    for subtopology_id, subtopology in one.subtopologies.items():
        if subtopology != other.subtopologies[subtopology_id]:
            return False
        done += elements_of(subtopology)
        if done >= ELEMENTS_OF_ONE_STEP:
            done = 0
            yield
    return True
