"""Core: DeleteTopics."""

from __future__ import annotations

from collections import Counter

from barnabas.kraft.controller.state import (
    ControllerResult,
    ControllerState,
    Steps,
    refuse_if_excessive,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from barnabas.protocol.messages.metadata_log import RemoveTopicRecord
from barnabas.protocol.primitives import ZERO_UUID, uuid_to_string
from barnabas.protocol.schema import Message
from barnabas.runtime.decisions import DecisionKind


def delete_topics(
    state: ControllerState, request: DeleteTopicsRequest, version: int
) -> Steps[ControllerResult[DeleteTopicsResponse]]:
    """Delete topics named by name or id. Brokers remove the data once they read the record."""
    if not state.defaults.delete_topic_enable:
        code = ErrorCode.INVALID_REQUEST if version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        raise KafkaError(code, "delete.topic.enable is false")
    by_name = state.image.topics.by_name
    by_id = state.image.topics.by_id
    response = DeleteTopicsResponse()
    refused = response.responses
    names = Counter(request.topic_names)
    ids: Counter[bytes] = Counter()
    for wanted in request.topics:
        if state.pace.is_full():
            yield None
        if wanted.name is not None and wanted.topic_id != ZERO_UUID:
            refused.append(_not_deleted(wanted.name, wanted.topic_id, "both name and id are given"))
        elif wanted.name is not None:
            names[wanted.name] += 1
        elif wanted.topic_id != ZERO_UUID:
            ids[wanted.topic_id] += 1
        else:
            refused.append(_not_deleted(None, ZERO_UUID, "neither name nor id is given"))
    deleted: dict[bytes, str | None] = {}
    for topic_id, count in ids.items():
        if state.pace.is_full():
            yield None
        if count > 1:
            refused.append(_not_deleted(None, topic_id, "the id is in the request more than once"))
        elif topic_id not in by_id:
            refused.append(
                DeletableTopicResult(
                    name=None,
                    topic_id=topic_id,
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                    error_message="there is no topic with this id",
                )
            )
        else:
            deleted[topic_id] = by_id[topic_id].name
    for name, count in names.items():
        if state.pace.is_full():
            yield None
        topic = by_name.get(name)
        if count > 1:
            refused.append(_not_deleted(name, ZERO_UUID, "the name is in the request more than once"))
        elif topic is None:
            refused.append(
                DeletableTopicResult(
                    name=name,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message=f"there is no topic {name}",
                )
            )
        elif topic.id in ids:
            deleted.pop(topic.id, None)
            refused.append(_not_deleted(name, topic.id, "the topic is named by its id as well"))
        else:
            deleted[topic.id] = name
    records: list[Message] = []
    for topic_id, deleted_name in deleted.items():
        if state.pace.is_full():
            yield None
        try:
            state.spend(len(by_id[topic_id].partitions))
        except KafkaError as error:
            result = _not_deleted(deleted_name, topic_id, error.message or "")
            result.error_code = error.code
            refused.append(result)
            continue
        state.notes.note(
            DecisionKind.LIFECYCLE,
            f"topic {deleted_name}",
            f"topic {deleted_name} is deleted",
            cause="DeleteTopics asked for it",
            topic_id=uuid_to_string(topic_id),
        )
        records.append(RemoveTopicRecord(topic_id=topic_id))
        response.responses.append(DeletableTopicResult(name=deleted_name, topic_id=topic_id))
    refuse_if_excessive(len(records))
    return ControllerResult(response, records)


def _not_deleted(name: str | None, topic_id: bytes, reason: str) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=ErrorCode.INVALID_REQUEST, error_message=reason
    )
