"""Which batch of a query was written last: an entry that is committed by the very transaction that writes the batch.

The ledger of a query is a group of its own, `spark-sink-QUERY`. Its committed offset of partition 0 of the target topic
is the number of the last batch, and the offset's metadata says whose batch that was. No extra topic is needed: offsets
are the only thing besides records that a transaction can commit, they want a partition that exists, and the target has
one; where it is deleted, the entry goes with the records that it tells of. A batch for many topics leaves an entry at
each of them, so that whichever is deleted, the others still tell.

A core and, below it, a shell. It does not know Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import Any

from barnabas.client.coordinator_lookup import CoordinatorType
from barnabas.pipeline.blocking_cluster import BlockingCluster, CoordinatorRequest
from barnabas.pipeline.errors import LedgerError
from barnabas.pipeline.transaction import Transaction
from protocol.errors import ErrorCode, KafkaError, error_code
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

GROUP_PREFIX = "spark-sink-"
LEDGER_PARTITION = 0
"""The one that every topic has."""

FORMAT = 1
_MAX_APPLICATION = 200
"""Metadata is small: 4,096 bytes at most, unless offset.metadata.max.bytes says otherwise."""

OFFSET_FETCH_VERSION = 7
"""The first with require_stable, and the last that names topics and one group; every broker has it."""


class Verdict(Enum):
    """What is to be done with a batch."""

    WRITE = "write"
    SKIP = "skip"
    """It was committed before."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What the last transaction said."""

    batch_id: int
    checkpoint: str
    """Whose batch ids these are: the id of the query, which Spark keeps in its checkpoint."""
    application: str = ""
    """The Spark application that wrote it; for people."""
    records: int = 0
    digest: str = ""
    """Of where the records lie, see `digest_of`; for audits."""

    def encode(self) -> str:
        fields = {
            "format": FORMAT,
            "batch": self.batch_id,
            "checkpoint": self.checkpoint,
            "application": self.application[:_MAX_APPLICATION],
            "records": self.records,
            "digest": self.digest,
        }
        return json.dumps(fields, separators=(",", ":"))


def group_of(query_id: str) -> str:
    """The group that holds the ledger of a query."""
    return GROUP_PREFIX + query_id


def digest_of(ranges: Iterable[tuple[str, int, int, int]]) -> str:
    """Of (topic, partition, first offset, last offset), in whatever order they come."""
    lines = sorted(f"{topic}-{partition}:{first}-{last}" for topic, partition, first, last in ranges)
    return sha256("\n".join(lines).encode()).hexdigest()[:16]


def decode_entry(offset: int, metadata: str | None) -> LedgerEntry:
    """What stands in a committed offset. LedgerError if somebody else wrote it."""
    try:
        fields: Any = json.loads(metadata or "")
        entry = LedgerEntry(
            fields["batch"], fields["checkpoint"], fields["application"], fields["records"], fields["digest"]
        )
        ours = fields["format"] == FORMAT and entry.batch_id == offset
    except (ValueError, TypeError, KeyError):
        ours = False
    if not ours:
        raise LedgerError(
            f"the ledger has offset {offset} with the metadata {(metadata or '')[:80]!r}, which no sink wrote:"
            " somebody else commits offsets to its group; give the query another name"
        )
    return entry


