"""Core: which replicas may lead in metadata that is restored from an older copy.

The copy does not know which replicas left the ISR after it, and which partitions were created, moved or deleted. So
nobody may lead until it is decided where each log is longest: the replica with the latest leader epoch, then the
highest end offset, holds every committed record (Raft, 5.4.1). Replicas with the same last epoch and end have the same
records.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from barnabas.kraft.metadata.features import DIRECTORIES_SINCE
from barnabas.kraft.metadata.image import (
    LEADER_RECOVERED,
    LEADER_RECOVERING,
    MIGRATING_DIRECTORY,
    NO_LEADER,
    TOPIC_RESOURCE,
    UNASSIGNED_DIRECTORY,
    ClusterImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
    TopicsImage,
)
from barnabas.storage.log_ends import BrokerLogEnds, LogEnd

KEEPS_EVERYTHING = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Configs of a topic that the copy does not know: nothing is deleted until an operator sets others."""
TIERED = ("remote.storage.enable", "true")
COMPACTED_TOPICS = ("__consumer_offsets", "__transaction_state")

Holders = Mapping[int, LogEnd]
"""The logs of one partition by broker id."""


class IncompleteLogEnds(Exception):
    """The ends of logs do not decide who may lead; the message is one line."""


@dataclass(slots=True)
class Decided:
    """Metadata in which the replicas with the longest logs may lead."""

    image: MetadataImage
    notes: list[str] = field(default_factory=list)
    """Differences from the copy, one line each."""


def undecided(image: MetadataImage) -> MetadataImage:
    """The metadata without leaders and replicas that may lead. Brokers are fenced until they register."""
    by_name = {
        name: TopicImage(name, topic.id, {index: _waiting(it) for index, it in topic.partitions.items()})
        for name, topic in image.topics.by_name.items()
    }
    return replace(_with_topics(image, by_name), cluster=_fenced(image.cluster, {}))


def decided(image: MetadataImage, ends: Sequence[BrokerLogEnds], without: Iterable[int] = ()) -> Decided:
    """The metadata with leaders by the ends of the logs of all brokers; those in `without` never return.

    Raises `IncompleteLogEnds`.
    """
    _check(image, ends, frozenset(without))
    logs: dict[tuple[bytes, int], dict[int, LogEnd]] = defaultdict(dict)
    nameless: dict[tuple[str, int], dict[int, LogEnd]] = defaultdict(dict)
    for broker in sorted(ends, key=lambda it: it.broker_id):
        for log in broker.logs:
            if log.topic_id is None:
                nameless[log.topic, log.partition][broker.broker_id] = log
            else:
                logs[log.topic_id, log.partition][broker.broker_id] = log
    made = Decided(image)
    choice = _Choice(image, frozenset(without), logs, nameless, made.notes)
    by_name, configs = choice.topics()
    epochs = {it.broker_id: it.broker_epoch for it in ends}
    made.image = replace(_with_topics(image, by_name), cluster=_fenced(image.cluster, epochs), configs=configs)
    return made


def _check(image: MetadataImage, ends: Sequence[BrokerLogEnds], without: frozenset[int]) -> None:
    given = Counter(it.broker_id for it in ends)
    for broker_id, count in given.items():
        if count > 1:
            raise IncompleteLogEnds(f"the log ends of broker {broker_id} are given {count} times")
        if broker_id in without:
            raise IncompleteLogEnds(f"broker {broker_id} is left out, and its log ends are given")
    missing = sorted(it for it in image.cluster.brokers if it not in given and it not in without)
    if missing:
        listed = ", ".join(map(str, missing))
        raise IncompleteLogEnds(
            f"the log ends of brokers {listed} are missing, and theirs may be the longest: give them, or leave those "
            "brokers out that never return"
        )


def _waiting(partition: PartitionImage) -> PartitionImage:
    """Nobody may lead it before an operator decides."""
    return replace(
        partition,
        isr=(),
        elr=(),
        last_known_elr=(),
        leader=NO_LEADER,
        leader_recovery_state=LEADER_RECOVERING,
    )


