"""Headers and sizes: what surrounds a message on a connection."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.framing import frame, parse_request_header, request_prefix, response_prefix
from barnabas.protocol.headers import RequestHeader, ResponseHeader
from barnabas.protocol.schema import decode, encode


@pytest.mark.feature("PF-02")
@given(
    key=st.sampled_from(list(ApiKey)),
    version=st.integers(0, 13),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=20),
    unknown=st.none() | st.dictionaries(st.integers(0, 300), st.binary(max_size=5), min_size=1),
    body=st.binary(max_size=5),
)
def test_every_header_is_read_as_its_class_says(
    key: ApiKey,
    version: int,
    correlation_id: int,
    client_id: str | None,
    unknown: dict[int, bytes] | None,
    body: bytes,
) -> None:
    header = RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    header_version = API_SPECS[key].request_header_version(version)
    if header_version == 2:
        header.unknown_tagged_fields = unknown
    encoded = encode(header, header_version)
    assert parse_request_header(memoryview(encoded + body)) == (header, len(encoded))
    if not header.unknown_tagged_fields:
        assert request_prefix(key, version, correlation_id, client_id) == encoded


@pytest.mark.feature("PF-02")
@given(st.binary(max_size=40))
def test_random_headers_are_read_or_refused(data: bytes) -> None:
    try:
        header, position = parse_request_header(memoryview(data))
    except MalformedMessage:
        return
    assert position <= len(data)
    assert header.request_api_key in API_SPECS


@pytest.mark.feature("PF-02")
@pytest.mark.parametrize(
    ("frame_hex", "reason"),
    [
        ("", "ends within"),
        ("0012 0000 00000001", "ends within"),
        ("0012 0003 00000001 ffff", "ends within"),
        ("0012 0000 00000001 0003 6162", "beyond"),
        ("0012 0000 00000001 fffe", "length -2"),
        ("0012 0000 00000001 0001 ff", "UTF-8"),
        ("0004 0000 00000001 ffff", "no API has the key 4"),
        ("7fff 0000 00000001 ffff", "no API"),
    ],
)
def test_wrong_headers(frame_hex: str, reason: str) -> None:
    with pytest.raises(MalformedMessage, match=reason):
        parse_request_header(memoryview(bytes.fromhex(frame_hex)))


@pytest.mark.feature("PF-02", "PF-05")
def test_an_api_versions_request_of_a_version_yet_unknown_has_a_readable_header() -> None:
    header, position = parse_request_header(memoryview(bytes.fromhex("0012 7fff 00000009 ffff 00 aa")))
    assert (header.request_api_version, header.correlation_id, position) == (32767, 9, 11)


@pytest.mark.feature("PF-02")
def test_response_headers() -> None:
    assert response_prefix(7, False) == encode(ResponseHeader(correlation_id=7), 0)
    assert response_prefix(7, True) == encode(ResponseHeader(correlation_id=7), 1)
    assert decode(ResponseHeader, response_prefix(-1, True), 1).correlation_id == -1


@pytest.mark.feature("PF-02")
def test_the_client_id_is_never_compact() -> None:
    assert encode(RequestHeader(client_id="ab"), 2) == bytes.fromhex("0000 0000 00000000 0002 6162 00")
    assert encode(RequestHeader(request_api_key=18, correlation_id=5), 0) == bytes.fromhex(
        "0012 0000 00000005"
    )


@pytest.mark.feature("PF-01")
def test_a_frame_starts_with_its_size() -> None:
    big = bytes(70_000)
    chunks = frame([b"head", big, b"tail"])
    assert chunks[0] == (70_008).to_bytes(4, "big")
    assert chunks[2] is big
    assert frame([]) == [bytes(4)]
