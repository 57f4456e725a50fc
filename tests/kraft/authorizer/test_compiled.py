"""Compiled ACLs decide as the rules say, one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.kraft.authorizer.by_resource_type import allows_any
from barnabas.kraft.authorizer.compiled import CompiledAcls, Match, Unmatched
from barnabas.kraft.authorizer.compiling import STEP_CHANGES, Change, changed
from barnabas.protocol.acls import AclOperation, AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.messages.metadata_log import AccessControlEntryRecord

READ, WRITE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL
DENY, ALLOW = AclPermissionType.DENY, AclPermissionType.ALLOW
TOPIC = AclResourceType.TOPIC

IMPLIED = {
    AclOperation.DESCRIBE: {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}


def acl(  # noqa: PLR0913 — an ACL has seven parts
    name: str = "flights",
    operation: int = READ,
    permission: int = ALLOW,
    *,
    pattern: int = PatternType.LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    resource_type: int = TOPIC,
) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=bytes(16),
        resource_type=resource_type,
        resource_name=name,
        pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def compiled(changes: Iterable[Change], before: CompiledAcls | None = None) -> CompiledAcls:
    steps = changed(before or CompiledAcls(), changes)
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            result: CompiledAcls = finished.value
            return result


def of(*records: AccessControlEntryRecord) -> CompiledAcls:
    return compiled((None, it) for it in records)


def verdict(match: Match | Unmatched) -> str:
    if match is Unmatched.NO_ACL:
        return "no ACL at all"
    if match is Unmatched.NOT_ALLOWED:
        return "no ACL applies"
    assert match.allows == (match.acl.permission_type is ALLOW)
    return match.acl.permission_type.name


def naive(records: Sequence[AccessControlEntryRecord], operation: int, name: str, principal: str, host: str) -> str:
    """The rules as Kafka's documentation states them, over a plain list."""
    found, allowed = False, False
    for it in records:
        if it.resource_type != TOPIC:
            continue
        if it.pattern_type == PatternType.LITERAL and it.resource_name not in (name, "*"):
            continue
        if it.pattern_type == PatternType.PREFIXED and not name.startswith(it.resource_name):
            continue
        found = True
        if it.principal not in (principal, "User:*") or it.host not in (host, "*"):
            continue
        if it.permission_type == DENY and it.operation in (operation, ALL):
            return "DENY"
        implied = IMPLIED.get(AclOperation(operation), set())
        allowed |= it.permission_type == ALLOW and it.operation in {operation, ALL, *implied}
    return "ALLOW" if allowed else ("no ACL applies" if found else "no ACL at all")


def naive_any(records: Sequence[AccessControlEntryRecord], operation: int, principal: str, host: str) -> bool:
    mine = [
        it
        for it in records
        if it.resource_type == TOPIC
        and it.principal in (principal, "User:*")
        and it.host in (host, "*")
        and it.operation in (operation, ALL)
    ]
    denied = [it for it in mine if it.permission_type == DENY]
    allowed = [it for it in mine if it.permission_type == ALLOW]
    literal = PatternType.LITERAL
    if any(it.pattern_type == literal and it.resource_name == "*" for it in denied):
        return False
    for it in allowed:
        wholly = it.pattern_type == literal and it.resource_name == "*"
        by_name = any(
            it.pattern_type == no.pattern_type == literal and it.resource_name == no.resource_name for no in denied
        )
        by_prefix = any(
            no.pattern_type == PatternType.PREFIXED and it.resource_name.startswith(no.resource_name) for no in denied
        )
        if wholly or not (by_name or by_prefix):
            return True
    return False


NAMES = st.one_of(st.just("*"), st.text("ab", min_size=1, max_size=4))
PRINCIPALS = st.sampled_from(["User:alice", "User:bob", "User:*"])
HOSTS = st.sampled_from(["10.0.0.1", "10.0.0.2", "*"])
OPERATIONS = st.sampled_from([it for it in AclOperation if it >= ALL])
ACLS = st.builds(
    acl,
    NAMES,
    OPERATIONS,
    st.sampled_from([DENY, ALLOW, ALLOW]),
    pattern=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    principal=PRINCIPALS,
    host=HOSTS,
    resource_type=st.sampled_from([TOPIC, TOPIC, TOPIC, AclResourceType.GROUP]),
)


