"""Whether a principal may do an operation on a resource, by the access control lists that a cluster reports.

The lists of the resource are compiled and matched by the code of the nodes' authorizer. Super users and
`allow.everyone.if.no.acl.found` are settings of the nodes, which clients cannot read (`node_rules.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from barnabas.client.admin import Admin
from barnabas.client.admin.acl_values import AclBinding, AclBindingFilter
from barnabas.kraft.authorizer.compiled import CompiledAcls, Match
from barnabas.kraft.authorizer.compiling import changed
from barnabas.kraft.authorizer.standard import DEFAULT_ALLOW, NO_ACL, SUPER_USER, NamedRule, Rule, rule_of
from barnabas.protocol.acls import AclOperation, AclResourceType, PatternType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.metadata_log import AccessControlEntryRecord
from barnabas.runtime.at_once import at_once
from barnabas.security.node_rules import NodeRules

NO_AUTHORIZER = NamedRule(True, "NoAuthorizer", "the cluster has no authorizer: everybody may do everything")
_REASONS = {
    SUPER_USER.name: "it is in super.users",
    DEFAULT_ALLOW.name: "the resource has no ACL, and allow.everyone.if.no.acl.found is true",
}


@dataclass(frozen=True, slots=True)
class Question:
    """May `principal` (`User:alice`) do `operation` on the resource?"""

    principal: str
    operation: AclOperation
    resource_type: AclResourceType
    name: str
    host: str = "*"
    """Address of the client; `*`: only ACLs for all hosts apply."""

    def __str__(self) -> str:
        kind = self.resource_type.name.lower().replace("_", " ")
        place = "" if self.host == "*" else f" from {self.host}"
        return f"{self.principal}{place} … {self.operation.name} on {kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer, and the rule that decides."""

    question: Question
    rule: Rule
    knows_rules: bool
    """The super users of the nodes are known."""

    @property
    def allowed(self) -> bool:
        return self.rule.allows

    @property
    def reason(self) -> str:
        """One line."""
        if isinstance(self.rule, Match):
            return self.rule.reason or f"an ACL allows it: {self.rule.acl}"
        reason = self.rule.reason or _REASONS[self.rule.name]
        if self.rule.name == NO_ACL.name and not self.knows_rules:
            reason += "; super.users and allow.everyone.if.no.acl.found of the nodes are not known here"
        return reason

    def __str__(self) -> str:
        word = "may do" if self.allowed else "may not do"
        return f"{str(self.question).replace('…', word)}: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        question = self.question
        return {
            "principal": question.principal,
            "host": question.host,
            "operation": question.operation.name.lower(),
            "resource": question.resource_type.name.lower(),
            "name": question.name,
            "allowed": self.allowed,
            "reason": self.reason,
        }


async def ask(admin: Admin, question: Question, rules: NodeRules) -> Verdict:
    """Ask the cluster for the lists of the resource, and decide. Raises KafkaError."""
    matching = AclBindingFilter(question.resource_type, question.name, pattern_type=PatternType.MATCH)
    try:
        bindings = await admin.describe_acls(matching)
    except KafkaError as error:
        if error.code is not ErrorCode.SECURITY_DISABLED:
            raise
        return Verdict(question, NO_AUTHORIZER, rules.are_known)
    return Verdict(question, decide(bindings, question, rules), rules.are_known)


def decide(bindings: Iterable[AclBinding], question: Question, rules: NodeRules) -> Rule:
    """The rule by these lists, which include those of the resource."""
    if question.principal in rules.super_users:
        return SUPER_USER
    acls = at_once(changed(CompiledAcls(), ((None, _record(each)) for each in bindings)))
    match = acls.match(question.operation, question.resource_type, question.name, question.principal, question.host)
    return rule_of(match, DEFAULT_ALLOW if rules.allow_everyone_if_no_acl_found else NO_ACL)


def _record(binding: AclBinding) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        resource_type=binding.resource_type,
        resource_name=binding.resource_name,
        pattern_type=binding.pattern_type,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission_type,
    )
