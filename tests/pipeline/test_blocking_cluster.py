"""A blocking cluster client against scripted brokers with real sockets: moved leaders, silence, malformed responses."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from barnabas.client.metadata import Leadership
from barnabas.client.offset_lookup import EARLIEST, LATEST, FoundOffset, Isolation
from barnabas.pipeline.addresses import Address, parse_bootstrap
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.blocking_connection import BlockingConnection
from barnabas.pipeline.errors import ConnectionFailed, NotSent, PipelineError, TimedOut, UnsupportedVersion
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.framing import parse_request_header, response_prefix
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.messages.fetch import AbortedTransaction, FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.schema import Message, decode, encode

TOPIC_ID = bytes(range(16))
Handler = Callable[[Any], Message | bytes | None]
"""The response to a request; raw bytes instead of a frame; or None for no response."""


class Peer:
    """One broker with its own port and thread. Each API has a handler; requests are recorded."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.handlers: dict[ApiKey, Handler] = {ApiKey.API_VERSIONS: self.versions}
        self.asked: list[Any] = []
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def versions(self, _request: Any) -> Message:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=spec.min_version, max_version=spec.max_version)
                for key, spec in API_SPECS.items()
            ]
        )

    def count(self, kind: type) -> int:
        return sum(isinstance(request, kind) for request in self.asked)

    def close(self) -> None:
        if self.listener.fileno() >= 0:
            # A close alone would leave the thread in its accept, and the port open.
            self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
        self.hang_up()

    def hang_up(self) -> None:
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            self._answer(connection)
        except OSError:
            # The client has closed the connection, as it should after a malformed response.
            return

    def _answer(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while size := stream.read(4):
                frame = memoryview(stream.read(int.from_bytes(size, "big")))
                header, position = parse_request_header(frame)
                spec = API_SPECS[ApiKey(header.request_api_key)]
                version = header.request_api_version
                request = decode(spec.request_type(), frame[position:], version)
                self.asked.append(request)
                answer = self.handlers[spec.key](request)
                if answer is None:
                    continue
                if isinstance(answer, Message):
                    prefix = response_prefix(header.correlation_id, spec.response_header_version(version) == 1)
                    body = prefix + encode(answer, version)
                    answer = len(body).to_bytes(4, "big") + body
                connection.sendall(answer)


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    """Two brokers of one cluster; 1 leads flights-0."""
    both = [Peer(), Peer()]
    for peer in both:
        peer.handlers[ApiKey.METADATA] = lambda request: metadata(both, [1])
    yield both
    for peer in both:
        peer.close()


@pytest.fixture
def cluster(peers: list[Peer]) -> Iterator[BlockingCluster]:
    with BlockingCluster(peers[0].address, request_timeout_ms=2_000, retry_timeout_ms=5_000) as cluster:
        yield cluster


@pytest.fixture
def connection(peers: list[Peer]) -> Iterator[BlockingConnection]:
    connection = BlockingConnection(Address("127.0.0.1", peers[0].port), "test", 2_000)
    yield connection
    connection.close()


def metadata(peers: list[Peer], leaders: list[int], error: ErrorCode = ErrorCode.NONE) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=index, host="127.0.0.1", port=peer.port)
            for index, peer in enumerate(peers, 1)
        ],
        cluster_id="c",
        topics=[
            MetadataResponseTopic(
                error_code=error,
                name="flights",
                topic_id=TOPIC_ID,
                partitions=[
                    MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=leader)
                    for index, leader in enumerate(leaders)
                ],
            )
        ],
    )


def fetched(code: ErrorCode = ErrorCode.NONE, records: bytes = b"") -> FetchResponse:
    part = PartitionData(
        partition_index=0,
        error_code=code,
        high_watermark=9,
        last_stable_offset=8,
        log_start_offset=2,
        aborted_transactions=[AbortedTransaction(producer_id=7, first_offset=3)],
        records=records,
    )
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[part])])


def listed(offset: int, code: ErrorCode = ErrorCode.NONE) -> ListOffsetsResponse:
    part = ListOffsetsPartitionResponse(partition_index=0, error_code=code, timestamp=5, offset=offset, leader_epoch=1)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="flights", partitions=[part])])


def test_metadata_has_topics_with_ids_and_leaders(cluster: BlockingCluster, peers: list[Peer]) -> None:
    view = cluster.metadata(["flights"])
    assert view.cluster_id == "c"
    assert {node_id: node.port for node_id, node in view.brokers.items()} == {1: peers[0].port, 2: peers[1].port}
    assert view.topics["flights"].topic_id == TOPIC_ID
    assert view.topics["flights"].leaders == {0: Leadership(node_id=1, epoch=1)}
    [request] = [each for each in peers[0].asked if isinstance(each, MetadataRequest)]
    assert not request.allow_auto_topic_creation


