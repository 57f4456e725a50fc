"""The answer to a request that is refused as a whole.

The error is put in every place that the answer has for one: at its top, and in each item that the request names. The
answer is made from the fields of both messages: an array of items with error codes repeats the array of the request on
the same level, and copies the fields by which a client identifies an item (as `AbstractRequest.getErrorResponse` does
in Kafka).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.schema import FieldSpec, Message, Struct, parse_versions

SAME = (
    frozenset(["name", "topic", "topic_name", "user"]),
    frozenset(["index", "partition_index", "partition", "partition_id"]),
)
"""Names that requests and answers use for the same thing."""

STATE = frozenset(
    [
        "num_partitions",
        "replication_factor",
        "leader_epoch",
        "partition_epoch",
        "leader_recovery_state",
        "offset",
        "timestamp",
        "committed_offset",
        "committed_leader_epoch",
        "metadata",
        "producer_epoch",
    ]
)
"""Fields with the state of an item, not its identity: a refusal does not repeat them."""

NOWHERE = {"base_offset": -1, "committed_offset": -1, "high_watermark": -1, "low_watermark": -1, "end_offset": -1}
"""Offsets whose default is 0, and their values in a refusal."""

DETAILS = frozenset(["forgotten_topics_data", "configs", "assignments", "ops", "leader_endpoints"])
"""Arrays of requests whose items are not answered one by one."""

AROUND = frozenset(["dirs"])
"""Arrays of requests whose items are not answered, but those within them are (AlterReplicaLogDirs)."""


AT_THE_TOP_ONLY = frozenset(
    [ApiKey.DESCRIBE_QUORUM, ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS]
)
"""Requests whose items are not repeated in a refusal, though the answer has places for their errors. Without a message
of its own the refusal has the name of the error."""
WITHOUT_OWN_MESSAGE = frozenset([ApiKey.DESCRIBE_QUORUM])
"""Those of them that always have the name."""


def refusal_of(request: Message, version: int, code: ErrorCode, message: str | None = None) -> Message:
    """The answer to `request` with `code` in every place for an error."""
    response: Message = API_SPECS[ApiKey(request.API_KEY)].response_type()()
    if request.API_KEY in AT_THE_TOP_ONLY:
        top: Any = response
        own = None if request.API_KEY in WITHOUT_OWN_MESSAGE else message
        top.error_code, top.error_message = code, own or f"{code.name.replace('_', ' ').capitalize()}."
    else:
        _fill(response, request, version, code, message)
    return response


def _fill(answer: Any, asked: Any, version: int, code: ErrorCode, message: str | None) -> None:
    """Put the error into `answer` and its items."""
    kind: type[Struct] = type(answer)
    for spec in _carried(kind, version):
        if _is_error_code(spec):
            setattr(answer, spec.name, code)
        elif spec.name == "error_message":
            answer.error_message = message
        elif _has_error_codes(spec, version):
            items = [_item(spec, each, version, code, message) for each in _named_in(asked, version)]
            setattr(answer, spec.name, items)


def _item(spec: FieldSpec, asked: Any, version: int, code: ErrorCode, message: str | None) -> Struct:
    """One item of the array `spec` of an answer, for one item of the request."""
    assert spec.type.element is not None and spec.type.element.struct is not None
    item = spec.type.element.struct()
    fields = [each for each in _carried(type(item), version) if each.type.element is None and "error" not in each.name]
    for field in fields:
        if field.name in NOWHERE:
            setattr(item, field.name, NOWHERE[field.name])
        elif field.type.name == "records" and version not in parse_versions(field.nullable):
            setattr(item, field.name, b"")
    if isinstance(asked, Struct):
        for field in fields:
            if field.name in STATE:
                continue
            source = _source(type(asked), field.name, version)
            if source is not None and getattr(asked, source) is not None:
                setattr(item, field.name, getattr(asked, source))
        for name in _shared_arrays(type(item), type(asked)):
            setattr(item, name, getattr(asked, name))
        _fill(item, asked, version, code, message)
    else:
        identity = next(field for field in fields if field.type.name not in ("bool", "struct"))
        setattr(item, identity.name, asked)
        _fill(item, item, version, code, message)
    return item


def _named_in(asked: Any, version: int) -> list[Any]:
    """The items that a request, or an item of it, names. Fields that its version does not carry are empty."""
    named: list[Any] = []
    for spec in asked.FIELDS:
        if spec.type.element is not None and spec.name not in DETAILS and not _has_error_codes(spec, version):
            items = getattr(asked, spec.name) or []
            named += [each for item in items for each in _named_in(item, version)] if spec.name in AROUND else items
    return named


@cache
def _carried(kind: type[Struct], version: int) -> tuple[FieldSpec, ...]:
    return tuple(spec for spec in kind.FIELDS if version in parse_versions(spec.versions))


@cache
def _source(asked: type[Struct], name: str, version: int) -> str | None:
    """The field of `asked` that means the same as the field `name` of its answer."""
    names = [spec.name for spec in _carried(asked, version) if spec.type.element is None]
    same = next((each for each in SAME if name in each), frozenset([name]))
    return name if name in names else next((each for each in names if each in same), None)


@cache
def _shared_arrays(kind: type[Struct], asked: type[Struct]) -> tuple[str, ...]:
    """Arrays that an item and its answer have in common: together they identify the item (the entity of a quota)."""
    structs = {spec.name: spec.type.element.struct for spec in asked.FIELDS if spec.type.element is not None}
    return tuple(
        spec.name
        for spec in kind.FIELDS
        if spec.type.element is not None
        and spec.type.element.struct is not None
        and structs.get(spec.name) is spec.type.element.struct
    )


def _is_error_code(spec: FieldSpec) -> bool:
    return spec.name in ("error_code", "partition_error_code")


@cache
def _has_error_codes(spec: FieldSpec, version: int) -> bool:
    """True if items of this array have an error code, themselves or in an array of their own."""
    if spec.type.element is None or spec.type.element.struct is None:
        return False
    fields = _carried(spec.type.element.struct, version)
    return any(_is_error_code(each) or _has_error_codes(each, version) for each in fields)