@given(
    st.lists(ACLS, max_size=12),
    st.lists(ACLS, max_size=12),
    OPERATIONS.filter(lambda it: it is not ALL),
    NAMES,
    st.sampled_from(["User:alice", "User:bob"]),
    st.sampled_from(["10.0.0.1", "10.0.0.2"]),
)
def test_compiled_acls_decide_as_the_rules_do(
    removed: list[AccessControlEntryRecord],
    kept: list[AccessControlEntryRecord],
    operation: AclOperation,
    name: str,
    principal: str,
    host: str,
) -> None:
    acls = of(*removed, *kept)
    acls = compiled([(it, None) for it in removed], acls)
    match = acls.match(operation, TOPIC, name, principal, host)
    assert verdict(match) == naive(kept, operation, name, principal, host)
    assert allows_any(acls, operation, TOPIC, principal, host) == naive_any(kept, operation, principal, host)
    assert acls.count == len(kept)
    if isinstance(match, Match):
        it = match.acl
        deciding = acl(
            it.resource_name,
            it.operation,
            it.permission_type,
            pattern=it.pattern_type,
            principal=it.principal,
            host=it.host,
        )
        assert deciding in kept, "the ACL that is named exists"


@given(st.lists(ACLS, max_size=12))
def test_nothing_is_left_of_removed_acls(records: list[AccessControlEntryRecord]) -> None:
    assert compiled([(it, None) for it in records], of(*records)) == CompiledAcls()


@given(st.lists(ACLS, max_size=12), st.lists(ACLS, max_size=12), st.integers(0, 12))
def test_no_change_reaches_the_acls_before_it(
    records: list[AccessControlEntryRecord], added: list[AccessControlEntryRecord], removed: int
) -> None:
    before = of(*records)
    changes: list[Change] = [(it, None) for it in records[:removed]]
    changes += [(None, it) for it in added]
    assert compiled(changes, before) == of(*records[removed:], *added)
    assert before == of(*records)


def test_a_change_leaves_the_acls_before_it_as_they_were() -> None:
    before = of(acl("flights"), acl("fl", pattern=PatternType.PREFIXED))
    after = compiled([(None, acl("flights", permission=DENY)), (acl("fl", pattern=PatternType.PREFIXED), None)], before)
    assert verdict(before.match(READ, TOPIC, "flights", "User:alice", "h")) == "ALLOW"
    assert verdict(after.match(READ, TOPIC, "flights", "User:alice", "h")) == "DENY"
    assert verdict(before.match(READ, TOPIC, "flowers", "User:alice", "h")) == "ALLOW"
    assert verdict(after.match(READ, TOPIC, "flowers", "User:alice", "h")) == "no ACL at all"


def test_ten_thousand_acls_are_compiled_in_short_steps() -> None:
    records = [acl(f"topic-{index}", principal=f"User:user-{index % 100}") for index in range(10_000)]
    steps = changed(CompiledAcls(), ((None, it) for it in records))
    count = sum(1 for _ in steps)
    assert count == len(records) // STEP_CHANGES


def test_one_of_two_equal_acls_remains_when_the_other_is_removed() -> None:
    acls = compiled([(acl(), None)], of(acl(), acl()))
    assert verdict(acls.match(READ, TOPIC, "flights", "User:alice", "h")) == "ALLOW"


@pytest.mark.parametrize("address", ["2001:db8::1", "2001:db8:0:0:0:0:0:1", "2001:DB8::0001"])
def test_an_ipv6_address_matches_in_every_form(address: str) -> None:
    """Java writes all eight groups, so that an ACL of Kafka's has them, too."""
    acls = of(acl(host="2001:db8:0:0:0:0:0:1"), acl("seats", host="10.0.0.1"))
    assert verdict(acls.match(READ, TOPIC, "flights", "User:alice", address)) == "ALLOW"
    assert verdict(acls.match(READ, TOPIC, "seats", "User:alice", "::ffff:10.0.0.1")) == "ALLOW"
    assert compiled([(acl(host=address), None)], of(acl(host="2001:db8::1"))) == CompiledAcls()
