"""Reading logs from their files: options, tasks, and the rows of a task. Knows nothing of Spark.

`segment_source.py` is the Spark source, and documents the options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from barnabas.client.offset_lookup import Isolation
from barnabas.pipeline.batch_rows import LogIdentity, batch_rows
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.cluster_access import SECURITY_OPTIONS, Bootstrap, ClusterAccess
from barnabas.pipeline.columns import Window, decode_columns
from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.log_files import BrokenLog, Chunk, Fault, read_batches
from barnabas.pipeline.log_transactions import AbortedBatches
from barnabas.pipeline.replicas import (
    SPLIT_BYTES,
    Range,
    Replica,
    SegmentTask,
    TopicPartition,
    best_replica,
    find_replicas,
    ranges_of_cluster,
    ranges_of_files,
    tasks_of,
    topic_choice,
)
from barnabas.protocol.records.batch import CorruptBatch


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """The options of the source."""

    directories: tuple[str, ...]
    subscribe: str = ""
    pattern: str = ""
    bootstrap: Bootstrap = ""
    isolation: Isolation = Isolation.READ_COMMITTED
    include_headers: bool = False
    split_bytes: int = SPLIT_BYTES
    skip_corrupt: bool = False
    skip_gone: bool = False
    batches: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SegmentOptions:
        """PipelineError for an invalid or unknown option."""
        _refuse_unknown(options)
        path = options.get("path") or ",".join(_paths(options.get("paths", "")))
        if not path:
            raise PipelineError("option path is missing; it must be the log directories, separated by commas")
        level = _one_of(options, "kafka.isolation.level", "read_committed", "read_uncommitted")
        bootstrap = options.get("kafka.bootstrap.servers", "") or options.get("bootstrap", "")
        split = options.get("splitBytes", str(SPLIT_BYTES))
        if not split.isdigit() or int(split) < 1:
            raise PipelineError(f"option splitBytes must be a number of bytes; got {split!r}")
        return cls(
            tuple(each for each in path.split(",") if each),
            options.get("subscribe", ""),
            options.get("subscribePattern", ""),
            ClusterAccess.of_options(bootstrap, options) if bootstrap else "",
            Isolation.READ_COMMITTED if level == "read_committed" else Isolation.READ_UNCOMMITTED,
            _one_of(options, "includeHeaders", "false", "true") == "true",
            int(split),
            _one_of(options, "onCorrupt", "fail", "skip") == "skip",
            _one_of(options, "failOnDataLoss", "true", "false") == "false",
            _one_of(options, "rows", "records", "batches") == "batches",
        )


KNOWN = (
    *("path", "paths", "subscribe", "subscribePattern", "kafka.bootstrap.servers", "bootstrap"),
    *("kafka.isolation.level", "includeHeaders", "splitBytes", "onCorrupt", "failOnDataLoss", "rows"),
    *SECURITY_OPTIONS,
)


def _refuse_unknown(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in KNOWN}
    for name in options:
        if name.lower() not in known:
            close = get_close_matches(name.lower(), known, 1)
            hint = f"; did you mean {known[close[0]]}?" if close else ""
            raise PipelineError(f"the source has no option {name}{hint}")


def _paths(listed: str) -> list[str]:
    """Spark passes the arguments of `load` as a JSON list."""
    import json

    return list(json.loads(listed)) if listed else []


def _one_of(options: Mapping[str, str], name: str, *allowed: str) -> str:
    """The first is the default."""
    given = options.get(name, allowed[0]).lower()
    if given not in allowed:
        raise PipelineError(f"option {name} must be {' or '.join(allowed)}; got {given!r}")
    return given


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """The tasks of a read, and the replicas they were chosen from."""

    replicas: tuple[Replica, ...]
    ranges: Mapping[TopicPartition, Range]
    tasks: tuple[SegmentTask, ...]
    short: tuple[tuple[Replica, int, int], ...]
    """(replica, its end, end of the partition) of replicas that are read but are incomplete."""


def plan_of(options: SegmentOptions) -> SegmentPlan:
    """PipelineError if no requested partition is found, or the cluster does not answer."""
    replicas = find_replicas(options.directories, topic_choice(options.subscribe, options.pattern))
    if not replicas:
        raise PipelineError(f"no requested partition is in {', '.join(options.directories)}")
    found = {replica.topic for replica in replicas}
    if missing := [name for name in map(str.strip, options.subscribe.split(",")) if name and name not in found]:
        raise PipelineError(f"no partition of {', '.join(missing)} is in {', '.join(options.directories)}")
    keys = dict.fromkeys((replica.topic, replica.partition) for replica in replicas)
    if options.bootstrap:
        # An audit also reads undecided transactions.
        isolation = Isolation.READ_UNCOMMITTED if options.batches else options.isolation
        with BlockingCluster(options.bootstrap) as cluster:
            ranges = ranges_of_cluster(cluster, keys, isolation)
    else:
        ranges = ranges_of_files(replicas)
    tasks: list[SegmentTask] = []
    short = []
    for key in keys:
        copies = [replica for replica in replicas if (replica.topic, replica.partition) == key]
        wanted = ranges[key]
        if options.batches:
            # An audit compares all replicas as a whole.
            for replica in copies:
                tasks += tasks_of(replica, replace(wanted, start_offset=0), None, options.split_bytes)
            continue
        chosen, end = best_replica(copies, wanted)
        if end < wanted.end_offset:
            short.append((chosen, end, wanted.end_offset))
        tasks += tasks_of(chosen, replace(wanted, end_offset=end), options.isolation, options.split_bytes)
    return SegmentPlan(tuple(replicas), ranges, tuple(tasks), tuple(short))


def chunks_of(task: SegmentTask, options: SegmentOptions, faults: list[Fault]) -> Iterator[Chunk]:
    """The batches of a task. Skipped faults are appended to `faults`; others raise PipelineError."""
    skipped: list[Fault] = []
    try:
        for chunk in read_batches(Path(task.directory), task.from_offset, task.until_offset, skipped=skipped):
            _handle(skipped, options, faults)
            yield chunk
        _handle(skipped, options, faults)
    except BrokenLog as broken:
        raise PipelineError(str(broken)) from None


def _handle(skipped: list[Fault], options: SegmentOptions, faults: list[Fault]) -> None:
    for fault in skipped:
        if not (options.skip_gone if fault.kind == "gone" else options.skip_corrupt):
            raise BrokenLog(fault)
    faults += skipped
    skipped.clear()


def record_columns(task: SegmentTask, options: SegmentOptions, faults: list[Fault]) -> Iterator[Any]:
    """pyarrow RecordBatches of the task's records."""
    aborted = AbortedBatches(task.aborted)
    window = Window(task.from_offset, task.until_offset)
    for chunk in chunks_of(task, options, faults):
        try:
            # `read_batches` has verified the checksums.
            for columns in decode_columns(
                _kept(chunk, aborted), window, include_headers=options.include_headers, check_crcs=False
            ):
                yield columns.record_batch(task.topic, task.partition)
        except CorruptBatch as error:
            raise PipelineError(f"{task.directory}: {error}; read another replica") from None


def _kept(chunk: Chunk, aborted: AbortedBatches) -> memoryview | bytes:
    """The bytes of the chunk without batches of aborted transactions."""
    if not aborted.ranges:
        return chunk.data
    pieces = []
    begin = 0
    for position, header in chunk.batches:
        if aborted.has(header):
            pieces.append(chunk.data[begin:position])
            begin = position + header.size_bytes
    return b"".join([*pieces, chunk.data[begin:]]) if pieces else chunk.data


def batch_columns(task: SegmentTask, options: SegmentOptions, faults: list[Fault]) -> Iterator[Any]:
    """pyarrow RecordBatches of `batch_rows.SCHEMA`."""
    log = LogIdentity(task.topic, task.partition, task.node_id)
    yield from batch_rows(log, chunks_of(task, options, faults), AbortedBatches(task.aborted), task.has)