def _with_topics(image: MetadataImage, by_name: dict[str, TopicImage]) -> MetadataImage:
    topics = TopicsImage(by_name, {topic.id: topic for topic in by_name.values()})
    return replace(image, topics=topics)


def _fenced(cluster: ClusterImage, epochs: Mapping[int, int]) -> ClusterImage:
    """All brokers are fenced; those that stopped cleanly are known in the epoch that they will name."""
    brokers = {
        broker.id: replace(broker, fenced=True, in_controlled_shutdown=False, epoch=epochs.get(broker.id, broker.epoch))
        for broker in cluster.brokers.values()
    }
    return replace(cluster, brokers=brokers)


@dataclass(slots=True)
class _Choice:
    """The topics of the restored metadata."""

    image: MetadataImage
    without: frozenset[int]
    logs: Mapping[tuple[bytes, int], Holders]
    nameless: Mapping[tuple[str, int], Holders]
    """Logs without a topic id."""
    notes: list[str]

    def topics(self) -> tuple[dict[str, TopicImage], dict[tuple[int, str], dict[str, str]]]:
        """Topics by name, and all configs."""
        by_name: dict[str, TopicImage] = {}
        configs = dict(self.image.configs)
        tiered = {topic_id for (topic_id, _), them in self.logs.items() if any(it.is_tiered for it in them.values())}
        for name, topic in sorted(self.image.topics.by_name.items()):
            if self._was_deleted(topic):
                self.notes.append(f"topic {name}: no broker has a log of it, so it was deleted later: left out")
                configs.pop((TOPIC_RESOURCE, name), None)
            else:
                by_name[name] = self._topic(topic)
                if topic.id in tiered:
                    self._keep_tiered(topic, configs)
        for name, topic_id, count in self._unknown():
            if name in by_name:
                self.notes.append(
                    f"topic {name}: some logs belong to another topic of that name: their brokers put them aside"
                )
                continue
            partitions = {index: self._new_partition(topic_id, index) for index in range(count)}
            by_name[name] = TopicImage(name, topic_id, partitions)
            configs[TOPIC_RESOURCE, name] = (
                {"cleanup.policy": "compact"} if name in COMPACTED_TOPICS else dict(KEEPS_EVERYTHING)
            )
            if topic_id in tiered:
                configs[TOPIC_RESOURCE, name] |= [TIERED]
            listed = ", ".join(f"{key}={value}" for key, value in sorted(configs[TOPIC_RESOURCE, name].items()))
            self.notes.append(f"topic {name}: was created later, has {count} partitions, and gets {listed}")
        return by_name, configs

    def _keep_tiered(self, topic: TopicImage, configs: dict[tuple[int, str], dict[str, str]]) -> None:
        """A broker saw the topic tiered. Without the config, brokers would forget what is remote."""
        key, (name, value) = (TOPIC_RESOURCE, topic.name), TIERED
        if configs.get(key, {}).get(name) != value:
            configs[key] = {**configs.get(key, {}), name: value}
            self.notes.append(f"topic {topic.name}: was tiered later, and gets {name}={value}")

    def _was_deleted(self, topic: TopicImage) -> bool:
        """No log of it is left, and no broker is left out that may have one."""
        return not self.without and not any(self._holders(topic, index) for index in topic.partitions)

    def _holders(self, topic: TopicImage, index: int) -> Holders:
        return {**self.nameless.get((topic.name, index), {}), **self.logs.get((topic.id, index), {})}

    def _topic(self, topic: TopicImage) -> TopicImage:
        partitions = {}
        for index, partition in topic.partitions.items():
            holders = self._holders(topic, index)
            if not holders:
                self.notes.append(f"{topic.name}-{index}: no broker has a log of it: nobody leads it")
                partitions[index] = _waiting(partition)
                continue
            placed = self._placed(partition, holders)
            if placed.replicas != partition.replicas:
                was, now = (",".join(map(str, it.replicas)) for it in (partition, placed))
                self.notes.append(f"{topic.name}-{index}: was moved later from brokers {was}: is on {now}")
            partitions[index] = self._elected(placed, holders)
        later = [index for topic_id, index in self.logs if topic_id == topic.id and index not in partitions]
        for index in sorted(later):
            self.notes.append(f"{topic.name}-{index}: was created later")
        for index in range(len(partitions), max(later, default=-1) + 1):
            partitions[index] = self._new_partition(topic.id, index)
        return TopicImage(topic.name, topic.id, partitions)

    def _placed(self, partition: PartitionImage, holders: Holders) -> PartitionImage:
        """The partition on the brokers that have its log. An assignment with one of the longest logs stays as it is."""
        longest = _longest(holders)
        if not longest.isdisjoint(partition.replicas):
            return self._in_directories(partition, partition.replicas, holders)
        count = len(partition.replicas) - len(partition.removing_replicas)
        others = sorted((it for it in holders if it not in partition.replicas), key=lambda it: holders[it].rank)
        candidates = [
            *reversed(others),
            *(it for it in partition.replicas if it in holders),
            *(it for it in partition.replicas if it not in holders),
        ]
        moved = replace(partition, adding_replicas=(), removing_replicas=())
        return self._in_directories(moved, tuple(candidates[:count]), holders)

    def _in_directories(self, partition: PartitionImage, replicas: tuple[int, ...], holders: Holders) -> PartitionImage:
        known = dict(zip(partition.replicas, partition.directories, strict=True))
        nowhere = UNASSIGNED_DIRECTORY
        if self.image.features.metadata_version < DIRECTORIES_SINCE:
            known, holders, nowhere = {}, {}, MIGRATING_DIRECTORY
        directories = tuple(holders[it].directory_id if it in holders else known.get(it, nowhere) for it in replicas)
        return replace(partition, replicas=replicas, directories=directories)

    def _elected(self, partition: PartitionImage, holders: Holders) -> PartitionImage:
        """Each replica with one of the longest logs may lead, whichever comes back first."""
        longest = _longest(holders)
        able = tuple(it for it in partition.replicas if it in longest)
        by_elr = self.image.features.elr_enabled
        return replace(
            partition,
            isr=() if by_elr else able,
            elr=tuple(sorted(able)) if by_elr else (),
            last_known_elr=(),
            leader=NO_LEADER,
            leader_recovery_state=LEADER_RECOVERED,
            leader_epoch=max(partition.leader_epoch, *(it.leader_epoch for it in holders.values())),
        )

    def _unknown(self) -> list[tuple[str, bytes, int]]:
        """(name, id, number of partitions) of topics that only logs know, by name and then by the highest epoch."""
        counts: dict[tuple[str, bytes], int] = {}
        for (topic_id, index), holders in self.logs.items():
            if topic_id not in self.image.topics.by_id:
                name = next(iter(holders.values())).topic
                counts[name, topic_id] = max(counts.get((name, topic_id), 0), index + 1)
        return [(name, topic_id, count) for (name, topic_id), count in sorted(counts.items())]

    def _new_partition(self, topic_id: bytes, index: int) -> PartitionImage:
        """A partition that only logs know, or that none knows, among others of its topic that have logs."""
        empty = PartitionImage(replicas=(), directories=(), isr=())
        holders = self.logs.get((topic_id, index), {})
        if holders:
            return self._elected(self._in_directories(empty, _spread(holders, index), holders), holders)
        nearest = min((key for key in self.logs if key[0] == topic_id), key=lambda key: abs(key[1] - index))
        return _waiting(self._in_directories(empty, _spread(self.logs[nearest], index), {}))


def _spread(holders: Holders, index: int) -> tuple[int, ...]:
    """The brokers; the preferred leaders of consecutive partitions differ."""
    ids = sorted(holders)
    first = index % len(ids)
    return (*ids[first:], *ids[:first])


def _longest(holders: Holders) -> frozenset[int]:
    highest = max(log.rank for log in holders.values())
    return frozenset(broker_id for broker_id, log in holders.items() if log.rank == highest)
