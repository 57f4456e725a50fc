"""The replicas in brokers' directories: their partitions, their valid offsets, and the choice of the replica to read.

A directory may be a partition's (`orders-0`), a broker's log directory, or one above log directories, such as the data
of a local cluster. Offsets below the high watermark are valid. A running cluster is asked for it; for stopped brokers
it is in the checkpoint files: offsets below the high watermark of any replica are committed. Changes no file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from barnabas.client.offset_lookup import EARLIEST, LATEST, Isolation
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.log_files import log_end_offset, segment_files, split_offsets
from barnabas.pipeline.log_transactions import AbortedRange, find_transactions
from barnabas.protocol.records.batch import BatchHeader
from barnabas.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    MalformedCheckpoint,
    parse_epochs,
    parse_offsets,
)
from barnabas.storage.log_directory import CLEAN_SHUTDOWN_FILE, META_PROPERTIES_FILE, LogDirectoryError, MetaProperties
from barnabas.storage.names import METADATA_TOPIC, parse_directory_name

UNKNOWN = -1
DEEPEST = 4
"""Maximum depth at which partitions are searched below a given directory."""
SPLIT_BYTES = 128 * 1024 * 1024

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of a partition."""

    topic: str
    partition: int
    node_id: int
    """-1 if its log directory has no meta.properties."""
    directory: str
    log_start_offset: int
    high_watermark: int
    """From the broker's last checkpoint; -1 if there is none."""
    durable_offset: int
    """Indexes and snapshots below it are complete."""
    cleaned_offset: int
    """Compaction may have removed records below it; 0 if it never ran."""
    leader_epoch: int

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}" + ("" if self.node_id == UNKNOWN else f" on {self.node_id}")


@dataclass(frozen=True, slots=True)
class Range:
    """The valid offsets of a partition."""

    start_offset: int
    end_offset: int
    high_watermark: int
    leader: int = UNKNOWN


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """The part of one log that one task reads."""

    topic: str
    partition: int
    node_id: int
    directory: str
    from_offset: int
    until_offset: int
    aborted: tuple[AbortedRange, ...]
    is_first: bool = True
    """Whether it is the first part of its log. A batch that starts before `from_offset` and contains it then belongs
    to this part."""

    def has(self, header: BatchHeader) -> bool:
        """Whether a batch belongs to this part; each batch belongs to exactly one."""
        return (self.is_first or header.base_offset >= self.from_offset) and header.base_offset < self.until_offset


def find_replicas(directories: Sequence[str | Path], wanted: Callable[[str], bool]) -> list[Replica]:
    """All logs of `wanted` topics in the directories, sorted by partition and node. PipelineError if a directory does
    not exist."""
    replicas: dict[str, Replica] = {}
    for given in directories:
        path = Path(given)
        if not path.is_dir():
            raise PipelineError(f"{given}: no such directory; give log directories of brokers, or partitions in them")
        for directory in _partition_directories(path):
            named = parse_directory_name(directory.name)
            assert named is not None
            if named.topic != METADATA_TOPIC and wanted(named.topic):
                replicas[str(directory)] = _replica(directory, named.topic, named.partition)
    return sorted(replicas.values(), key=lambda each: (each.topic, each.partition, each.node_id, each.directory))


def topic_choice(subscribe: str = "", pattern: str = "") -> Callable[[str], bool]:
    """A predicate of topics by names (with commas) or by regular expression; by default, all but internal topics.
    PipelineError."""
    if subscribe and pattern:
        raise PipelineError("options subscribe and subscribePattern exclude each other")
    if subscribe:
        names = {name.strip() for name in subscribe.split(",")}
        return names.__contains__
    if pattern:
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            line = f"option subscribePattern must be a regular expression; got {pattern!r}: {error}"
            raise PipelineError(line) from None
        return lambda topic: compiled.fullmatch(topic) is not None
    return lambda topic: not topic.startswith("__")


def _partition_directories(path: Path, depth: int = 0) -> Iterator[Path]:
    named = parse_directory_name(path.name)
    if named is not None and named.kind == "current" and segment_files(path):
        yield path.resolve()
    elif depth < DEEPEST:
        for child in sorted(path.iterdir()):
            if child.is_dir() and not child.is_symlink():
                yield from _partition_directories(child, depth + 1)


def _replica(directory: Path, topic: str, partition: int) -> Replica:
    log_dir = directory.parent
    key = (topic, partition)

    def checkpointed(name: str, default: int) -> int:
        return _offsets(log_dir / name).get(key, default)

    first = next((segment.base_offset for segment in segment_files(directory)), 0)
    is_clean = (log_dir / CLEAN_SHUTDOWN_FILE).exists()
    return Replica(
        topic,
        partition,
        _node_id(log_dir / META_PROPERTIES_FILE),
        str(directory),
        max(first, checkpointed(LOG_START_OFFSET_CHECKPOINT, 0)),
        checkpointed(REPLICATION_OFFSET_CHECKPOINT, UNKNOWN),
        1 << 62 if is_clean else checkpointed(RECOVERY_POINT_CHECKPOINT, 0),
        checkpointed(CLEANER_OFFSET_CHECKPOINT, 0),
        _latest_epoch(directory / LEADER_EPOCH_CHECKPOINT),
    )


