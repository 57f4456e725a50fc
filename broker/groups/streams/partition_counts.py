"""Core: numbers of partitions of a topology's internal topics (KIP-1071).

A repartition topic without a number of its own gets the highest one among the sources of the subtopologies that write
it. Copartitioned topics must have the same number. A changelog has one partition for each task of its subtopology.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping

from barnabas.broker.groups.streams.topology import ELEMENTS_OF_ONE_STEP, Topology, elements_of, invalid
from barnabas.protocol.messages.group_log import CopartitionGroup, Subtopology
from barnabas.runtime.at_once import Stepwise

PartitionCount = Callable[[str], int | None]
"""Number of partitions of an existing topic; None if it does not exist."""


class WrongPartitions(Exception):
    """Topics do not have the numbers of partitions that the topology needs."""


def decide_counts(topology: Topology, existing: PartitionCount) -> Stepwise[dict[str, int]]:
    """Numbers of partitions of repartition topics and changelogs, by name. All external sources must exist.

    Raises KafkaError STREAMS_INVALID_TOPOLOGY, or WrongPartitions.
    """
    counts = yield from _repartition_counts(topology, existing)
    fixed = {
        info.name
        for subtopology in topology.subtopologies.values()
        for info in subtopology.repartition_source_topics
        if info.partitions
    }

    def known(topic: str) -> int:
        count = existing(topic)
        return counts[topic] if count is None else count

    done = 0
    for subtopology in topology.subtopologies.values():
        for group in subtopology.copartition_groups:
            counts.update(_copartitioned(_names(subtopology, group), counts.keys(), fixed, known))
        done += elements_of(subtopology)
        if done >= ELEMENTS_OF_ONE_STEP:
            done = 0
            yield
    for subtopology in topology.subtopologies.values():
        tasks = number_of_tasks(subtopology, known)
        counts.update(dict.fromkeys((info.name for info in subtopology.state_changelog_topics), tasks))
        done += elements_of(subtopology)
        if done >= ELEMENTS_OF_ONE_STEP:
            done = 0
            yield
    return counts


def number_of_tasks(subtopology: Subtopology, known: Callable[[str], int]) -> int:
    """Highest number of partitions of the subtopology's sources. Raises KafkaError STREAMS_INVALID_TOPOLOGY."""
    most = max(map(known, sources_of(subtopology)), default=None)
    if most is None:
        raise invalid(f"No source topics found for subtopology {subtopology.subtopology_id}")
    return most


def sources_of(subtopology: Subtopology) -> list[str]:
    """External and internal topics that the subtopology reads."""
    return [*subtopology.source_topics, *(info.name for info in subtopology.repartition_source_topics)]


# -- repartition topics


def _repartition_counts(topology: Topology, existing: PartitionCount) -> Stepwise[dict[str, int]]:
    """By name. Counts follow from those upstream: a subtopology waits for all its sources, unless there is a loop."""
    subtopologies = topology.subtopologies
    counts: dict[str, int] = {}
    readers: dict[str, list[str]] = {}
    unknown: Counter[str] = Counter()
    for subtopology_id, subtopology in subtopologies.items():
        for name, info in {it.name: it for it in subtopology.repartition_source_topics}.items():
            readers.setdefault(name, []).append(subtopology_id)
            unknown[subtopology_id] += 1
            if info.partitions:
                counts[name] = info.partitions
    for name in counts:
        unknown.subtract(readers[name])
    complete = deque(it for it in subtopologies if not unknown[it])
    partial = deque(it for it in subtopologies if unknown[it] and _count(subtopologies[it], counts, existing))
    waiting = set(subtopologies)
    done = 0
    while complete or partial:
        subtopology_id = (complete or partial).popleft()
        count = _count(subtopologies[subtopology_id], counts, existing)
        if subtopology_id not in waiting or count is None:
            continue
        waiting.remove(subtopology_id)
        for sink in subtopologies[subtopology_id].repartition_sink_topics:
            if sink in counts:
                continue
            counts[sink] = count
            for reader in readers.get(sink, ()):
                unknown[reader] -= 1
                (partial if unknown[reader] else complete).append(reader)
        done += elements_of(subtopologies[subtopology_id])
        if done >= ELEMENTS_OF_ONE_STEP:
            done = 0
            yield
    _check_all_decided(subtopologies, [it for it in subtopologies if it in waiting], counts)
    return counts


def _count(subtopology: Subtopology, counts: Mapping[str, int], existing: PartitionCount) -> int | None:
    """Highest known number of partitions of the subtopology's sources; None while none is known."""
    found = [counts.get(info.name) for info in subtopology.repartition_source_topics]
    found += [existing(topic) for topic in subtopology.source_topics]
    return max((count for count in found if count is not None), default=None)


def _check_all_decided(
    subtopologies: Mapping[str, Subtopology], waiting: Iterable[str], counts: Mapping[str, int]
) -> None:
    """Raises KafkaError STREAMS_INVALID_TOPOLOGY."""
    if any(sink not in counts for it in waiting for sink in subtopologies[it].repartition_sink_topics):
        raise invalid(
            "Failed to compute number of partitions for all repartition topics. There may be loops in the topology that"
            " cannot be resolved."
        )
    if any(info.name not in counts for it in subtopologies.values() for info in it.repartition_source_topics):
        raise invalid(
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is"
            " never used as a sink topic."
        )


# -- copartition groups


def _names(subtopology: Subtopology, group: CopartitionGroup) -> list[str]:
    """Topics of a copartition group, in order. Raises KafkaError STREAMS_INVALID_TOPOLOGY."""
    try:
        external = [subtopology.source_topics[place] for place in group.source_topics]
        internal = [subtopology.repartition_source_topics[place].name for place in group.repartition_source_topics]
    except IndexError:
        message = f"A copartition group of subtopology {subtopology.subtopology_id} refers to a missing topic."
        raise invalid(message) from None
    return sorted({*external, *internal})


def _copartitioned(
    names: list[str], internal: Iterable[str], fixed: Iterable[str], known: Callable[[str], int]
) -> dict[str, int]:
    """Numbers of partitions of the repartition topics among these copartitioned topics. Raises WrongPartitions, or
    KafkaError STREAMS_INVALID_TOPOLOGY."""
    if not names:
        return {}
    repartition = {name: known(name) for name in names if name in internal}
    external = {name: known(name) for name in names if name not in internal}
    given = {name: count for name, count in repartition.items() if name in fixed}
    if external:
        wanted = _same(external)
    elif given:
        wanted = _same(given)
    else:
        wanted = max(repartition.values())
    for name, count in given.items():
        if count != wanted:
            raise WrongPartitions(
                f"Number of partitions [{count}] of repartition topic [{name}] doesn't match number of partitions"
                f" [{wanted}] of the source topic."
            )
    return dict.fromkeys(repartition, wanted)


def _same(counts: Mapping[str, int]) -> int:
    """Raises WrongPartitions."""
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name}={counts[name]}" for name in sorted(counts))
        raise WrongPartitions(f"Following topics do not have the same number of partitions: [{{{shown}}}]")
    return next(iter(counts.values()))

