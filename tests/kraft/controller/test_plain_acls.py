"""Access control lists that are created, found and deleted, beside a plain set of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.kraft.metadata.acl_filters import AclFilter
from barnabas.kraft.metadata.image import AclKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest
from tests.examples import examples
from tests.kraft.controller.conftest import Cluster, finish
from tests.kraft.controller.test_plain_changes import Draw

UNKNOWN, ANY = 0, 1
TOPIC, GROUP, CLUSTER = 2, 3, 4
MATCH, LITERAL, PREFIXED = 2, 3, 4
READ, WRITE = 3, 4
DENY, ALLOW = 2, 3
NAMES = ("a", "ab", "abc", "*", "kafka-cluster", "")
MOST_COMPARED = 16
"""Comparisons of ACLs that the filters of one request may need, but for those that name one ACL."""
MOST = 6
"""ACLs that one operation may delete; and listed are five times as many."""


class Acls:
    """A cluster, and the keys of its ACLs."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.cluster = Cluster()
        self.plain: dict[AclKey, None] = {}

    def decide(self, request: Any) -> Any:
        cluster = self.cluster
        took: list[int] = []
        decision = cluster.controller.decide(request, 3, len(cluster.log), cluster.now_ms)
        result = finish(decision, lambda: took.append(1))
        assert result.is_long == (len(took) > 1)
        cluster.append(result)
        notes = [it.text for it in result.notes]
        count = len(result.records)
        assert [text.split()[0] for text in notes] == ([str(count)] if count else [])
        return result.response

    def create(self) -> None:
        draw = self.draw
        request = CreateAclsRequest()
        for _ in range(draw(st.integers(1, 6))):
            request.creations.append(
                AclCreation(
                    resource_type=draw(st.sampled_from([TOPIC, TOPIC, GROUP, CLUSTER, ANY, UNKNOWN])),
                    resource_name=draw(st.sampled_from(NAMES)),
                    resource_pattern_type=draw(st.sampled_from([LITERAL, LITERAL, PREFIXED, MATCH, ANY, UNKNOWN])),
                    principal=draw(st.sampled_from(["User:alice", "User:bob", "User:", "alice"])),
                    host=draw(st.sampled_from(["*", "::1"])),
                    operation=draw(st.sampled_from([READ, WRITE, READ, ANY, UNKNOWN])),
                    permission_type=draw(st.sampled_from([ALLOW, DENY, ALLOW, ANY, UNKNOWN])),
                )
            )
        response = self.decide(request)
        for asked, answer in zip(request.creations, response.results, strict=True):
            is_right = (
                asked.resource_type in (TOPIC, GROUP, CLUSTER)
                and asked.resource_pattern_type in (LITERAL, PREFIXED)
                and asked.operation in (READ, WRITE)
                and asked.permission_type in (ALLOW, DENY)
                and asked.resource_name != ""
                and (asked.resource_type != CLUSTER or asked.resource_name == "kafka-cluster")
                and ":" in asked.principal
            )
            assert answer.error_code == (ErrorCode.NONE if is_right else ErrorCode.INVALID_REQUEST)
            assert (answer.error_message is None) == is_right
            if is_right:
                key = (asked.resource_type, asked.resource_pattern_type, asked.resource_name, asked.principal)
                self.plain[(*key, asked.host, asked.operation, asked.permission_type)] = None

    # -- filters

    def a_filter(self) -> DeleteAclsFilter:
        draw = self.draw
        seldom = st.integers(0, 11).map(lambda drawn: drawn == 0)
        if self.plain and draw(st.integers(0, 2)) == 0:
            found = draw(st.sampled_from(list(self.plain)))
            fields = dict(zip(FIELDS, found, strict=True))
        else:
            fields = {
                "resource_type_filter": draw(st.sampled_from([ANY, ANY, TOPIC, GROUP])),
                "pattern_type_filter": draw(st.sampled_from([ANY, MATCH, MATCH, LITERAL, PREFIXED])),
                "resource_name_filter": draw(st.sampled_from([None, *NAMES[:4]])),
                "principal_filter": draw(st.sampled_from([None, None, "User:alice"])),
                "host_filter": draw(st.sampled_from([None, None, "*"])),
                "operation": draw(st.sampled_from([ANY, READ])),
                "permission_type": draw(st.sampled_from([ANY, ALLOW])),
            }
        if draw(seldom):
            fields[draw(st.sampled_from([FIELDS[0], FIELDS[1], FIELDS[5], FIELDS[6]]))] = UNKNOWN
        return DeleteAclsFilter(**fields)

    def found(self, asked: DeleteAclsFilter) -> list[AclKey] | None:
        """None: the filter is refused."""
        if UNKNOWN in (asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type):
            return None
        return [key for key in self.plain if is_matched(asked, key)]

    def delete(self) -> None:
        request = DeleteAclsRequest(filters=[self.a_filter() for _ in range(self.draw(st.integers(1, 4)))])
        found = [self.found(it) for it in request.filters]
        gone = dict.fromkeys(key for keys in found for key in keys or ())
        response = self.decide(request)
        listed = sum(len(keys or ()) for keys in found)
        searches = sum(keys is not None and not is_exact(it) for keys, it in zip(found, request.filters, strict=True))
        if len(gone) > MOST or listed > 5 * MOST or searches * len(self.plain) > MOST_COMPARED:
            assert {it.error_code for it in response.filter_results} == {ErrorCode.INVALID_REQUEST}
            return
        for keys, answer in zip(found, response.filter_results, strict=True):
            assert answer.error_code == (ErrorCode.INVALID_REQUEST if keys is None else ErrorCode.NONE)
            assert sorted(map(key_of, answer.matching_acls)) == sorted(keys or ())
        for key in gone:
            del self.plain[key]

    def check(self) -> None:
        others = self.cluster.image.others
        assert others.acl_ids.keys() == self.plain.keys()
        assert {others.acls[found].id for found in others.acl_ids.values()} == others.acls.keys()
        asked = self.a_filter()
        fields = {"resource_type_filter": asked.resource_type_filter, "pattern_type_filter": asked.pattern_type_filter}
        for name in FIELDS[2:]:
            fields[name] = getattr(asked, name)
        wanted = AclFilter.of(DescribeAclsRequest(**fields))
        keys = self.found(asked)
        assert (wanted.unknown is None) == (keys is not None)
        if keys is not None:
            assert sum(it is not None for it in wanted.find(others)) == len(keys)


