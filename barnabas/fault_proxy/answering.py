"""Core: the bytes of answers: those of the proxy, and those of the broker where something in them has to change."""

from __future__ import annotations

from typing import Any

from barnabas.fault_proxy.endpoints import LocalAddress, has_addresses, limit_versions, replace_addresses
from barnabas.fault_proxy.error_answers import error_answer, merge, put_into_metadata
from barnabas.fault_proxy.requests import Asked
from barnabas.fault_proxy.topics import TEACHERS, TopicNames
from barnabas.fault_proxy.waiting import Waiting
from barnabas.protocol.api_keys import ApiKey, ApiSpec
from barnabas.protocol.errors import ErrorCode, MalformedMessage
from barnabas.protocol.framing import response_prefix
from barnabas.protocol.headers import ResponseHeader
from barnabas.protocol.schema import Message, decode, decode_prefix, encode_chunks
from barnabas.protocol.throttle_times import FIELD as THROTTLE_FIELD


def answer_frame(asked: Asked, answer: Message, version: int) -> bytes:
    """The frame, without its size, of an answer of the proxy."""
    assert asked.spec is not None
    prefix = response_prefix(asked.correlation_id, asked.spec.response_header_version(version) == 1)
    return b"".join(encode_chunks(answer, version, prefix))


def changed_answer(waiting: Waiting, frame: bytes, topics: TopicNames, local: LocalAddress) -> bytes:
    """The broker's answer with the addresses of the proxy, and with what a rule puts into it. Bytes that do not decode
    stay as they are."""
    asked, spec = waiting.asked, waiting.asked.spec
    if spec is None or not _is_of_interest(waiting, spec):
        return frame
    body = _read(frame, spec, asked.version)
    if body is None:
        return frame
    answer, position = body
    if spec.key in TEACHERS and asked.version in _WITH_IDS[spec.key]:
        topics.learn(answer)
    changed = _put_in(waiting, answer)
    if changed is not None:
        answer = changed
    has_replaced = replace_addresses(answer, asked.version, local)
    has_replaced |= spec.key is ApiKey.API_VERSIONS and limit_versions(answer)
    if changed is None and not has_replaced:
        return frame
    return b"".join(encode_chunks(answer, asked.version, frame[:position]))


_WITH_IDS = {ApiKey.METADATA: range(10, 100), ApiKey.CREATE_TOPICS: range(7, 100)}
"""Versions of the responses that have ids of topics."""


def read_answer(frame: bytes, spec: ApiSpec, version: int) -> Any:
    """The answer of a frame without its size; None if it does not decode."""
    body = _read(frame, spec, version)
    return None if body is None else body[0]


def _is_of_interest(waiting: Waiting, spec: ApiSpec) -> bool:
    return (
        waiting.rule is not None
        or waiting.refused is not None
        or spec.key is ApiKey.API_VERSIONS
        or spec.key in TEACHERS
        or has_addresses(spec.response_type(), waiting.asked.version)
    )


def _put_in(waiting: Waiting, answer: Any) -> Message | None:
    """The answer after what a rule did to it; None if it did nothing."""
    asked = waiting.asked
    if waiting.rule is None:
        return None
    fault, changed = waiting.rule.fault, None
    if waiting.refused is not None:
        merge(answer, waiting.refused, asked.version)
        changed = answer
    elif fault.error_code is not None and asked.is_metadata:
        put_into_metadata(answer, fault.error_code, fault.is_about_topic)
        changed = answer
    elif fault.error_code is not None:
        changed, _ = error_answer(asked.decoded, asked.version, fault.error_code)
        answer = changed
    if fault.throttle_ms and any(spec.name == THROTTLE_FIELD for spec in answer.FIELDS):
        answer.throttle_time_ms = max(answer.throttle_time_ms, fault.throttle_ms)
        changed = answer
    return changed


def _read(frame: bytes, spec: ApiSpec, version: int) -> tuple[Any, int] | None:
    """The answer and the position of its body."""
    view, position = memoryview(frame), 4
    try:
        if spec.response_header_version(version) == 1:
            _, position = decode_prefix(ResponseHeader, view, 0, 1)
        if spec.key is ApiKey.API_VERSIONS and view[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big"):
            return None  # it is encoded in version 0 (KIP-511)
        return decode(spec.response_type(), view[position:], version), position
    except MalformedMessage:
        return None
