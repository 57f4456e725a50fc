"""Core: changes of client quotas (KIP-546, KIP-612). The quotas of an entity change together, or not at all."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

from barnabas.kraft.controller.state import ControllerResult, ControllerState, Steps, refuse_if_excessive
from barnabas.kraft.metadata.image import QuotaEntity
from barnabas.kraft.metadata.ip_quotas import IP
from barnabas.kraft.metadata.replay import quota_part_order
from barnabas.kraft.metadata.snapshot import quota_record
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    RequestEntryData,
    ResponseEntryData,
)
from barnabas.protocol.primitives import INT32_MAX, INT64_MAX
from barnabas.protocol.schema import Message
from barnabas.runtime.decisions import DecisionKind, cut
from barnabas.runtime.quotas.source import CLIENT_ID_TAG, CONNECTION_RATE_KEY, USER_TAG, QuotaType

Changes = dict[str, float | None]
"""New values by key; None removes one."""

_DOUBLE = float("inf")
_USER_KEYS: Mapping[str, float] = {
    QuotaType.PRODUCE.key: INT64_MAX,
    QuotaType.FETCH.key: INT64_MAX,
    QuotaType.REQUEST.key: _DOUBLE,
    QuotaType.CONTROLLER_MUTATION.key: _DOUBLE,
}
_IP_KEYS: Mapping[str, float] = {CONNECTION_RATE_KEY: INT32_MAX}
"""Keys of each kind of entity, with the greatest value of their types."""

_TYPE_NAMES = {INT64_MAX: "a LONG", INT32_MAX: "an INT"}
_TOLERANCE = 1e-6
"""Greatest fraction of a whole number."""


def alter_client_quotas(
    state: ControllerState, request: AlterClientQuotasRequest, version: int
) -> Steps[ControllerResult[AlterClientQuotasResponse]]:
    """Set and remove quotas of entities. An entity that is named twice gets an error, and keeps its quotas."""
    answers: dict[QuotaEntity, KafkaError | None] = {}
    changed: dict[QuotaEntity, Changes] = {}
    for entry in request.entries:
        entity = _entity(entry)
        try:
            if entity in answers:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {_shown(entity)}")
            changes = _changes(entity, entry.ops)
            _check(entity, changes)
        except KafkaError as error:
            answers[entity] = error
            changed.pop(entity, None)
        else:
            answers[entity] = None
            changed[entity] = changes
        if state.pace.is_full(1 + len(entry.ops)):
            yield None
    records = yield from _records(state, changed)
    refuse_if_excessive(len(records))
    response = AlterClientQuotasResponse(
        entries=[
            ResponseEntryData(
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            )
            for entity, error in answers.items()
        ]
    )
    return ControllerResult(response, [] if request.validate_only else records)


def _records(state: ControllerState, changed: Mapping[QuotaEntity, Changes]) -> Steps[list[Message]]:
    """One record for each quota that is new, different or removed."""
    records: list[Message] = []
    for entity, changes in changed.items():
        current = state.image.others.quotas.get(entity, {})
        effective = {key: value for key, value in changes.items() if current.get(key) != value}
        records += [quota_record(entity, key, value) for key, value in effective.items()]
        if effective:
            shown = ", ".join(f"{key}={'none' if value is None else value}" for key, value in effective.items())
            name = cut(", ".join(f"{kind} {name or '<default>'}" for kind, name in entity))
            state.notes.note(
                DecisionKind.LIFECYCLE,
                name,
                f"quotas of {name} are changed",
                cause=f"{cut(str(state.asked.by))} asked for {shown}",
            )
        if state.pace.is_full(1 + len(effective)):
            yield None
    return records


def _entity(entry: RequestEntryData) -> QuotaEntity:
    """The last name counts if a type is given twice."""
    parts = {it.entity_type: it.entity_name for it in entry.entity}
    return tuple(sorted(parts.items(), key=quota_part_order))


def _changes(entity: QuotaEntity, ops: Sequence[OpData]) -> Changes:
    """Raises KafkaError for a key that is named twice."""
    changes: Changes = {}
    for op in ops:
        if op.key in changes:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Duplicate quota key {op.key} not updating quota for this entity {_shown(entity)}",
            )
        changes[op.key] = None if op.remove else op.value
    return changes


def _check(entity: QuotaEntity, changes: Changes) -> None:
    """Raises KafkaError unless these are quotas that such an entity may have."""
    keys = _keys_of(entity)
    for key, value in changes.items():
        if value is not None:
            _check_value(keys, key, value)


def _keys_of(entity: QuotaEntity) -> Mapping[str, float]:
    """The keys that an entity may have. Raises KafkaError for a combination that is no entity."""
    if not entity:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in (USER_TAG, CLIENT_ID_TAG, IP):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Empty {kind} not supported")
    names = dict(entity)
    if IP not in names:
        return _USER_KEYS
    if len(names) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId",
        )
    if names[IP] is not None and not _is_address(names[IP]):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{names[IP]} is not a valid IP address")
    return _IP_KEYS


def _check_value(keys: Mapping[str, float], key: str, value: float) -> None:
    greatest = keys.get(key)
    if greatest is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {key}")
    if not value > 0:  # NaN, too
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Quota {key} must be greater than 0")
    if greatest == _DOUBLE:
        return
    if value > float(greatest):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Proposed value for {key} is too large for {_TYPE_NAMES[int(greatest)]}."
        )
    if value % 1.0 > _TOLERANCE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key} cannot be a fractional value.")


def _is_address(text: str | None) -> bool:
    """Kafka's controllers look names of hosts up; ours never wait for a name server."""
    try:
        ipaddress.ip_address(text or "")
    except ValueError:
        return False
    return True


def _shown(entity: QuotaEntity) -> str:
    """The entity as Kafka's error messages show it."""
    parts = (f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{', '.join(parts)}}})"
