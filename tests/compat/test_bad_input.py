"""Whatever is sent to a node's port: it stays up, logs no mistake of its own, and others are served as before."""

from __future__ import annotations

import gzip
import json
import random
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import pytest

from barnabas.cluster.probe import ask
from barnabas.protocol.api_keys import API_SPECS, ApiKey, ApiSpec
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader, ResponseHeader
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.messages.vote import VoteRequest, VoteResponse
from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record
from barnabas.protocol.schema import Message, decode, decode_prefix, encode
from tests.compat.librdkafka import ConfluentWriter
from tests.compat.running import RunningCluster

pytestmark = pytest.mark.compat

TIMEOUT_SECONDS = 10.0
METADATA_TOPIC_ID = bytes(15) + b"\x01"
LONGEST_GAP_SECONDS = 5.0
"""For the client that goes on beside all this; the machine may be busy."""
CLAIMED_BYTES = 100 * 1024 * 1024
MEMORY_BYTES = 96 * 1024 * 1024
"""How much a node may grow by twenty claims of `CLAIMED_BYTES`."""
MUTATIONS_OF_EACH = 3
FAVOURITES = (0, 1, 2, 3, 7, 31, 64, 127, 128, 129, 200, 254, 255)
PATIENCE_SECONDS = 0.1
"""A request may have become one that waits."""
OBEYED = frozenset({ApiKey.UNREGISTER_BROKER, ApiKey.CONTROLLER_REGISTRATION, ApiKey.BROKER_REGISTRATION})
"""These may do what they say."""
VECTORS = Path(__file__).parents[1] / "protocol" / "data" / "messages.jsonl.gz"

Response = TypeVar("Response", bound=Message)


class Raw:
    """A connection that sends what it likes."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS)

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the node has closed it already, which is what `was_closed` will find

    def send_frame(self, body: bytes) -> None:
        self.send(struct.pack(">i", len(body)) + body)

    def was_closed(self) -> bool:
        """Whether the node closes the connection and says nothing; waits for it."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def receive_frame(self) -> bytes | None:
        """An answer; None if the node closes the connection instead."""
        try:
            head = self._receive(4)
            return None if head is None else self._receive(struct.unpack(">i", head)[0])
        except ConnectionResetError:
            return None

    def _receive(self, count: int) -> bytes | None:
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                return None
            data += piece
        return data


def request_bytes(api_key: int, version: int, body: bytes, spec: ApiSpec | None = None) -> bytes:
    header = RequestHeader(request_api_key=api_key, request_api_version=version, correlation_id=7, client_id="bad")
    return encode(header, spec.request_header_version(version) if spec else 2) + body


def ask_in(port: int, request: Message, response_type: type[Response], version: int) -> Response:
    spec = API_SPECS[ApiKey(request.API_KEY)]
    with Raw(port) as raw:
        raw.send_frame(request_bytes(spec.key, version, encode(request, version), spec))
        answer = raw.receive_frame()
    assert answer is not None, "the node closed the connection"
    header: Any
    header, position = decode_prefix(ResponseHeader, answer, 0, spec.response_header_version(version))
    assert header.correlation_id == 7
    return decode(response_type, answer[position:], version)


@pytest.fixture(scope="module")
def writer(shared_cluster: RunningCluster) -> Iterator[ConfluentWriter]:
    """A client that minds its own business."""
    topic = shared_cluster.create_topic("beside")
    writer = ConfluentWriter(shared_cluster.bootstrap_servers, topic, 0, 50)
    writer.start()
    shared_cluster.wait_for("the client writes", lambda: len(writer.acks) > 10)
    yield writer
    writer.stop()
    assert writer.failures == []


@pytest.fixture(autouse=True)
def _others_are_served(cluster: RunningCluster, writer: ConfluentWriter) -> Iterator[None]:
    """Before and after each test all nodes answer, and the client beside writes on."""
    began = time.monotonic()
    yield
    ended = time.monotonic()
    for node in cluster.nodes:
        assert cluster.is_answering(node.name), f"{node.name} does not answer any more"
    cluster.wait_for("the client writes on", lambda: writer.has_ack_of(ended))
    assert writer.failures == []
    assert writer.longest_gap(began) < LONGEST_GAP_SECONDS


