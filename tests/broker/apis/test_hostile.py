"""Malformed and hostile requests: their connection may end, the node and all other connections go on."""

from __future__ import annotations

import logging
import struct
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.kraft.principals import LOOPBACK, written_principal
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.envelope import EnvelopeRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.schema import decode, encode
from barnabas.runtime.identity import ANONYMOUS
from tests.broker.apis.rig import Rig, batch_of, fetch_request, frame_of, on_cluster, play, produce_request
from tests.broker.apis.test_every_version import ANYWHERE, OF_BROKERS, OF_CONTROLLERS, TOPIC
from tests.examples import examples

NODES = (1, 101)


def header(api_key: int, version: int, flexible: bool = True) -> bytes:
    header = RequestHeader(request_api_key=api_key, request_api_version=version, correlation_id=7, client_id="bad")
    return encode(header, 2 if flexible else 1)


async def is_well(rig: Rig) -> None:
    """Both nodes serve, and the cluster does its work."""
    for node in NODES:
        assert (await rig.ask(node, ask_versions())).error_code == 0
    assert (await rig.produce(TOPIC)).error_code == 0


def ask_versions(name: str = "story", version: str = "1") -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)


@pytest.mark.feature("PF-01", "RP-02")
@on_cluster()
async def test_frames_that_cannot_be(rig: Rig) -> None:
    await rig.create(TOPIC)
    whole = frame_of(MetadataRequest(topics=None), 12)
    cases = [
        struct.pack(">i", -1),
        struct.pack(">i", -(2**31)),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 104_857_601),
        struct.pack(">i", 0),
        struct.pack(">ihh", 4, 18, 3),
        struct.pack(">ihhih", 10, 3, 1, 7, 32767),
        struct.pack(">i", len(whole) - 1) + whole[:-1],
        b"GET / HTTP/1.1\r\n\r\n",
        *(struct.pack(">i", len(header(key, 0))) + header(key, 0) for key in (-1, 4, 7, 93, 32767, -32768)),
        *(struct.pack(">i", len(header(3, it)) + 9) + header(3, it) + bytes(9) for it in (-1, 14, 32767)),
    ]
    for node in NODES:
        for sent in cases:
            raw = await rig.raw(node)
            await raw.send(sent)
            with trio.fail_after(10):
                assert await raw.was_closed(), sent[:40]
    await is_well(rig)


@pytest.mark.feature("RP-02")
@on_cluster(seed=2)
async def test_earlier_responses_are_still_sent(rig: Rig) -> None:
    await rig.create(TOPIC)
    raw = await rig.raw(1)
    good, bad = frame_of(MetadataRequest(topics=None), 12, 1), header(99, 0)
    await raw.send(b"".join(struct.pack(">i", len(it)) + it for it in (good, good, bad)))
    for _ in range(2):
        assert await raw.receive_frame() is not None
    assert await raw.receive_frame() is None


@pytest.mark.feature("PF-04", "PF-05")
@on_cluster()
async def test_an_unknown_version_of_api_versions_is_answered_with_the_right_one(rig: Rig) -> None:
    for node in NODES:
        raw = await rig.raw(node)
        for version in (5, 99, 32767, -1):
            await raw.send_frame(header(18, version) + b"whatever it has")
            answer = await raw.receive_frame()
            assert answer is not None and int.from_bytes(answer[:4], "big") == 7
            response = decode(ApiVersionsResponse, answer[4:], 0)
            assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
            (own,) = response.api_keys
            assert (own.api_key, own.min_version, own.max_version) == (18, 0, 4)
        await raw.send_frame(frame_of(ask_versions(), 4))
        assert await raw.receive_frame() is not None, "the same connection goes on"


