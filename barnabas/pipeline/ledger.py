"""The ledger of a query: the number of its last batch, committed by the transaction that writes the batch.

The ledger is a consumer group, `spark-sink-QUERY`. Its committed offset of partition 0 of the target topic is the
number of the last batch; the offset's metadata names the checkpoint. This needs no extra topic: besides records,
offsets are all that a transaction can commit, they need an existing partition, and the target has one. If the topic is
deleted, the entry disappears together with the records. A batch for several topics commits an entry at each of them, so
that the others remain if one is deleted.
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
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

GROUP_PREFIX = "spark-sink-"
LEDGER_PARTITION = 0
"""Every topic has it."""

FORMAT = 1
_MAX_APPLICATION = 200
"""Keeps the metadata below offset.metadata.max.bytes (default 4,096)."""

OFFSET_FETCH_VERSION = 7
"""The first version with require_stable and the last with one group and topic names; every broker supports it."""


class Verdict(Enum):
    WRITE = "write"
    SKIP = "skip"
    """The batch is already committed."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The entry of one batch."""

    batch_id: int
    checkpoint: str
    """The id of the query, which Spark keeps in its checkpoint: batch ids count within it."""
    application: str = ""
    """The Spark application that wrote the batch; informative."""
    records: int = 0
    digest: str = ""
    """Digest of the records' offsets, see `digest_of`; for audits."""

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
    """A digest of (topic, partition, first offset, last offset), independent of their order."""
    lines = sorted(f"{topic}-{partition}:{first}-{last}" for topic, partition, first, last in ranges)
    return sha256("\n".join(lines).encode()).hexdigest()[:16]


def decode_entry(offset: int, metadata: str | None) -> LedgerEntry:
    """The entry in a committed offset. LedgerError if the sink did not write it."""
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
            f"the ledger has offset {offset} with metadata {(metadata or '')[:80]!r}, which the sink did not write:"
            " another program commits offsets to its group; give the query another name"
        )
    return entry


def decide(
    last: LedgerEntry | None, batch_id: int, checkpoint: str, *, query: str, may_begin_late: bool = False
) -> Verdict:
    """Whether to write a batch, or to skip it because it is committed. LedgerError if the ledger and the checkpoint
    disagree.

    Spark repeats only the last batch, if it does not know whether that was completed. In any other case ledger and
    checkpoint are not of one query: skipping would lose rows, and writing would duplicate them. `may_begin_late` allows
    batches before this one to be missing in the ledger.
    """
    if last is not None and last.checkpoint != checkpoint:
        raise LedgerError(
            f"the ledger of {query} belongs to another checkpoint ({last.checkpoint}, batch {last.batch_id}; this one"
            f" is {checkpoint}, batch {batch_id}): use the old checkpoint, or give the query another name"
        )
    if last is not None and batch_id == last.batch_id:
        return Verdict.SKIP
    if last is not None and batch_id < last.batch_id:
        raise LedgerError(
            f"batch {batch_id} of {query}: the ledger is already at batch {last.batch_id}, so another driver continued"
            " the query, or this checkpoint is an old copy; use the newest checkpoint"
        )
    if may_begin_late or batch_id == (0 if last is None else last.batch_id + 1):
        return Verdict.WRITE
    if last is None:
        raise LedgerError(
            f"batch {batch_id} of {query}: the ledger is empty, because the entry expired (offsets.retention.minutes),"
            " the topic was recreated, or earlier batches went to another topic; if this batch was certainly not"
            " written yet, set begin_late=True once"
        )
    raise LedgerError(
        f"batch {batch_id} of {query}: the ledger is at batch {last.batch_id}, and the batches in between were never"
        " committed here; if that is intended, set begin_late=True once"
    )


class Ledger:
    """The ledger of one query, at a cluster."""

    def __init__(self, cluster: BlockingCluster, query_id: str, topic: str | None = None) -> None:
        """`topic` is the target of all batches; None: there may be several, and all entries of the group are read.

        Only an OffsetFetch with topic names waits for an entry that is the first of its topic and still pending.
        Without a topic it is enough that `Transaction.begin` returned, which is after the end of that transaction.
        """
        self.group_id = group_of(query_id)
        self._cluster = cluster
        self._topics = None
        if topic is not None:
            self._topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=[LEDGER_PARTITION])]

    def last(self, *, stable: bool = False) -> LedgerEntry | None:
        """The newest committed entry according to the current group coordinator, or None. It may be outdated, so it is
        informative and must not decide anything. `stable` waits until no entry is pending in a transaction (KIP-447).
        KafkaError, TimedOut, LedgerError."""
        reading = self._reading(stable=stable)
        return self._newest(
            self._cluster.coordinator_call(
                self.group_id, CoordinatorType.GROUP, reading.request, reading.code_of, version=reading.version
            )
        )

    def last_before(self, transaction: Transaction, topics: Iterable[str], entry: LedgerEntry) -> LedgerEntry | None:
        """The newest entry that was committed before the transaction began, even if brokers are cut off and deposed
        (`Transaction.read_after_write`). `entry` is the one that the transaction will commit at `topics`. Raises as
        `last`, and the errors of a transaction."""
        # Brokers of Kafka before 4.0 apply markers a moment after they acknowledge them, and only a request for stable
        # offsets waits for that. It has to come first: afterwards the entry written here is unstable.
        self.last(stable=True)
        return self._newest(
            transaction.read_after_write(self.group_id, entries_at(topics, entry), self._reading(stable=False))
        )

    def _reading(self, *, stable: bool) -> CoordinatorRequest:
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
    """(topic, partition) to offset and metadata, as a transaction commits them."""
    return {(topic, LEDGER_PARTITION): (entry.batch_id, entry.encode()) for topic in topics}


def _worst_code(response: Any) -> ErrorCode:
    """The first error: one pending entry makes the whole ledger pending."""
    codes = [error_code(response.error_code)]
    codes += [error_code(partition.error_code) for topic in response.topics for partition in topic.partitions]
    return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)
