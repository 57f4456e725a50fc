"""The answer to a request that is refused as a whole: the error stands where the client of each API looks for
it.

Old admin APIs have no error for the whole answer, only one per topic or resource; newer ones have one at the
top.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from protocol.errors import ErrorCode
from protocol.messages import (
    allocate_producer_ids,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    controller_registration,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
    unregister_broker,
    update_features,
)
from protocol.schema import Message

Refusal = Callable[[Any, int, ErrorCode, str | None], Message]


def has_refusal(request: Message) -> bool:
    """Whether the answer to such a request has a place for an error."""
    return type(request) in _REFUSALS


def refusal_of(request: Message, version: int, code: ErrorCode, message: str | None) -> Message:
    """The answer to `request` that says nothing was done, and why."""
    return _REFUSALS[type(request)](request, version, code, message)


def _create_topics(
    request: create_topics.CreateTopicsRequest, version: int, code: ErrorCode, message: str | None
) -> Message:
    results = [
        create_topics.CreatableTopicResult(name=it.name, error_code=code, error_message=message)
        for it in request.topics
    ]
    return create_topics.CreateTopicsResponse(topics=results)


def _delete_topics(
    request: delete_topics.DeleteTopicsRequest, version: int, code: ErrorCode, message: str | None
) -> Message:
    result = delete_topics.DeletableTopicResult
    results = [result(name=name, error_code=code, error_message=message) for name in request.topic_names]
    results += [
        result(name=it.name, topic_id=it.topic_id, error_code=code, error_message=message) for it in request.topics
    ]
    return delete_topics.DeleteTopicsResponse(responses=results)


def _create_partitions(
    request: create_partitions.CreatePartitionsRequest, version: int, code: ErrorCode, message: str | None
) -> Message:
    results = [
        create_partitions.CreatePartitionsTopicResult(name=it.name, error_code=code, error_message=message)
        for it in request.topics
    ]
    return create_partitions.CreatePartitionsResponse(results=results)


def _alter_configs(
    request: alter_configs.AlterConfigsRequest, version: int, code: ErrorCode, message: str | None
) -> Message:
    responses = [
        alter_configs.AlterConfigsResourceResponse(
            error_code=code,
            error_message=message,
            resource_type=it.resource_type,
            resource_name=it.resource_name,
        )
        for it in request.resources
    ]
    return alter_configs.AlterConfigsResponse(responses=responses)


def _incremental_alter_configs(
    request: incremental_alter_configs.IncrementalAlterConfigsRequest,
    version: int,
    code: ErrorCode,
    message: str | None,
) -> Message:
    responses = [
        incremental_alter_configs.AlterConfigsResourceResponse(
            error_code=code,
            error_message=message,
            resource_type=it.resource_type,
            resource_name=it.resource_name,
        )
        for it in request.resources
    ]
    return incremental_alter_configs.IncrementalAlterConfigsResponse(responses=responses)


def _describe_configs(
    request: describe_configs.DescribeConfigsRequest, version: int, code: ErrorCode, message: str | None
) -> Message:
    results = [
        describe_configs.DescribeConfigsResult(
            error_code=code,
            error_message=message,
            resource_type=it.resource_type,
            resource_name=it.resource_name,
        )
        for it in request.resources
    ]
    return describe_configs.DescribeConfigsResponse(results=results)


def _elect_leaders(
    request: elect_leaders.ElectLeadersRequest, version: int, code: ErrorCode, message: str | None
) -> Message:
    results = [
        elect_leaders.ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                elect_leaders.PartitionResult(partition_id=it, error_code=code, error_message=message)
                for it in topic.partitions
            ],
        )
        for topic in request.topic_partitions or []
    ]
    top = code if version >= 1 else ErrorCode.NONE
    return elect_leaders.ElectLeadersResponse(error_code=top, replica_election_results=results)


def _update_features(
    request: update_features.UpdateFeaturesRequest, version: int, code: ErrorCode, message: str | None
) -> Message:
    results = [
        update_features.UpdatableFeatureResult(feature=it.feature, error_code=code, error_message=message)
        for it in (request.feature_updates if version <= 1 else [])
    ]
    return update_features.UpdateFeaturesResponse(error_code=code, error_message=message, results=results)


def _at_the_top(response: type[Any]) -> Refusal:
    """One error for the whole answer, without words."""
    return lambda request, version, code, message: response(error_code=code)


def _at_the_top_with_words(response: type[Any]) -> Refusal:
    return lambda request, version, code, message: response(error_code=code, error_message=message)


_REFUSALS: dict[type, Refusal] = {
    create_topics.CreateTopicsRequest: _create_topics,
    delete_topics.DeleteTopicsRequest: _delete_topics,
    create_partitions.CreatePartitionsRequest: _create_partitions,
    alter_configs.AlterConfigsRequest: _alter_configs,
    incremental_alter_configs.IncrementalAlterConfigsRequest: _incremental_alter_configs,
    describe_configs.DescribeConfigsRequest: _describe_configs,
    elect_leaders.ElectLeadersRequest: _elect_leaders,
    update_features.UpdateFeaturesRequest: _update_features,
    alter_partition.AlterPartitionRequest: _at_the_top(alter_partition.AlterPartitionResponse),
    assign_replicas_to_dirs.AssignReplicasToDirsRequest: _at_the_top(
        assign_replicas_to_dirs.AssignReplicasToDirsResponse
    ),
    broker_registration.BrokerRegistrationRequest: _at_the_top(broker_registration.BrokerRegistrationResponse),
    broker_heartbeat.BrokerHeartbeatRequest: _at_the_top(broker_heartbeat.BrokerHeartbeatResponse),
    allocate_producer_ids.AllocateProducerIdsRequest: _at_the_top(allocate_producer_ids.AllocateProducerIdsResponse),
    controller_registration.ControllerRegistrationRequest: _at_the_top_with_words(
        controller_registration.ControllerRegistrationResponse
    ),
    alter_partition_reassignments.AlterPartitionReassignmentsRequest: _at_the_top_with_words(
        alter_partition_reassignments.AlterPartitionReassignmentsResponse
    ),
    list_partition_reassignments.ListPartitionReassignmentsRequest: _at_the_top_with_words(
        list_partition_reassignments.ListPartitionReassignmentsResponse
    ),
    unregister_broker.UnregisterBrokerRequest: _at_the_top_with_words(unregister_broker.UnregisterBrokerResponse),
}
