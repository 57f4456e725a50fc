"""DescribeAcls (29) on a cluster without an authorizer: SECURITY_DISABLED, as Kafka answers."""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_acls import DescribeAclsResponse
from barnabas.runtime.dispatch import Call


def describe_acls(call: Call) -> None:
    call.answer(
        DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured.")
    )
