"""A blocking cluster client for one thread: leaders, coordinators, offsets, fetches. Knows nothing of Spark.

Executors and Spark's Python workers have no event loop. The cores are those of `barnabas.client`: metadata,
ListOffsets, FindCoordinator, backoff. Retriable errors are retried with backoff for `retry_timeout_ms`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

from barnabas.client.coordinator_lookup import CoordinatorType, coordinator_in, lookup_request
from barnabas.client.metadata import Leadership, Metadata, Node, TopicPartition, TopicView
from barnabas.client.offset_lookup import FoundOffset, Isolation, answers_of, request_for
from barnabas.pipeline.addresses import Address, parse_bootstrap
from barnabas.pipeline.blocking_connection import BlockingConnection
from barnabas.pipeline.blocking_security import blocking_security
from barnabas.pipeline.cluster_access import Bootstrap, access_of
from barnabas.pipeline.errors import BlockingError, ConnectionFailed, NotSent
from barnabas.pipeline.fetch_ahead import (
    AheadConnection,
    FetchAhead,
    FetchedPartition,
    FetchParameters,
    fetched_partition,
)
from barnabas.pipeline.response_errors import is_retriable, partition_error
from barnabas.pipeline.retry_policy import Retries, RetryPolicy
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import Message

ANY_BROKER_TIMEOUT_MS = 10_000
"""Timeout per broker of a request that any broker answers: one that hangs must not use up the retry timeout."""

_NO_SUCH_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

RequestFor = Message | Callable[[Leadership], Message]


class CoordinatorRequest(NamedTuple):
    request: Message
    code_of: Callable[[Any], ErrorCode]
    """Returns the error of a response."""
    version: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One Metadata response."""

    cluster_id: str | None
    brokers: Mapping[int, Node]
    topics: Mapping[str, TopicView]
    """A topic that does not exist has an error and no partitions."""


