"""The authorizer decides as Kafka's, remembers what it decided, and forgets it when ACLs change."""

from __future__ import annotations

import logging

import pytest

from barnabas.kraft.authorizer.audit import NOTES_A_MINUTE
from barnabas.kraft.authorizer.standard import REMEMBERED
from barnabas.protocol.acls import SUPPORTED_OPERATIONS, AclOperation, AclResourceType, PatternType, allowed_bits
from barnabas.runtime.access import AuthorizerNotReady
from tests.kraft.authorizer.asking import Guard, request_of
from tests.kraft.authorizer.test_compiled import ALLOW, DENY, READ, WRITE, acl, compiled

TOPIC = AclResourceType.TOPIC
DESCRIBE = AclOperation.DESCRIBE

pytestmark = pytest.mark.feature("SE-08")


def test_super_users_pass_whatever_is_denied_and_before_the_acls_are_loaded() -> None:
    guard = Guard(acl("*", AclOperation.ALL, DENY, principal="User:*"), super_users=("User:root",))
    authorizer = guard.authorizer
    assert authorizer.allows(request_of("root"), READ, TOPIC, "flights")
    assert authorizer.allows_any(request_of("root"), WRITE, TOPIC)
    assert not authorizer.allows(request_of("alice"), READ, TOPIC, "flights")
    authorizer.is_loaded = False
    authorizer.put(authorizer.acls)
    assert authorizer.allows(request_of("root"), READ, TOPIC, "flights")
    with pytest.raises(AuthorizerNotReady):
        authorizer.allows(request_of("alice"), READ, TOPIC, "flights")
    with pytest.raises(AuthorizerNotReady):
        authorizer.allows_any(request_of("alice"), READ, TOPIC)


def test_everybody_is_let_in_only_where_a_resource_has_no_acl_at_all() -> None:
    acls = (acl("flights"), acl("seat", pattern=PatternType.PREFIXED))
    for allow_everyone in (False, True):
        guard = Guard(*acls, allow_everyone=allow_everyone)
        bob = request_of("bob")
        assert guard.authorizer.allows(bob, READ, TOPIC, "other") is allow_everyone
        assert not guard.authorizer.allows(bob, READ, TOPIC, "flights"), "it has an ACL of somebody else"
        assert not guard.authorizer.allows(bob, READ, TOPIC, "seats")
        assert guard.authorizer.allows(request_of("alice"), DESCRIBE, TOPIC, "seats"), "READ implies DESCRIBE"


def test_a_decision_holds_for_one_principal_host_operation_and_resource() -> None:
    guard = Guard(acl("flights", READ, host="10.0.0.1"))
    authorizer = guard.authorizer
    for _ in range(2):
        assert authorizer.allows(request_of("alice"), READ, TOPIC, "flights")
        assert not authorizer.allows(request_of("alice", "10.0.0.2"), READ, TOPIC, "flights")
        assert not authorizer.allows(request_of("bob"), READ, TOPIC, "flights")
        assert not authorizer.allows(request_of("alice"), WRITE, TOPIC, "flights")
        assert not authorizer.allows(request_of("alice"), READ, AclResourceType.GROUP, "flights")
        assert not authorizer.allows(request_of("alice"), READ, TOPIC, "flight")


def test_decisions_are_forgotten_when_acls_change() -> None:
    guard = Guard(acl("flights", WRITE))
    authorizer, alice = guard.authorizer, request_of("alice")
    assert authorizer.allows(alice, WRITE, TOPIC, "flights")
    assert authorizer.allows_any(alice, WRITE, TOPIC)
    authorizer.put(compiled([(None, acl("fl", WRITE, DENY, pattern=PatternType.PREFIXED))], authorizer.acls))
    assert not authorizer.allows(alice, WRITE, TOPIC, "flights")
    assert not authorizer.allows_any(alice, WRITE, TOPIC), "the prefix shadows the only topic that is allowed"


def test_remembered_decisions_are_bounded() -> None:
    authorizer = Guard(allow_everyone=True).authorizer
    for number in range(REMEMBERED + 10):
        authorizer.allows(request_of("alice"), READ, TOPIC, f"topic-{number}")
        authorizer.allows_any(request_of("alice", f"host-{number}"), READ, TOPIC)
    assert len(authorizer._rules) <= REMEMBERED
    assert len(authorizer._any) <= REMEMBERED
    assert authorizer.allowed == 2 * (REMEMBERED + 10)


