"""Core: responses that say an error which the cluster did not say.

A refusal has the error in every place that the response has for one (`protocol/refusals.py`). Two things differ here:
errors of partitions do not hide in the top of a response whose partitions nobody reads then, and a request of which a
part is meant gets the cluster's answer for the rest.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from barnabas.fault_proxy.topics import IsMeant, names_a_topic
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.refusals import AT_THE_TOP_ONLY, refusal_of
from barnabas.protocol.schema import Message, Struct, parse_versions

TEXT = "injected by barnabas proxy"
"""Message of an injected error, where the response has room for one."""

NO_NODE = -1
ERROR_FIELDS = ("error_code", "partition_error_code")
FIRST_WITH_MANY_COORDINATORS = 4

WITH_ERRORS_OF_PARTITIONS = frozenset([ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE])
"""APIs whose clients read no partition if there is an error at the top."""
ERRORS_OF_THE_WHOLE = frozenset(
    [
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
    ]
)
"""Errors that these APIs say at the top."""


def error_answer(request: Message, version: int, code: ErrorCode, throttle_ms: int = 0) -> tuple[Message, int]:
    """The answer to `request` with `code`, and the version in which to encode it."""
    answer: Any = refusal_of(request, version, code, TEXT)
    key = ApiKey(request.API_KEY)
    if key in WITH_ERRORS_OF_PARTITIONS and code not in ERRORS_OF_THE_WHOLE and _has_items(answer, version):
        answer.error_code = ErrorCode.NONE
    if key is ApiKey.FIND_COORDINATOR:
        for each in answer.coordinators if version >= FIRST_WITH_MANY_COORDINATORS else (answer,):
            each.node_id = each.port = NO_NODE
    if throttle_ms and any(spec.name == "throttle_time_ms" for spec in answer.FIELDS):
        answer.throttle_time_ms = throttle_ms
    # A client learns from version 0 that the broker does not know its version (KIP-511).
    is_zero = key is ApiKey.API_VERSIONS and code is ErrorCode.UNSUPPORTED_VERSION
    return answer, 0 if is_zero else version


def put_into_metadata(answer: Any, code: ErrorCode, is_meant: IsMeant) -> None:
    """Put an error into the topics of a Metadata response that are meant; brokers stay as they are.
    REBOOTSTRAP_REQUIRED is about the whole (KIP-1102)."""
    if code is ErrorCode.REBOOTSTRAP_REQUIRED:
        answer.error_code = code
        return
    for topic in answer.topics:
        if topic.name is not None and is_meant(topic.name):
            topic.error_code = code
            topic.partitions = []


def merge(answer: Any, refused: Any, version: int) -> None:
    """Add to the answer for a part of a request the refused items of the other part."""
    for spec in type(answer).FIELDS:
        element = spec.type.element
        if version not in parse_versions(spec.versions) or element is None or element.struct is None:
            continue
        items: list[Any] = getattr(answer, spec.name)
        for item in getattr(refused, spec.name) or ():
            same = next((each for each in items or () if _same(each, item)), None)
            if same is None:
                setattr(answer, spec.name, items := [*(items or []), item])
            else:
                merge(same, item, version)


def has_errors_by_topic(request: Message, version: int) -> bool:
    """True if the answer reports an error for each topic that a request names, beside its name or id."""
    if request.API_KEY in AT_THE_TOP_ONLY:
        return False
    return _says_errors_by_topic(API_SPECS[ApiKey(request.API_KEY)].response_type(), version, is_topic=False)


@cache
def _says_errors_by_topic(kind: type[Struct], version: int, *, is_topic: bool) -> bool:
    for spec in kind.FIELDS:
        element = spec.type.element
        if not _is_list_with_errors(spec, version) or element is None or element.struct is None:
            continue
        is_inside = is_topic or names_a_topic(element.struct)
        if is_inside and any(each.name in ERROR_FIELDS for each in element.struct.FIELDS):
            return True
        if _says_errors_by_topic(element.struct, version, is_topic=is_inside):
            return True
    return False


def _same(one: Any, other: Any) -> bool:
    """True if two items are about the same: a group, a topic, a transaction."""
    names = [spec.name for spec in one.FIELDS if spec.type.element is None and spec.type.struct is None]
    identity = [name for name in names if "error" not in name and "throttle" not in name]
    return bool(identity) and all(getattr(one, name) == getattr(other, name) for name in identity[:2])


def _has_items(answer: Struct, version: int) -> bool:
    return any(getattr(answer, spec.name) for spec in answer.FIELDS if _is_list_with_errors(spec, version))


def _is_list_with_errors(spec: Any, version: int) -> bool:
    element = spec.type.element
    if element is None or element.struct is None or version not in parse_versions(spec.versions):
        return False
    return any(
        each.name in ERROR_FIELDS or _is_list_with_errors(each, version)
        for each in element.struct.FIELDS
        if version in parse_versions(each.versions)
    )
