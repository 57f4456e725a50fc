"""Warnings about settings that nodes of one cluster should share, with both values.

The partitions of a coordinator's topic decide which broker coordinates an id. Barnabas always counts those of the
topic; Apache Kafka's brokers go by their own setting until they are restarted. Defaults of new topics are the
controllers'.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from barnabas.broker.controller_channel import ControllerCalls
from barnabas.broker.internal_topics import GROUP_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from barnabas.kraft.quorum_endpoints import QuorumEndpointsSource
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.settings.broker import BrokerSettings
from barnabas.settings.topic import COMPACTED_TIERS, SYSTEM_ENABLE, TopicConfig

log = logging.getLogger(__name__)

CONTROLLERS_DECIDE = ("default.replication.factor", "min.insync.replicas")
ANSWER_TIMEOUT_MS = 10_000


def coordinator_topic_differences(delta: MetadataDelta, settings: BrokerSettings) -> Iterator[str]:
    """A line for each coordinator topic that this step created with another number of partitions than the broker's own
    setting.
    """
    for name, key, own in (
        (GROUP_TOPIC, "offsets.topic.num.partitions", settings.offsets_topic_num_partitions),
        (TRANSACTION_TOPIC, "transaction.state.log.num.partitions", settings.transaction_state_log_num_partitions),
        (
            SHARE_TOPIC,
            "share.coordinator.state.topic.num.partitions",
            settings.share_coordinator_state_topic_num_partitions,
        ),
    ):
        topic = delta.after.topics.by_name.get(name)
        if topic is None or topic.id not in delta.changed_topics:
            continue
        before = delta.before.topics.by_id.get(topic.id)
        if len(topic.partitions) != own and (before is None or len(before.partitions) != len(topic.partitions)):
            yield (
                f"{name} has {len(topic.partitions)} partitions, but {key} is {own} here: the topic counts; set all"
                f" brokers to {len(topic.partitions)}, because Apache Kafka's brokers go by their own setting"
            )


def reason_against_disabling_tiers(image: MetadataImage, settings: BrokerSettings) -> str | None:
    """Without tiered storage, logs of tiered topics would forget what is remote, and so would those of compacted ones
    if they may not be tiered; None if nothing is in the way."""
    is_on = settings.remote_log_storage_system_enable
    if is_on and settings.remote_storage_compacted_enable:
        return None
    tiered = sorted(
        name
        for (kind, name), overrides in image.configs.items()
        if kind == TOPIC_RESOURCE and overrides.get("remote.storage.enable", "").strip().lower() == "true"
        if not is_on or TopicConfig.resolve(overrides, settings.raw).compacts
    )
    if not tiered:
        return None
    more = f" and {len(tiered) - 1} more" if len(tiered) > 1 else ""
    key = COMPACTED_TIERS if is_on else SYSTEM_ENABLE
    return (
        f"{key} is false, but {'compacted ' * is_on}topic {tiered[0]}{more} has remote.storage.enable=true: delete"
        " these topics or switch their tiering off first"
    )


async def warn_of_other_defaults(
    controller: ControllerCalls, quorum: QuorumEndpointsSource, settings: BrokerSettings
) -> None:
    """Ask the active controller for its defaults of new topics, and log those that the broker's file sets otherwise."""
    keys = [key for key in CONTROLLERS_DECIDE if key in settings.raw]
    leader_id = quorum.quorum_endpoints().leader_id
    if not keys or leader_id is None:
        return
    resource = DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(leader_id), configuration_keys=keys
    )
    try:
        response: DescribeConfigsResponse = await controller.call(
            DescribeConfigsRequest(resources=[resource]), timeout_ms=ANSWER_TIMEOUT_MS
        )
    except KafkaError as error:
        log.info("the defaults of controller %d are not known: %s", leader_id, error)
        return
    for result in response.results:
        for config in result.configs:
            own = settings.raw.get(config.name, "").strip()
            if config.value is not None and own and config.value != own:
                log.warning(
                    "%s is %s here and %s on controller %d: for new topics the controllers' value decides",
                    config.name,
                    own,
                    config.value,
                    leader_id,
                )