@pytest.mark.feature("SE-09")
@pytest.mark.parametrize("resource_type", SUPPORTED_OPERATIONS)
def test_authorized_operations_are_those_that_the_type_has(resource_type: AclResourceType) -> None:
    everything = acl("x", AclOperation.ALL, resource_type=resource_type)
    guard = Guard(everything, acl("x", DESCRIBE, DENY, resource_type=resource_type))
    supported = SUPPORTED_OPERATIONS[resource_type]
    allowed = [it for it in supported if it is not DESCRIBE]
    assert guard.authorizer.authorized_operations(request_of("alice"), resource_type, "x") == allowed_bits(allowed)
    assert guard.authorizer.authorized_operations(request_of("bob"), resource_type, "x") == 0
    assert guard.decisions.since(1) == [], "nobody asked for anything"


def test_the_audit_log_has_kafkas_words(caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard(acl("fl", READ, DENY, pattern=PatternType.PREFIXED), acl("seats"), super_users=("User:root",))
    authorizer = guard.authorizer
    with caplog.at_level(logging.DEBUG, "authorizer"):
        authorizer.allows(request_of("alice"), READ, TOPIC, "flights")
        authorizer.allows(request_of("alice"), READ, TOPIC, "seats")
        authorizer.allows(request_of("root"), AclOperation.IDEMPOTENT_WRITE, AclResourceType.CLUSTER, "kafka-cluster")
        authorizer.allows(request_of("bob"), READ, TOPIC, "a\nb")
        authorizer.allows(request_of("bob"), READ, TOPIC, "unseen", audited=False)
        authorizer.allows(request_of("alice"), READ, TOPIC, "seats", audited=False)
    assert [(it.levelname, it.getMessage()) for it in caplog.records if it.name == "authorizer"] == [
        (
            "INFO",
            "Principal = User:alice is Denied operation = READ from host = 10.0.0.1 on resource = Topic:LITERAL:flights"
            " for request = Produce with resourceRefCount = 1 based on rule MatchingAcl(acl=StandardAcl["
            "resourceType=TOPIC, resourceName=fl, patternType=PREFIXED, principal=User:alice, host=*, operation=READ,"
            " permissionType=DENY])",
        ),
        (
            "DEBUG",
            "Principal = User:alice is Allowed operation = READ from host = 10.0.0.1 on resource = Topic:LITERAL:seats"
            " for request = Produce with resourceRefCount = 1 based on rule MatchingAcl(acl=StandardAcl["
            "resourceType=TOPIC, resourceName=seats, patternType=LITERAL, principal=User:alice, host=*, operation=READ,"
            " permissionType=ALLOW])",
        ),
        (
            "DEBUG",
            "Principal = User:root is Allowed operation = IDEMPOTENT_WRITE from host = 10.0.0.1 on resource ="
            " Cluster:LITERAL:kafka-cluster for request = Produce with resourceRefCount = 1 based on rule SuperUser",
        ),
        (
            "INFO",
            "Principal = User:bob is Denied operation = READ from host = 10.0.0.1 on resource = Topic:LITERAL:a\\nb"
            " for request = Produce with resourceRefCount = 1 based on rule DefaultDeny",
        ),
    ]


@pytest.mark.feature("OB-07")
def test_a_denial_is_a_decision_that_is_counted_and_not_repeated() -> None:
    guard = Guard(acl("flights", READ, ALLOW))
    for _ in range(150):
        guard.authorizer.allows(request_of("bob"), READ, TOPIC, "flights")
    notes = guard.decisions.since(1, "topic flights")
    assert [it.facts["times"] for it in notes] == [1, 10, 100]
    assert notes[0].sentence == (
        "User:bob from 10.0.0.1 is denied READ on topic flights for Produce: the ACLs of the resource do not allow it"
    )
    assert guard.decisions.since(1, "principal User:bob") == notes
    assert guard.authorizer.denied == 150


@pytest.mark.feature("OB-07")
def test_a_client_cannot_fill_the_decisions_with_denials() -> None:
    guard = Guard()
    for number in range(5000):
        guard.authorizer.allows(request_of("bob"), READ, TOPIC, f"topic-{number}")
    assert len(guard.decisions.since(1)) == NOTES_A_MINUTE
    guard.now_ms = 60_000
    guard.authorizer.allows(request_of("bob"), READ, TOPIC, "late")
    [late] = guard.decisions.since(1, "topic late")
    assert f"and {5000 - NOTES_A_MINUTE} other denials were not noted" in late.cause


def test_the_log_names_once_who_comes_before_the_acls_are_loaded(caplog: pytest.LogCaptureFixture) -> None:
    authorizer = Guard().authorizer
    authorizer.is_loaded = False
    for user in ("node-1", "node-1", "node-2"):
        with pytest.raises(AuthorizerNotReady):
            authorizer.allows(request_of(user, key=52), AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, "x")
    assert [it.getMessage().partition(" before ")[0] for it in caplog.records if it.levelname == "WARNING"] == [
        "User:node-1 from 10.0.0.1 sends Vote",
        "User:node-2 from 10.0.0.1 sends Vote",
    ]