class BlockingCluster:
    """Connects to brokers on first use. Close it, or use it as a context manager."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        *,
        client_id: str = "barnabas-pipeline",
        request_timeout_ms: int = 30_000,
        retry_timeout_ms: int = 60_000,
    ) -> None:
        """Opens no connection yet. PipelineError unless `bootstrap` is HOST:PORT,…, or for a security setting whose
        file cannot be used."""
        access = access_of(bootstrap)
        self.bootstrap = access.servers
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self.retry_timeout_ms = retry_timeout_ms
        self.chance = random.Random()
        self._retry_policy = RetryPolicy(access.servers, retry_timeout_ms, self.chance)
        self._addresses = parse_bootstrap(access.servers)
        self._metadata = Metadata()
        self._connections: dict[Address, BlockingConnection] = {}
        self._security = blocking_security(access)
        self._ahead = AheadConnection(client_id, request_timeout_ms, self._security)
        self._failed_at: dict[Address, float] = {}
        """Time of the last failure of an address; such addresses are tried last."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()
        self._ahead.close()

    # Calls

    def call(self, node_id: int | None, request: Message, *, version: int | None = None) -> Any:
        """Call one broker, or any (None), without retries. Raises NotSent, ConnectionFailed or TimedOut; the broker's
        errors are in the response."""
        if node_id is not None:
            return self._call_address(self._address_of(node_id), request, self.request_timeout_ms, version)
        reasons = []
        for address in self._candidates():
            try:
                return self._call_address(address, request, self.request_timeout_ms, version)
            except NotSent as error:
                reasons.append(str(error))
        raise NotSent("; ".join(reasons))

    def leader_call(self, topic: str, partition: int, request: RequestFor, *, version: int | None = None) -> Any:
        """Call the leader of a partition until the response has no retriable error. `request` may be a function that
        builds it for each leader.

        The request must be idempotent: leaders may handle it more than once. An error that is not retriable is in the
        response. KafkaError if the partition does not exist; TimedOut.
        """
        retries = self._retry_policy.start(f"{topic}-{partition}")
        while True:
            leadership = self._leader(topic, partition, retries)
            message = request if isinstance(request, Message) else request(leadership)
            try:
                response = self.call(leadership.node_id, message, version=version)
            except BlockingError as error:
                reason: object = error
            else:
                code = partition_error(response, partition)
                if not is_retriable(code):
                    return response
                reason = f"{topic}-{partition}: {code.name}"
                if code in _NO_SUCH_TOPIC:
                    retries.missing(topic, partition)
            retries.wait(reason)
            self._refresh([topic])

    def coordinator(self, key: str, kind: CoordinatorType | int) -> int:
        """The node id of the coordinator of a group or a transactional id. KafkaError if there will never be one;
        TimedOut."""
        return self._find_coordinator(key, kind)[0]

    def _find_coordinator(self, key: str, kind: CoordinatorType | int) -> tuple[int, Address]:
        """(node id, address of the broker that answered). Raises as `coordinator`."""
        kind = CoordinatorType(kind)
        retries = self._retry_policy.start(f"the coordinator of {kind.name.lower()} {key!r}")
        while True:
            try:
                response, address = self._call_any(lookup_request(kind, key))
            except BlockingError as error:
                retries.wait(error)
                continue
            found = coordinator_in(response, key)
            if isinstance(found, Node):
                self._metadata.learn_nodes([found])
                return found.node_id, address
            self._try_last(address)
            retries.wait(found.name)

    def coordinator_call(
        self,
        key: str,
        kind: CoordinatorType | int,
        request: Message,
        code_of: Callable[[Any], ErrorCode],
        *,
        version: int | None = None,
    ) -> Any:
        """Call the coordinator of `key` until `code_of` the response is not retriable. As with `leader_call`, the
        request must be idempotent."""
        return self.coordinator_calls(key, kind, [CoordinatorRequest(request, code_of, version)])[-1]

    def coordinator_calls(
        self, key: str, kind: CoordinatorType | int, requests: Sequence[CoordinatorRequest]
    ) -> list[Any]:
        """Send several requests to the same coordinator, each after the response to the one before.

        If a response is missing or retriable, all requests are sent again, to the coordinator at that time: all
        returned responses are from one broker. A response with an error that is not retriable is the last one.
        """
        name = type(requests[-1].request).__name__.removesuffix("Request")
        retries = self._retry_policy.start(f"{name} of {key!r}")
        while True:
            node_id, named_by = self._find_coordinator(key, kind)
            try:
                responses, retriable = self._call_in_order(node_id, requests)
            except BlockingError as error:
                reason: object = error
            else:
                if retriable is None:
                    return responses
                reason = retriable.name
            # A broker that is cut off from the others may name a deposed coordinator.
            self._try_last(named_by)
            retries.wait(reason)

    def _call_in_order(
        self, node_id: int, requests: Sequence[CoordinatorRequest]
    ) -> tuple[list[Any], ErrorCode | None]:
        """(responses up to the first error, that error if it is retriable). BlockingError."""
        responses: list[Any] = []
        for each in requests:
            responses.append(self.call(node_id, each.request, version=each.version))
            code = each.code_of(responses[-1])
            if code is not ErrorCode.NONE:
                return responses, code if is_retriable(code) else None
        return responses, None

    # Metadata and offsets

    def metadata(self, topics: Sequence[str] | None = None) -> ClusterView:
        """The metadata of some topics, or of all (None). Never creates a topic. TimedOut if no broker answers."""
        retries = self._retry_policy.start("metadata")
        while True:
            try:
                return self._refresh(topics)
            except BlockingError as error:
                retries.wait(error)

    def list_offsets(
        self,
        specs: Mapping[tuple[str, int], int] | Mapping[TopicPartition, int],
        isolation: Isolation | int = Isolation.READ_UNCOMMITTED,
    ) -> dict[tuple[str, int], FoundOffset]:
        """The first offset at or after each timestamp (ms), EARLIEST or LATEST; with READ_COMMITTED, LATEST is the last
        stable offset. KafkaError if a partition does not exist, or for an error that is not retriable; TimedOut.
        """
        retries = self._retry_policy.start("offsets")
        found: dict[tuple[str, int], FoundOffset] = {}
        timestamps = {TopicPartition(*partition): spec for partition, spec in specs.items()}
        wanted: dict[tuple[str, int], int] = dict(specs.items())
        while True:
            reason: object = ""
            for node_id, partitions in self._by_leader(wanted, retries).items():
                request = request_for(partitions, timestamps, Isolation(isolation), self.request_timeout_ms)
                try:
                    response = self.call(node_id, request)
                except BlockingError as error:
                    reason = error
                    continue
                for partition, code, answer in answers_of(response):
                    if code is ErrorCode.NONE:
                        found[partition] = answer
                        wanted.pop(partition, None)
                    elif not is_retriable(code):
                        raise KafkaError(code, str(TopicPartition(*partition)))
                    else:
                        reason = f"{TopicPartition(*partition)}: {code.name}"
                        if code in _NO_SUCH_TOPIC:
                            retries.missing(*partition)
            if not wanted:
                return {partition: found[partition] for partition in specs}
            retries.wait(reason or "some partitions are missing in the response")
            self._refresh_if_possible(list(dict.fromkeys(topic for topic, _ in wanted)))

    def fetch(  # noqa: PLR0913 - the parameters of a fetch
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 8 * 1024 * 1024,
        isolation: Isolation | int = Isolation.READ_UNCOMMITTED,
        max_wait_ms: int = 500,
        topic_id: bytes = ZERO_UUID,
    ) -> FetchedPartition:
        """Batches from `offset` on, at least one if there is any; the leader waits up to `max_wait_ms` for one.

        `topic_id` restricts the fetch to the topic with that id. KafkaError: OFFSET_OUT_OF_RANGE,
        UNKNOWN_TOPIC_OR_PARTITION, INCONSISTENT_TOPIC_ID (the topic was recreated), or another error that is not
        retriable; TimedOut.
        """
        topic_partition = TopicPartition(topic, partition)
        parameters = FetchParameters(topic_partition, offset, max_bytes, Isolation(isolation), max_wait_ms)

        def request(leadership: Leadership) -> Message:
            return parameters.request(self._metadata.topic_id(topic), leadership.epoch)

        self.require_topic_id(topic, topic_id)
        response = self.leader_call(topic, partition, request)
        self.require_topic_id(topic, topic_id)
        return fetched_partition(response, topic_partition)

    def fetch_ahead(  # noqa: PLR0913 - as `fetch`
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 8 * 1024 * 1024,
        isolation: Isolation | int = Isolation.READ_UNCOMMITTED,
        max_wait_ms: int = 500,
        topic_id: bytes = ZERO_UUID,
    ) -> FetchAhead | None:
        """Send the request of `fetch` without waiting for the response; None if it cannot be sent. One at a time."""
        topic_partition = TopicPartition(topic, partition)
        leadership = self._metadata.leadership(topic_partition)
        known_id = self._metadata.topic_id(topic)
        if leadership is None or topic_id not in (ZERO_UUID, known_id):
            return None
        parameters = FetchParameters(topic_partition, offset, max_bytes, Isolation(isolation), max_wait_ms)
        try:
            address = self._address_of(leadership.node_id)
            return self._ahead.send(address, parameters, parameters.request(known_id, leadership.epoch))
        except BlockingError:
            return None

    def fetched_ahead(self, ahead: FetchAhead) -> FetchedPartition | None:
        """The result of a fetch ahead; None if it failed, and `fetch` has to be called."""
        try:
            return fetched_partition(ahead.connection.receive(ahead.pending), ahead.partition)
        except (BlockingError, KafkaError):
            return None

    def require_topic_id(self, topic: str, topic_id: bytes) -> None:
        """KafkaError(INCONSISTENT_TOPIC_ID) if the metadata has another id for the topic."""
        known = self._metadata.topic_id(topic)
        if ZERO_UUID not in (topic_id, known) and known != topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{topic} was recreated")

    # Connections

    def _address_of(self, node_id: int) -> Address:
        node = self._metadata.nodes.get(node_id)
        if node is None:
            raise NotSent(f"broker {node_id} is unknown")
        return Address(node.host, node.port)

    def _candidates(self) -> list[Address]:
        """Known brokers and bootstrap servers: connected ones first, those that failed recently last."""
        known = [Address(node.host, node.port) for node in self._metadata.nodes.values()]
        self.chance.shuffle(known)
        addresses = list(dict.fromkeys([*known, *self._addresses]))
        failed_at = self._failed_at
        return sorted(addresses, key=lambda each: (failed_at.get(each, 0.0), each not in self._connections))

    def connection(self, node_id: int) -> BlockingConnection:
        """An open connection to a broker. Raises NotSent."""
        return self._connection(self._address_of(node_id), self.request_timeout_ms)

    def _connection(self, address: Address, timeout_ms: int) -> BlockingConnection:
        connection = self._connections.get(address)
        if connection is not None and not connection.is_lost:
            return connection
        if connection is not None:
            connection.close()
            del self._connections[address]
        opened = self._connections[address] = BlockingConnection(
            address, self.client_id, timeout_ms, self._security
        )
        return opened

    def _call_address(self, address: Address, request: Message, timeout_ms: int, version: int | None = None) -> Any:
        try:
            response = self._connection(address, timeout_ms).call(request, timeout_ms, version=version)
        except BlockingError:
            self._failed_at[address] = time.monotonic()
            raise
        self._failed_at.pop(address, None)
        return response

    def _try_last(self, address: Address) -> None:
        """The response did not help: prefer the other brokers next time."""
        self._failed_at[address] = time.monotonic()

    def _call_any(self, request: Message) -> tuple[Any, Address]:
        """(response, address of the broker that sent it) of an idempotent request. NotSent if no broker answers."""
        reasons: list[BlockingError] = []
        timeout_ms = min(ANY_BROKER_TIMEOUT_MS, self.request_timeout_ms)
        for address in self._candidates():
            try:
                return self._call_address(address, request, timeout_ms), address
            except BlockingError as error:
                reasons.append(error)
        raise NotSent("; ".join(str(reason) for reason in reasons))

    # Leaders

    def _refresh(self, topics: Sequence[str] | None) -> ClusterView:
        names = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        response, _ = self._call_any(MetadataRequest(topics=names, allow_auto_topic_creation=False))
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            raise ConnectionFailed(f"metadata: {code.name}")
        if not response.brokers:
            raise ConnectionFailed("metadata without any broker")
        self._metadata.absorb(response)
        view = Metadata()
        view.absorb(response)
        return ClusterView(view.cluster_id, view.nodes, view.topics)

    def _refresh_if_possible(self, topics: Sequence[str]) -> None:
        try:
            self._refresh(topics)
        except BlockingError:
            # The caller uses the old metadata, and its error says best what is wrong.
            return

    def _leader(self, topic: str, partition: int, retries: Retries) -> Leadership:
        """Waits until the partition has a leader."""
        while True:
            leadership = self._metadata.leadership(TopicPartition(topic, partition))
            if leadership is not None:
                return leadership
            reason: object = f"{topic}-{partition} has no leader"
            try:
                view = self._refresh([topic]).topics.get(topic)
            except BlockingError as error:
                reason = error
            else:
                if view is None or view.error in _NO_SUCH_TOPIC or (view.partitions and partition not in view.leaders):
                    retries.missing(topic, partition)
                    reason = f"there is no {topic}-{partition}"
                elif view.error is not ErrorCode.NONE and not is_retriable(view.error):
                    raise KafkaError(view.error, topic)
                else:
                    retries.found()
                if self._metadata.leadership(TopicPartition(topic, partition)) is not None:
                    continue
            retries.wait(reason)

    def _by_leader(
        self, wanted: Mapping[tuple[str, int], int], retries: Retries
    ) -> dict[int, dict[TopicPartition, Leadership]]:
        unknown = dict.fromkeys(topic for topic, partition in wanted if self._has_no_leader(topic, partition))
        if unknown:
            self._refresh_if_possible(list(unknown))
        leaders: dict[int, dict[TopicPartition, Leadership]] = {}
        for topic, partition in wanted:
            leadership = self._leader(topic, partition, retries)
            leaders.setdefault(leadership.node_id, {})[TopicPartition(topic, partition)] = leadership
        return leaders

    def _has_no_leader(self, topic: str, partition: int) -> bool:
        return self._metadata.leadership(TopicPartition(topic, partition)) is None
