"""Core: CreateAcls and DeleteAcls (KIP-140, KIP-801)."""

from __future__ import annotations

from barnabas.kraft.controller.state import MAX_RECORDS_PER_OPERATION, ControllerResult, ControllerState, Steps
from barnabas.kraft.metadata.acl_filters import AclFilter
from barnabas.kraft.metadata.image import AclKey, acl_key
from barnabas.protocol.acls import CLUSTER_NAME, AclOperation, AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from barnabas.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from barnabas.protocol.messages.metadata_log import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from barnabas.protocol.schema import Message
from barnabas.runtime.decisions import DecisionKind
from barnabas.runtime.uuids import random_uuid

COUNTED_TOGETHER = 5
"""ACLs that cost as much as one item of a decision."""
MAX_COMPARED = 5_000_000
"""Comparisons of ACLs with the filters of one request: some seconds of short steps."""
MAX_LISTED = 5 * MAX_RECORDS_PER_OPERATION
"""ACLs in one response. Filters may overlap, so this is more than may be deleted."""


def create_acls(
    state: ControllerState, request: CreateAclsRequest, version: int
) -> Steps[ControllerResult[CreateAclsResponse]]:
    """Create each valid ACL that does not exist; one that exists is no error."""
    others = state.image.others
    response = CreateAclsResponse()
    records: dict[AclKey, Message] = {}
    for creation in request.creations:
        if state.pace.is_full(per_item=COUNTED_TOGETHER):
            yield None
        refusal = _refusal(creation)
        if refusal is not None:
            code = ErrorCode.INVALID_REQUEST
            response.results.append(AclCreationResult(error_code=code, error_message=refusal))
            continue
        response.results.append(AclCreationResult(error_message=None))
        record = AccessControlEntryRecord(
            resource_type=creation.resource_type,
            resource_name=creation.resource_name,
            pattern_type=creation.resource_pattern_type,
            principal=creation.principal,
            host=creation.host,
            operation=creation.operation,
            permission_type=creation.permission_type,
        )
        key = acl_key(record)
        if key not in others.acl_ids and key not in records:
            record.id = random_uuid(state.chance)
            records[key] = record
    _note(state, len(records), "created", "CreateAcls")
    return ControllerResult(response, list(records.values()))


def _refusal(acl: AclCreation) -> str | None:
    """Reason why an ACL cannot be created, in Kafka's words; None if it can."""
    resource_type = AclResourceType(acl.resource_type)
    if resource_type is AclResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.resource_name:
        return "Invalid empty resource name"
    if resource_type in (AclResourceType.UNKNOWN, AclResourceType.ANY):
        return f"Invalid resourceType {resource_type.name}"
    pattern_type = PatternType(acl.resource_pattern_type)
    if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {pattern_type.name}"
    operation = AclOperation(acl.operation)
    if operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        return f"Invalid operation {operation.name}"
    permission_type = AclPermissionType(acl.permission_type)
    if permission_type not in (AclPermissionType.DENY, AclPermissionType.ALLOW):
        return f"Invalid permissionType {permission_type.name}"
    if ":" not in acl.principal:
        return (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type from"
            " the principal name)"
        )
    return None


def delete_acls(
    state: ControllerState, request: DeleteAclsRequest, version: int
) -> Steps[ControllerResult[DeleteAclsResponse]]:
    """Delete the ACLs that match each filter. Raises KafkaError INVALID_REQUEST for more than one operation may
    delete: that a part of them was deleted could be overlooked in so long an answer."""
    others = state.image.others
    response = DeleteAclsResponse()
    records: dict[bytes, Message] = {}
    listed = compared = 0
    for asked in request.filters:
        if state.pace.is_full():
            yield None
        wanted = AclFilter.of(asked)
        result = DeleteAclsFilterResult(error_message=None)
        response.filter_results.append(result)
        if wanted.unknown is not None:
            result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, wanted.unknown
            continue
        compared += 0 if wanted.is_exact else len(others.acls)
        if compared > MAX_COMPARED:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the filters need more than {MAX_COMPARED} comparisons")
        for acl in wanted.find(others):
            if acl is None:
                state.pace.steps += 1
                yield None
                continue
            listed += 1
            if state.pace.is_full(per_item=COUNTED_TOGETHER):
                yield None
            if listed > MAX_LISTED:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"the filters match more than {MAX_LISTED} acls together")
            if acl.id not in records and len(records) >= MAX_RECORDS_PER_OPERATION:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Cannot remove more than {MAX_RECORDS_PER_OPERATION} acls in a single delete operation.",
                )
            records[acl.id] = RemoveAccessControlEntryRecord(id=acl.id)
            result.matching_acls.append(_matching(acl))
    _note(state, len(records), "deleted", "DeleteAcls")
    return ControllerResult(response, list(records.values()))


def _matching(acl: AccessControlEntryRecord) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def _note(state: ControllerState, count: int, what: str, api: str) -> None:
    if count:
        lists = "access control list is" if count == 1 else "access control lists are"
        state.notes.note(DecisionKind.ACCESS, "cluster", f"{count} {lists} {what}", cause=f"{api} asked for it")
