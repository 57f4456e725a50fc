"""The common parts of ShareFetch and ShareAcknowledge: checks, and the acknowledgements in both (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from barnabas.broker.apis.partition_lookup import PartitionLookup
from barnabas.broker.apis.rights import may_on_topics
from barnabas.broker.current_settings import CurrentSettings
from barnabas.broker.fetch_context import InSteps
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.shares.node_part import ShareGroups
from barnabas.broker.shares.remote_records import SharedRemoteRecords
from barnabas.broker.shares.sessions import TopicPartition
from barnabas.broker.shares.share_configs import ShareConfigs
from barnabas.broker.shares.share_partition import Acknowledgement
from barnabas.broker.shares.state import SharePartitionKey
from barnabas.broker.traffic import BytesOut
from barnabas.protocol.acknowledge_type import AcknowledgeType
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import share_acknowledge, share_fetch
from barnabas.runtime.call import Call
from barnabas.runtime.meter import Meter
from barnabas.runtime.world import Clock

MOST_MEMBER_ID = 36
"""Characters of a UUID."""
RENEWAL_FROM_VERSION = 2
TYPES_AT_ONCE = 20_000
"""Acknowledgement types that are checked in one step."""


@dataclass(frozen=True, slots=True)
class SharePorts:
    shares: ShareGroups
    lookup: PartitionLookup
    metadata: MetadataCache
    configs: Callable[[str], ShareConfigs]
    """By group id."""
    is_enabled: Callable[[], bool]
    monotonic: Clock
    settings: CurrentSettings
    bytes_out: BytesOut
    remote: SharedRemoteRecords | None = None
    """None: there is no tiered storage."""


def check_request(ports: SharePorts, call: Call) -> None:
    """Raises KafkaError."""
    request: share_fetch.ShareFetchRequest | share_acknowledge.ShareAcknowledgeRequest = call.message
    if not ports.is_enabled():
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if request.group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if not call.may(AclOperation.READ, AclResourceType.GROUP, request.group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.member_id or len(request.member_id) > MOST_MEMBER_ID:
        raise KafkaError(ErrorCode.INVALID_REQUEST)


class Acknowledging:
    """The acknowledgements of one request, from the check to the results."""

    def __init__(self, ports: SharePorts, call: Call) -> None:
        self._ports = ports
        self._request: share_fetch.ShareFetchRequest | share_acknowledge.ShareAcknowledgeRequest = call.message
        self._call = call
        self._under_way = 0
        self._has_begun = False
        self._when_done: Callable[[], None] | None = None
        self.results: dict[TopicPartition, KafkaError | None] = {}
        """By (topic id, index): the error, or None if it is stored."""

    def beginning(self) -> InSteps[None]:
        """Begin all that is valid."""
        request, meter = self._request, Meter(self._call)
        said: dict[TopicPartition, list[Acknowledgement]] = {}
        for topic in request.topics:
            for asked in topic.partitions:
                said[topic.topic_id, asked.partition_index] = [
                    Acknowledgement(it.first_offset, it.last_offset, it.acknowledge_types)
                    for it in asked.acknowledgement_batches
                ]
                if meter.step_ends(1 + len(asked.acknowledgement_batches)):
                    yield None
        may_read = may_on_topics(self._call, AclOperation.READ)
        for (topic_id, index), acknowledgements in said.items():
            error = yield from self._error(topic_id, index, acknowledgements, may_read)
            if error is not None:
                self.results[topic_id, index] = KafkaError(error)
            elif not acknowledgements:
                self.results[topic_id, index] = None
            else:
                self._begin((topic_id, index), acknowledgements)
            if meter.step_ends(4):
                yield None
        self._has_begun = True
        self._look()

    def begin_nothing(self) -> None:
        """The request has no acknowledgements."""
        self._has_begun = True

    def _error(
        self, topic_id: bytes, index: int, acknowledgements: Sequence[Acknowledgement], may_read: Callable[[str], bool]
    ) -> InSteps[ErrorCode | None]:
        topic = self._ports.metadata.image.topics.by_id.get(topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        is_valid = yield from self._are_valid(acknowledgements)
        if not is_valid:
            return ErrorCode.INVALID_REQUEST
        if not may_read(topic.name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return None if index in topic.partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _are_valid(self, acknowledgements: Sequence[Acknowledgement]) -> InSteps[bool]:
        renews = self._call.version >= RENEWAL_FROM_VERSION and self._request.is_renew_ack
        last_type = AcknowledgeType.RENEW if renews else AcknowledgeType.REJECT
        read = 0
        for before, each in pairwise([None, *acknowledgements]):
            assert each is not None
            count = len(each.types)
            least = -1 if before is None else before.last_offset
            if not least <= each.first_offset <= each.last_offset:
                return False
            if count == 0 or (count > 1 and each.last_offset - each.first_offset != count - 1):
                return False
            for start in range(0, count, TYPES_AT_ONCE):
                some = each.types[start : start + TYPES_AT_ONCE]
                if min(some) < AcknowledgeType.GAP or max(some) > last_type:
                    return False
                read += 100 + len(some)
                if read >= TYPES_AT_ONCE:
                    read = 0
                    yield None
        return True

    def _begin(self, key: TopicPartition, acknowledgements: Sequence[Acknowledgement]) -> None:
        request = self._request
        assert request.group_id is not None and request.member_id is not None
        partitions = self._ports.shares.partitions
        led = partitions.find(SharePartitionKey(request.group_id, *key))
        if led is None:
            self.results[key] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        self._under_way += 1
        partitions.acknowledge(led, request.member_id, acknowledgements, partial(self._done, key))

    def _done(self, key: TopicPartition, error: KafkaError | None) -> None:
        self.results[key] = error
        self._under_way -= 1
        self._look()

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call back once all results are there, at once if they are."""
        self._when_done = callback
        self._look()

    def _look(self) -> None:
        callback = self._when_done
        if self._has_begun and not self._under_way and callback is not None:
            self._when_done = None
            callback()
