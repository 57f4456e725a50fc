"""A cluster as blocking code sees it: who leads what, calls to brokers, offsets, fetches. Knows nothing of Spark.

For one thread: executors and Spark's Python workers have no event loop. What is known of leaders is the client's own
core (`barnabas.client.metadata`). Whatever may pass is tried again, with waits that grow, for `retry_timeout_ms`; then
it ends in one line.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import TracebackType
from typing import Any, NamedTuple, Self

from barnabas.client.metadata import Leadership, Metadata, Node, TopicPartition, TopicView
from barnabas.client.offset_lookup import FoundOffset, Isolation, answers_of, request_for
from barnabas.pipeline.addresses import Address, parse_bootstrap
from barnabas.pipeline.blocking_connection import BlockingConnection
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
from protocol.errors import ErrorCode, KafkaError, error_code
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.primitives import ZERO_UUID
from protocol.schema import Message

ASK_ANYONE_MS = 10_000
"""One broker that hangs must not use up the retries for a question that any broker answers."""

_NO_SUCH_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

RequestFor = Message | Callable[[Leadership], Message]


class CoordinatorKind(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class CoordinatorRequest(NamedTuple):
    """What a coordinator is asked."""

    request: Message
    code_of: Callable[[Any], ErrorCode]
    """The error of an answer."""
    version: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What one broker told."""

    cluster_id: str | None
    brokers: Mapping[int, Node]
    topics: Mapping[str, TopicView]
    """With their ids, partitions, leaders and epochs. One that is not there has its error, and no partitions."""


