"""Errors of the proxy: every API in every version, through the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.fault_proxy.error_answers import WITH_ERRORS_OF_PARTITIONS
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.refusals import AT_THE_TOP_ONLY
from barnabas.protocol.schema import Struct, parse_versions
from tests.barnabas.fault_proxy.client_wire import ClientWire, filled, read_answer

CODE = ErrorCode.COORDINATOR_NOT_AVAILABLE


def codes_in(struct: Any, version: int) -> Iterator[int]:
    """All error codes that this version carries."""
    for spec in struct.FIELDS:
        if version not in parse_versions(spec.versions):
            continue
        value = getattr(struct, spec.name)
        if spec.name in ("error_code", "partition_error_code"):
            yield value
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                yield from codes_in(each, version)


@pytest.mark.parametrize("key", [key for key in API_SPECS if key is not ApiKey.METADATA], ids=lambda key: key.name)
def test_the_code_is_in_every_place_where_a_client_looks(key: ApiKey) -> None:
    spec = API_SPECS[key]
    for version in range(spec.min_version, spec.max_version + 1):
        if key is ApiKey.SASL_HANDSHAKE and version == 0:
            continue  # its tokens have no headers: the proxy resets the connection
        wire = ClientWire(f"{spec.name} error={CODE.name}")
        request = filled(spec.request_type(), version)
        if key is ApiKey.PRODUCE:
            request.acks = -1
        if key is ApiKey.FETCH:
            request.session_epoch = -1
        assert wire.ask(request, version) == b""
        number, answer = read_answer(wire.to_client(), key, version)
        codes = list(codes_in(answer, version))
        if key in WITH_ERRORS_OF_PARTITIONS and ErrorCode.NONE in codes:
            codes.remove(ErrorCode.NONE)
        assert codes and set(codes) == {CODE}, (version, answer)
        assert number == 1
        is_by_item = key not in AT_THE_TOP_ONLY
        names = [each for each in answer.FIELDS if isinstance(getattr(answer, each.name), list)]
        if is_by_item and key in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_COMMIT):
            assert any(getattr(answer, each.name) for each in names), (version, answer)


@pytest.mark.parametrize("version", range(14))
def test_metadata_keeps_its_brokers_and_says_the_error_of_the_topics_that_are_meant(version: int) -> None:
    wire = ClientWire("Metadata topic=orders error=LEADER_NOT_AVAILABLE")
    topics = [MetadataRequestTopic(name="orders"), MetadataRequestTopic(name="others")]
    assert wire.ask(MetadataRequest(topics=topics), version)
    real = filled(MetadataResponse, version)
    real.error_code = 0
    real.brokers[0].port = 9092
    real.topics = [
        MetadataResponseTopic(name=name, partitions=[MetadataResponsePartition(partition_index=0)])
        for name in ("orders", "others")
    ]
    _, answer = read_answer(wire.answer(real, version), ApiKey.METADATA, version)
    assert [(each.host, each.port) for each in answer.brokers] == [("proxy", 19092)]
    orders, others = answer.topics
    assert (orders.error_code, orders.partitions) == (ErrorCode.LEADER_NOT_AVAILABLE, [])
    assert (others.error_code, len(others.partitions)) == (ErrorCode.NONE, 1)


def test_metadata_says_at_the_top_that_a_client_has_to_begin_again() -> None:
    wire = ClientWire("Metadata error=REBOOTSTRAP_REQUIRED")
    wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 13)
    _, answer = read_answer(wire.answer(MetadataResponse(), 13), ApiKey.METADATA, 13)
    assert answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED


def test_a_version_that_is_not_known_is_said_in_version_zero() -> None:
    wire = ClientWire("ApiVersions error=UNSUPPORTED_VERSION")
    request = ApiVersionsRequest(client_software_name="app", client_software_version="1")
    assert wire.ask(request, 4) == b""
    _, answer = read_answer(wire.to_client(), ApiKey.API_VERSIONS, 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_coordinator_that_is_not_there_is_no_node() -> None:
    wire = ClientWire("FindCoordinator error=COORDINATOR_NOT_AVAILABLE")
    wire.ask(FindCoordinatorRequest(coordinator_keys=["group"]), 5)
    _, answer = read_answer(wire.to_client(), ApiKey.FIND_COORDINATOR, 5)
    [each] = answer.coordinators
    assert (each.key, each.node_id, each.port, each.error_code) == ("group", -1, -1, CODE)


def test_errors_of_sessions_are_at_the_top() -> None:
    wire = ClientWire("Fetch error=FETCH_SESSION_ID_NOT_FOUND")
    request = filled(FetchRequest, 13)
    request.session_epoch = -1
    wire.ask(request, 13)
    _, answer = read_answer(wire.to_client(), ApiKey.FETCH, 13)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_producer_that_wants_no_answer_loses_its_connection() -> None:
    wire = ClientWire("Produce error=NOT_LEADER_OR_FOLLOWER")
    assert wire.ask(filled(ProduceRequest, 9), 9) == b""  # acks=0
    assert wire.is_reset
