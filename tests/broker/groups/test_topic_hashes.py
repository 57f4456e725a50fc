"""The hash by which a group detects changes of its topics: the values that Kafka 4.3 writes."""

from __future__ import annotations

import pytest
from xxhash import xxh3_64_intdigest

from barnabas.broker.groups.topic_hashes import TopicHashes, topic_hash
from barnabas.kraft.metadata.image import (
    BrokerImage,
    ClusterImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
    TopicsImage,
)

XXH3 = {
    0: 3244421341483603138,
    1: 5502495245947142431,
    2: 12097320375286824743,
    3: 1582743943441612892,
    4: 15897727546751563449,
    5: 12867007321144116037,
    8: 16052704444545341486,
    9: 14691748285104259005,
    12: 5092156298037866404,
    16: 9099606716676871632,
    17: 2345212530088924167,
    32: 278953543771952198,
    33: 1844846513307983686,
    64: 15938362409982048069,
    65: 18064900749750750752,
    100: 10130589527417026854,
    128: 17954568492486910600,
    129: 17939920976028066042,
    130: 3475138682099581770,
    160: 14486129466800366050,
    200: 1368452603177808973,
    240: 14755823527060053763,
    241: 809349449570470400,
    256: 17043229969274554996,
    300: 13451564249538653414,
    512: 17276623102455839658,
    1000: 10995368963209846477,
    1024: 2575082683865311686,
    1025: 13880058576091512194,
    1088: 11631581122726222405,
    2000: 1867670971709594125,
    5000: 6169931020318013678,
}
"""By length of the data, from hash4j 0.22."""


@pytest.mark.feature("CG-13")
@pytest.mark.parametrize(("size", "expected"), XXH3.items())
def test_xxh3_of_every_kind_of_length(size: int, expected: int) -> None:
    assert xxh3_64_intdigest(bytes((31 * place + 7) & 0xFF for place in range(size))) == expected


def topic(name: str = "töpic") -> TopicImage:
    partitions = {number: PartitionImage((broker,), (bytes(16),), (broker,)) for number, broker in enumerate((1, 2))}
    return TopicImage(name, bytes([*range(1, 9), *range(0x11, 0x19)]), partitions)


def cluster(rack: str | None) -> ClusterImage:
    return ClusterImage(
        {
            1: BrokerImage(1, 1, bytes(16), {}, {}, rack),
            2: BrokerImage(2, 1, bytes(16), {}, {}),
        }
    )


@pytest.mark.feature("CG-13")
def test_a_topic_hashes_as_in_kafka() -> None:
    assert topic_hash(topic(), cluster("rack1")) == 2309812237218512651


@pytest.mark.feature("CG-13")
def test_everything_that_affects_an_assignment_changes_the_hash() -> None:
    base = topic_hash(topic(), cluster(None))
    grown = TopicImage("töpic", topic().id, {**topic().partitions, 2: topic().partitions[0]})
    again = TopicImage("töpic", bytes(16), topic().partitions)
    changed = [
        topic_hash(topic(), cluster("rack1")),
        topic_hash(grown, cluster(None)),
        topic_hash(again, cluster(None)),
    ]
    assert len({base, *changed}) == 4


@pytest.mark.feature("CG-13")
def test_a_group_has_the_hash_of_the_topics_that_exist() -> None:
    first, second = topic("a"), TopicImage("b", bytes(16), topic().partitions)
    image = MetadataImage(cluster=cluster(None), topics=TopicsImage({"a": first, "b": second}))
    hashes = TopicHashes()
    assert hashes.of_group(["missing"], image) == 0
    both = hashes.of_group(["a", "b"], image)
    assert both == hashes.of_group(["a", "b", "missing"], image) != hashes.of_group(["a"], image)
    assert -(1 << 63) <= both < 1 << 63
    grown = TopicImage("a", first.id, {0: first.partitions[0]})
    later = MetadataImage(cluster=cluster(None), topics=TopicsImage({"a": grown, "b": second}))
    assert hashes.of_group(["a", "b"], later) == both, "cached until it is removed"
    hashes.forget("a")
    assert hashes.of_group(["a", "b"], later) != both


@pytest.mark.feature("CG-13")
def test_topics_are_hashed_one_by_one_before_their_group_is() -> None:
    """A group of many topics has its hash after several steps, each of which says how many partitions it took."""
    first, second = topic("a"), TopicImage("b", bytes(16), {0: topic().partitions[0]})
    image = MetadataImage(cluster=cluster(None), topics=TopicsImage({"a": first, "b": second}))
    expected = TopicHashes().of_group(["a", "b"], image)
    hashes = TopicHashes()
    assert [hashes.remember(name, image) for name in ("a", "b", "a", "missing")] == [2, 1, 0, 0]
    grown = TopicImage("b", bytes(16), first.partitions)
    later = MetadataImage(cluster=cluster(None), topics=TopicsImage({"a": first, "b": grown}))
    assert hashes.of_group(["a", "b"], later) == expected != TopicHashes().of_group(["a", "b"], later)
    hashes.forget("b")
    assert hashes.remember("b", later) == 2
