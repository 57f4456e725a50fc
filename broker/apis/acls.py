"""DescribeAcls (29) on a cluster without an authorizer: SECURITY_DISABLED, as Kafka answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ErrorCode
from protocol.messages.describe_acls import DescribeAclsResponse
from runtime.dispatch import Call

if TYPE_CHECKING:
    from broker.services import BrokerServices


def describe_acls(broker: BrokerServices, call: Call) -> None:
    del broker
    call.answer(
        DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
        )
    )
