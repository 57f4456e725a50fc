"""Core: the port through which handlers ask what a client may do. `kraft/authorizer/` has the authorizer behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.runtime.request import Request


class AuthorizerNotReady(KafkaError):
    """The access control lists are not loaded yet, and the principal is no super user. The sender tries again."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, "the access control lists of this node are not loaded yet")


class Authorizer(Protocol):
    """Decides by access control lists. A node without `authorizer.class.name` has none: everything is allowed.

    Each method raises AuthorizerNotReady.
    """

    def allows(
        self,
        request: Request,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
        *,
        audited: bool = True,
    ) -> bool:
        """True if the principal of `request` may do `operation` on the resource. `audited`: the decision goes to the
        audit log; False for a question that only shapes a response (hidden topics, authorized operations)."""

    def allows_any(self, request: Request, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """True if the principal may do `operation` on at least one resource of the type (KIP-679)."""

    def authorized_operations(self, request: Request, resource_type: AclResourceType, name: str) -> int:
        """The operations that the principal may do on the resource, each a bit (KIP-430). Not audited."""
