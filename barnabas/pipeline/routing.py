"""The partition of each row, as Kafka's own producer chooses it. Runs in executors, without the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.task_reports import current_task_attempt

KEY, VALUE, HEADERS, TIMESTAMP, TOPIC, PARTITION = "key", "value", "headers", "timestamp", "topic", "partition"
"""Columns of the rows; `timestamp` is in milliseconds here."""
TARGET = "__target"
"""Column with the number of a row's target, see `Targets`."""


class Targets:
    """The partitions that may be written, numbered in the order of topics and partitions."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        """`partitions` is the number of partitions of each topic."""
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
    """The key hash of Kafka's clients for an Arrow array of binaries, as uint32; meaningless for a null."""
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
        # The bytes after the key belong to another key: mask them.
        masks = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)[tails[active]]
        word = _word(data, starts[active] + 4 * words[active]) & masks
        total[active] = (total[active] ^ word) * mix
    total = (total ^ total >> np.uint32(13)) * mix
    return total ^ total >> np.uint32(15)


def _word(data: Any, positions: Any) -> Any:
    """The little-endian 32-bit words at the positions."""
    eight = np.uint32(8)
    word = data[positions + 3]
    for ahead in (2, 1, 0):
        word = word << eight | data[positions + ahead]
    return word


class Router:
    """A function for `mapInArrow` that adds the target's number to each row, chosen like in Kafka's producer: the row's
    partition, or by its key, or, without both, one partition for each Arrow batch in turn."""

    def __init__(self, targets: Targets, topic: str | None) -> None:
        """`topic` is the topic of all rows; None: each row has its own."""
        self._targets = targets
        self._topic = topic

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        turn = current_task_attempt().partition_id
        for batch in batches:
            if batch.num_rows:
                yield self.route(batch, turn)
                turn += 1

    def route(self, batch: Any, turn: int) -> Any:
        """`batch` with a column of targets instead of topic and partition. PipelineError if a row has no valid
        target."""
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
                    f"column {PARTITION!r} must be 0 to {counts[row] - 1}; got {numbers[row]}"
                )
            chosen = np.where(_filled(given), numbers, chosen)
        kept = [name for name in names if name not in (TOPIC, PARTITION)]
        columns = [batch.column(names.index(name)) for name in kept]
        targets = pa.array((first + chosen).astype(np.int32))
        return pa.RecordBatch.from_arrays([*columns, targets], [*kept, TARGET])

    def _topics(self, batch: Any) -> tuple[Any, Any]:
        """For each row: the number of its topic's partition 0, and the topic's number of partitions."""
        rows = batch.num_rows
        if self._topic is not None:
            count, first = self._targets.partitions[self._topic], self._targets.first[self._topic]
            return np.full(rows, first, np.int64), np.full(rows, count, np.int64)
        names = batch.column(batch.schema.names.index(TOPIC)).dictionary_encode()
        if names.null_count:
            raise PipelineError(f"a row has no topic; fill the column {TOPIC!r}, or give one topic for all rows")
        topics = names.dictionary.to_pylist()
        unknown = [topic for topic in topics if topic not in self._targets.partitions]
        if unknown:
            raise PipelineError(f"topic {unknown[0]} does not exist; create it first")
        firsts = np.array([self._targets.first[topic] for topic in topics], np.int64)
        counts = np.array([self._targets.partitions[topic] for topic in topics], np.int64)
        indices = names.indices.to_numpy(zero_copy_only=False)
        return firsts[indices], counts[indices]


def _filled(column: Any) -> Any:
    return pc.is_valid(column).to_numpy(zero_copy_only=False)
