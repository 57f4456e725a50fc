"""The effective value of a topic config, and its source.

The order: the topic's own override, this controller's dynamic override, the cluster's dynamic default, the
configuration file, Kafka's default (KIP-226). Only reads.
"""

from __future__ import annotations

from barnabas.kraft.controller.state import ControllerDefaults, ControllerState
from barnabas.kraft.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage, TopicImage
from barnabas.settings.describe import BrokerLayers

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"


def _dynamic(image: MetadataImage, defaults: ControllerDefaults, topic_name: str, key: str) -> str | None:
    """The dynamic value of a key that has the same name for topics and brokers."""
    for resource in (
        (TOPIC_RESOURCE, topic_name),
        (BROKER_RESOURCE, str(defaults.node_id)),
        (BROKER_RESOURCE, ""),
    ):
        overrides = image.configs.get(resource)
        if overrides is not None and key in overrides:
            return overrides[key]
    return None


def min_insync_replicas(state: ControllerState, topic: TopicImage) -> int:
    """The effective min.insync.replicas; never more than the topic's replication factor."""
    text = _dynamic(state.image, state.defaults, topic.name, MIN_INSYNC_REPLICAS)
    wanted = state.defaults.min_insync_replicas if text is None else int(text)
    first = next(iter(topic.partitions.values()), None)
    return wanted if first is None else min(wanted, len(first.replicas))


def unclean_leader_election(state: ControllerState, topic_name: str) -> bool:
    """The effective unclean.leader.election.enable."""
    text = _dynamic(state.image, state.defaults, topic_name, UNCLEAN_LEADER_ELECTION)
    if text is None:
        return state.defaults.unclean_leader_election_enable
    return text.strip().lower() == "true"


def broker_layers(image: MetadataImage, defaults: ControllerDefaults) -> BrokerLayers:
    """Broker configs that this controller's topics inherit, by source."""
    return BrokerLayers(
        static=defaults.raw,
        cluster_default=image.config(BROKER_RESOURCE, ""),
        per_broker=image.config(BROKER_RESOURCE, str(defaults.node_id)),
    )