def test_a_fetch_goes_to_the_leader_and_has_aborted_transactions(cluster: BlockingCluster, peers: list[Peer]) -> None:
    peers[0].handlers[ApiKey.FETCH] = lambda request: fetched(records=b"batches")
    found = cluster.fetch("flights", 0, 5, isolation=Isolation.READ_COMMITTED, max_bytes=1000, max_wait_ms=1)
    assert (bytes(found.records), found[1:]) == (b"batches", (9, 8, 2, [(7, 3)]))
    request = peers[0].asked[-1]
    assert (request.isolation_level, request.max_bytes) == (1, 1000)
    assert request.topics[0].topic_id == TOPIC_ID
    assert request.topics[0].partitions[0].fetch_offset == 5


def test_a_fetch_may_be_asked_ahead(cluster: BlockingCluster, peers: list[Peer]) -> None:
    peers[0].handlers[ApiKey.FETCH] = lambda request: fetched(
        records=b"at %d" % request.topics[0].partitions[0].fetch_offset
    )
    assert cluster.fetch_ahead("flights", 0, 5) is None, "nothing is known of the leader yet"
    cluster.fetch("flights", 0, 3)
    ahead = cluster.fetch_ahead("flights", 0, 5)
    assert bytes(cluster.fetch("flights", 0, 4).records) == b"at 4", "other calls do not wait for it"
    assert ahead is not None
    found = cluster.fetched_ahead(ahead)
    assert found is not None and bytes(found.records) == b"at 5"
    peers[0].handlers[ApiKey.FETCH] = lambda request: fetched(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    moved = cluster.fetch_ahead("flights", 0, 6)
    assert moved is not None and cluster.fetched_ahead(moved) is None


def test_a_leader_that_moved_is_looked_for_again(cluster: BlockingCluster, peers: list[Peer]) -> None:
    def moved(_request: Any) -> Message:
        for peer in peers:
            peer.handlers[ApiKey.METADATA] = lambda request: metadata(peers, [2])
        return fetched(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    peers[0].handlers[ApiKey.FETCH] = moved
    peers[1].handlers[ApiKey.FETCH] = lambda request: fetched(records=b"here")
    assert bytes(cluster.fetch("flights", 0, 5).records) == b"here"


def test_a_request_is_retried_after_a_lost_connection(cluster: BlockingCluster, peers: list[Peer]) -> None:
    def hang_up(_request: Any) -> None:
        peers[0].handlers[ApiKey.FETCH] = lambda request: fetched(records=b"again")
        peers[0].hang_up()

    peers[0].handlers[ApiKey.FETCH] = hang_up
    assert bytes(cluster.fetch("flights", 0, 5).records) == b"again"


def test_an_offset_out_of_range_is_for_the_caller(cluster: BlockingCluster, peers: list[Peer]) -> None:
    peers[0].handlers[ApiKey.FETCH] = lambda request: fetched(ErrorCode.OFFSET_OUT_OF_RANGE)
    with pytest.raises(KafkaError) as caught:
        cluster.fetch("flights", 0, 5)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_another_topic_of_the_same_name_is_not_read(cluster: BlockingCluster, peers: list[Peer]) -> None:
    cluster.metadata(["flights"])
    with pytest.raises(KafkaError) as caught:
        cluster.fetch("flights", 0, 5, topic_id=bytes(15) + b"x")
    assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    assert peers[0].count(API_SPECS[ApiKey.FETCH].request_type()) == 0


def test_listing_offsets_is_retried_for_retriable_errors(cluster: BlockingCluster, peers: list[Peer]) -> None:
    answers = [listed(-1, ErrorCode.OFFSET_NOT_AVAILABLE), listed(42)]
    peers[0].handlers[ApiKey.LIST_OFFSETS] = lambda request: answers.pop(0)
    found = cluster.list_offsets({("flights", 0): LATEST}, Isolation.READ_COMMITTED)
    assert found == {("flights", 0): FoundOffset(42, 5, 1)}
    assert peers[0].asked[-1].isolation_level == 1


def test_records_too_old_for_times_have_no_offset_of_a_time(cluster: BlockingCluster, peers: list[Peer]) -> None:
    peers[0].handlers[ApiKey.LIST_OFFSETS] = lambda request: listed(0, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    assert cluster.list_offsets({("flights", 0): 1000})["flights", 0].offset == -1


def test_a_missing_partition_is_an_error_within_seconds(peers: list[Peer]) -> None:
    with BlockingCluster(peers[0].address, retry_timeout_ms=200) as cluster, pytest.raises(KafkaError) as caught:
        cluster.list_offsets({("flights", 7): EARLIEST})
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "flights-7" in str(caught.value)


def test_the_coordinator_is_found_once_there_is_one(cluster: BlockingCluster, peers: list[Peer]) -> None:
    def found(code: ErrorCode) -> Message:
        each = Coordinator(key="g", node_id=2, host="127.0.0.1", port=peers[1].port, error_code=code)
        return FindCoordinatorResponse(coordinators=[each])

    answers = [found(ErrorCode.COORDINATOR_NOT_AVAILABLE), found(ErrorCode.NONE)]
    for peer in peers:
        peer.handlers[ApiKey.FIND_COORDINATOR] = lambda request: answers.pop(0)
    assert cluster.coordinator("g", 0) == 2


def test_an_unavailable_cluster_ends_in_one_line(peers: list[Peer]) -> None:
    for peer in peers:
        peer.close()
    with BlockingCluster(peers[0].address, retry_timeout_ms=200) as cluster, pytest.raises(TimedOut) as caught:
        cluster.metadata()
    assert "\n" not in caught.value.line
    assert peers[0].address in caught.value.line and "run the same command again" in caught.value.line


def test_any_broker_answers_when_one_is_gone(cluster: BlockingCluster, peers: list[Peer]) -> None:
    cluster.metadata()
    peers[0].close()
    for _ in range(3):
        assert cluster.metadata(["flights"]).brokers


def test_a_silent_broker_times_out(peers: list[Peer], connection: BlockingConnection) -> None:
    peers[0].handlers[ApiKey.METADATA] = lambda request: None
    with pytest.raises(TimedOut, match="Metadata"):
        connection.call(MetadataRequest(), 100)
    assert connection.is_lost, "a late answer would pass for that of the next request"


def test_a_slow_response_times_out(peers: list[Peer], connection: BlockingConnection) -> None:
    peers[0].handlers[ApiKey.METADATA] = lambda request: (1000).to_bytes(4, "big") + b"x"
    with pytest.raises(TimedOut):
        connection.call(MetadataRequest(), 100)


@pytest.mark.parametrize(
    "answer",
    [
        (2**31 - 1).to_bytes(4, "big") + b"x" * 100,  # a frame beyond all bounds
        (-5).to_bytes(4, "big", signed=True),
        (2).to_bytes(4, "big") + b"ab",
        (8).to_bytes(4, "big") + b"\xff" * 8,  # an answer to another request
    ],
)
def test_malformed_responses_close_the_connection(
    peers: list[Peer], connection: BlockingConnection, answer: bytes
) -> None:
    peers[0].handlers[ApiKey.METADATA] = lambda request: answer
    with pytest.raises(ConnectionFailed):
        connection.call(MetadataRequest(), 1_000)
    assert connection.closed


def test_a_truncated_response_is_an_error(peers: list[Peer], connection: BlockingConnection) -> None:
    def lie(_request: Any) -> bytes:
        frame = response_prefix(peers[0].asked.index(_request) + 1, True) + b"\x01\x02"
        return len(frame).to_bytes(4, "big") + frame

    peers[0].handlers[ApiKey.METADATA] = lie
    with pytest.raises(ConnectionFailed, match="Metadata"):
        connection.call(MetadataRequest(), 1_000)


def test_a_server_of_another_protocol_is_an_error(peers: list[Peer]) -> None:
    peers[0].handlers[ApiKey.API_VERSIONS] = lambda request: b"HTTP/1.1 400 Bad Request\r\n\r\n"
    with pytest.raises(NotSent, match="is this a Kafka listener without TLS"):
        BlockingConnection(Address("127.0.0.1", peers[0].port), "test", 2_000)


def test_an_unsupported_version_is_not_sent(peers: list[Peer]) -> None:
    peers[0].handlers[ApiKey.API_VERSIONS] = lambda request: ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=3, min_version=0, max_version=0)]
    )
    connection = BlockingConnection(Address("127.0.0.1", peers[0].port), "test", 2_000)
    with closing(connection), pytest.raises(UnsupportedVersion, match="Fetch"):
        connection.call(API_SPECS[ApiKey.FETCH].request_type()(), 1_000)


def test_a_connection_that_the_broker_closed_is_opened_again(cluster: BlockingCluster, peers: list[Peer]) -> None:
    cluster.metadata()
    [connection] = [each for each in cluster._connections.values() if each.address.port == peers[0].port]
    peers[0].hang_up()
    connection._socket.settimeout(5)
    assert connection._socket.recv(1) == b"", "the end has come"
    asked = peers[0].count(MetadataRequest)
    cluster.call(1, MetadataRequest())
    assert peers[0].count(MetadataRequest) == asked + 1


def test_bootstrap_servers_are_addresses() -> None:
    assert parse_bootstrap("a:1, [::1]:2,PLAINTEXT://c:3,a:1") == [("a", 1), ("::1", 2), ("c", 3)]
    for text in ("", "a", "a:b", "a:0", "a:70000", ":1"):
        with pytest.raises(PipelineError, match="HOST:PORT"):
            parse_bootstrap(text)