FIELDS = (
    "resource_type_filter",
    "pattern_type_filter",
    "resource_name_filter",
    "principal_filter",
    "host_filter",
    "operation",
    "permission_type",
)
"""In the order of a key."""


def is_exact(asked: DeleteAclsFilter) -> bool:
    """It names one ACL."""
    names = (asked.resource_name_filter, asked.principal_filter, asked.host_filter)
    kinds = (asked.resource_type_filter, asked.operation, asked.permission_type)
    return None not in names and ANY not in kinds and asked.pattern_type_filter in (LITERAL, PREFIXED)


def is_matched(asked: DeleteAclsFilter, key: AclKey) -> bool:
    kind, pattern, name, principal, host, operation, permission = key
    if asked.pattern_type_filter == MATCH and asked.resource_name_filter is not None:
        applies = (
            asked.resource_name_filter.startswith(name)
            if pattern == PREFIXED
            else name
            in (
                asked.resource_name_filter,
                "*",
            )
        )
    else:
        applies = asked.resource_name_filter in (None, name) and asked.pattern_type_filter in (ANY, MATCH, pattern)
    return (
        applies
        and asked.resource_type_filter in (ANY, kind)
        and asked.principal_filter in (None, principal)
        and asked.host_filter in (None, host)
        and asked.operation in (ANY, operation)
        and asked.permission_type in (ANY, permission)
    )


def key_of(acl: Any) -> AclKey:
    pattern = (acl.resource_type, acl.pattern_type, acl.resource_name)
    return (*pattern, acl.principal, acl.host, acl.operation, acl.permission_type)


@pytest.mark.feature("AD-07", "SE-08")
@settings(max_examples=examples(120), deadline=None)
@given(st.data())
def test_acls_are_those_of_a_plain_set(data: st.DataObject) -> None:
    acls = Acls(data.draw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("barnabas.kraft.metadata.acl_filters.STEP_ACLS", 2)
        patch.setattr("barnabas.kraft.controller.acls.MAX_RECORDS_PER_OPERATION", MOST)
        patch.setattr("barnabas.kraft.controller.acls.MAX_LISTED", 5 * MOST)
        patch.setattr("barnabas.kraft.controller.acls.MAX_COMPARED", MOST_COMPARED)
        for _ in range(data.draw(st.integers(1, 3))):
            acls.create()
        for _ in range(data.draw(st.integers(1, 5))):
            getattr(acls, data.draw(st.sampled_from(["create", "delete", "delete"])))()
            acls.check()
