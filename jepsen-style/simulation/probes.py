"""Probes: after certain methods of the nodes, an observer is called with what they did.

This is the only file that patches classes of other packages. It does not change what they do: the originals run first,
and observers only read. Nodes in other threads, as an embedded broker beside the simulation, are not observed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Protocol

from barnabas.broker.apis.share_fetch import _ShareFetch
from barnabas.broker.remote.segment_store import RemoteSegmentStore, SegmentFiles
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.reads import ReadRequest, ReadResult
from barnabas.broker.shares.acquisition import Wanted
from barnabas.broker.shares.led_partitions import LedSharePartition, LedSharePartitions
from barnabas.broker.shares.sessions import TopicPartition
from barnabas.broker.shares.share_partition import Acknowledgement
from barnabas.broker.shares.state import SharePartitionKey, ShareState, ShareStateChange
from barnabas.broker.shares.state_client import ShareStateClient
from barnabas.client.groups.participant import Participant
from barnabas.kraft.authorizer.standard import StandardAuthorizer
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.kraft.metadata.loader import MetadataLoader
from barnabas.kraft.metadata_replica import MetadataReplica
from barnabas.kraft.raft.history import OffsetAndEpoch
from barnabas.kraft.raft.ready import Ready
from barnabas.kraft.snapshots import SnapshotFiles
from barnabas.protocol.acknowledge_type import AcknowledgeType
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.messages.share_fetch import PartitionData
from barnabas.protocol.sasl.scram import ScramIdentity
from barnabas.runtime.request import Request
from barnabas.runtime.sasl.mechanisms import _ScramUsers
from barnabas.runtime.server_connection import ServerConnection
from barnabas.storage.log import PartitionLog
from barnabas.storage.names import METADATA_TOPIC
from barnabas.storage.remote.segment import RemoteSegment
from rights import Tried
from simulation.invariants.shares import Asked

After = Callable[..., None]


class Observer(Protocol):
    """Called after each event, except for requests. Partition logs are those of data, not of metadata."""

    def replica_stepped(self, replica: MetadataReplica, ready: Ready) -> None: ...

    def snapshot_published(self, path: str) -> None: ...

    def metadata_applied(self, loader: MetadataLoader, image: MetadataImage) -> None: ...

    def log_opened(self, log: PartitionLog, *, recovered: bool) -> None: ...

    def high_watermark_set(self, log: PartitionLog) -> None: ...

    def log_truncated(self, log: PartitionLog, *, records: int) -> None: ...

    def local_start_moved(self, log: PartitionLog, before: int) -> None: ...

    def began_behind_remote(self, log: PartitionLog) -> None: ...

    def copy_begun(self, segment: RemoteSegment) -> None: ...

    def partition_changed(self, partition: Partition) -> None: ...

    def member_heard(self, participant: Participant) -> None: ...

    def partition_read(self, partition: Partition, request: ReadRequest, result: ReadResult) -> None: ...

    def request_begun(self, connection: ServerConnection) -> None: ...

    def rights_decided(self, request: Request, tried: Tried, *, allowed: bool) -> None: ...

    def user_identified(self, user: str, identity: ScramIdentity | None) -> None: ...

    def records_acquired(
        self, fetch: _ShareFetch, key: TopicPartition, wanted: Wanted, data: PartitionData
    ) -> None: ...

    def renewal_asked(self, key: SharePartitionKey, ranges: Sequence[tuple[int, int]]) -> None: ...

    def share_write_asked(self, key: SharePartitionKey, change: ShareStateChange) -> Asked: ...

    def share_written(self, key: SharePartitionKey, change: ShareStateChange, asked: Asked) -> None: ...

    def share_read(self, key: SharePartitionKey, leader_epoch: int, state: ShareState) -> None: ...


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Calls `observer` for everything in this thread, for the length of the block."""

    def stepped(replica: MetadataReplica, _result: object, ready: Ready, *_: object) -> None:
        observer.replica_stepped(replica, ready)

    def applied(loader: MetadataLoader, *_: object, **__: object) -> None:
        observer.metadata_applied(loader, loader.image)

    def published(files: SnapshotFiles, _result: object, snapshot: OffsetAndEpoch) -> None:
        observer.snapshot_published(files.path(snapshot))

    def watermark(log: PartitionLog, *_: object) -> None:
        if log.topic != METADATA_TOPIC:
            observer.high_watermark_set(log)

    def changed(partition: Partition, *_: object) -> None:
        observer.partition_changed(partition)

    def heard(participant: Participant, *_: object) -> None:
        observer.member_heard(participant)

    def was_read(partition: Partition, result: ReadResult, request: ReadRequest) -> None:
        observer.partition_read(partition, request, result)

    def decided(
        _authorizer: StandardAuthorizer,
        allowed: bool,
        request: Request,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
        **_: object,
    ) -> None:
        resource, needed = AclResourceType(resource_type).name, AclOperation(operation).name
        observer.rights_decided(request, Tried("", resource, name, needed), allowed=allowed)

    def identified(_users: object, identity: ScramIdentity | None, user: str, is_token: bool) -> None:
        if not is_token:
            observer.user_identified(user, identity)

    def acquired(
        fetch: _ShareFetch, data: PartitionData | None, key: TopicPartition, wanted: Wanted, *_: object
    ) -> None:
        if data is not None:
            observer.records_acquired(fetch, key, wanted, data)

    def acknowledges(_shares: object, _result: object, led: LedSharePartition, *arguments: Any) -> None:
        said: Sequence[Acknowledgement] = arguments[1]
        observer.renewal_asked(led.key, [each[:2] for each in said if AcknowledgeType.RENEW in each.types])

    original_write = ShareStateClient.__dict__["write"]

    @wraps(original_write)
    async def write_share_state(client: ShareStateClient, key: SharePartitionKey, change: ShareStateChange) -> None:
        asked = observer.share_write_asked(key, change)
        await original_write(client, key, change)
        observer.share_written(key, change, asked)

    original_read = ShareStateClient.__dict__["read"]

    @wraps(original_read)
    async def read_share_state(client: ShareStateClient, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        state: ShareState = await original_read(client, key, leader_epoch)
        observer.share_read(key, leader_epoch, state)
        return state

    original_copy = RemoteSegmentStore.__dict__["copy"]

    @wraps(original_copy)
    async def copy_segment(store: RemoteSegmentStore, segment: RemoteSegment, files: SegmentFiles) -> None:
        observer.copy_begun(segment)
        await original_copy(store, segment, files)

    original_hand_over = ServerConnection.__dict__["_hand_over"]

    @wraps(original_hand_over)
    def hand_over(connection: ServerConnection, frame: bytearray) -> None:
        observer.request_begun(connection)
        original_hand_over(connection, frame)

    original_open = PartitionLog.__dict__["open"].__func__

    @wraps(original_open)
    def open_log(cls: type[PartitionLog], *arguments: Any, **keywords: Any) -> PartitionLog:
        log: PartitionLog = original_open(cls, *arguments, **keywords)
        if log.topic != METADATA_TOPIC:
            recovered = not keywords["last_run"].clean_shutdown and log.log_end_offset > 0
            observer.log_opened(log, recovered=recovered)
        return log

    original_create = PartitionLog.__dict__["create"].__func__

    @wraps(original_create)
    def create_log(cls: type[PartitionLog], *arguments: Any, **keywords: Any) -> PartitionLog:
        log: PartitionLog = original_create(cls, *arguments, **keywords)
        observer.log_opened(log, recovered=False)
        return log

    probes: list[tuple[type, str, Any]] = [
        (PartitionLog, "open", classmethod(open_log)),
        (PartitionLog, "create", classmethod(create_log)),
        (MetadataReplica, "_carry_out", _after(MetadataReplica, "_carry_out", stepped)),
        (SnapshotFiles, "publish", _after(SnapshotFiles, "publish", published)),
        (MetadataLoader, "_show", _after(MetadataLoader, "_show", applied)),
        (PartitionLog, "set_high_watermark", _after(PartitionLog, "set_high_watermark", watermark)),
        (PartitionLog, "truncate_to", _truncation("truncate_to", observer)),
        (PartitionLog, "truncate_fully_and_start_at", _truncation("truncate_fully_and_start_at", observer)),
        (PartitionLog, "start_behind_remote", _beginning_behind_remote(observer)),
        (PartitionLog, "delete_old_segments", _retention(observer)),
        (RemoteSegmentStore, "copy", copy_segment),
        (Partition, "_carry_out", _after(Partition, "_carry_out", changed)),
        (Partition, "_read", _after(Partition, "_read", was_read)),
        (Participant, "_was_heard", _after(Participant, "_was_heard", heard)),
        (ServerConnection, "_hand_over", hand_over),
        (StandardAuthorizer, "allows", _after(StandardAuthorizer, "allows", decided)),
        (_ScramUsers, "_identify", _after(_ScramUsers, "_identify", identified)),
        (_ShareFetch, "_acquire", _after(_ShareFetch, "_acquire", acquired)),
        (LedSharePartitions, "acknowledge", _after(LedSharePartitions, "acknowledge", acknowledges)),
        (ShareStateClient, "write", write_share_state),
        (ShareStateClient, "read", read_share_state),
    ]
    before = [(owner, name, owner.__dict__[name]) for owner, name, _ in probes]
    for (owner, name, original), (_, _, probe) in zip(before, probes, strict=True):
        setattr(owner, name, _in_this_thread(original, probe))
    try:
        yield
    finally:
        for owner, name, original in before:
            setattr(owner, name, original)


def _in_this_thread(original: Any, probe: Any) -> Any:
    """A method that is `probe` in the present thread, and `original` in others."""
    own_thread = threading.get_ident()
    is_of_class = isinstance(original, classmethod)
    unobserved, observed_method = (original.__func__, probe.__func__) if is_of_class else (original, probe)

    @wraps(unobserved)
    def method(*arguments: Any, **keywords: Any) -> Any:
        is_own = threading.get_ident() == own_thread
        return (observed_method if is_own else unobserved)(*arguments, **keywords)

    return classmethod(method) if is_of_class else method


def _after(owner: type, name: str, call: After) -> Callable[..., Any]:
    """The method, and then `call(self, its result, *its arguments)`."""
    original: Callable[..., Any] = owner.__dict__[name]

    @wraps(original)
    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        result = original(self, *arguments, **keywords)
        call(self, result, *arguments, **keywords)
        return result

    return method


def _truncation(name: str, observer: Observer) -> Callable[..., Any]:
    original: Callable[..., Any] = PartitionLog.__dict__[name]

    @wraps(original)
    def method(log: PartitionLog, *arguments: Any, **keywords: Any) -> Any:
        end = log.log_end_offset
        result = original(log, *arguments, **keywords)
        if log.topic != METADATA_TOPIC:
            observer.log_truncated(log, records=end - log.log_end_offset)
        return result

    return method


def _beginning_behind_remote(observer: Observer) -> Callable[..., Any]:
    truncated = _truncation("start_behind_remote", observer)

    @wraps(truncated)
    def method(log: PartitionLog, *arguments: Any, **keywords: Any) -> Any:
        result = truncated(log, *arguments, **keywords)
        observer.began_behind_remote(log)
        return result

    return method


def _retention(observer: Observer) -> Callable[..., Any]:
    original: Callable[..., Any] = PartitionLog.__dict__["delete_old_segments"]

    @wraps(original)
    def method(log: PartitionLog, *arguments: Any, **keywords: Any) -> Any:
        before = log.local_log_start_offset
        result = original(log, *arguments, **keywords)
        if log.local_log_start_offset > max(before, log.log_start_offset):
            observer.local_start_moved(log, before)
        return result

    return method
