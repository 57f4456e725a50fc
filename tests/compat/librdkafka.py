"""librdkafka's clients (confluent-kafka), each in a process of its own: see `running_programs.py`, why."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.compat.load import METADATA_AGE_MS, OUTAGE_SECONDS, REQUEST_TIMEOUT_MS, Stored, Writer
from tests.compat.running_programs import LOCKED, Program, python_command

MOST_REVIVALS = 3
"""Restarts per run that are accepted."""
LOOK_SECONDS = 0.2
FROM_BEGINNING = -2
"""librdkafka's OFFSET_BEGINNING."""
SETTINGS_FOR_FAULTS = {
    "socket.timeout.ms": REQUEST_TIMEOUT_MS,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": METADATA_AGE_MS,
    "log_level": 2,
}


def keep_up(program: Program, command: Callable[[], Sequence[str]] | None = None) -> bool:
    """`Program.revive`; RuntimeError if that happens again and again."""
    if len(program.revivals) >= MOST_REVIVALS and program.trouble:
        raise RuntimeError(f"{program.name} {program.trouble} after {program.revivals}")
    return program.revive(command)


class ConfluentWriter(Writer):
    client = "confluent-kafka"
    program: Program

    def __init__(self, bootstrap: str, topic: str, partition: int, records_per_second: int) -> None:
        super().__init__(bootstrap, topic, partition, records_per_second)
        self._under_way: dict[str, float] = {}

    def write_until_stopped(self) -> None:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "message.timeout.ms": OUTAGE_SECONDS * 1000,
            "request.timeout.ms": REQUEST_TIMEOUT_MS,
            **SETTINGS_FOR_FAULTS,
        }
        program = Program(self.name, python_command("write.py", json.dumps(settings)), on_line=self._on_line)
        self.program, self.revivals = program, program.revivals
        program.start()
        try:
            while not self.stopped.is_set():
                sent_at = time.monotonic()
                if keep_up(program):
                    self.unsure.update(self._under_way)
                    self._under_way.clear()
                value = self.next_value()
                self._under_way[value] = sent_at
                if not program.send([self.topic, self.partition, value]):
                    del self._under_way[value]
                self.stopped.wait(max(0.0, sent_at + self._pause_seconds - time.monotonic()))
            program.end_input()
            wrong = program.wait_ended(OUTAGE_SECONDS)
            if wrong == LOCKED:
                program.revivals.append(wrong)
                self.unsure.update(self._under_way)
            elif wrong or self._under_way:
                self.failures.append(f"{wrong}, {len(self._under_way)} records have no fate")
        finally:
            program.kill()

    def _on_line(self, line: str) -> None:
        value, offset, error = json.loads(line)
        sent_at = self._under_way.pop(value, None)
        if sent_at is None:
            return  # a process that was given up sent it
        if error is None:
            self.acked(value, sent_at, offset)
        else:
            self.failed(value, error)


class Follower(threading.Thread):
    """Reads all partitions from their start, while they are written."""

    program: Program

    def __init__(self, bootstrap: str, topic: str, partitions: int, more: Mapping[str, Any] | None = None) -> None:
        super().__init__(name=f"reader of {topic}", daemon=True)
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "follower",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **SETTINGS_FOR_FAULTS,
            **(more or {}),
        }
        self._topic = topic
        self._next = dict.fromkeys(range(partitions), FROM_BEGINNING)
        self.seen: list[Stored] = []
        self.failures: list[str] = []
        self.revivals: list[str] = []
        self._ended = threading.Event()
        self._arrived = threading.Event()

    def run(self) -> None:
        try:
            self._read()
        except Exception as error:
            self.failures.append(f"the reader ended: {error!r}")

    def _read(self) -> None:
        program = Program(self.name, self._command(), on_line=self._on_line)
        self.program, self.revivals = program, program.revivals
        program.start()
        try:
            while not self._ended.wait(LOOK_SECONDS):
                keep_up(program, self._command)
            program.end_input()
        finally:
            program.kill()

    def _command(self) -> list[str]:
        return python_command("follow.py", json.dumps(self._settings), self._topic, json.dumps(self._next))

    def _on_line(self, line: str) -> None:
        partition, offset, value = json.loads(line)
        self.seen.append(Stored(partition, offset, value))
        self._next[partition] = offset + 1
        self._arrived.set()

    def wait_for_more(self, seconds: float) -> None:
        """Waits until something has come since the last call, or `seconds` have passed."""
        self._arrived.wait(seconds)
        self._arrived.clear()

    def stop(self) -> None:
        self._ended.set()
        self.join(30)
