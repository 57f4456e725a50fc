"""Access control lists. Without an authorizer every call raises SecurityDisabledException."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from barnabas.client.admin.acl_values import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from barnabas.client.admin.calls import Anywhere, Part, Question
from barnabas.client.admin.results import Results, changed, refusal
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages import create_acls as creating
from barnabas.protocol.messages import delete_acls as deleting
from barnabas.protocol.messages import describe_acls as describing

EVERYTHING = AclBindingFilter()


class Acls(Part):
    """Methods for access control lists."""

    async def describe_acls(self, matching: AclBindingFilter = EVERYTHING) -> list[AclBinding]:
        """Bindings that match."""

        def ask(_: int) -> describing.DescribeAclsRequest:
            return describing.DescribeAclsRequest(
                resource_type_filter=matching.resource_type,
                resource_name_filter=matching.resource_name,
                pattern_type_filter=matching.pattern_type,
                principal_filter=matching.principal,
                host_filter=matching.host,
                operation=matching.operation,
                permission_type=matching.permission_type,
            )

        def read(response: describing.DescribeAclsResponse) -> list[AclBinding] | KafkaError:
            return refusal(response.error_code, response.error_message, "access control lists") or [
                AclBinding(
                    AclResourceType(resource.resource_type),
                    resource.resource_name,
                    it.principal,
                    AclOperation(it.operation),
                    AclPermissionType(it.permission_type),
                    it.host,
                    PatternType(resource.pattern_type),
                )
                for resource in response.resources
                for it in resource.acls
            ]

        return await self._calls.one("access control lists", ask, read)

    async def create_acls(
        self, bindings: Iterable[AclBinding] | AclBinding, *, raise_errors: bool = True
    ) -> Results[AclBinding, None]:
        """Add bindings; existing ones stay."""

        def ask(some: list[AclBinding], _: int) -> creating.CreateAclsRequest:
            return creating.CreateAclsRequest(
                creations=[
                    creating.AclCreation(
                        resource_type=it.resource_type,
                        resource_name=it.resource_name,
                        resource_pattern_type=it.pattern_type,
                        principal=it.principal,
                        host=it.host,
                        operation=it.operation,
                        permission_type=it.permission_type,
                    )
                    for it in some
                ]
            )

        def read(
            response: creating.CreateAclsResponse, keys: list[AclBinding]
        ) -> Iterator[tuple[AclBinding, KafkaError | None]]:
            # Results have the order of the request and no keys.
            for key, it in zip(keys, response.results, strict=False):
                yield key, refusal(it.error_code, it.error_message, str(key))

        wanted = [bindings] if isinstance(bindings, AclBinding) else bindings
        return changed(
            await self._calls.ask(wanted, Anywhere(), Question[AclBinding, None]("", ask, read)), raise_errors
        )

    async def delete_acls(
        self, filters: Iterable[AclBindingFilter] | AclBindingFilter, *, raise_errors: bool = True
    ) -> Results[AclBindingFilter, tuple[AclBinding, ...]]:
        """Remove the bindings that match; returns them by filter."""

        def ask(some: list[AclBindingFilter], _: int) -> deleting.DeleteAclsRequest:
            return deleting.DeleteAclsRequest(
                filters=[
                    deleting.DeleteAclsFilter(
                        resource_type_filter=it.resource_type,
                        resource_name_filter=it.resource_name,
                        pattern_type_filter=it.pattern_type,
                        principal_filter=it.principal,
                        host_filter=it.host,
                        operation=it.operation,
                        permission_type=it.permission_type,
                    )
                    for it in some
                ]
            )

        def read(
            response: deleting.DeleteAclsResponse, keys: list[AclBindingFilter]
        ) -> Iterator[tuple[AclBindingFilter, tuple[AclBinding, ...] | KafkaError]]:
            for key, it in zip(keys, response.filter_results, strict=False):
                error = refusal(it.error_code, it.error_message, str(key))
                for match in it.matching_acls:
                    error = error or refusal(match.error_code, match.error_message, str(_deleted(match)))
                yield key, tuple(map(_deleted, it.matching_acls)) if error is None else error

        wanted = [filters] if isinstance(filters, AclBindingFilter) else filters
        return changed(await self._calls.ask(wanted, Anywhere(), Question("", ask, read)), raise_errors)


def _deleted(it: deleting.DeleteAclsMatchingAcl) -> AclBinding:
    return AclBinding(
        AclResourceType(it.resource_type),
        it.resource_name,
        it.principal,
        AclOperation(it.operation),
        AclPermissionType(it.permission_type),
        it.host,
        PatternType(it.pattern_type),
    )
