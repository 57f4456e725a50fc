"""The lag of jobs and consumer groups. Changes nothing and needs no Spark.

A job is identified by its checkpoint: that of Spark (the offsets of the last committed batch), or the plan of a batch
job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.client.coordinator_lookup import CoordinatorType
from barnabas.client.offset_lookup import LATEST, Isolation
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.errors import PipelineError, WrongUse
from barnabas.pipeline.files import Files
from barnabas.pipeline.jobs.plan import Claim, Plan, read_document
from barnabas.pipeline.jobs.rounds import CLAIM, PLAN
from barnabas.pipeline.jobs.topics import find
from barnabas.pipeline.response_errors import response_error
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest

Positions = dict[tuple[str, int], int]
"""(topic, partition) to the next offset to read."""

OFFSET_FETCH_VERSION = 7
"""Takes one group and, without topics, returns all its offsets."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of one reader in one partition."""

    reader: str
    topic: str
    partition: int
    position: int | None
    """None: nothing read yet."""
    start: int
    end: int

    @property
    def lag(self) -> int:
        """Number of existing offsets not yet read."""
        return max(0, self.end - max(self.start, self.position or 0))

    def to_json(self) -> dict[str, Any]:
        return {
            "reader": self.reader,
            "topic": self.topic,
            "partition": self.partition,
            "position": self.position,
            "start": self.start,
            "end": self.end,
            "lag": self.lag,
        }


def lags(
    cluster: BlockingCluster,
    groups: Sequence[str],
    checkpoints: Sequence[tuple[Files, str]],
    topics: Sequence[str] = (),
) -> list[Lag]:
    """The lag of all readers in all partitions of their topics and of `topics`. PipelineError."""
    if not groups and not checkpoints:
        raise WrongUse("--group GROUP or --checkpoint DIR is missing")
    for topic in topics:
        find(cluster, topic)
    positions = {reader_of_group(group): positions_of_group(cluster, group) for group in groups}
    for files, folder in checkpoints:
        positions[folder] = positions_of_checkpoint(files, folder)
    return [each for reader, found in positions.items() for each in _of(cluster, reader, found, topics)]


def reader_of_group(group: str) -> str:
    return f"group {group}"


def positions_of_group(cluster: BlockingCluster, group: str) -> Positions:
    """The committed offsets. KafkaError."""
    request = OffsetFetchRequest(group_id=group, topics=None)
    kind = CoordinatorType.GROUP
    response = cluster.coordinator_call(group, kind, request, response_error, version=OFFSET_FETCH_VERSION)
    if response_error(response) is not ErrorCode.NONE:
        raise KafkaError(response_error(response), f"group {group}")
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in response.topics
        for each in topic.partitions
        if each.committed_offset >= 0
    }


def positions_of_checkpoint(files: Files, folder: str) -> Positions:
    """The next offsets of the job. PipelineError if the directory is no checkpoint of a job that reads topics."""
    for directory in (folder, f"{folder}/_barnabas", f"{folder}/_barnabas/stream"):
        plan = files.read(f"{directory}/{PLAN}")
        if plan is not None:
            return _of_plan(read_document(Plan, plan, f"{directory}/{PLAN}"))
        commits = files.names(f"{directory}/commits")
        numbers = sorted(int(name) for name in commits if name.isdigit())
        if numbers:
            return positions_in_offset_log(files.read(f"{directory}/offsets/{numbers[-1]}") or "", directory)
        claim = files.read(f"{directory}/{CLAIM}")
        if claim is not None:
            read_document(Claim, claim, f"{directory}/{CLAIM}")
            return {}
    raise PipelineError(f"{folder} is no checkpoint: it has neither commits nor a plan")


def positions_in_offset_log(text: str, folder: str) -> Positions:
    """Parses a file of Spark's offset log: a version, the settings of the batch, and a line for each source."""
    result: Positions = {}
    for line in text.splitlines()[2:]:
        try:
            offsets = json.loads(line)
            of_source = {
                (topic, int(partition)): int(offset)
                for topic, found in offsets.items()
                if isinstance(found, dict)
                for partition, offset in found.items()
            }
        except (ValueError, TypeError, AttributeError):
            of_source = {}
        result.update(of_source)
    if not result:
        raise PipelineError(f"{folder} is the checkpoint of a job that reads no topic")
    return result


def _of_plan(plan: Plan) -> Positions:
    """The start of the first round that is not done."""
    result = {(plan.claim.topic, partition): end for partition, end in plan.next_offsets.items()}
    for pieces in reversed(plan.rounds[plan.done :]):
        for piece in reversed(pieces):
            result[plan.claim.topic, piece.partition] = piece.start
    return result


def _of(cluster: BlockingCluster, reader: str, positions: Positions, topics: Sequence[str]) -> list[Lag]:
    wanted = {*positions}
    for topic in {*topics, *(topic for topic, _ in positions)}:
        wanted |= {(topic, partition) for partition in find(cluster, topic).partitions}
    keys = sorted(wanted)
    starts = cluster.list_offsets(dict.fromkeys(keys, -2))
    ends = cluster.list_offsets(dict.fromkeys(keys, LATEST), Isolation.READ_COMMITTED)
    return [Lag(reader, *key, positions.get(key), starts[key].offset, ends[key].offset) for key in keys]


def total(found: Sequence[Lag]) -> Mapping[str, int]:
    """Total lag by reader."""
    sums: dict[str, int] = {}
    for each in found:
        sums[each.reader] = sums.get(each.reader, 0) + each.lag
    return sums
