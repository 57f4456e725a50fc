"""Bytes of foreign clients that are in no schema."""

from __future__ import annotations

from typing import Any

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.schema import encode
from barnabas.runtime.dispatch import Dispatcher
from barnabas.runtime.server import Request


def test_bytes_after_a_request_are_passed_over() -> None:
    """librdkafka appends fields of older versions to some requests; Kafka never looks at them."""
    seen: list[Any] = []
    dispatcher = Dispatcher({ApiKey.API_VERSIONS: lambda call: seen.append(call.message)})
    asked = ApiVersionsRequest(client_software_name="rdkafka", client_software_version="2")
    body = memoryview(bytearray(encode(asked, 4) + b"\0\0"))
    request = Request(18, 4, 1, "client", body, "127.0.0.1", "PLAINTEXT", 0, 0)
    dispatcher(request, _NoAnswer())
    assert seen == [asked]


class _NoAnswer:
    """A slot that must not be used."""

    def abort(self, reason: str) -> None:
        raise AssertionError(reason)
