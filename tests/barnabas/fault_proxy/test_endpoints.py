"""Addresses of brokers in responses, and the versions that the proxy lets clients choose."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.fault_proxy.endpoints import has_addresses
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.schema import Struct, parse_versions
from tests.barnabas.fault_proxy.client_wire import PROXY, ClientWire, filled, read_answer

NO_NODES = {
    "DescribeQuorum": "listeners of controllers, which clients show and do not dial",
    "StreamsGroupHeartbeat": "members of streams groups",
    "StreamsGroupDescribe": "members of streams groups",
}
"""Responses with hosts and ports that are not those of nodes, or that nobody dials."""


def with_addresses() -> Iterator[tuple[ApiKey, int]]:
    for key, spec in API_SPECS.items():
        for version in range(spec.min_version, spec.max_version + 1):
            if has_addresses(spec.response_type(), version):
                yield key, version


def test_no_response_with_hosts_and_ports_is_forgotten() -> None:
    found = {
        spec.name
        for spec in API_SPECS.values()
        if has_host(spec.response_type()) and not has_addresses(spec.response_type(), spec.max_version)
    }
    assert found == set(NO_NODES)


def has_host(kind: type[Struct]) -> bool:
    inner = [(spec.type.element or spec.type).struct for spec in kind.FIELDS]
    return {"host", "port"} <= {spec.name for spec in kind.FIELDS} or any(each and has_host(each) for each in inner)


@pytest.mark.parametrize(("key", "version"), list(with_addresses()), ids=str)
def test_every_address_of_a_node_becomes_that_of_the_proxy(key: ApiKey, version: int) -> None:
    spec = API_SPECS[key]
    wire = ClientWire()
    request = filled(spec.request_type(), version)
    if key is ApiKey.PRODUCE:
        request.acks = -1
    assert wire.ask(request, version)
    real = filled(spec.response_type(), version)
    for each in structs(real, version):
        if hasattr(each, "host") and is_node(each):
            each.host, each.port = "kafka-1", 9092
    if key is ApiKey.FIND_COORDINATOR and version < 4:
        real.coordinators = []
    _, answer = read_answer(wire.answer(real, version), key, version)
    nodes = [each for each in structs(answer, version) if hasattr(each, "host") and is_node(each)]
    assert nodes and {(each.host, each.port) for each in nodes} == {PROXY}
    assert {address[:2] for address in wire.addresses} == {("kafka-1", 9092)}


def is_node(struct: Any) -> bool:
    return any(hasattr(struct, name) for name in ("node_id", "broker_id", "leader_id"))


def structs(struct: Any, version: int) -> Iterator[Any]:
    """This struct and all in it that the version carries."""
    if any(spec.name == "host" and version in parse_versions(spec.versions) for spec in struct.FIELDS) or not hasattr(
        struct, "host"
    ):
        yield struct
    for spec in struct.FIELDS:
        value = getattr(struct, spec.name)
        if version in parse_versions(spec.versions):
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, Struct):
                    yield from structs(each, version)


def test_a_coordinator_that_is_not_there_stays_nobody() -> None:
    wire = ClientWire()
    wire.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    real = FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=-1, host="", port=-1, error_code=15)])
    _, answer = read_answer(wire.answer(real, 4), ApiKey.FIND_COORDINATOR, 4)
    assert answer == real and not wire.addresses


@pytest.mark.parametrize("version", range(5))
def test_clients_choose_no_version_whose_addresses_would_pass_unread(version: int) -> None:
    wire = ClientWire()
    wire.ask(ApiVersionsRequest(), version)
    real = ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=99),
            ApiVersion(api_key=ApiKey.JOIN_GROUP, min_version=0, max_version=99),
            ApiVersion(api_key=ApiKey.SASL_HANDSHAKE, min_version=0, max_version=1),
            ApiVersion(api_key=ApiKey.DESCRIBE_CLUSTER, min_version=90, max_version=99),
            ApiVersion(api_key=4000, min_version=0, max_version=9),
        ]
    )
    _, answer = read_answer(wire.answer(real, version), ApiKey.API_VERSIONS, version)
    assert [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys] == [
        (ApiKey.METADATA, 0, 13),
        (ApiKey.JOIN_GROUP, 0, 99),
        (ApiKey.SASL_HANDSHAKE, 1, 1),
        (4000, 0, 9),
    ]
