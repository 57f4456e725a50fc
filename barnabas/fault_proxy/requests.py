"""Core: a request as the proxy reads it: its head at once, its body when a rule wants to know."""

from __future__ import annotations

from functools import cached_property
from struct import Struct as Packing
from struct import error as struct_error
from typing import Any

from barnabas.fault_proxy.fault_rule import FaultRule
from barnabas.fault_proxy.topics import TopicNames, asks_for_all, topics_of
from barnabas.protocol.api_keys import API_SPECS, ApiKey, ApiSpec
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.framing import parse_request_header
from barnabas.protocol.schema import Message, decode_prefix, encode_chunks

MOST_ELEMENTS = 20_000
"""Elements of a request that is decoded: of a larger one only the head is known, and its bytes pass."""
_HEAD = Packing(">hhih")


class BadRequest(Exception):
    """The bytes are no request that the proxy can follow."""


class Asked:
    """One request."""

    def __init__(self, frame: bytes, head: tuple[int, int, int], client_id: str | None) -> None:
        self.frame = frame
        """Without its size."""
        self.api_key, self.version, self.correlation_id = head
        self.client_id = client_id

    @cached_property
    def spec(self) -> ApiSpec | None:
        """None if the API or this version of it is not known here: then the bytes pass as they are."""
        try:
            spec = API_SPECS.get(ApiKey(self.api_key))
        except ValueError:
            return None
        if spec is None or self.version not in spec.request_type().VERSIONS:
            return None
        return spec if self.version in spec.response_type().VERSIONS else None

    @cached_property
    def _body(self) -> tuple[int, Message] | None:
        if self.spec is None:
            return None
        view = memoryview(self.frame)
        try:
            _, position = parse_request_header(view)
            body = view[position:]
            request, end = decode_prefix(self.spec.request_type(), body, 0, self.version, MOST_ELEMENTS)
        except MalformedMessage:
            return None
        return (position, request) if end == len(body) else None

    @property
    def is_readable(self) -> bool:
        """True if the body can be decoded."""
        return self._body is not None

    @property
    def decoded(self) -> Any:
        """The body. It must be readable."""
        assert self._body is not None
        return self._body[1]

    def encoded(self, request: Message) -> bytes:
        """The frame with another body."""
        assert self._body is not None
        return b"".join(encode_chunks(request, self.version, self.frame[: self._body[0]]))

    @property
    def is_metadata(self) -> bool:
        return self.api_key == ApiKey.METADATA

    @cached_property
    def wants_no_answer(self) -> bool:
        """Produce with acks=0."""
        return self.api_key == ApiKey.PRODUCE and self.is_readable and self.decoded.acks == 0

    def is_about(self, fault: FaultRule, topics: TopicNames) -> bool:
        """True if a rule for its API and client is about it: about a topic that it names, if the rule has one."""
        if fault.needs_answer and self.wants_no_answer:
            return False
        if fault.topic is None:
            return fault.error is None or self.is_readable
        if not self.is_readable:
            return False
        if asks_for_all(self.decoded):
            return True
        return any(map(fault.is_about_topic, topics_of(self.decoded, self.version, topics.name_of)))


def read_request(frame: bytes) -> Asked:
    """The request of a frame without its size. Raises `BadRequest`."""
    try:
        api_key, version, correlation_id, length = _HEAD.unpack_from(frame, 0)
    except struct_error:
        raise BadRequest(f"a request of {len(frame)} bytes") from None
    if length < -1 or _HEAD.size + length > len(frame):
        raise BadRequest(f"a client id of {length} bytes")
    if api_key == ApiKey.SASL_HANDSHAKE and version == 0:
        raise BadRequest("SaslHandshake version 0, after which tokens have no headers; the client needs version 1")
    client_id = None if length < 0 else frame[_HEAD.size : _HEAD.size + length].decode("utf-8", "replace")
    return Asked(frame, (api_key, version, correlation_id), client_id)