def ports(cluster: RunningCluster) -> list[int]:
    """One of each role."""
    return [cluster.layout.brokers[0].port, cluster.layout.node(cluster.active_controller()).port]


@pytest.mark.feature("PF-01")
@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(struct.pack(">i", -1), id="negative size"),
        pytest.param(struct.pack(">i", -(2**31)), id="most negative size"),
        pytest.param(struct.pack(">i", 2**31 - 1), id="largest size"),
        pytest.param(struct.pack(">i", 104_857_601), id="one byte more than is allowed"),
        pytest.param(struct.pack(">i", 0), id="empty frame"),
        pytest.param(struct.pack(">ihh", 4, 18, 3), id="header is cut"),
        pytest.param(struct.pack(">ihhih", 10, 3, 1, 7, 32767), id="client id is longer than the frame"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: node\r\n\r\n", id="a browser"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50), id="TLS"),
    ],
)
def test_a_frame_that_cannot_be_closes_its_connection(sent: bytes, cluster: RunningCluster) -> None:
    for port in ports(cluster):
        with Raw(port) as raw:
            raw.send(sent)
            assert raw.was_closed()


@pytest.mark.feature("PF-01")
def test_noise_of_all_kinds(cluster: RunningCluster) -> None:
    chance = random.Random(20)
    for port in ports(cluster):
        for _ in range(60):
            body = chance.randbytes(chance.randrange(200))
            with Raw(port) as raw:
                if chance.random() < 0.5:
                    # Half of the noise comes as a frame, with an API key that exists.
                    raw.send_frame(struct.pack(">h", chance.randrange(93)) + body)
                else:
                    raw.send(body)
                if chance.random() < 0.5:
                    raw.socket.shutdown(socket.SHUT_WR)
                    while raw.receive_frame() is not None:
                        pass


@pytest.mark.feature("PF-01")
def test_requests_that_break_off(cluster: RunningCluster) -> None:
    for port in ports(cluster):
        spec = API_SPECS[ApiKey.API_VERSIONS]
        whole = request_bytes(spec.key, 3, encode(ApiVersionsRequest(), 3), spec)
        framed = struct.pack(">i", len(whole)) + whole
        for length in range(1, len(framed)):
            with Raw(port) as raw:
                raw.send(framed[:length])
                raw.socket.shutdown(socket.SHUT_WR)
                assert raw.was_closed()


@pytest.mark.feature("PF-01")
def test_claims_of_large_frames_cost_nothing(cluster: RunningCluster) -> None:
    for node in (cluster.layout.brokers[0], cluster.layout.node(cluster.active_controller())):
        pid = cluster.pids()[node.name]
        before = resident_bytes(pid)
        connections = [Raw(node.port) for _ in range(20)]
        for raw in connections:
            raw.send(struct.pack(">i", CLAIMED_BYTES) + b"and then nothing")
        assert cluster.is_answering(node.name)
        # The node has read all that was sent once it answers a connection that was made later; they share a loop.
        assert cluster.is_answering(node.name)
        assert resident_bytes(pid) - before < MEMORY_BYTES
        for raw in connections:
            raw.socket.close()


def resident_bytes(pid: int | None) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


