"""Which partition a row goes to: the one that Kafka's own producer would choose. Runs in executors, and asks nobody."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.task_reports import current_task_attempt

KEY, VALUE, HEADERS, TIMESTAMP, TOPIC, PARTITION = "key", "value", "headers", "timestamp", "topic", "partition"
"""Columns as users give them; `timestamp` comes here as milliseconds."""
TARGET = "__target"
"""Which of the targets a row goes to: a number, see `Targets`."""


class Targets:
    """The partitions that may be written to, each with a number: topics in order, partitions in order."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        """`partitions` is how many each topic has."""
        self.partitions = dict(sorted(partitions.items()))
        self.first: dict[str, int] = {}
        """The number of each topic's partition 0."""
        self._all: list[tuple[str, int]] = []
        for topic, count in self.partitions.items():
            self.first[topic] = len(self._all)
            self._all += [(topic, partition) for partition in range(count)]

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, number: int) -> tuple[str, int]:
        return self._all[number]

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self._all)


_SEED = 0x9747B28C
_MIX = 0x5BD1E995


def murmur2(keys: Any) -> Any:
    """The hash of Kafka's clients for each key of an Arrow array of binaries, as uint32; of a null it means nothing."""
    keys = keys.cast(pa.binary())
    count = len(keys)
    _, offsets_buffer, data_buffer = keys.buffers()
    if not count or offsets_buffer is None:
        return np.zeros(count, np.uint32)
    offsets = np.frombuffer(offsets_buffer, np.int32)[keys.offset : keys.offset + count + 1].astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    data = np.concatenate([data[offsets[0] : offsets[-1]], np.zeros(4, np.uint8)]).astype(np.uint32)
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    mix = np.uint32(_MIX)
    total = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    words = lengths >> 2
    for step in range(int(words.max())):
        active = np.flatnonzero(words > step)
        word = _word(data, starts[active] + 4 * step) * mix
        word = (word ^ word >> np.uint32(24)) * mix
        total[active] = total[active] * mix ^ word
    tails = lengths & 3
    active = np.flatnonzero(tails)
    if len(active):
        # What follows the key is another key: it is masked away.
        masks = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)[tails[active]]
        word = _word(data, starts[active] + 4 * words[active]) & masks
        total[active] = (total[active] ^ word) * mix
    total = (total ^ total >> np.uint32(13)) * mix
    return total ^ total >> np.uint32(15)


def _word(data: Any, positions: Any) -> Any:
    """Four bytes from each position, the first one lowest."""
    eight = np.uint32(8)
    word = data[positions + 3]
    for ahead in (2, 1, 0):
        word = word << eight | data[positions + ahead]
    return word


class Router:
    """A step of `mapInArrow`: gives each row the number of its target, as Kafka's producer would choose it: the row's
    own partition, or by its key, or, without either, one partition for a while and then the next."""

    def __init__(self, targets: Targets, topic: str | None) -> None:
        """`topic` is that of all rows; None: each has its own."""
        self._targets = targets
        self._topic = topic

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        turn = current_task_attempt().partition_id
        for batch in batches:
            if batch.num_rows:
                yield self.route(batch, turn)
                turn += 1

    def route(self, batch: Any, turn: int) -> Any:
        """`batch` without topic and partition, and with its targets. PipelineError if a row can go nowhere."""
        rows = batch.num_rows
        names = batch.schema.names
        first, counts = self._topics(batch)
        chosen = np.full(rows, turn, np.int64) % counts
        if KEY in names:
            keys = batch.column(names.index(KEY))
            hashed = (murmur2(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % counts
            chosen = np.where(_filled(keys), hashed, chosen)
        if PARTITION in names:
            given = batch.column(names.index(PARTITION))
            numbers = pc.fill_null(given, 0).to_numpy(zero_copy_only=False).astype(np.int64)
            bad = np.flatnonzero(_filled(given) & ((numbers < 0) | (numbers >= counts)))
            if len(bad):
                row = int(bad[0])
                raise PipelineError(
                    f"a row is for partition {numbers[row]}, and its topic has {counts[row]}: correct the column"
                    f" {PARTITION!r}, or add partitions"
                )
            chosen = np.where(_filled(given), numbers, chosen)
        kept = [name for name in names if name not in (TOPIC, PARTITION)]
        columns = [batch.column(names.index(name)) for name in kept]
        targets = pa.array((first + chosen).astype(np.int32))
        return pa.RecordBatch.from_arrays([*columns, targets], [*kept, TARGET])

    def _topics(self, batch: Any) -> tuple[Any, Any]:
        """Of each row: the number of its topic's partition 0, and how many partitions that has."""
        rows = batch.num_rows
        if self._topic is not None:
            count, first = self._targets.partitions[self._topic], self._targets.first[self._topic]
            return np.full(rows, first, np.int64), np.full(rows, count, np.int64)
        names = batch.column(batch.schema.names.index(TOPIC)).dictionary_encode()
        if names.null_count:
            raise PipelineError(f"a row has no topic: fill the column {TOPIC!r}, or name one topic for all")
        topics = names.dictionary.to_pylist()
        unknown = [topic for topic in topics if topic not in self._targets.partitions]
        if unknown:
            raise PipelineError(f"there is no topic {unknown[0]}: create it first")
        firsts = np.array([self._targets.first[topic] for topic in topics], np.int64)
        counts = np.array([self._targets.partitions[topic] for topic in topics], np.int64)
        indices = names.indices.to_numpy(zero_copy_only=False)
        return firsts[indices], counts[indices]


def _filled(column: Any) -> Any:
    return pc.is_valid(column).to_numpy(zero_copy_only=False)