@pytest.mark.feature("PF-05", "PF-06")
@on_cluster()
async def test_the_content_of_api_versions(rig: Rig) -> None:
    for node in NODES:
        for name, version in (("", "1"), ("a", ""), ("-a", "1"), ("a", "1-"), ("a b", "1"), ("a", "1/2"), ("ä", "1")):
            for api_version in (3, 4):
                refused = await rig.ask(node, ask_versions(name, version), api_version)
                assert refused.error_code == ErrorCode.INVALID_REQUEST, (name, version)
        for name, version in (("a", "1"), ("apache-kafka-java", "4.3.1"), ("x", "1.0-SNAPSHOT"), ("9", "v.-.v")):
            assert (await rig.ask(node, ask_versions(name, version))).error_code == 0, name
        newest = await rig.ask(node, ask_versions(), 4)
        older = await rig.ask(node, ask_versions(), 3)
        lowest = {it.name: it.min_version for it in newest.supported_features}
        assert "metadata.version" in lowest and 0 in lowest.values()
        assert {it.name for it in older.supported_features} == {name for name, least in lowest.items() if least > 0}
        finalized = {it.name: it.max_version_level for it in newest.finalized_features}
        assert finalized["metadata.version"] > 0 and 0 not in finalized.values()
        assert newest.finalized_features_epoch > 0 and newest.throttle_time_ms == 0
        ranges = {it.api_key: (it.min_version, it.max_version) for it in newest.api_keys}
        assert [it.api_key for it in newest.api_keys] == sorted(ranges)
        expected = OF_BROKERS if node == 1 else OF_CONTROLLERS
        assert ranges == {key: (API_SPECS[key].advertised_min_version, API_SPECS[key].max_version) for key in expected}
        assert (await rig.ask(node, ask_versions(), 0)).finalized_features == []
    assert ranges.keys() >= set(ANYWHERE)


@pytest.mark.feature("PF-01", "RP-11")
@on_cluster()
async def test_hostile_counts(rig: Rig) -> None:
    await rig.create(TOPIC)
    many = 400_000
    bodies = {
        (3, 1): struct.pack(">i", many) + bytes(2 * many),
        (3, 12): b"\xff\xff\xff\xff\x07" + bytes(1000),
        (1, 4): bytes(17) + struct.pack(">i", 2**31 - 1) + bytes(1000),
        (19, 2): struct.pack(">i", 2**30) + bytes(100),
        (32, 1): struct.pack(">i", many) + (b"\2" + bytes(6)) * many,
    }
    for (key, version), body in bodies.items():
        raw = await rig.raw(1)
        flexible = API_SPECS[ApiKey(key)].request_header_version(version) == 2
        await raw.send_frame(header(key, version, flexible) + body)
        with trio.fail_after(30):
            assert await raw.was_closed(), key
    await is_well(rig)


@pytest.mark.feature("RP-11")
@on_cluster()
async def test_a_question_asked_a_thousand_times_is_answered_once(rig: Rig) -> None:
    """If a response is much longer than its request, repetition in the request would multiply memory."""
    await rig.create(TOPIC, partitions=20)
    resource = DescribeConfigsResource(resource_type=2, resource_name=TOPIC, configuration_keys=None)
    for node in NODES:
        response = await rig.ask(node, DescribeConfigsRequest(resources=[resource] * 1000))
        assert len(response.results) == 1
    topics = [MetadataRequestTopic(name=TOPIC)] * 1000
    assert len((await rig.ask(1, MetadataRequest(topics=topics))).topics) == 1
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)
    everything = FetchRequest(
        topics=[FetchTopic(topic=TOPIC, partitions=[asked] * 1000)], max_bytes=1000, session_epoch=-1
    )
    assert len((await rig.ask(1, everything, 12)).responses[0].partitions) == 1


@pytest.mark.feature("MB-22")
@on_cluster()
async def test_envelopes_of_nonsense(rig: Rig) -> None:
    await rig.create(TOPIC)
    inside = [
        b"",
        b"\0",
        bytes(100),
        header(99, 0),
        header(0, 3) + bytes(20),  # not one that is forwarded
        header(19, 99) + bytes(20),
        header(19, 7) + b"\xff" * 20,
        frame_of(EnvelopeRequest(request_data=b"", client_host_address=b""), 0),
    ]
    for data in inside:
        response = await rig.ask(
            101,
            EnvelopeRequest(
                request_data=data, request_principal=written_principal(ANONYMOUS), client_host_address=LOOPBACK
            ),
        )
        assert response.error_code != 0 and response.response_data is None, data
    await is_well(rig)


