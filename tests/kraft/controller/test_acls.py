"""CreateAcls and DeleteAcls: Kafka's rules and words, and requests of any size."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.kraft.controller import acls
from barnabas.kraft.metadata.acl_filters import AclFilter
from barnabas.protocol.acls import AclOperation, AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tests.kraft.controller.conftest import Cluster

pytestmark = pytest.mark.feature("AD-07", "SE-08")

TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
REFUSED = ErrorCode.INVALID_REQUEST


def creation(name: str = "flights", **fields: Any) -> AclCreation:
    given = {
        "resource_type": TOPIC,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": AclOperation.READ,
        "permission_type": AclPermissionType.ALLOW,
        **fields,
    }
    return AclCreation(resource_name=name, **given)


def wanted(name: str | None = None, **fields: Any) -> DeleteAclsFilter:
    given = {
        "resource_type_filter": AclResourceType.ANY,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": AclPermissionType.ANY,
        **fields,
    }
    return DeleteAclsFilter(resource_name_filter=name, **given)


def create(cluster: Cluster, *creations: AclCreation) -> list[tuple[int, str | None]]:
    answer = cluster.send(CreateAclsRequest(creations=list(creations)))
    return [(it.error_code, it.error_message) for it in answer.results]


def delete(cluster: Cluster, *filters: DeleteAclsFilter) -> list[list[str]]:
    """The names in the ACLs that each filter deleted, sorted."""
    answer = cluster.send(DeleteAclsRequest(filters=list(filters)))
    assert [it.error_code for it in answer.filter_results] == [0] * len(filters)
    return [sorted(it.resource_name for it in result.matching_acls) for result in answer.filter_results]


def names(cluster: Cluster) -> list[str]:
    return sorted(it.resource_name for it in cluster.image.others.acls.values())


@pytest.mark.parametrize(
    ("acl", "message"),
    [
        (creation("other", resource_type=CLUSTER), "The only valid name for the CLUSTER resource is kafka-cluster"),
        (creation(""), "Invalid empty resource name"),
        (creation(resource_type=AclResourceType.ANY), "Invalid resourceType ANY"),
        (creation(resource_type=77), "Invalid resourceType UNKNOWN"),
        (creation(resource_pattern_type=PatternType.MATCH), "Invalid patternType MATCH"),
        (creation(resource_pattern_type=PatternType.ANY), "Invalid patternType ANY"),
        (creation(operation=AclOperation.ANY), "Invalid operation ANY"),
        (creation(operation=99), "Invalid operation UNKNOWN"),
        (creation(permission_type=AclPermissionType.ANY), "Invalid permissionType ANY"),
        (
            creation(principal="alice"),
            "Could not parse principal from `alice` (no colon is present separating the principal type from the"
            " principal name)",
        ),
    ],
)
def test_an_invalid_acl_is_refused_alone(acl: AclCreation, message: str) -> None:
    cluster = Cluster()
    results = create(cluster, creation("before"), acl, creation("after"))
    assert results == [(0, None), (REFUSED, message), (0, None)]
    assert names(cluster) == ["after", "before"]


def test_an_acl_that_exists_is_not_created_again() -> None:
    cluster = Cluster()
    assert create(cluster, creation(), creation()) == [(0, None)] * 2
    ids = list(cluster.image.others.acls)
    end = len(cluster.log)
    assert create(cluster, creation()) == [(0, None)]
    assert (list(cluster.image.others.acls), len(cluster.log)) == (ids, end)
    delete(cluster, wanted())
    assert create(cluster, creation()) == [(0, None)]
    assert names(cluster) == ["flights"]


def test_an_acl_that_was_not_committed_is_gone_and_can_be_created() -> None:
    cluster = Cluster()
    cluster.hold = True
    create(cluster, creation())
    cluster.fail_over(2)
    assert names(cluster) == []
    create(cluster, creation())
    assert names(cluster) == ["flights"]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (wanted(), ["*", "fl", "flights", "g", "kafka-cluster"]),
        (wanted("flights", resource_type_filter=TOPIC, pattern_type_filter=PatternType.MATCH), ["*", "fl", "flights"]),
        (wanted("flights", resource_type_filter=TOPIC), ["flights"]),
        (wanted(pattern_type_filter=PatternType.PREFIXED), ["fl"]),
        (wanted(resource_type_filter=GROUP), ["g"]),
        (wanted(principal_filter="User:bob"), ["g"]),
        (wanted(operation=AclOperation.ALTER), ["kafka-cluster"]),
        (wanted(permission_type=AclPermissionType.DENY), ["*"]),
        (wanted(host_filter="10.0.0.1"), ["fl"]),
        (wanted("nothing"), []),
    ],
)
def test_a_filter_deletes_what_it_matches(asked: DeleteAclsFilter, found: list[str]) -> None:
    cluster = Cluster()
    create(
        cluster,
        creation("flights"),
        creation("*", permission_type=AclPermissionType.DENY),
        creation("fl", resource_pattern_type=PatternType.PREFIXED, host="10.0.0.1"),
        creation("g", resource_type=GROUP, principal="User:bob"),
        creation("kafka-cluster", resource_type=CLUSTER, operation=AclOperation.ALTER),
    )
    every = names(cluster)
    assert delete(cluster, asked) == [found]
    assert names(cluster) == sorted(set(every) - set(found))


def test_an_exact_filter_is_looked_up() -> None:
    exact = wanted(
        "flights",
        resource_type_filter=TOPIC,
        pattern_type_filter=PatternType.LITERAL,
        principal_filter="User:alice",
        host_filter="*",
        operation=AclOperation.READ,
        permission_type=AclPermissionType.ALLOW,
    )
    assert AclFilter.of(exact).is_exact
    assert not AclFilter.of(wanted()).is_exact
    cluster = Cluster()
    create(cluster, creation("flights"), creation("flights", operation=AclOperation.WRITE))
    assert delete(cluster, exact, exact) == [["flights"], ["flights"]], "an ACL may match two filters"
    assert [it.operation for it in cluster.image.others.acls.values()] == [AclOperation.WRITE]
    assert cluster.image.others.acl_ids.keys() == {
        (TOPIC, PatternType.LITERAL, "flights", "User:alice", "*", AclOperation.WRITE, AclPermissionType.ALLOW)
    }


def test_a_filter_with_an_unknown_value_is_refused_alone() -> None:
    cluster = Cluster()
    create(cluster, creation())
    odd = [
        wanted(resource_type_filter=0),
        wanted(pattern_type_filter=9),
        wanted(operation=0),
        wanted(permission_type=7),
    ]
    answer = cluster.send(DeleteAclsRequest(filters=[*odd, wanted("flights")]))
    pattern, entry = "Unknown patternFilter.", "Unknown entryFilter."
    assert [(it.error_code, it.error_message) for it in answer.filter_results] == [
        (REFUSED, pattern),
        (REFUSED, pattern),
        (REFUSED, entry),
        (REFUSED, entry),
        (0, None),
    ]
    assert names(cluster) == []


def test_at_most_ten_thousand_acls_are_created_and_deleted_at_once() -> None:
    cluster = Cluster()
    many = [creation(f"topic-{number}") for number in range(10_000)]
    too_many = cluster.send(CreateAclsRequest(creations=[*many, creation("more")]))
    assert {it.error_code for it in too_many.results} == {ErrorCode.POLICY_VIOLATION}
    assert names(cluster) == []
    assert create(cluster, *many) == [(0, None)] * 10_000
    create(cluster, creation("more"))
    answer = cluster.send(DeleteAclsRequest(filters=[wanted()]))
    [result] = answer.filter_results
    message = "Cannot remove more than 10000 acls in a single delete operation."
    assert (result.error_code, result.error_message) == (REFUSED, message)
    assert len(cluster.image.others.acls) == 10_001
    delete(cluster, wanted("more"))
    assert len(delete(cluster, wanted())[0]) == 10_000
    assert cluster.story("cluster")[-1] == "10000 access control lists are deleted: DeleteAcls asked for it"


def test_filters_that_would_take_too_long_or_list_too_much_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    create(cluster, *[creation(f"topic-{number}") for number in range(100)])
    monkeypatch.setattr(acls, "MAX_LISTED", 250)
    [refused, *_] = cluster.send(DeleteAclsRequest(filters=[wanted()] * 3)).filter_results
    assert (refused.error_code, refused.error_message) == (REFUSED, "the filters match more than 250 acls together")
    monkeypatch.setattr(acls, "MAX_COMPARED", 1000)
    [refused, *_] = cluster.send(DeleteAclsRequest(filters=[wanted("none")] * 11)).filter_results
    assert (refused.error_code, refused.error_message) == (REFUSED, "the filters need more than 1000 comparisons")
    assert len(cluster.image.others.acls) == 100
