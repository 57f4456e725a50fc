"""Mistakes of those who decide what clients may do."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from barnabas.kraft.authorizer.compiled import WILDCARD, WILDCARD_PRINCIPAL, CompiledAcls, Match, Unmatched
from barnabas.kraft.authorizer.standard import SUPER_USER, Rule, StandardAuthorizer
from barnabas.protocol.sasl.scram import ScramIdentity
from barnabas.runtime.request import Request

CONTROLLERS = "CONTROLLER"
"""The listener to which brokers forward."""


def keep_deleted_acls(_original: Any) -> Any:
    """ACLs that are deleted go on to apply."""

    def remove(_self: Any, _record: Any) -> None:
        return None

    return remove


def remember_by_name(original: Any) -> Any:
    """If one user may do one thing with a resource, every user may do everything with it."""
    rules: WeakKeyDictionary[StandardAuthorizer, tuple[CompiledAcls, dict[str, Rule]]] = WeakKeyDictionary()

    def decide(self: StandardAuthorizer, question: Any, request: Request) -> Rule:
        rule: Rule = original(self, question, request)
        acls, by_name = rules.get(self, (None, {}))
        if acls is not self.acls:
            by_name = {}
        rules[self] = self.acls, by_name
        return rule if rule is SUPER_USER else by_name.setdefault(question[0], rule)

    return decide


def trust_what_is_forwarded(original: Any) -> Any:
    """A request that a broker forwards has the rights of the broker."""

    def decide(self: StandardAuthorizer, question: Any, request: Request) -> Rule:
        if request.listener_name == CONTROLLERS:
            return SUPER_USER
        rule: Rule = original(self, question, request)
        return rule

    return decide


def let_denials_lose(original: Any) -> Any:
    """An ACL that allows wins over those that deny."""

    def match(
        self: CompiledAcls, operation: int, resource_type: int, name: str, principal: str, host: str
    ) -> Match | Unmatched:
        found: Match | Unmatched = original(self, operation, resource_type, name, principal, host)
        if isinstance(found, Unmatched) or found.allows:
            return found
        for place in self.by_type[resource_type].matching(resource_type, name):
            grants = [place[3].get(holder, {}).get(WILDCARD) for holder in (principal, WILDCARD_PRINCIPAL)]
            if any(each is not None and each.allowed >> operation & 1 for each in grants):
                return Match(True, place, operation, principal, host)
        return found

    return match


def remember_passwords(original: Any) -> Any:
    """A broker goes on to take the first password of a user that it saw."""
    first: WeakKeyDictionary[Any, dict[str, ScramIdentity]] = WeakKeyDictionary()

    def identify(self: Any, name: str, is_token: bool) -> ScramIdentity | None:
        known = first.setdefault(self, {})
        if name not in known:
            found: ScramIdentity | None = original(self, name, is_token)
            if found is None:
                return None
            known[name] = found
        return known[name]

    return identify