class BlockingCluster:
    """Connections to the brokers of one cluster, opened when they are needed; close it, or use it as a block."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "barnabas-pipeline",
        request_timeout_ms: int = 30_000,
        retry_timeout_ms: int = 60_000,
    ) -> None:
        """Dials nobody yet. PipelineError if `bootstrap` is no HOST:PORT,…"""
        self.bootstrap = bootstrap
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self.retry_timeout_ms = retry_timeout_ms
        self.chance = random.Random()
        self._retry_policy = RetryPolicy(bootstrap, retry_timeout_ms, self.chance)
        self._addresses = parse_bootstrap(bootstrap)
        self._metadata = Metadata()
        self._connections: dict[Address, BlockingConnection] = {}
        self._ahead = AheadConnection(client_id, request_timeout_ms)
        self._failed_at: dict[Address, float] = {}
        """When an address last gave nothing; asked last then."""

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
        """Ask one broker, or any (None), once. Raises NotSent, ConnectionFailed or TimedOut; errors of the broker are
        in the answer."""
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
        """Ask whoever leads a partition, and whoever leads it next, until the answer's error for it is none that
        passes. `request` may be made anew for each leader.

        The leader may have handled the request more than once: it has to be one that does not mind. The error that
        does not pass is in the answer. KafkaError if the partition does not exist; TimedOut.
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

    def coordinator(self, key: str, kind: CoordinatorKind | int) -> int:
        """The node id of the coordinator of a group or a transactional id. KafkaError if there never will be one;
        TimedOut."""
        return self._find_coordinator(key, kind)[0]

    def _find_coordinator(self, key: str, kind: CoordinatorKind | int) -> tuple[int, Address]:
        """(node id, who says so). Raises as `coordinator`."""
        kind = CoordinatorKind(kind)
        retries = self._retry_policy.start(f"the coordinator of {kind.name.lower()} {key!r}")
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        while True:
            try:
                response, address = self._ask_anyone(request)
            except BlockingError as error:
                retries.wait(error)
                continue
            for found in response.coordinators:
                code = error_code(found.error_code)
                if code is ErrorCode.NONE:
                    node = Node(found.node_id, found.host, found.port)
                    self._metadata.learn_nodes([node])
                    return node.node_id, address
                if not is_retriable(code):
                    raise KafkaError(code, found.error_message or f"no coordinator of {key!r}")
                self._ask_last(address)
                retries.wait(code.name)

    def coordinator_call(
        self,
        key: str,
        kind: CoordinatorKind | int,
        request: Message,
        code_of: Callable[[Any], ErrorCode],
        *,
        version: int | None = None,
    ) -> Any:
        """Ask the coordinator of `key`, and whoever is it next, until `code_of` the answer is none that passes. As
        `leader_call`: the request has to be one that may be handled more than once.
        """
        return self.coordinator_calls(key, kind, [CoordinatorRequest(request, code_of, version)])[-1]

    def coordinator_calls(self, key: str, kind: CoordinatorKind | int, questions: Sequence[CoordinatorRequest]) -> list[Any]:
        """Ask one and the same coordinator several things, each after the answer to the one before. If one of the
        answers passes, or is missing, all are asked again, of whoever is the coordinator then: no answer is of another
        broker than the others. The first error that does not pass is the last answer.
        """
        name = type(questions[-1].request).__name__.removesuffix("Request")
        retries = self._retry_policy.start(f"{name} of {key!r}")
        while True:
            node_id, named_by = self._find_coordinator(key, kind)
            try:
                answers, passing = self._ask_all(node_id, questions)
            except BlockingError as error:
                reason: object = error
            else:
                if passing is None:
                    return answers
                reason = passing.name
            # A broker that is cut off from the others names the wrong one, and does not know.
            self._ask_last(named_by)
            retries.wait(reason)

    def _ask_all(self, node_id: int, questions: Sequence[CoordinatorRequest]) -> tuple[list[Any], ErrorCode | None]:
        """(the answers up to the first error, the error if it passes). BlockingError."""
        answers: list[Any] = []
        for question in questions:
            answers.append(self.call(node_id, question.request, version=question.version))
            code = question.code_of(answers[-1])
            if code is not ErrorCode.NONE:
                return answers, code if is_retriable(code) else None
        return answers, None

    # What is known

    def metadata(self, topics: Sequence[str] | None = None) -> ClusterView:
        """Ask for some topics, or for all (None); none is made by it. TimedOut if nobody answers."""
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
        """The first offset at or after each timestamp (ms), or EARLIEST, LATEST; LATEST of committed
        ones is the last stable offset. KafkaError if a partition does not exist, or a leader refuses; TimedOut.
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
            retries.wait(reason or "no answer for some partitions")
            self._refresh_if_possible(list(dict.fromkeys(topic for topic, _ in wanted)))

    def fetch(  # noqa: PLR0913 - what a fetch is made of
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
        """Batches from `offset` on, at least one if there is any, waiting up to `max_wait_ms` for some.

        With `topic_id`, only of that very topic. KafkaError: OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION,
        INCONSISTENT_TOPIC_ID (the name belongs to another topic now), or what else the leader refuses; TimedOut.
        """

        place = TopicPartition(topic, partition)
        question = FetchParameters(place, offset, max_bytes, Isolation(isolation), max_wait_ms)

        def ask(leadership: Leadership) -> Message:
            return question.request(self._metadata.topic_id(topic), leadership.epoch)

        self.require_topic_id(topic, topic_id)
        response = self.leader_call(topic, partition, ask)
        self.require_topic_id(topic, topic_id)
        return fetched_partition(response, place)

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
        """Ask as `fetch` does, and go on without the answer; None if that cannot be done just now. One at a time."""
        place = TopicPartition(topic, partition)
        leadership = self._metadata.leadership(place)
        known_id = self._metadata.topic_id(topic)
        if leadership is None or topic_id not in (ZERO_UUID, known_id):
            return None
        question = FetchParameters(place, offset, max_bytes, Isolation(isolation), max_wait_ms)
        try:
            address = self._address_of(leadership.node_id)
            return self._ahead.post(address, question, question.request(known_id, leadership.epoch))
        except BlockingError:
            return None

    def fetched_ahead(self, ahead: FetchAhead) -> FetchedPartition | None:
        """The answer; None if it is none that helps, and `fetch` has to ask again."""
        try:
            return fetched_partition(ahead.connection.take(ahead.posted), ahead.partition)
        except (BlockingError, KafkaError):
            return None

    def require_topic_id(self, topic: str, topic_id: bytes) -> None:
        """KafkaError(INCONSISTENT_TOPIC_ID) if the topic is known by another id."""
        known = self._metadata.topic_id(topic)
        if ZERO_UUID not in (topic_id, known) and known != topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{topic} was made anew")

    # Inside: whom to ask

    def _address_of(self, node_id: int) -> Address:
        node = self._metadata.nodes.get(node_id)
        if node is None:
            raise NotSent(f"broker {node_id} is unknown")
        return Address(node.host, node.port)

    def _candidates(self) -> list[Address]:
        """Known brokers and bootstrap servers: connected ones first, those that failed lately last."""
        known = [Address(node.host, node.port) for node in self._metadata.nodes.values()]
        self.chance.shuffle(known)
        addresses = list(dict.fromkeys([*known, *self._addresses]))
        failed_at = self._failed_at
        return sorted(addresses, key=lambda each: (failed_at.get(each, 0.0), each not in self._connections))

    def connection(self, node_id: int) -> BlockingConnection:
        """An open one to a broker. Raises NotSent."""
        return self._connection(self._address_of(node_id), self.request_timeout_ms)

    def _connection(self, address: Address, timeout_ms: int) -> BlockingConnection:
        connection = self._connections.get(address)
        if connection is not None and not connection.is_lost:
            return connection
        if connection is not None:
            connection.close()
            del self._connections[address]
        opened = self._connections[address] = BlockingConnection(address, self.client_id, timeout_ms)
        return opened

    def _call_address(self, address: Address, request: Message, timeout_ms: int, version: int | None = None) -> Any:
        try:
            answer = self._connection(address, timeout_ms).call(request, timeout_ms, version=version)
        except BlockingError:
            self._failed_at[address] = time.monotonic()
            raise
        self._failed_at.pop(address, None)
        return answer

    def _ask_last(self, address: Address) -> None:
        """What it answered did not help: next time ask the others before."""
        self._failed_at[address] = time.monotonic()

    def _ask_anyone(self, request: Message) -> tuple[Any, Address]:
        """The answer to a question that may be asked twice, and whose it is. The last error if nobody answers."""
        reasons: list[BlockingError] = []
        for address in self._candidates():
            try:
                return self._call_address(address, request, min(ASK_ANYONE_MS, self.request_timeout_ms)), address
            except BlockingError as error:
                reasons.append(error)
        raise NotSent("; ".join(str(reason) for reason in reasons))

    # Inside: metadata

    def _refresh(self, topics: Sequence[str] | None) -> ClusterView:
        names = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        response, _ = self._ask_anyone(MetadataRequest(topics=names, allow_auto_topic_creation=False))
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            raise ConnectionFailed(f"metadata: {code.name}")
        if not response.brokers:
            raise ConnectionFailed("metadata that names no broker")
        self._metadata.absorb(response)
        view = Metadata()
        view.absorb(response)
        return ClusterView(view.cluster_id, view.nodes, view.topics)

    def _refresh_if_possible(self, topics: Sequence[str]) -> None:
        try:
            self._refresh(topics)
        except BlockingError:
            # What was known is tried; that says best what is wrong.
            return

    def _leader(self, topic: str, partition: int, retries: Retries) -> Leadership:
        """Who leads it, once somebody does."""
        while True:
            leadership = self._metadata.leadership(TopicPartition(topic, partition))
            if leadership is not None:
                return leadership
            reason: object = f"nobody leads {topic}-{partition}"
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
        unknown = dict.fromkeys(topic for topic, partition in wanted if self._unled(topic, partition))
        if unknown:
            self._refresh_if_possible(list(unknown))
        leaders: dict[int, dict[TopicPartition, Leadership]] = {}
        for topic, partition in wanted:
            leadership = self._leader(topic, partition, retries)
            leaders.setdefault(leadership.node_id, {})[TopicPartition(topic, partition)] = leadership
        return leaders

    def _unled(self, topic: str, partition: int) -> bool:
        return self._metadata.leadership(TopicPartition(topic, partition)) is None
