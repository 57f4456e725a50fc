"""Configurations: described with the source of each value, and changed key by key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from barnabas.client.admin.calls import Part, Question
from barnabas.client.admin.config_values import (
    AlterConfigOp,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ResourceType,
    operations_in,
)
from barnabas.client.admin.results import Results, changed, refusal
from barnabas.client.admin.routes import CertainBrokers
from barnabas.client.admin.topics import AS_AN_ANSWER
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages import alter_configs as legacy
from barnabas.protocol.messages import describe_configs as describing
from barnabas.protocol.messages import incremental_alter_configs as altering
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse


class Configs(Part):
    """Methods for configurations."""

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource] | ConfigResource,
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        """All keys of each resource. A broker's own configuration is requested from that broker.
        UnknownTopicOrPartitionException, BrokerNotAvailableException.
        """

        def ask(some: list[ConfigResource], _: int) -> describing.DescribeConfigsRequest:
            return describing.DescribeConfigsRequest(
                resources=[
                    describing.DescribeConfigsResource(
                        resource_type=it.type, resource_name=it.name, configuration_keys=None
                    )
                    for it in some
                ],
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            )

        def read(
            response: describing.DescribeConfigsResponse, _: object
        ) -> Iterator[tuple[ConfigResource, dict[str, ConfigEntry] | KafkaError]]:
            for result in response.results:
                resource = ConfigResource(ResourceType(result.resource_type), result.resource_name)
                error = refusal(result.error_code, result.error_message, f"the configuration of {resource}")
                yield resource, error or {it.name: _entry(it) for it in result.configs}

        question = Question("the configuration of", ask, read, final=AS_AN_ANSWER)
        return await self._calls.ask(_resources(resources), CertainBrokers(self._calls, _owner), question)

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[AlterConfigOp] | Mapping[str, str | None]],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Results[ConfigResource, None]:
        """Change single keys; a mapping of keys sets them, None restores the default. All changes of a resource happen,
        or none. InvalidConfigurationException, PolicyViolationException.

        A retry after a lost response may repeat APPEND and SUBTRACT, which changes nothing more.
        """
        wanted = {ConfigResource(*resource): operations_in(it) for resource, it in changes.items()}

        def ask(some: list[ConfigResource], _: int) -> altering.IncrementalAlterConfigsRequest:
            resources = [
                altering.AlterConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configs=[
                        altering.AlterableConfig(name=it.name, config_operation=it.op_type, value=it.value)
                        for it in wanted[resource]
                    ],
                )
                for resource in some
            ]
            return altering.IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)

        question = Question[ConfigResource, None]("the configuration of", ask, _altered, final=AS_AN_ANSWER)
        results = await self._calls.ask(wanted, CertainBrokers(self._calls, _owner), question)
        return changed(results, raise_errors)

    async def alter_configs(
        self,
        configs: Mapping[ConfigResource, Mapping[str, str]],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Results[ConfigResource, None]:
        """Replace all keys of each resource: those that are not named get their defaults. Prefer
        `incremental_alter_configs`; this is for brokers before Kafka 2.3. InvalidConfigurationException,
        PolicyViolationException.
        """
        wanted = {ConfigResource(*resource): it for resource, it in configs.items()}

        def ask(some: list[ConfigResource], _: int) -> legacy.AlterConfigsRequest:
            resources = [
                legacy.AlterConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configs=[legacy.AlterableConfig(name=name, value=text) for name, text in wanted[resource].items()],
                )
                for resource in some
            ]
            return legacy.AlterConfigsRequest(resources=resources, validate_only=validate_only)

        question = Question[ConfigResource, None]("the configuration of", ask, _altered, final=AS_AN_ANSWER)
        results = await self._calls.ask(wanted, CertainBrokers(self._calls, _owner), question)
        return changed(results, raise_errors)

    async def list_client_metrics_resources(self) -> list[str]:
        """Names of the subscriptions to metrics of clients (KIP-714)."""
        return [it.name for it in await self.list_config_resources([ResourceType.CLIENT_METRICS])]

    async def list_config_resources(self, types: Iterable[ResourceType] = ()) -> list[ConfigResource]:
        """Resources that have, or may have, a configuration; of every type unless some are given.
        UnsupportedVersionException before Kafka 4.1, where only CLIENT_METRICS could be listed.
        """
        wanted = list(types)

        def ask(_: int) -> ListConfigResourcesRequest:
            return ListConfigResourcesRequest(resource_types=list(wanted))

        def read(response: ListConfigResourcesResponse) -> list[ConfigResource] | KafkaError:
            return refusal(response.error_code, None, "configurations") or [
                ConfigResource(ResourceType(it.resource_type), it.resource_name) for it in response.config_resources
            ]

        return await self._calls.one("configurations", ask, read)


def _resources(resources: Iterable[ConfigResource] | ConfigResource) -> list[ConfigResource]:
    if isinstance(resources, ConfigResource):
        return [resources]
    return [ConfigResource(*resource) for resource in resources]


def _altered(
    response: altering.IncrementalAlterConfigsResponse | legacy.AlterConfigsResponse, _: object
) -> Iterator[tuple[ConfigResource, KafkaError | None]]:
    for it in response.responses:
        resource = ConfigResource(ResourceType(it.resource_type), it.resource_name)
        yield resource, refusal(it.error_code, it.error_message, f"the configuration of {resource}")


def _owner(resource: ConfigResource) -> int | None:
    """Only a broker has its own configuration; the default of all brokers (no name) is known to each."""
    own = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name.isdecimal()
    return int(resource.name) if own else None


def _entry(it: describing.DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=it.name,
        value=it.value,
        source=ConfigSource(it.config_source),
        is_read_only=it.read_only,
        is_sensitive=it.is_sensitive,
        type=ConfigType(it.config_type),
        synonyms=tuple(ConfigSynonym(each.name, each.value, ConfigSource(each.source)) for each in it.synonyms),
        documentation=it.documentation or None,
    )