@pytest.mark.feature("RP-02", "PF-04", "MB-22")
@on_cluster()
async def test_a_body_the_controller_cannot_decode_closes_only_the_clients_connection(rig: Rig) -> None:
    """The controller does not understand the body: the client's connection ends, other clients' requests go on."""
    await rig.create(TOPIC)
    raw = await rig.raw(1)
    await raw.send_frame(header(19, 7) + b"\xff" * 30)
    assert await raw.was_closed()
    fine = CreateTopicsRequest(topics=[CreatableTopic(name="u", num_partitions=1, replication_factor=1)])
    assert (await rig.ask(1, fine)).topics[0].error_code == 0


@st.composite
def mutated(draw: st.DrawFn) -> tuple[int, bytes]:
    """A request of some API, with bytes changed, cut or added: (node, frame)."""
    node = draw(st.sampled_from(NODES))
    questions = OF_BROKERS if node == 1 else OF_CONTROLLERS
    key = draw(st.sampled_from(sorted(questions)))
    if key in (ApiKey.CONTROLLER_REGISTRATION, ApiKey.BROKER_REGISTRATION):
        key = ApiKey.API_VERSIONS
    spec = API_SPECS[key]
    version = draw(st.integers(spec.min_version, spec.max_version))
    frame = bytearray(frame_of(questions[key](version, bytes(16)), version))
    start = draw(st.sampled_from([0, 8, 12]))
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(min(start, len(frame) - 1), len(frame) - 1))
        frame[position] = draw(st.sampled_from([0, 1, 2, 3, 7, 31, 127, 128, 129, 200, 254, 255]))
    if draw(st.booleans()):
        del frame[draw(st.integers(0, len(frame))) :]
    return node, bytes(frame)


@pytest.mark.feature("PF-01", "RP-02")
@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(mutated(), min_size=20, max_size=40))
def test_mutated_requests(frames: list[tuple[int, bytes]]) -> None:
    mistakes: list[str] = []

    class Mistakes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info:
                mistakes.append(self.format(record))

    async def story(rig: Rig) -> None:
        await rig.create(TOPIC)
        for node, frame in frames:
            raw = await rig.raw(node)
            await raw.send_frame(frame)
            with trio.move_on_after(1):
                await raw.receive_frame()
            raw.close()
        node_is_well = await rig.ask(1, ask_versions())
        assert node_is_well.error_code == 0
        response: Any = await rig.ask(1, MetadataRequest(topics=None))
        assert TOPIC in [it.name for it in response.topics]

    handler = Mistakes()
    logging.getLogger().addHandler(handler)
    try:
        play(story, 1, 1, {})
    finally:
        logging.getLogger().removeHandler(handler)
    assert not mistakes, "\n".join(mistakes)


@pytest.mark.feature("RP-11")
@on_cluster(max__connections__per__ip="3")
async def test_connections_are_limited(rig: Rig) -> None:
    await rig.create(TOPIC)  # one of the three
    second, third, fourth = [await rig.raw(1) for _ in range(3)]
    assert await fourth.was_closed()
    for raw in (second, third):
        await raw.send_frame(frame_of(ask_versions(), 3))
        assert await raw.receive_frame() is not None
    third.close()
    await trio.sleep(1)
    await (again := await rig.raw(1)).send_frame(frame_of(ask_versions(), 3))
    assert await again.receive_frame() is not None


@pytest.mark.feature("RP-11")
@on_cluster(connections__max__idle__ms="5000")
async def test_silent_connections_end_and_waiting_ones_do_not(rig: Rig) -> None:
    await rig.create(TOPIC)
    silent, waiting = await rig.raw(1), await rig.raw(1)
    began = trio.current_time()
    await waiting.send_frame(frame_of(fetch_request(TOPIC, max_wait_ms=20_000), 12))
    assert await silent.was_closed()
    assert 4.9 < trio.current_time() - began < 8
    assert await waiting.receive_frame() is not None
    assert trio.current_time() - began > 19


@pytest.mark.feature("RP-02", "RE-09")
@on_cluster()
async def test_a_closed_connection_leaves_nothing_behind(rig: Rig) -> None:
    await rig.create(TOPIC)
    for number in range(20):
        raw = await rig.raw(1)
        await raw.send_frame(frame_of(fetch_request(TOPIC, max_wait_ms=3000), 12))
        await raw.send_frame(frame_of(produce_request("nowhere", batch_of("v")), 12))
        if number % 2:
            await trio.sleep(0.01)
        raw.close()
    await trio.sleep(5)
    assert rig.broker(1).fetches.delayed == 0
    await is_well(rig)
