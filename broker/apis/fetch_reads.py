"""The reads of one fetch request: records, an error, or the fact that a remote segment has them (Fetch, 1).

The records are regions of segment files; their bytes go from the page cache to the socket without being copied here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from barnabas.broker.apis.fetch_conversion import (
    MAGIC_OF_VERSION,
    PARTITION_BYTES,
    SKIPPED_AT_MOST,
    down_converted,
)
from barnabas.broker.apis.fetch_conversion import (
    RESPONSE_BYTES as CONVERTED_BYTES,
)
from barnabas.broker.apis.partition_lookup import PartitionLookup
from barnabas.broker.apis.remote_fetch import RemoteReadPorts
from barnabas.broker.apis.rights import may_on_topics
from barnabas.broker.current_settings import CurrentSettings
from barnabas.broker.fetch_context import FetchContext
from barnabas.broker.fetch_session import Answer, PartitionKey, TopicKey
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.purgatory import Purgatory
from barnabas.broker.remote.gathering import Answers as RemoteAnswers
from barnabas.broker.remote.wanted import Wanted as RemoteWanted
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.reads import FetchKind, OffsetIsRemote, ReadRequest
from barnabas.broker.replication.replica import FollowerFetch
from barnabas.broker.replication.replica_selection import SELECTORS, ReplicaView, Selector
from barnabas.broker.replication.throttles import Throttle
from barnabas.broker.traffic import BytesOut, Conversions
from barnabas.protocol.acls import AclOperation
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    LeaderIdAndEpoch,
    PartitionData,
)
from barnabas.runtime.dispatch import Call
from barnabas.runtime.server import Steps
from barnabas.runtime.world import Clock, FileRegion
from barnabas.storage.transaction_index import AbortedTransaction as Aborted

_new: Any = tuple.__new__  # skips the Python-level constructor of named tuples

READ_COMMITTED = 1
UNKNOWN_EPOCH = -1
NO_KNOWN_LEADER = (-1, UNKNOWN_EPOCH)
RACKS_FROM_VERSION = 11
"""Older consumers cannot be redirected to followers."""
LEADER_HINTS_FROM_VERSION = 16
"""Older versions name the leader, but not its address (KIP-951)."""
READ_IN_A_STEP = 16
_LEADER_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


@dataclass(frozen=True, slots=True)
class FetchPorts:
    lookup: PartitionLookup
    metadata: MetadataCache
    sessions: FetchSessions
    fetches: Purgatory[PartitionKey]
    """Fetches that wait for records."""
    deletions: Purgatory[PartitionKey]
    """DeleteRecords requests that wait for followers."""
    report_follower: Callable[[int], None]
    """Called with the broker id of each follower that fetches."""
    bytes_out: BytesOut
    conversions: Conversions
    monotonic: Clock
    settings: CurrentSettings
    throttle: Throttle
    """Limits what followers get that are not in sync."""
    remote: RemoteReadPorts | None = None
    """None: there is no tiered storage."""


class FetchReads:
    """All partitions of one request, read once, and again when one of them has changed."""

    __slots__ = (
        "_broker_epoch",
        "_call",
        "_context",
        "_kind",
        "_leader_only",
        "_may_read",
        "_ports",
        "_replica_id",
        "_selector",
        "answers",
        "bytes_read",
        "failed",
        "left_open",
        "magic",
        "max_bytes",
        "partitions",
        "remote",
        "urgent",
    )

    def __init__(self, ports: FetchPorts, call: Call, context: FetchContext, replica: tuple[int, int]) -> None:
        """`replica`: replica id and broker epoch."""
        request: FetchRequest = call.message
        self._ports = ports
        self._call = call
        self._context = context
        self._replica_id, self._broker_epoch = replica
        from_follower = self._replica_id >= 0
        self._may_read: Callable[[TopicKey], bool] | None = None
        """None: every topic."""
        if not from_follower and call.has_authorizer:
            self._may_read = self._readable_topics()
        version = call.request.api_version
        self._leader_only = from_follower or version < RACKS_FROM_VERSION
        self._selector: Selector | None = None
        if not self._leader_only and request.rack_id:
            self._selector = SELECTORS[ports.settings().replica_selector_class]
        if from_follower:
            self._kind = FetchKind.REPLICA
        elif request.isolation_level == READ_COMMITTED:
            self._kind = FetchKind.READ_COMMITTED
        else:
            self._kind = FetchKind.READ_UNCOMMITTED
        self.max_bytes = request.max_bytes
        if not from_follower:
            self.max_bytes = min(request.max_bytes, ports.settings().fetch_max_bytes, call.most_fetch_bytes())
        self.magic: int | None = None
        """Newest format that the consumer reads; None: all formats."""
        if version < len(MAGIC_OF_VERSION):
            self.magic = MAGIC_OF_VERSION[version]
            self.max_bytes = min(self.max_bytes, CONVERTED_BYTES)
        self.answers: list[Answer] = []
        self.partitions: dict[Hashable, tuple[Partition, FetchPartition, int, int]] = {}
        """Partitions that the fetch can wait for: partition, request, log start offset, and end for this reader."""
        self.left_open: dict[PartitionKey, None] = {}
        """Partitions that the session's next request reads, whether they change or not."""
        self.bytes_read = 0
        self.remote: dict[PartitionKey, tuple[Partition, RemoteWanted]] = {}
        """The part of the first read that only remote segments have."""
        self.failed = False
        """True if there is an error in the answers, or a diverging epoch."""
        self.urgent = False
        """True if the response must not wait for more records."""

    def refuse_all(self) -> None:
        self._may_read = lambda _: False

    def _readable_topics(self) -> Callable[[TopicKey], bool]:
        """True for a topic that the consumer may read, and for an unknown id."""
        metadata, may_read = self._ports.metadata, may_on_topics(self._call, AclOperation.READ)

        def may_read_topic(topic: TopicKey) -> bool:
            name = topic if isinstance(topic, str) else metadata.topic_name(topic)
            return name is None or may_read(name)

        return may_read_topic

    # -- reading

    def are_caught_up(self) -> bool:
        """Record the progress of a follower, and make no answers: it has all records, and nothing else has to be
        reported. False if `reading` has to find out.

        Nearly every fetch of a follower in sync is of this kind: it waits for records, and is read when some come.
        """
        lookup, node_id = self._ports.lookup, self._replica_id
        caught_up: list[tuple[Partition, FollowerFetch]] = []
        for key, wanted in self._context.to_read:
            partition = lookup.partitions.find(key, wanted.partition)
            if partition is None:
                return False
            report: FollowerFetch = _new(
                FollowerFetch, (node_id, self._broker_epoch, wanted.fetch_offset, wanted.log_start_offset)
            )
            if not partition.is_caught_up(report, wanted.current_leader_epoch, wanted.last_fetched_epoch):
                return False
            caught_up.append((partition, report))
        for partition, report in caught_up:
            partition.follower_progressed(report)
        is_still_so = True
        for partition, report in caught_up:
            # Coordinators may have written when their records were committed.
            is_still_so = is_still_so and report.fetch_offset == partition.log.log_end_offset
        return is_still_so

    def reading(self, *, again: bool = False) -> Steps:
        """Read every partition; `again`: the follower's progress was recorded by the first read."""
        answers: list[Answer] = []
        if again:
            self._context.ignore_moved()  # they are in this response
        self.partitions = {}
        self.bytes_read = 0
        if self.remote:
            self.remote = {}
        self.failed = False
        left = self.max_bytes
        self.left_open.clear()
        for key, wanted in self._context.to_read:
            data = self._read_one(key, wanted, left, again)
            records = data.records
            size = records.count if isinstance(records, FileRegion) else 0  # `len` would be a call
            if size:
                self.bytes_read += size
                left = max(0, left - size)
            elif self.remote and (remote := self.remote.get((key, data.partition_index))) is not None:
                left = max(0, left - remote[1].max_bytes)
            answers.append((key, data))
            if len(answers) % READ_IN_A_STEP == 0:
                yield None
        self.answers = answers

    def _read_one(self, key: TopicKey, wanted: FetchPartition, left: int, again: bool) -> PartitionData:
        index = wanted.partition
        if self._may_read is not None and not self._may_read(key):
            return self._failure(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED, NO_KNOWN_LEADER)
        lookup = self._ports.lookup
        partition = lookup.partitions.find(key, index)
        if partition is None:
            error = lookup.partitions.missing_error(key, index)
            return self._failure(index, error, lookup.known_leader(key, index))
        try:
            return self._read_log(key, partition, wanted, left, again)
        except KafkaError as failure:
            return self._failure(index, failure.code, partition.known_leader())

    def _read_log(
        self, key: TopicKey, partition: Partition, wanted: FetchPartition, left: int, again: bool
    ) -> PartitionData:
        if self._selector is not None and partition.is_leader:
            preferred = self._nearer(self._selector, partition, wanted.fetch_offset)
            if preferred is not None:
                return self._redirected(partition, wanted, preferred)
        # The first batch of a response is sent whole even if it is larger than the limits (KIP-74).
        request = ReadRequest(
            self._kind,
            wanted.fetch_offset,
            min(wanted.partition_max_bytes, left if self.magic is None else min(left, PARTITION_BYTES)),
            wanted.current_leader_epoch,
            wanted.last_fetched_epoch,
            leader_only=self._leader_only,
            at_least_one_batch=self.bytes_read == 0 and not self.remote and left > 0,
        )
        if self._replica_id < 0:
            try:
                found = partition.read(request)
            except OffsetIsRemote:
                if self._ports.remote is None:
                    raise
                return self._read_remotely((key, wanted.partition), partition, request, again=again)
        elif again:
            found = partition.read(request)
        else:
            report = FollowerFetch(self._replica_id, self._broker_epoch, wanted.fetch_offset, wanted.log_start_offset)
            found = partition.follower_read(report, request)
        may_be_throttled = found.records is not None and self._replica_id >= 0 and self._ports.throttle.replicas.topics
        if may_be_throttled and self._is_throttled(partition):
            found = found._replace(records=None)
        data = PartitionData(
            partition_index=wanted.partition,
            high_watermark=found.high_watermark,
            last_stable_offset=found.last_stable_offset,
            log_start_offset=found.log_start_offset,
            records=found.records.region if found.records is not None else b"",
        )
        if found.diverging_epoch is not None:
            self.failed = True
            epoch, end_offset = found.diverging_epoch
            data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        if self._kind is not FetchKind.READ_COMMITTED:
            data.aborted_transactions = None
        elif found.aborted:
            data.aborted_transactions = _as_answer(found.aborted)
        readable = self.readable(partition)
        self.partitions[key, wanted.partition] = (partition, wanted, found.log_start_offset, readable)
        if (found.records is None and readable > wanted.fetch_offset) or (
            self._replica_id >= 0 and self._replica_id not in partition.replica.maximal_isr
        ):
            # There was no room left for it; or the follower is not in the ISR, nor proposed, and each fetch may let it
            # join.
            self.left_open[key, wanted.partition] = None
        return data

    def _read_remotely(
        self, key: PartitionKey, partition: Partition, request: ReadRequest, *, again: bool
    ) -> PartitionData:
        """No records yet. They are read when all partitions are; not if the request has waited already, or while the
        fetch quota of remote reads is exceeded."""
        found = partition.offsets(request.current_leader_epoch)
        ports, with_aborted = self._ports.remote, self._kind is FetchKind.READ_COMMITTED
        assert ports is not None
        if request.max_bytes > 0 and not again and not ports.reads.is_throttled:
            wanted = RemoteWanted(request.offset, request.max_bytes, request.at_least_one_batch, with_aborted)
            self.remote[key] = (partition, wanted)
        self.left_open[key] = None
        data = PartitionData(
            partition_index=key[1],
            high_watermark=found.high_watermark,
            last_stable_offset=found.last_stable_offset,
            log_start_offset=found.log_start_offset,
            records=b"",
        )
        if not with_aborted:
            data.aborted_transactions = None
        return data

    def _is_throttled(self, partition: Partition) -> bool:
        """True if a follower that is not in sync has to wait for its records (KIP-73)."""
        ports, in_sync = self._ports, self._replica_id in partition.replica.isr
        if in_sync:
            return False
        now_ms = ports.monotonic.now_ms()
        return ports.throttle.holds_back((partition.topic, partition.index), now_ms, in_sync=in_sync)

    def count_throttled(self, now_ms: int) -> None:
        throttle = self._ports.throttle
        for key, data in self.answers:
            if data.records and (key, data.partition_index) in self.partitions:
                partition = self.partitions[key, data.partition_index][0]
                throttle.passed((partition.topic, partition.index), len(data.records), now_ms)

    def _nearer(self, select: Selector, partition: Partition, offset: int) -> int | None:
        """The follower that this consumer should read from; None for the leader."""
        ports = self._ports
        nodes = ports.metadata.alive_nodes(self._call.request.listener_name)
        settings = ports.settings()
        views = [
            ReplicaView(node_id, nodes[node_id].rack, log_end_offset, late_ms)
            for node_id, log_end_offset, late_ms in partition.replica.in_sync_followers(
                offset, ports.monotonic.now_ms()
            )
            if node_id in nodes
        ]
        leader = ReplicaView(settings.node_id, settings.broker_rack, partition.log.log_end_offset, 0)
        return select(self._call.message.rack_id, leader, views)

    def _redirected(self, partition: Partition, wanted: FetchPartition, preferred: int) -> PartitionData:
        """No records, but the preferred replica; the response does not wait."""
        found = partition.offsets(wanted.current_leader_epoch)
        self.urgent = True
        return PartitionData(
            partition_index=wanted.partition,
            high_watermark=found.high_watermark,
            last_stable_offset=found.last_stable_offset,
            log_start_offset=found.log_start_offset,
            aborted_transactions=None,
            preferred_read_replica=preferred,
            records=b"",
        )

    def readable(self, partition: Partition) -> int:
        """The offset up to which this reader may read now."""
        log = partition.log
        if self._kind is FetchKind.REPLICA:
            return log.log_end_offset
        return log.last_stable_offset if self._kind is FetchKind.READ_COMMITTED else log.high_watermark

    def _failure(self, index: int, error: ErrorCode, leader: tuple[int, int]) -> PartitionData:
        """`leader`: (id, epoch) of the known leader."""
        self.failed = True
        data = PartitionData(
            partition_index=index, error_code=error, high_watermark=-1, log_start_offset=-1, records=b""
        )
        if error in _LEADER_MOVED and self._call.version >= LEADER_HINTS_FROM_VERSION:
            data.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
        return data

    def load(self) -> None:
        """Read the records, which are few, instead of leaving that to the connection. What cannot be read is left to
        it."""
        for _, data in self.answers:
            records = data.records
            if not isinstance(records, FileRegion):
                continue
            try:
                content = records.file.pread(records.count, records.offset)
            except OSError:
                continue
            if len(content) == records.count:
                data.records = content

    def converting(self, magic: int) -> Steps:
        """Replace what was read by message sets of `magic`."""
        conversions = self._ports.conversions
        self.bytes_read = 0
        for key, data in self.answers:
            found = self.partitions.get((key, data.partition_index))
            wanted = None if found is None else found[1]
            left = SKIPPED_AT_MOST
            if wanted is None and (remote := self.remote.get((key, data.partition_index))) is not None:
                wanted = FetchPartition(partition=data.partition_index, fetch_offset=remote[1].offset)
            read = data.records
            while wanted is not None and read:
                data.records = b""
                try:
                    data.records, offset = yield from down_converted(read, magic, wanted.fetch_offset, conversions)
                except KafkaError as error:
                    data.error_code, self.failed = error.code, True
                    break
                left -= 1
                if data.records or not left:
                    break
                # Otherwise the consumer would ask for the same again.
                wanted = FetchPartition(
                    partition=wanted.partition, fetch_offset=offset, partition_max_bytes=wanted.partition_max_bytes
                )
                read = self._read_one(key, wanted, PARTITION_BYTES, again=True).records
            self.bytes_read += len(data.records or b"")

    def is_urgent(self, partition: Partition, wanted: FetchPartition, log_start_offset: int) -> bool:
        """True if an error or a new log start offset has to be reported without waiting for records."""
        replica = partition.replica
        if not self._leader_only:
            self.urgent = self.urgent or replica.replica_error(wanted.current_leader_epoch) is not None
        elif not replica.is_leader or wanted.current_leader_epoch not in (UNKNOWN_EPOCH, replica.leader_epoch):
            self.urgent = True
        elif self._replica_id >= 0 and partition.log.log_start_offset > log_start_offset >= 0:
            # A DeleteRecords request may be waiting for this follower.
            self.urgent = True
        return self.urgent

    def add_remote(self, found: RemoteAnswers[PartitionKey]) -> None:
        """Put what was read from remote segments into the answers."""
        for place, (topic, data) in enumerate(self.answers):
            key = (topic, data.partition_index)
            if key not in found:
                continue
            records, error = found[key]
            if records is None:
                failure = self._failure(data.partition_index, error, self.remote[key][0].known_leader())
                self.answers[place] = (topic, failure)
                continue
            data.records = records.data
            self.bytes_read += len(records.data)
            if records.aborted:
                data.aborted_transactions = _as_answer(records.aborted)


def _as_answer(aborted: Iterable[Aborted]) -> list[AbortedTransaction]:
    return [AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset) for each in aborted]
