"""A topic with delayed delivery, written and read by other people's clients: they skip what waits there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.compat.foreign import AioKafka, Kcat
from tests.compat.java import Java
from tests.compat.live_readers import (
    Reader,
    Records,
    read_with_confluent,
    read_with_java,
    read_with_kafka_python,
    read_with_kcat,
)
from tests.compat.running import RunningCluster

pytestmark = [pytest.mark.compat, pytest.mark.feature("RP-12")]

LEVELS = ("read_committed", "read_uncommitted")
FIRST, LAST, ABORTED = "first", "last", "aborted"
"""These are not delayed."""
KCAT_DELAY_MS = 1_000
STEP_MS = 150
LEAST_LEAD_MS = 3_000
END_SECONDS = 20


def now_ms() -> int:
    return int(time.time() * 1000)


def produce_with_confluent(bootstrap: str, topic: str, due: dict[str, int | None]) -> None:
    """Each record in a batch of its own, of an idempotent producer."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": 1})
    errors: list[object] = []
    for value, time_ms in due.items():
        headers = None if time_ms is None else [("deliver-at", str(time_ms).encode())]
        producer.produce(topic, value, headers=headers, on_delivery=lambda error, _message: errors.append(error))
    assert producer.flush(20) == 0
    assert errors == [None] * len(due)


def abort_with_confluent(bootstrap: str, topic: str, value: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, value)
    producer.flush(20)
    producer.abort_transaction(20)


def produce_with_java(java: Java, topic: str, due: dict[str, int]) -> None:
    """All in one batch, if the producer likes."""
    lines = "".join(f"deliver-at:{time_ms}\t{value}\n" for value, time_ms in due.items())
    java.ask("console-producer", "--topic", topic, "--reader-property", "parse.headers=true", stdin=lines)


def start_readers(java: Java, bootstrap: str, topic: str) -> Iterator[Reader]:
    for level in LEVELS:
        reads: dict[str, Callable[[], Records]] = {
            "java": partial(read_with_java, java, topic, level),
            "confluent-kafka": partial(read_with_confluent, bootstrap, topic, level),
            "kafka-python": partial(read_with_kafka_python, bootstrap, topic, level),
            "kcat": partial(read_with_kcat, bootstrap, topic, level),
        }
        for name, read in reads.items():
            reader = Reader(f"{name} {level}", read, LAST)
            reader.start()
            yield reader


@pytest.mark.client("java", "confluent-kafka", "kafka-python", "kcat", "aiokafka")
def test_every_client_gets_each_record_once_in_time_and_skips_what_waits(cluster: RunningCluster, java: Java) -> None:
    bootstrap = cluster.bootstrap_servers
    topic = cluster.create_topic("reminders", configs={"barnabas.delayed.delivery.enable": "true"})
    began_ms = now_ms()
    due = {"waits at offset 0": began_ms + KCAT_DELAY_MS}
    header = f"deliver-after={KCAT_DELAY_MS}"
    Kcat(bootstrap).run("-P", "-t", topic, "-p", "0", "-H", header, stdin="waits at offset 0\n")
    produce_with_confluent(bootstrap, topic, {FIRST: None})
    readers = list(start_readers(java, bootstrap, topic))
    cluster.wait_for("all readers have begun", lambda: all(FIRST in values_of(it) for it in readers))

    # A Java program starts as fast as those of the readers, more or less.
    start_ms = now_ms() + max(LEAST_LEAD_MS, 2 * (now_ms() - began_ms))
    by_java = {f"java {place}": start_ms + 2 * STEP_MS * place for place in (3, 0, 2, 1)}
    by_confluent = {f"confluent {place}": start_ms + STEP_MS + 2 * STEP_MS * place for place in (1, 3, 0, 2)}
    produce_with_java(java, topic, by_java)
    abort_with_confluent(bootstrap, topic, ABORTED)
    produce_with_confluent(bootstrap, topic, dict(by_confluent))
    assert now_ms() < start_ms, "the machine was too slow to write all in time"
    due |= by_java | by_confluent
    cluster.wait_for("every record was delivered", lambda: due.keys() <= set(values_of(readers[-1])))
    produce_with_confluent(bootstrap, topic, {LAST: None})

    for reader in readers:
        reader.join(END_SECONDS)
        values = values_of(reader)
        assert (reader.failure, reader.is_alive()) == (None, False), f"{reader.name}: {values}"
        aborted = [ABORTED] if "read_uncommitted" in reader.name else []
        assert sorted(values) == sorted([FIRST, LAST, *due, *aborted]), reader.name
        assert [value for value in values if value in due] == sorted(due, key=due.__getitem__), reader.name
        early = [it for it in reader.seen if it.at_ms < due.get(it.value, 0)]
        assert early == [], f"{reader.name} got records before their time"
        offsets = [it.offset for it in reader.seen]
        assert offsets == sorted(offsets)
        assert offsets[0] > 0
    afterwards = AioKafka(bootstrap).consume(topic, len(due) + 3)
    assert [it.value for it in afterwards] == values_of(readers[-1])


def values_of(reader: Reader) -> list[str]:
    return [it.value for it in reader.seen]
