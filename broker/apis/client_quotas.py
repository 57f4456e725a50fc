"""DescribeClientQuotas (48): quotas of the entities that match a filter (KIP-546, KIP-612)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from barnabas.broker.metadata_cache import MetadataCache
from barnabas.kraft.metadata.image import QuotaEntity
from barnabas.kraft.metadata.ip_quotas import IP
from barnabas.protocol.acls import AclOperation
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import ANSWER_TOO_LARGE, Meter
from barnabas.runtime.quotas.source import CLIENT_ID_TAG, USER_TAG
from barnabas.runtime.server import Steps

EXACT, DEFAULT, SPECIFIED = range(3)
_NAMES = {EXACT: "MATCH_TYPE_EXACT", DEFAULT: "MATCH_TYPE_DEFAULT", SPECIFIED: "MATCH_TYPE_SPECIFIED"}


@dataclass(slots=True)
class EntityFilter:
    """A filter of entities."""

    strict: bool
    """Entities have no other part than those that are asked for."""
    exact: dict[str, str | None] = field(default_factory=dict)
    """Types and names; the name None is the default entity."""
    any_name: list[str] = field(default_factory=list)
    """Types."""

    def matches(self, entity: QuotaEntity) -> bool:
        names = dict(entity)
        if self.strict and len(names) != len(self.exact) + len(self.any_name):
            return False
        return all(kind in names and names[kind] == name for kind, name in self.exact.items()) and all(
            kind in names for kind in self.any_name
        )


def parse_filter(request: DescribeClientQuotasRequest) -> EntityFilter:
    """Raises KafkaError."""
    found = EntityFilter(request.strict)
    for component in request.components:
        kind, how, name = component.entity_type, component.match_type, component.match
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in found.exact or kind in found.any_name:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter."
            )
        if kind not in (USER_TAG, CLIENT_ID_TAG, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if how not in _NAMES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {how}")
        if how == EXACT and name is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Request specified {_NAMES[how]}, but set match string to null."
            )
        if how != EXACT and name is not None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Request specified {_NAMES[how]}, but also specified a match string."
            )
        if how == SPECIFIED:
            found.any_name.append(kind)
        else:
            found.exact[kind] = name
    kinds = (*found.exact, *found.any_name)
    if IP in kinds and len(kinds) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component.",
        )
    return found


def describe_client_quotas(metadata: MetadataCache, call: Call) -> Steps:
    response = DescribeClientQuotasResponse(error_message=None)
    try:
        if not call.may_on_cluster(AclOperation.DESCRIBE_CONFIGS):
            raise KafkaError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "DescribeClientQuotas needs DESCRIBE_CONFIGS on the cluster"
            )
        response.entries = yield from _entries(metadata, call)
    except KafkaError as error:
        response.error_code, response.error_message, response.entries = error.code, error.message, None
    call.answer(response)


def _entries(metadata: MetadataCache, call: Call) -> Generator[None, None, list[EntryData]]:
    """Raises KafkaError."""
    wanted = parse_filter(call.message)
    entries: list[EntryData] = []
    meter = Meter(call)
    # Images do not change, so an iteration may pause.
    for entity, values in metadata.image.others.quotas.items():
        if wanted.matches(entity):
            if meter.is_full:
                raise KafkaError(ANSWER_TOO_LARGE, "the answer would be too large; ask for fewer entities at a time")
            entries.append(
                EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    values=[ValueData(key=key, value=value) for key, value in values.items()],
                )
            )
            meter.answer_grows(1 + len(entity) + len(values), sum(len(name or "") for _, name in entity))
        if meter.step_ends():
            yield None
    return entries
