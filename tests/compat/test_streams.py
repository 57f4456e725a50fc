"""Kafka Streams counts words with exactly_once_v2 while a broker is killed in the middle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compat.foreign import Confluent, Sent
from tests.compat.running import RunningCluster
from tests.compat.running_programs import Program, compile_java, java_command

pytestmark = [pytest.mark.compat, pytest.mark.client("java")]

WORDS = ["the", "messenger", "carries", "what", "he", "was", "given", "and", "nothing", "is", "lost"]
LINES = 400


@pytest.fixture
def streams_cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    cluster = RunningCluster.start_new(tmp_path / "cluster", {"group.initial.rebalance.delay.ms": "0"})
    yield cluster
    assert cluster.down() == []


def lines(start: int) -> list[Sent]:
    chosen = [[WORDS[(number * step) % len(WORDS)] for step in range(1, 6)] for number in range(start, start + LINES)]
    return [Sent("line", " ".join(words)) for words in chosen]


@pytest.mark.feature("TX-13", "CG-11", "CG-07", "TX-05", "CG-12")
def test_word_count_exactly_once(
    streams_cluster: RunningCluster, libs: Path, tmp_path: Path, note: Callable[[str], None]
) -> None:
    cluster = streams_cluster
    source, counts = cluster.create_topic("lines"), cluster.create_topic("counts")
    writer = Confluent(cluster.bootstrap_servers)
    classes = compile_java(tmp_path / "classes", libs)
    words = [cluster.bootstrap_servers, source, counts, "word-count", str(tmp_path / "state")]
    program = Program("WordCount", java_command(classes, libs, "WordCount", *words), tmp_path / "streams.log")
    first, second = lines(0), lines(LINES)
    writer.produce(source, first)
    program.start()
    try:
        program.wait_began()
        expected = counted(first)
        cluster.wait_for("the first half is counted", lambda: latest(cluster, counts) == expected, 60)
        target = cluster.leader_of(counts, 0)
        cluster.kill(target)
        writer.produce(source, second)
        expected = counted(first + second)
        took = cluster.wait_for(
            f"all is counted: {program.last_words}", lambda: latest(cluster, counts) == expected, 90
        )
        cluster.start(target)
        assert program.running, program.last_words
    finally:
        program.kill()
    note(f"Kafka Streams, exactly_once_v2: {expected.total()} words, {took:.1f} s with a broker killed")


def counted(sent: list[Sent]) -> Counter[str]:
    return Counter(word for line in sent for word in line.value.split())


def latest(cluster: RunningCluster, topic: str) -> Counter[str]:
    """The last count of each word, of committed records. Each count must follow the one before."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "counts",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    found: Counter[str] = Counter()
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while (message := consumer.poll(10)) is not None:
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                break
            word, count = message.key().decode(), int(message.value())
            assert count > found[word], f"{word}: {count} after {found[word]}"
            found[word] = count
    finally:
        consumer.close()
    return found
