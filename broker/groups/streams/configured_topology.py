"""Core: a topology beside the topics that exist: the tasks of each subtopology, and the internal topics that are still
missing (KIP-1071). Soft state: it follows from the topology and the metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from barnabas.broker.groups.limits import MOST_TASKS
from barnabas.broker.groups.streams.partition_counts import (
    WrongPartitions,
    decide_counts,
    number_of_tasks,
    sources_of,
)
from barnabas.broker.groups.streams.topology import ELEMENTS_OF_ONE_STEP, Topology, elements_of, invalid
from barnabas.kraft.metadata.image import TopicsImage
from barnabas.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from barnabas.protocol.messages.group_log import StreamsGroupTopologyTopicInfo, Subtopology
from barnabas.runtime.at_once import Stepwise

NAMES_SHOWN = 3


class Status(IntEnum):
    """Status codes of StreamsGroupHeartbeat."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


@dataclass(frozen=True, slots=True)
class Problem:
    """Reason why tasks cannot run yet."""

    status: Status
    detail: str


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    number_of_tasks: int
    sources: tuple[str, ...]
    """Topics that its tasks read, in order."""
    is_stateful: bool


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    topology: Topology
    metadata_hash: int
    """Hash of the topics for which this was decided."""
    subtopologies: Mapping[str, ConfiguredSubtopology] = field(default_factory=dict)
    """By id, in order; empty if source topics are missing or wrong."""
    internal_partitions: Mapping[str, int] = field(default_factory=dict)
    """Partitions of repartition topics and changelogs, by name."""
    missing: tuple[CreatableTopic, ...] = ()
    """Internal topics to be created."""
    problem: Problem | None = None

    @property
    def is_ready(self) -> bool:
        return self.problem is None

    @property
    def validated_epoch(self) -> int:
        """Epoch of the topology if its topics are as they must be, or else -1."""
        return self.topology.epoch if self.is_ready else -1


def configure(topology: Topology, metadata_hash: int, topics: TopicsImage) -> Stepwise[ConfiguredTopology]:
    """Raises KafkaError STREAMS_INVALID_TOPOLOGY."""

    def existing(name: str) -> int | None:
        topic = topics.by_name.get(name)
        return None if topic is None else len(topic.partitions)

    lost = sorted(
        {name for it in topology.subtopologies.values() for name in it.source_topics if name not in topics.by_name}
    )
    if lost:
        problem = Problem(Status.MISSING_SOURCE_TOPICS, f"Source topics {shortened(lost)} are missing.")
        return ConfiguredTopology(topology, metadata_hash, problem=problem)
    yield
    try:
        counts = yield from decide_counts(topology, existing)
        missing = yield from _missing(topology, counts, topics)
    except WrongPartitions as error:
        problem = Problem(Status.INCORRECTLY_PARTITIONED_TOPICS, str(error))
        return ConfiguredTopology(topology, metadata_hash, problem=problem)

    def known(name: str) -> int:
        count = existing(name)
        return counts[name] if count is None else count

    subtopologies: dict[str, ConfiguredSubtopology] = {}
    done = 0
    for subtopology_id, subtopology in topology.subtopologies.items():
        subtopologies[subtopology_id] = ConfiguredSubtopology(
            number_of_tasks(subtopology, known),
            tuple(sorted(sources_of(subtopology))),
            bool(subtopology.state_changelog_topics),
        )
        done += elements_of(subtopology)
        if done >= ELEMENTS_OF_ONE_STEP:
            done = 0
            yield
    tasks = sum(it.number_of_tasks for it in subtopologies.values())
    if tasks > MOST_TASKS:
        raise invalid(f"A streams group must have at most {MOST_TASKS} tasks; the topology has {tasks}.")
    problem_or_none = None
    if missing:
        names = shortened([it.name for it in missing])
        problem_or_none = Problem(Status.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
    return ConfiguredTopology(topology, metadata_hash, subtopologies, counts, missing, problem_or_none)


def shortened(names: Iterable[str]) -> str:
    """The first names, and the number of others."""
    listed = list(names)
    rest = len(listed) - NAMES_SHOWN
    return ", ".join(listed[:NAMES_SHOWN]) + (f" and {rest} additional topics" if rest > 0 else "")


def _missing(
    topology: Topology, counts: Mapping[str, int], topics: TopicsImage
) -> Stepwise[tuple[CreatableTopic, ...]]:
    """Internal topics that do not exist, by name. Raises WrongPartitions if one exists with another count."""
    missing: dict[str, CreatableTopic] = {}
    done = 0
    for subtopology in topology.subtopologies.values():
        for info in _internal(subtopology):
            topic = topics.by_name.get(info.name)
            wanted = info.partitions or counts[info.name]
            if topic is None:
                missing[info.name] = _creatable(info, wanted)
            elif len(topic.partitions) != wanted:
                raise WrongPartitions(
                    f"Existing topic {info.name} has different number of partitions: expected {wanted}, found"
                    f" {len(topic.partitions)}"
                )
        done += elements_of(subtopology)
        if done >= ELEMENTS_OF_ONE_STEP:
            done = 0
            yield
    return tuple(missing[name] for name in sorted(missing))


def _internal(subtopology: Subtopology) -> list[StreamsGroupTopologyTopicInfo]:
    return [*subtopology.repartition_source_topics, *subtopology.state_changelog_topics]


def _creatable(info: StreamsGroupTopologyTopicInfo, partitions: int) -> CreatableTopic:
    return CreatableTopic(
        name=info.name,
        num_partitions=partitions,
        replication_factor=info.replication_factor or -1,
        configs=[CreatableTopicConfig(name=it.key, value=it.value) for it in info.topic_configs],
    )
