"""Other people's consumers that read a partition while it is written, and when each record came."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

from tests.compat.java import Java

LONGEST_SECONDS = 60
BETWEEN_POLLS_SECONDS = 0.2

Records = Iterator[tuple[int, str]]
"""(offset, value)"""


class Arrival(NamedTuple):
    offset: int
    value: str
    at_ms: int
    """By the wall clock."""


class Reader(threading.Thread):
    """Reads until the record with the value `last`."""

    def __init__(self, name: str, records: Callable[[], Records], last: str) -> None:
        super().__init__(name=name, daemon=True)
        self._records = records
        self._last = last
        self.seen: list[Arrival] = []
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            self._read()
        except Exception as error:
            self.failure = error

    def _read(self) -> None:
        with closing(self._records()) as records:  # type: ignore[type-var]
            for offset, value in records:
                self.seen.append(Arrival(offset, value, int(time.time() * 1000)))
                if value == self._last:
                    return


def read_with_java(java: Java, topic: str, isolation: str) -> Records:
    where = ("--bootstrap-server", java.bootstrap, "--topic", topic, "--partition", "0", "--offset", "earliest")
    how = ("--isolation-level", isolation, "--formatter-property", "print.offset=true")
    for line in _lines(java.command("console-consumer", *where, *how)):
        offset, value = line.split("\t")
        yield int(offset.removeprefix("Offset:")), value


def read_with_kcat(bootstrap: str, topic: str, isolation: str) -> Records:
    where = ("-b", bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning")
    for line in _lines(["kcat", *where, "-X", f"isolation.level={isolation}", "-q", "-u", "-J"]):
        record = json.loads(line)
        yield record["offset"], record["payload"]


def _lines(command: Sequence[str]) -> Iterator[str]:
    """Lines of a program's output as they come; it is ended with the iterator, or after LONGEST_SECONDS."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        end = threading.Timer(LONGEST_SECONDS, program.kill)
        end.start()
        try:
            assert program.stdout is not None
            for line in program.stdout:
                yield line.rstrip("\n")
        finally:
            end.cancel()
            program.kill()


def read_with_confluent(bootstrap: str, topic: str, isolation: str) -> Records:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "live",
            "enable.auto.commit": False,
            "isolation.level": isolation,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        ends = time.monotonic() + LONGEST_SECONDS
        while time.monotonic() < ends:
            message = consumer.poll(BETWEEN_POLLS_SECONDS)
            if message is not None:
                assert message.error() is None, message.error()
                yield message.offset(), message.value().decode()
    finally:
        consumer.close()


def read_with_kafka_python(bootstrap: str, topic: str, isolation: str) -> Records:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level=isolation,
    )
    try:
        consumer.assign([TopicPartition(topic, 0)])
        ends = time.monotonic() + LONGEST_SECONDS
        while time.monotonic() < ends:
            for records in consumer.poll(int(BETWEEN_POLLS_SECONDS * 1000)).values():
                for record in records:
                    yield record.offset, record.value.decode()
    finally:
        consumer.close()
