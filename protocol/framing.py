"""Frames: a size, then a header, then a body. Knows the headers and nothing of the bodies."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct as Packing
from struct import error as struct_error
from typing import Any

from barnabas.protocol.api_keys import API_SPECS, NEVER_FLEXIBLE, ApiKey
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.schema import decode_prefix

SIZE_BYTES = 4

_SIZE = Packing(">i")
_HEADER = Packing(">hhih")
_CORRELATION_ID_AND_NO_TAGS = Packing(">iB")

_FLEXIBLE_FROM = {
    int(key): NEVER_FLEXIBLE if spec.flexible_from is None else spec.flexible_from
    for key, spec in API_SPECS.items()
}


def parse_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """The header of a frame (without its size), and the position of the body.

    Raises `MalformedMessage`, also for an unknown API key: it is not known if its header has tagged fields, and so
    where its body starts. A version that is not served is no error here.
    """
    try:
        api_key, api_version, correlation_id, length = _HEADER.unpack_from(frame, 0)
        flexible_from = _FLEXIBLE_FROM[api_key]
        if length >= 0:
            position = 10 + length
            if position > len(frame):
                raise MalformedMessage("the client id reaches beyond the end of the request")
            client_id = str(frame[10:position], "utf-8")
        elif length == -1:
            position, client_id = 10, None
        else:
            raise MalformedMessage(f"the client id has length {length}")
        if api_version >= flexible_from:
            if frame[position]:
                return decode_prefix(RequestHeader, frame, 0, 2)
            position += 1
    except KeyError:
        raise MalformedMessage(f"no API has the key {api_key}") from None
    except (struct_error, IndexError):
        raise MalformedMessage("the request ends within its header") from None
    except UnicodeDecodeError as error:
        raise MalformedMessage(f"the client id is no UTF-8: {error}") from None
    header = RequestHeader(
        request_api_key=api_key,
        request_api_version=api_version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return header, position


def response_prefix(correlation_id: int, flexible: bool) -> bytes:
    """The response header: version 1 if `flexible`, else 0 (see `ApiSpec.response_header_version`)."""
    if flexible:
        return _CORRELATION_ID_AND_NO_TAGS.pack(correlation_id, 0)
    return _SIZE.pack(correlation_id)


def request_prefix(api_key: ApiKey, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The request header, in the version that goes with `version` of the request."""
    client = b"" if client_id is None else client_id.encode()
    head = _HEADER.pack(api_key, version, correlation_id, -1 if client_id is None else len(client))
    return head + client + (b"\0" if version >= _FLEXIBLE_FROM[api_key] else b"")


def frame(chunks: Sequence[Any]) -> list[Any]:
    """`chunks` with their total size before them."""
    return [_SIZE.pack(sum([len(chunk) for chunk in chunks])), *chunks]
