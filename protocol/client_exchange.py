"""Core: the client's side of a connection: version choice, request framing, response decoding, the handshake.

It does no I/O. `runtime/channel.py` drives it over trio, `barnabas/pipeline/blocking_connection.py` over blocking
sockets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.protocol.api_keys import API_SPECS, ApiKey, ApiSpec
from barnabas.protocol.errors import ErrorCode, MalformedMessage
from barnabas.protocol.framing import request_prefix
from barnabas.protocol.headers import ResponseHeader
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.schema import Message, decode, decode_prefix, encode_chunks

Versions = Mapping[int, tuple[int, int]]
"""API key to the lowest and the highest version that the peer serves."""

CLIENT_SOFTWARE_VERSION = "0.1.0"

MAX_HANDSHAKE_BYTES = 1024 * 1024
"""Limit of a response until the handshake is over. The first bytes of a server that speaks another protocol would
otherwise be taken for the size of a huge frame."""


class NoCommonVersion(Exception):
    """The peer serves the API in none of the versions that the caller wants."""


def choose_version(versions: Versions, spec: ApiSpec, version: int | None = None, at_most: int | None = None) -> int:
    """The highest version that both sides support, not above `at_most`; or exactly `version`. An unstable version is
    used only if `at_most` names it. NoCommonVersion."""
    lowest, highest = versions.get(spec.key, (0, -1))
    if version is None:
        wanted_from, wanted_to = spec.min_version, spec.max_version
        if at_most is not None and at_most != spec.unstable_version:
            wanted_to = min(wanted_to, at_most)
        elif at_most is not None:
            wanted_to = at_most
    else:
        wanted_from = wanted_to = version
    chosen = min(highest, wanted_to)
    if chosen < max(lowest, wanted_from):
        raise NoCommonVersion(f"serves {spec.name} {lowest}-{highest}, wanted {wanted_from}-{wanted_to}")
    return chosen


class RequestEncoder:
    """Numbers the requests of one client: correlation ids count up and wrap within 31 bits."""

    __slots__ = ("_client_id", "last_correlation_id")

    def __init__(self, client_id: str | None) -> None:
        self._client_id = client_id
        self.last_correlation_id = 0

    def encode(self, spec: ApiSpec, version: int, request: Message | Sequence[Any]) -> tuple[int, list[Any]]:
        """(correlation id, chunks of the frame without its size). `request` may be an encoded body. EncodeError."""
        self.last_correlation_id = correlation_id = (self.last_correlation_id + 1) & 0x7FFFFFFF
        prefix = request_prefix(spec.key, version, correlation_id, self._client_id)
        if isinstance(request, Message):
            return correlation_id, encode_chunks(request, version, prefix)
        return correlation_id, [prefix, *request]


def response_body(frame: bytearray | memoryview, spec: ApiSpec, version: int) -> memoryview:
    """The bytes after the response header. MalformedMessage."""
    view = memoryview(frame)
    position = 4
    if version >= spec.flexible_header_from:
        if len(view) > 4 and not view[4]:
            position = 5  # no tagged fields
        else:
            _, position = decode_prefix(ResponseHeader, view, 0, 1)
    return view[position:]


def decode_response(frame: bytearray | memoryview, spec: ApiSpec, version: int) -> Any:
    """Records in the response are views into `frame`. MalformedMessage."""
    kind = spec.loaded_response_type or spec.response_type()
    return decode(kind, response_body(frame, spec, version), version)


class Handshake:
    """Asks for the peer's versions, and a second time if the peer does not know our version of ApiVersions.

    Send `request` in `version` and give the response's body to `receive`, until `done`.
    """

    __slots__ = ("done", "features", "features_epoch", "request", "version", "versions")

    spec = API_SPECS[ApiKey.API_VERSIONS]

    def __init__(self, software_name: str) -> None:
        self.request = ApiVersionsRequest(
            client_software_name=software_name, client_software_version=CLIENT_SOFTWARE_VERSION
        )
        self.version = self.spec.max_version
        self.done = False
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}
        """Finalized features and their levels (KIP-584)."""
        self.features_epoch = -1

    def receive(self, body: memoryview) -> None:
        """MalformedMessage, also if the peer refuses the request."""
        if int.from_bytes(body[:2], "big") == ErrorCode.UNSUPPORTED_VERSION and self.version:
            # The response is encoded in version 0, whatever the request had (KIP-511).
            self.version = 0
            return
        response = decode(ApiVersionsResponse, body, self.version)
        if response.error_code != ErrorCode.NONE:
            raise MalformedMessage(f"ApiVersions answered error {response.error_code}")
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        self.features = {feature.name: feature.max_version_level for feature in response.finalized_features}
        self.features_epoch = response.finalized_features_epoch
        self.done = True