def _offsets(path: Path) -> Mapping[TopicPartition, int]:
    try:
        return parse_offsets(path.read_bytes(), str(path))
    except FileNotFoundError:
        return {}
    except MalformedCheckpoint as error:
        raise PipelineError(f"{error}; leave out this log directory, or let its broker write the file again") from None


def _latest_epoch(path: Path) -> int:
    try:
        entries = parse_epochs(path.read_bytes(), str(path))
    except (FileNotFoundError, MalformedCheckpoint):
        return UNKNOWN
    return entries[-1][0] if entries else UNKNOWN


def _node_id(path: Path) -> int:
    try:
        return MetaProperties.parse(path.read_bytes(), str(path)).node_id
    except (FileNotFoundError, LogDirectoryError):
        return UNKNOWN


# Valid offsets


def ranges_of_files(replicas: Iterable[Replica]) -> dict[TopicPartition, Range]:
    """From the checkpoint files. A partition without a high watermark there is empty: no offset is known to be
    committed."""
    ranges: dict[TopicPartition, Range] = {}
    for replica in replicas:
        key = (replica.topic, replica.partition)
        known = ranges.get(key, Range(0, 0, 0))
        end = max(known.end_offset, replica.high_watermark)
        ranges[key] = Range(max(known.start_offset, replica.log_start_offset), end, end)
    return ranges


def ranges_of_cluster(
    cluster: BlockingCluster, partitions: Iterable[TopicPartition], isolation: Isolation
) -> dict[TopicPartition, Range]:
    """From the leaders. PipelineError if the cluster does not have a partition."""
    wanted = sorted(set(partitions))
    view = cluster.metadata(sorted({topic for topic, _ in wanted}))
    for topic, partition in wanted:
        known = view.topics.get(topic)
        if known is None or partition not in known.leaders:
            raise PipelineError(f"{topic}-{partition} is in the directories but not in the cluster; leave it out")
    starts = cluster.list_offsets(dict.fromkeys(wanted, EARLIEST))
    marks = cluster.list_offsets(dict.fromkeys(wanted, LATEST))
    ends = cluster.list_offsets(dict.fromkeys(wanted, LATEST), isolation)
    return {
        key: Range(starts[key].offset, ends[key].offset, marks[key].offset, view.topics[key[0]].leaders[key[1]].node_id)
        for key in wanted
    }


def best_replica(replicas: Sequence[Replica], wanted: Range) -> tuple[Replica, int]:
    """(the replica to read, its end): the leader's if it is among them, otherwise the one with the newest leader epoch
    that has all valid offsets, or most of them."""
    preferred = sorted(
        replicas,
        key=lambda each: (each.node_id == wanted.leader != UNKNOWN, each.leader_epoch, each.high_watermark),
        reverse=True,
    )
    best: tuple[Replica, int] | None = None
    for replica in preferred:
        end = min(log_end_offset(Path(replica.directory)), wanted.end_offset)
        if best is None or end > best[1]:
            best = replica, end
        if end == wanted.end_offset:
            break
    assert best is not None, "no replica to choose from"
    return best


# Tasks


def tasks_of(
    replica: Replica, wanted: Range, isolation: Isolation | None, split_bytes: int = SPLIT_BYTES
) -> list[SegmentTask]:
    """The parts of one log, each of at most about `split_bytes`.

    With READ_COMMITTED they end at the last stable offset and list the aborted transactions below it. With None they
    list them, too, but extend to the end.
    """
    directory = Path(replica.directory)
    end = wanted.end_offset
    aborted: tuple[AbortedRange, ...] = ()
    if isolation is not Isolation.READ_UNCOMMITTED:
        found = find_transactions(directory, end, replica.durable_offset)
        aborted = found.aborted
        if isolation is not None:
            end = found.last_stable_offset
    segments = segment_files(directory)
    starts = [start for segment in segments for start in (segment.base_offset, *split_offsets(segment, split_bytes))]
    first = max(wanted.start_offset, replica.log_start_offset)
    inner = sorted({start for start in starts if first < start < end})
    tasks = []
    for start, until in zip([first, *inner], [*inner, end], strict=True):
        if start < until:
            touched = tuple(each for each in aborted if each[1] < until and each[2] >= start)
            name = (replica.topic, replica.partition, replica.node_id, replica.directory)
            tasks.append(SegmentTask(*name, start, until, touched, start == first))
    return tasks
