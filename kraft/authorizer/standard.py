"""Core: `StandardAuthorizer`, which decides what principals may do, as Kafka's authorizer of this name.

Super users may do everything. Else an ACL that denies wins over any that allows; where no ACL applies, the answer is
that of `allow.everyone.if.no.acl.found` if the resource has no ACL at all, and no otherwise. Decisions are remembered
until the ACLs change. Before the ACLs are loaded, only super users pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.kraft.authorizer.audit import Audit
from barnabas.kraft.authorizer.by_resource_type import ANY_NAME, allows_any
from barnabas.kraft.authorizer.compiled import CompiledAcls, Match, Unmatched
from barnabas.protocol.acls import SUPPORTED_OPERATIONS, AclOperation, AclResourceType
from barnabas.runtime.access import AuthorizerNotReady

if TYPE_CHECKING:
    from barnabas.runtime.request import Request

REMEMBERED = 10_000
"""Decisions that are remembered at most."""


@dataclass(frozen=True, slots=True)
class NamedRule:
    """A rule that is no ACL."""

    allows: bool
    name: str
    """Kafka's name of it."""
    reason: str = ""

    def __str__(self) -> str:
        return self.name


Rule = NamedRule | Match
"""A decision: `allows`, the `reason` as a decision note explains it, and Kafka's words for it by `str`."""

SUPER_USER = NamedRule(True, "SuperUser")
DEFAULT_ALLOW = NamedRule(True, "DefaultAllow")
NO_ACL = NamedRule(False, "DefaultDeny", "the resource has no ACL, and allow.everyone.if.no.acl.found is false")
NOT_ALLOWED = NamedRule(False, "DefaultDeny", "the ACLs of the resource do not allow it")

_Question = tuple[str, int, int, str, str, str]
"""(resource name, operation, resource type, name and type of the principal, host)."""


class StandardAuthorizer:
    """The authorizer of one node; see `runtime.access.Authorizer`. `put` gives it other ACLs."""

    def __init__(
        self, super_users: Iterable[str], audit: Audit, *, allow_everyone_if_no_acl_found: bool = False
    ) -> None:
        """`super_users`: principals as `Type:name`."""
        self.acls = CompiledAcls()
        self.is_loaded = False
        """The ACLs are those of the whole metadata log, as far as it was known when the node started."""
        self.allowed = 0
        """Checks that were passed."""
        self.denied = 0
        self._super_users = frozenset(super_users)
        self._without_acl = DEFAULT_ALLOW if allow_everyone_if_no_acl_found else NO_ACL
        self._audit = audit
        self._rules: dict[_Question, Rule] = {}
        self._any: dict[tuple[int, int, str, str], bool] = {}

    def put(self, acls: CompiledAcls) -> None:
        """Decide by these ACLs from now on."""
        self.acls = acls
        self._rules.clear()
        self._any.clear()

    def allows(
        self,
        request: Request,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
        *,
        audited: bool = True,
    ) -> bool:
        """See `Authorizer.allows`. Raises AuthorizerNotReady."""
        principal = request.principal
        question = (name, operation, resource_type, principal.name, principal.type, request.peer_host)
        rule = self._rules.get(question)
        if rule is None:
            rule = self._decide(question, request)
        if rule.allows:
            self.allowed += 1
            if audited:
                self._audit.allowed(request, operation, resource_type, name, rule)
            return True
        self.denied += 1
        if audited:
            self._audit.denied(request, operation, resource_type, name, rule)
        return False

    def _decide(self, question: _Question, request: Request) -> Rule:
        name, operation, resource_type, user, kind, host = question
        principal = f"{kind}:{user}"
        rule: Rule
        if principal in self._super_users:
            rule = SUPER_USER
        elif not self.is_loaded:
            self._audit.not_ready(request)
            raise AuthorizerNotReady
        else:
            match = self.acls.match(operation, resource_type, name, principal, host)
            rule = rule_of(match, self._without_acl)
        if len(self._rules) >= REMEMBERED:
            self._rules.clear()
        self._rules[question] = rule
        return rule

    def allows_any(self, request: Request, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """See `Authorizer.allows_any`. Raises AuthorizerNotReady."""
        if self.allows(request, operation, resource_type, ANY_NAME, audited=False):
            return True
        principal, host = str(request.principal), request.peer_host
        question = (operation, resource_type, principal, host)
        found = self._any.get(question)
        if found is None:
            found = allows_any(self.acls, operation, resource_type, principal, host)
            if len(self._any) >= REMEMBERED:
                self._any.clear()
            self._any[question] = found
        return found

    def authorized_operations(self, request: Request, resource_type: AclResourceType, name: str) -> int:
        """The operations that the principal may do on the resource, as a response has them (KIP-430)."""
        operations = SUPPORTED_OPERATIONS[resource_type]
        return sum(1 << it for it in operations if self.allows(request, it, resource_type, name, audited=False))


def rule_of(match: Match | Unmatched, without_acl: Rule) -> Rule:
    """The rule by the outcome of a check; `without_acl` is that of a resource without any ACL."""
    if match is Unmatched.NO_ACL:
        return without_acl
    return NOT_ALLOWED if match is Unmatched.NOT_ALLOWED else match
