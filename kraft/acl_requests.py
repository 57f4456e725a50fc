"""DescribeAcls, on brokers and controllers: from the metadata that this node has."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.kraft.metadata.acl_filters import AclFilter
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from barnabas.runtime.call import Call
from barnabas.runtime.steps import Steps

STEP_ACLS = 200
"""ACLs that one step describes."""
NO_AUTHORIZER = "No Authorizer is configured."
"""Kafka's words for SECURITY_DISABLED."""


def describe_acls(image: Callable[[], MetadataImage], call: Call) -> Steps | None:
    """The ACLs that match the filter, by the patterns of their resources. Without an authorizer there is nothing to
    describe, although there may be ACLs."""
    if not call.has_authorizer:
        refused = f"{NO_AUTHORIZER.removesuffix('.')} on the broker"
        call.answer(DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=refused))
        return None
    request: DescribeAclsRequest = call.message
    wanted = AclFilter.of(request)
    if wanted.unknown is not None:
        message = f"DescribeAclsRequest contains UNKNOWN elements: {wanted.unknown}"
        call.answer(DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=message))
        return None
    return _describe(image(), wanted, call)


def _describe(image: MetadataImage, wanted: AclFilter, call: Call) -> Steps:
    resources: dict[tuple[int, int, str], DescribeAclsResource] = {}
    described = 0
    for acl in wanted.find(image.others):
        if acl is None:
            yield None
            continue
        pattern = (acl.resource_type, acl.pattern_type, acl.resource_name)
        resource = resources.get(pattern)
        if resource is None:
            resource = resources[pattern] = DescribeAclsResource(
                resource_type=acl.resource_type, pattern_type=acl.pattern_type, resource_name=acl.resource_name
            )
        resource.acls.append(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
        )
        described += 1
        if described % STEP_ACLS == 0:
            call.is_large = True
            yield None
    call.answer(DescribeAclsResponse(error_message=None, resources=list(resources.values())))
