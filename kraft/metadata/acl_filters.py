"""Core: filters of access control lists, as DescribeAcls and DeleteAcls have them (KIP-290)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.kraft.metadata.image import AclKey, OthersImage
from barnabas.protocol.acls import AclOperation, AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest

if TYPE_CHECKING:
    from barnabas.protocol.messages.metadata_log import AccessControlEntryRecord

STEP_ACLS = 1000
"""ACLs that one step compares with a filter: about 1 ms."""
_WILDCARD = "*"


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter; None, and ANY, match everything."""

    resource_type: AclResourceType
    pattern_type: PatternType
    """MATCH: every pattern that applies to the resource `name`."""
    name: str | None
    principal: str | None
    host: str | None
    operation: AclOperation
    permission_type: AclPermissionType

    @classmethod
    def of(cls, asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
        return cls(
            AclResourceType(asked.resource_type_filter),
            PatternType(asked.pattern_type_filter),
            asked.resource_name_filter,
            asked.principal_filter,
            asked.host_filter,
            AclOperation(asked.operation),
            AclPermissionType(asked.permission_type),
        )

    @property
    def unknown(self) -> str | None:
        """Reason why the filter is refused, in Kafka's words: a value of it is unknown."""
        if self.resource_type is AclResourceType.UNKNOWN or self.pattern_type is PatternType.UNKNOWN:
            return "Unknown patternFilter."
        if self.operation is AclOperation.UNKNOWN or self.permission_type is AclPermissionType.UNKNOWN:
            return "Unknown entryFilter."
        return None

    def matches(self, record: AccessControlEntryRecord) -> bool:
        return (
            self.resource_type in (AclResourceType.ANY, record.resource_type)
            and self.principal in (None, record.principal)
            and self.host in (None, record.host)
            and self.operation in (AclOperation.ANY, record.operation)
            and self.permission_type in (AclPermissionType.ANY, record.permission_type)
            and self._matches_pattern(record)
        )

    def _matches_pattern(self, record: AccessControlEntryRecord) -> bool:
        name, kind = self.name, self.pattern_type
        if kind is not PatternType.MATCH:
            return kind in (PatternType.ANY, record.pattern_type) and name in (None, record.resource_name)
        if name is None:
            return True
        if record.pattern_type == PatternType.LITERAL:
            return record.resource_name in (name, _WILDCARD)
        return record.pattern_type == PatternType.PREFIXED and name.startswith(record.resource_name)

    @property
    def is_exact(self) -> bool:
        """It can match one ACL only, which is looked up."""
        return self._key() is not None

    def _key(self) -> AclKey | None:
        """The one ACL that the filter can match; None if there may be several."""
        if self.name is None or self.principal is None or self.host is None:
            return None
        if self.resource_type is AclResourceType.ANY or self.pattern_type in (PatternType.ANY, PatternType.MATCH):
            return None
        if self.operation is AclOperation.ANY or self.permission_type is AclPermissionType.ANY:
            return None
        kind, pattern = self.resource_type, self.pattern_type
        return kind, pattern, self.name, self.principal, self.host, self.operation, self.permission_type

    def find(self, others: OthersImage) -> Iterator[AccessControlEntryRecord | None]:
        """The ACLs that match; a None among them ends a step."""
        key = self._key()
        if key is not None:
            found = others.acl_ids.get(key)
            if found is not None:
                yield others.acls[found]
            return
        for index, record in enumerate(others.acls.values(), 1):
            if self.matches(record):
                yield record
            if index % STEP_ACLS == 0:
                yield None