@pytest.mark.feature("PF-04", "PF-05")
def test_unknown_keys_and_versions(cluster: RunningCluster) -> None:
    for port in ports(cluster):
        listener = "broker" if port == cluster.layout.brokers[0].port else "controller"
        for api_key in (-1, 4, 7, 93, 9999, 32767, -32768):
            with Raw(port) as raw:
                raw.send_frame(request_bytes(api_key, 0, b""))
                assert raw.was_closed()
        for spec in API_SPECS.values():
            if spec.key == ApiKey.API_VERSIONS:
                continue
            for version in (-1, spec.max_version + 1, 32767):
                with Raw(port) as raw:
                    raw.send_frame(request_bytes(spec.key, version, bytes(20)))
                    assert raw.was_closed(), f"{spec.name} v{version} on a {listener}"
        for version in (5, 99, 32767):
            with Raw(port) as raw:
                raw.send_frame(request_bytes(ApiKey.API_VERSIONS, version, b""))
                answer = raw.receive_frame()
                assert answer is not None
                answer = decode(ApiVersionsResponse, answer[4:], 0)
                assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
                (own,) = answer.api_keys
                assert (own.api_key, own.min_version, own.max_version) == (18, 0, 4)
                # The same connection goes on with a version that is there.
                raw.send_frame(request_bytes(ApiKey.API_VERSIONS, 0, b"", API_SPECS[ApiKey.API_VERSIONS]))
                assert raw.receive_frame() is not None


@dataclass(slots=True)
class Fates:
    """Outcomes of invalid requests."""

    answered: int = 0
    closed: int = 0
    waiting: int = 0

    def send(self, port: int, spec: ApiSpec, version: int, body: bytes) -> None:
        with Raw(port) as raw:
            raw.socket.settimeout(PATIENCE_SECONDS)
            raw.send_frame(request_bytes(spec.key, version, body, spec))
            try:
                if raw.receive_frame() is None:
                    self.closed += 1
                else:
                    self.answered += 1
            except TimeoutError:
                self.waiting += 1


def served_requests(port: int) -> list[tuple[ApiSpec, int, bytes]]:
    """Requests full of extreme values, of every API that the node serves: (API, version, body)."""
    question = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    served = {API_SPECS[ApiKey(api.api_key)] for api in ask(port, question, ApiVersionsResponse).api_keys}
    by_message = {spec.request_type().__name__: spec for spec in served if spec.key not in OBEYED}
    with gzip.open(VECTORS, "rt") as lines:
        vectors = [vector for line in lines if (vector := json.loads(line)).get("message") in by_message]
    return [(by_message[each["message"]], each["version"], bytes.fromhex(each["hex"])) for each in vectors]


@pytest.mark.feature("PF-01", "PF-03", "PF-04")
@pytest.mark.parametrize("role", ["broker", "controller"])
def test_requests_that_ask_for_nonsense(role: str, cluster: RunningCluster) -> None:
    """Well formed, and whatever a field can hold is in it."""
    port = ports(cluster)[role == "controller"]
    fates = Fates()
    for spec, version, body in served_requests(port):
        fates.send(port, spec, version, body)
    assert fates.answered > 50, fates


@pytest.mark.feature("PF-01", "PF-03")
def test_requests_with_flipped_bytes(cluster: RunningCluster) -> None:
    port = cluster.layout.brokers[0].port
    chance = random.Random(21)
    fates = Fates()
    for spec, version, body in served_requests(port):
        for _ in range(MUTATIONS_OF_EACH):
            mutated = bytearray(body or bytes(4))
            for _ in range(chance.randrange(1, 4)):
                mutated[chance.randrange(len(mutated))] = chance.choice(FAVOURITES)
            if chance.random() < 0.2:
                del mutated[chance.randrange(len(mutated)) :]
            fates.send(port, spec, version, bytes(mutated))
    assert fates.answered > 200, fates
    assert fates.closed > 200, fates


@pytest.mark.feature("PF-01", "PF-03")
def test_a_request_that_claims_more_than_it_holds(cluster: RunningCluster) -> None:
    port = cluster.layout.brokers[0].port
    spec = API_SPECS[ApiKey.METADATA]
    for count in (2**31 - 1, 1_000_000, -2):
        with Raw(port) as raw:
            raw.send_frame(request_bytes(spec.key, 1, struct.pack(">i", count), spec))
            assert raw.was_closed()
    spec = API_SPECS[ApiKey.FETCH]
    with Raw(port) as raw:
        raw.send_frame(request_bytes(spec.key, 12, b"\xff" * 40, spec))
        assert raw.was_closed()


