"""Core: the part of a request to the controller that its sender may do, and the answers to the rest (`ControllerApis`).

What a client may not do is taken out of the request before the controller decides. Items that are refused anyway, named
twice for example, stay: the decision refuses them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

from barnabas.kraft.authorizer.permitted import Check, Checking, May, Permitted
from barnabas.kraft.authorizer.refusals import refusal_on
from barnabas.kraft.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    MetadataImage,
)
from barnabas.protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import alter_configs as alter_configs_messages
from barnabas.protocol.messages import incremental_alter_configs
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopicResult
from barnabas.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResult
from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import Message

STEP_CHECKS = 20
"""Items that one step checks. A denial is logged, which takes longer than the check."""


def create_topics(request: CreateTopicsRequest, may: May, image: MetadataImage) -> Checking:
    """CREATE on the cluster or on the topic; DESCRIBE_CONFIGS to see the configs in the answer."""
    on_cluster = may(AclOperation.CREATE, AclResourceType.CLUSTER, CLUSTER_NAME, audited=False)
    times = Counter(topic.name for topic in request.topics)
    left, refused, hidden = [], [], set()
    for index, topic in enumerate(request.topics, 1):
        if index % STEP_CHECKS == 0:
            yield None
        name = topic.name
        if times[name] > 1 or on_cluster or may(AclOperation.CREATE, AclResourceType.TOPIC, name):
            left.append(topic)
            if not may(AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC, name, audited=False):
                hidden.add(name)
        else:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            refused.append(CreatableTopicResult(name=name, error_code=code, error_message="Authorization failed."))
    return Permitted(_with(request, "topics", left), "topics", refused, frozenset(hidden))


def create_partitions(request: CreatePartitionsRequest, may: May, image: MetadataImage) -> Checking:
    """ALTER on the topic."""
    times = Counter(topic.name for topic in request.topics)
    left, refused = [], []
    for index, topic in enumerate(request.topics, 1):
        if index % STEP_CHECKS == 0:
            yield None
        if times[topic.name] > 1 or may(AclOperation.ALTER, AclResourceType.TOPIC, topic.name):
            left.append(topic)
        else:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            refused.append(CreatePartitionsTopicResult(name=topic.name, error_code=code))
    return Permitted(_with(request, "topics", left), "results", refused)


def delete_topics(request: DeleteTopicsRequest, may: May, image: MetadataImage) -> Checking:
    """DELETE on the cluster or on the topic. A client without DESCRIBE learns neither the name of a topic nor whether
    it exists."""
    if may(AclOperation.DELETE, AclResourceType.CLUSTER, CLUSTER_NAME, audited=False):
        return Permitted(request)
    deletions = _Deletions(request, may, image)
    names, topics = [], []
    for index, name in enumerate(request.topic_names, 1):
        if index % STEP_CHECKS == 0:
            yield None
        if deletions.may_delete_name(name):
            names.append(name)
    for index, topic in enumerate(request.topics, 1):
        if index % STEP_CHECKS == 0:
            yield None
        if deletions.may_delete(topic):
            topics.append(topic)
    left = _with(request, "topics", topics)
    left.topic_names = names
    return Permitted(left, "responses", deletions.refused)


class _Deletions:
    """The checks of one DeleteTopics request."""

    def __init__(self, request: DeleteTopicsRequest, may: May, image: MetadataImage) -> None:
        self.refused: list[DeletableTopicResult] = []
        self._may = may
        self._topics = image.topics
        self._names = Counter([*request.topic_names, *(it.name for it in request.topics if it.name is not None)])
        self._ids = Counter(it.topic_id for it in request.topics if it.name is None)

    def may_delete(self, wanted: DeleteTopicState) -> bool:
        if wanted.name is not None:
            return wanted.topic_id != ZERO_UUID or self.may_delete_name(wanted.name)
        topic = self._topics.by_id.get(wanted.topic_id)
        if topic is None or self._ids[wanted.topic_id] > 1:
            return True
        describable, deletable = self._rights(topic.name)
        if not deletable:
            self._refuse(topic.name if describable else None, wanted.topic_id)
        return deletable

    def may_delete_name(self, name: str) -> bool:
        if self._names[name] > 1:
            return True
        describable, deletable = self._rights(name)
        if deletable and describable:
            return True
        if describable and name not in self._topics.by_name:
            code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
            self.refused.append(DeletableTopicResult(name=name, error_code=code, error_message=message))
        else:
            self._refuse(name, ZERO_UUID)
        return False

    def _rights(self, name: str) -> tuple[bool, bool]:
        topic = AclResourceType.TOPIC
        return self._may(AclOperation.DESCRIBE, topic, name), self._may(AclOperation.DELETE, topic, name)

    def _refuse(self, name: str | None, topic_id: bytes) -> None:
        error = refusal_on(AclResourceType.TOPIC)
        self.refused.append(
            DeletableTopicResult(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)
        )


def alter_configs(request: Any, may: May, image: MetadataImage) -> Checking:
    """ALTER_CONFIGS on each resource."""
    return (yield from _on_resources(request, may, AclOperation.ALTER_CONFIGS, _altered(request), "responses"))


def describe_configs(request: DescribeConfigsRequest, may: May, image: MetadataImage) -> Checking:
    """DESCRIBE_CONFIGS on each resource."""
    operation = AclOperation.DESCRIBE_CONFIGS
    return (yield from _on_resources(request, may, operation, DescribeConfigsResult, "results"))


def _altered(request: Any) -> Callable[..., Any]:
    if isinstance(request, alter_configs_messages.AlterConfigsRequest):
        return alter_configs_messages.AlterConfigsResourceResponse
    return incremental_alter_configs.AlterConfigsResourceResponse


def _on_resources(
    request: Any, may: May, operation: AclOperation, result: Callable[..., Any], field_name: str
) -> Checking:
    """Check resources of configs. Those of brokers and of client metrics are the cluster's."""
    times = Counter((it.resource_type, it.resource_name) for it in request.resources)
    left, refused = [], []
    for index, resource in enumerate(request.resources, 1):
        if index % STEP_CHECKS == 0:
            yield None
        kind, name = resource.resource_type, resource.resource_name
        of = resource_of_configs(kind, name)
        if of is None or (times[kind, name] > 1 and operation is AclOperation.ALTER_CONFIGS) or may(operation, *of):
            left.append(resource)
            continue
        error = refusal_on(of[0])
        refused.append(
            result(error_code=error.code, error_message=error.message, resource_type=kind, resource_name=name)
        )
    return Permitted(_with(request, "resources", left), field_name, refused)


def resource_of_configs(resource_type: int, name: str) -> tuple[AclResourceType, str] | None:
    """The resource that rights on configs are checked on; None for a type that does not exist."""
    if resource_type == TOPIC_RESOURCE:
        return AclResourceType.TOPIC, name
    if resource_type == GROUP_RESOURCE:
        return AclResourceType.GROUP, name
    if resource_type in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE):
        return AclResourceType.CLUSTER, CLUSTER_NAME
    return None


def _with(request: Message, field_name: str, value: object) -> Any:
    changed = copy(request)
    setattr(changed, field_name, value)
    return changed


CHECKS: Mapping[ApiKey, Check] = {
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.DELETE_TOPICS: delete_topics,
    ApiKey.CREATE_PARTITIONS: create_partitions,
    ApiKey.ALTER_CONFIGS: alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: alter_configs,
    ApiKey.DESCRIBE_CONFIGS: describe_configs,
}
"""The APIs whose items are checked one by one."""


def check_of(key: ApiKey) -> Check | None:
    """None: the request has no items that need rights."""
    return CHECKS.get(key)