def decide(
    last: LedgerEntry | None, batch_id: int, checkpoint: str, *, query: str, may_begin_late: bool = False
) -> Verdict:
    """Write a batch, or skip it because it was written before. LedgerError if neither can be right.

    Spark repeats the last batch only: that which it planned and of which it does not know the end. Anything else means
    that ledger and checkpoint are not of one query, and then skipping would lose rows, and writing would double them.
    With `may_begin_late` batches may be missing before this one: nothing was written for them, or that is over.
    """
    if last is not None and last.checkpoint != checkpoint:
        raise LedgerError(
            f"the ledger of {query} is of another checkpoint ({last.checkpoint}, batch {last.batch_id}; here"
            f" {checkpoint}, batch {batch_id}): go on with the old checkpoint, or give the query another name"
        )
    if last is not None and batch_id == last.batch_id:
        return Verdict.SKIP
    if last is not None and batch_id < last.batch_id:
        raise LedgerError(
            f"batch {batch_id} of {query}: the ledger is at {last.batch_id} already, so another driver went on, or"
            " this checkpoint is an old copy; go on with the newest checkpoint"
        )
    if may_begin_late or batch_id == (0 if last is None else last.batch_id + 1):
        return Verdict.WRITE
    if last is None:
        raise LedgerError(
            f"batch {batch_id} of {query}, and its ledger is empty: the entry expired (offsets.retention.minutes), the"
            " topic was made anew, or earlier batches went elsewhere; if the batch is certainly not there yet, say"
            " begin_late=True once"
        )
    raise LedgerError(
        f"batch {batch_id} of {query}, and its ledger is at {last.batch_id}: what is between them was never committed"
        " here; if that is as it should be, say begin_late=True once"
    )


class Ledger:
    """Of one query."""

    def __init__(self, cluster: BlockingCluster, query_id: str, topic: str | None = None) -> None:
        """`topic` is the target of all batches; None: there may be many, and every entry of the group is looked at.

        An entry that is the first of its topic, and still being committed, is waited for only where it is asked for by
        name; otherwise it is enough that `Transaction.begin` returned, which is after its end.
        """
        self.group_id = group_of(query_id)
        self._cluster = cluster
        self._topics = None
        if topic is not None:
            self._topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=[LEDGER_PARTITION])]

    def last(self, *, stable: bool = False) -> LedgerEntry | None:
        """The newest committed entry, as far as the broker knows that seems to coordinate the group; None if there is
        none. It may be old: it is for people, not for deciding. `stable`: wait while a transaction with an entry is
        neither committed nor aborted (KIP-447). KafkaError, TimedOut, LedgerError."""
        question = self._question(stable=stable)
        return self._newest(
            self._cluster.coordinator_call(
                self.group_id, CoordinatorType.GROUP, question.request, question.code_of, version=question.version
            )
        )

    def last_before(self, transaction: Transaction, topics: Iterable[str], entry: LedgerEntry) -> LedgerEntry | None:
        """The newest entry that was committed before the transaction began, whatever brokers are cut off and deposed:
        see `Transaction.read_after_write`. `entry` is what the transaction is to commit at `topics`. Raises as `last`,
        and what a transaction raises."""
        # Brokers of Kafka before 4.0 carry out markers a moment after they acknowledged them, and say so only to who
        # asks for stable offsets. That cannot be asked later: the entry that is written first is not stable.
        self.last(stable=True)
        return self._newest(
            transaction.read_after_write(self.group_id, entries_at(topics, entry), self._question(stable=False))
        )

    def _question(self, *, stable: bool) -> CoordinatorRequest:
        request = OffsetFetchRequest(group_id=self.group_id, topics=self._topics, require_stable=stable)
        return CoordinatorRequest(request, _worst_code, OFFSET_FETCH_VERSION)

    def _newest(self, response: Any) -> LedgerEntry | None:
        code = _worst_code(response)
        if code is not ErrorCode.NONE:
            raise KafkaError(code, f"the ledger {self.group_id}")
        entries = [
            decode_entry(partition.committed_offset, partition.metadata)
            for topic in response.topics
            for partition in topic.partitions
            if partition.committed_offset >= 0
        ]
        return max(entries, key=lambda entry: entry.batch_id, default=None)


def entries_at(topics: Iterable[str], entry: LedgerEntry) -> Mapping[tuple[str, int], tuple[int, str]]:
    """What a transaction commits: (topic, partition) to offset and metadata."""
    return {(topic, LEDGER_PARTITION): (entry.batch_id, entry.encode()) for topic in topics}


def _worst_code(response: Any) -> ErrorCode:
    """The one that decides: an entry that is still open makes the whole ledger open."""
    codes = [error_code(response.error_code)]
    codes += [error_code(partition.error_code) for topic in response.topics for partition in topic.partitions]
    return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)
