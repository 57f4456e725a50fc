"""Which value of a topic key holds, and where it comes from.

The order: the topic's own override, this controller's dynamic override, the cluster's dynamic default, the
configuration file, Kafka's default (KIP-226). Reads the image and the table of keys; changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kraft.controller.state import ControllerDefaults, ControllerState
from kraft.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage, TopicImage
from settings.definitions import definitions
from settings.topic import BROKER_SYNONYMS

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"

DYNAMIC_TOPIC_CONFIG = 1
DYNAMIC_BROKER_CONFIG = 2
DYNAMIC_DEFAULT_BROKER_CONFIG = 3
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5
"""Sources of a value, with the numbers they have in DescribeConfigs."""


def _dynamic(image: MetadataImage, defaults: ControllerDefaults, topic_name: str, key: str) -> str | None:
    """The dynamic value of a key that topics and brokers call by the same name."""
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
    """How many in-sync replicas an acknowledged write needs; never more than there are replicas."""
    text = _dynamic(state.image, state.defaults, topic.name, MIN_INSYNC_REPLICAS)
    wanted = state.defaults.min_insync_replicas if text is None else int(text)
    first = next(iter(topic.partitions.values()), None)
    return wanted if first is None else min(wanted, len(first.replicas))


def unclean_leader_election(state: ControllerState, topic_name: str) -> bool:
    """Whether this topic would rather lose records than be offline."""
    text = _dynamic(state.image, state.defaults, topic_name, UNCLEAN_LEADER_ELECTION)
    if text is None:
        return state.defaults.unclean_leader_election_enable
    return text.strip().lower() == "true"


class EffectiveConfig(NamedTuple):
    """One key of a topic as it holds."""

    name: str
    value: str | None
    source: int
    sensitive: bool


def effective_topic_configs(
    image: MetadataImage, defaults: ControllerDefaults, overrides: Mapping[str, str]
) -> list[EffectiveConfig]:
    """All keys of a topic that has `overrides`, by name."""
    layers = (
        (DYNAMIC_BROKER_CONFIG, image.config(BROKER_RESOURCE, str(defaults.node_id))),
        (DYNAMIC_DEFAULT_BROKER_CONFIG, image.config(BROKER_RESOURCE, "")),
        (STATIC_BROKER_CONFIG, defaults.raw),
    )
    found: list[EffectiveConfig] = []
    for name, definition in sorted(definitions("topic").items()):
        if definition.internal:
            continue
        value, source = definition.default, DEFAULT_CONFIG
        if name in overrides:
            value, source = overrides[name], DYNAMIC_TOPIC_CONFIG
        else:
            for layer_source, layer in layers:
                text = _broker_value(name, layer)
                if text is not None:
                    value, source = text, layer_source
                    break
        found.append(
            EffectiveConfig(name, None if definition.sensitive else value, source, definition.sensitive)
        )
    return found


def _broker_value(topic_key: str, layer: Mapping[str, str]) -> str | None:
    """What broker keys of one layer say about a topic key, in the topic key's unit."""
    for broker_key, factor in BROKER_SYNONYMS.get(topic_key, ()):
        text = layer.get(broker_key)
        if text is not None:
            is_scaled = factor != 1 and text.strip().isdigit()
            return str(int(text) * factor) if is_scaled else text
    return None