@pytest.mark.feature("MB-07", "PF-04")
def test_topic_ids_where_a_version_has_no_such_question(cluster: RunningCluster) -> None:
    topics = [
        MetadataRequestTopic(topic_id=bytes(range(16)), name=None),
        MetadataRequestTopic(topic_id=ZERO_UUID, name="by-name"),
    ]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    answer = ask_in(cluster.layout.brokers[0].port, request, MetadataResponse, version=10)
    assert [(topic.error_code, topic.name) for topic in answer.topics] == [
        (ErrorCode.INVALID_REQUEST, ""),
        (ErrorCode.INVALID_REQUEST, "by-name"),
    ]


@pytest.mark.feature("KR-01", "MB-01")
def test_a_request_for_another_cluster_is_refused(cluster: RunningCluster) -> None:
    port = cluster.layout.node(cluster.active_controller()).port
    question = FetchRequest(
        cluster_id="another-cluster",
        topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[FetchPartition(partition=0)])],
    )
    assert ask(port, question, FetchResponse).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    vote = ask(port, VoteRequest(cluster_id="another-cluster", voter_id=101), VoteResponse)
    assert vote.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    registration = BrokerRegistrationRequest(
        broker_id=9, cluster_id="another-cluster", incarnation_id=bytes(range(16)), log_dirs=[bytes(range(16))]
    )
    answer = ask(port, registration, BrokerRegistrationResponse)
    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


@pytest.mark.feature("AD-01")
@pytest.mark.parametrize("partitions", [0, -2, 1_000_000, 2**31 - 1])
def test_a_topic_of_impossible_size_is_refused(partitions: int, cluster: RunningCluster) -> None:
    topic = CreatableTopic(name="impossible", num_partitions=partitions, replication_factor=3)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
    answer = ask(cluster.layout.brokers[0].port, request, CreateTopicsResponse, TIMEOUT_SECONDS)
    assert answer.topics[0].error_code in (ErrorCode.INVALID_PARTITIONS, ErrorCode.POLICY_VIOLATION)


@pytest.mark.feature("PF-08", "PF-09", "PR-10", "MB-07")
def test_batches_that_must_not_enter_the_log(cluster: RunningCluster) -> None:
    topic = cluster.create_topic("guarded")
    port = cluster.layout.node(cluster.leader_of(topic, 0)).port
    now_ms = int(time.time() * 1000)
    good = build_batch([Record(0, now_ms, b"key", b"value")])

    def produce(records: bytes | None, acks: int = -1, partition: int = 0) -> int:
        data = PartitionProduceData(index=partition, records=records)
        request = ProduceRequest(
            acks=acks, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
        )
        answer = ask_in(port, request, ProduceResponse, version=12)
        return answer.responses[0].partition_responses[0].error_code

    def changed(place: int, *data: int) -> bytes:
        return good[:place] + bytes(data) + good[place + len(data) :]

    corrupt = {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}
    for name, records in {
        "a flipped byte": changed(len(good) - 3, 255),
        "another magic": changed(16, 1),
        "a length beyond its end": changed(8, 0, 0, 255, 255),
        "a negative length": changed(8, 255, 255, 255, 255),
        "cut": good[:-1],
        "half a header": good[:30],
        "nothing": b"",
        "noise": random.Random(22).randbytes(200),
        "two batches": good + good,
    }.items():
        assert produce(records) in corrupt, name
    assert produce(good, acks=5) == ErrorCode.INVALID_REQUIRED_ACKS
    assert produce(good, partition=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(good, partition=-1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.partitions(topic)[0].high_watermark == 0
    assert produce(good) == ErrorCode.NONE
    cluster.wait_for("one record", lambda: cluster.partitions(topic)[0].high_watermark == 1)


@pytest.mark.feature("PF-04", "CL-01")
def test_many_connections_that_say_nothing(cluster: RunningCluster) -> None:
    port = cluster.layout.brokers[1].port
    silent = [Raw(port) for _ in range(300)]
    try:
        answer = ask(port, MetadataRequest(topics=None), MetadataResponse)
        assert len(answer.brokers) == 3
    finally:
        for raw in silent:
            raw.socket.close()
