"""Core: the hash by which a consumer group detects changes of its topics.

XXH3 (64 bits, seed 0) over everything that an assignment depends on: ids, names, partition counts and replica racks.
The input is byte for byte that of Kafka 4.1 and later, so a group that moves here from Kafka is not rebalanced.
"""

from __future__ import annotations

from collections.abc import Iterable

from xxhash import xxh3_64_intdigest

from barnabas.kraft.metadata.delta import MetadataDelta, TopicDelta
from barnabas.kraft.metadata.image import ClusterImage, MetadataImage, TopicImage

_FORMAT = b"\0"


class TopicHashes:
    """Topic hashes, cached until a topic changes."""

    def __init__(self) -> None:
        self._by_name: dict[str, int] = {}

    def forget(self, topic: str) -> None:
        self._by_name.pop(topic, None)

    def remember(self, topic: str, image: MetadataImage) -> int:
        """Compute the topic's hash, unless it is known. Returns the number of partitions that were hashed."""
        found = image.topics.by_name.get(topic)
        if found is None or topic in self._by_name:
            return 0
        self._of_topic(found, image)
        return len(found.partitions)

    def of_group(self, topics: Iterable[str], image: MetadataImage) -> int:
        """Combined hash of the existing `topics`, ordered by name; 0 for none. An int64."""
        hashes = [self._of_topic(image.topics.by_name[name], image) for name in topics if name in image.topics.by_name]
        if not hashes:
            return 0
        return _signed(xxh3_64_intdigest(b"".join(each.to_bytes(8, "little", signed=True) for each in hashes)))

    def _of_topic(self, topic: TopicImage, image: MetadataImage) -> int:
        known = self._by_name.get(topic.name)
        if known is None:
            known = self._by_name[topic.name] = topic_hash(topic, image.cluster)
        return known


def topic_hash(topic: TopicImage, cluster: ClusterImage) -> int:
    """An int64."""
    # The id is hashed as two little-endian numbers.
    parts = [_FORMAT, topic.id[7::-1], topic.id[:7:-1], _string(topic.name), _int32(len(topic.partitions))]
    for number in range(len(topic.partitions)):
        parts.append(_int32(number))
        partition = topic.partitions.get(number)
        brokers = [] if partition is None else [cluster.brokers.get(each) for each in partition.replicas]
        for rack in sorted(broker.rack for broker in brokers if broker is not None and broker.rack is not None):
            parts += [_int32(_length(rack)), _string(rack)]
    return _signed(xxh3_64_intdigest(b"".join(parts)))


def _int32(number: int) -> bytes:
    return number.to_bytes(4, "little")


def _string(text: str) -> bytes:
    """UTF-16 followed by the length."""
    return text.encode("utf-16-le", "surrogatepass") + _int32(_length(text))


def _length(text: str) -> int:
    """Length in UTF-16 code units, as in Java."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def changed_topics(delta: MetadataDelta) -> list[str]:
    """Names of the topics that were deleted, or changed in a way that can affect an assignment."""
    changed = [topic.name for topic in delta.changed_topics.values() if _matters(topic)]
    return [*changed, *(topic.name for topic in delta.deleted_topics.values())]


def _matters(topic: TopicDelta) -> bool:
    """True if the change can affect an assignment. Changes of leaders and in-sync replicas cannot, and they are
    frequent.
    """
    for number, partition in topic.changed_partitions.items():
        previous = topic.previous(number)
        if previous is None or previous.replicas != partition.replicas:
            return True
    return False
