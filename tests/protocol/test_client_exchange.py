"""The client's side of a connection without I/O: versions, correlation ids, the handshake."""

from __future__ import annotations

import pytest

from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.client_exchange import (
    Handshake,
    NoCommonVersion,
    RequestEncoder,
    choose_version,
    decode_response,
    response_body,
)
from barnabas.protocol.errors import ErrorCode, MalformedMessage
from barnabas.protocol.framing import parse_request_header, response_prefix
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.schema import encode

METADATA = API_SPECS[ApiKey.METADATA]


def answered(handshake: Handshake, response: ApiVersionsResponse, version: int) -> None:
    """The peer answers the request of the handshake in `version`."""
    frame = response_prefix(1, False) + encode(response, version)
    handshake.receive(response_body(bytearray(frame), handshake.spec, handshake.version))


def test_the_highest_common_version_is_chosen() -> None:
    highest = METADATA.max_version
    assert choose_version({METADATA.key: (0, 99)}, METADATA) == highest
    assert choose_version({METADATA.key: (0, 99)}, METADATA, at_most=highest - 1) == highest - 1
    assert choose_version({METADATA.key: (0, highest - 2)}, METADATA) == highest - 2
    assert choose_version({METADATA.key: (0, 99)}, METADATA, version=highest - 1) == highest - 1


def test_without_a_common_version_the_error_names_both_ranges() -> None:
    with pytest.raises(NoCommonVersion, match=rf"serves Metadata 90-99, wanted \d+-{METADATA.max_version}"):
        choose_version({METADATA.key: (90, 99)}, METADATA)
    with pytest.raises(NoCommonVersion, match="serves Metadata 0--1"):
        choose_version({}, METADATA)


def test_correlation_ids_count_up_and_wrap_within_31_bits() -> None:
    requests = RequestEncoder("someone")
    first, chunks = requests.encode(METADATA, METADATA.max_version, MetadataRequest(topics=[]))
    header, _ = parse_request_header(memoryview(b"".join(chunks)))
    assert (first, header.correlation_id, header.client_id) == (1, 1, "someone")
    requests.last_correlation_id = 0x7FFFFFFF
    assert requests.encode(METADATA, METADATA.max_version, [b"body"])[0] == 0


def test_a_response_is_decoded_after_its_header() -> None:
    version = METADATA.max_version
    flexible = METADATA.response_header_version(version) == 1
    frame = response_prefix(7, flexible) + encode(MetadataResponse(cluster_id="c"), version)
    assert decode_response(bytearray(frame), METADATA, version).cluster_id == "c"


def test_the_handshake_learns_versions() -> None:
    handshake = Handshake("tests")
    served = ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, min_version=1, max_version=9)])
    answered(handshake, served, handshake.version)
    assert handshake.done and handshake.versions == {3: (1, 9)}


def test_an_old_peer_is_asked_again_in_version_0() -> None:
    handshake = Handshake("tests")
    answered(handshake, ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), 0)
    assert not handshake.done and handshake.version == 0
    answered(handshake, ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, min_version=0, max_version=5)]), 0)
    assert handshake.done and handshake.versions == {3: (0, 5)}


def test_a_peer_that_refuses_both_versions_ends_the_handshake() -> None:
    handshake = Handshake("tests")
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    answered(handshake, refusal, 0)
    with pytest.raises(MalformedMessage, match="ApiVersions answered error"):
        answered(handshake, refusal, 0)
