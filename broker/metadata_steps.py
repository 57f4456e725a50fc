"""How a broker applies a step of the metadata: which part learns what, in which order."""

from __future__ import annotations

import logging

from barnabas.broker.parts import BrokerParts
from barnabas.broker.setting_checks import coordinator_topic_differences
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.kraft.metadata.features import (
    DIRECTORIES_SINCE,
    METADATA_VERSION,
    SHARE_VERSION,
)
from barnabas.kraft.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from barnabas.runtime.server import ServerLimits
from barnabas.runtime.steps import Steps
from barnabas.settings.dynamic import with_dynamic_configs

log = logging.getLogger(__name__)


class MetadataSteps:
    """Announces and applies steps. The publisher calls it in the order of the metadata log."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts

    def announce(self, delta: MetadataDelta) -> None:
        """Show clients the new metadata, before this broker has applied it."""
        parts = self._parts
        for line in coordinator_topic_differences(delta, parts.static):
            log.warning("%s", line)
        parts.metadata.update(delta.after)
        if parts.authorization is not None and parts.controller is None:
            parts.authorization.put(delta, is_caught_up=True)
        session_ends_ms = parts.world.monotonic.now_ms() + parts.static.broker_session_timeout_ms
        parts.metadata.keep_listed(delta.fenced_on_evidence, session_ends_ms)

    def apply(self, delta: MetadataDelta) -> Steps:
        """Apply a step of the metadata to every part of this broker, in steps of the event loop."""
        parts = self._parts
        if any(kind == BROKER_RESOURCE for kind, _ in delta.changed_configs):
            parts.settings, ignored = with_dynamic_configs(parts.static, parts.layers(delta.after))
            for line in ignored:
                log.warning("a dynamic config is ignored: %s", line)
            parts.store.settings_changed(parts.settings)
            yield from parts.security.sasl_configs_are(parts.layers(delta.after).per_broker)
            parts.nursery.start_soon(parts.security.configs_are, parts.layers(delta.after).per_broker)
            parts.set_cordons()
            parts.server.limits_changed(ServerLimits.of(parts.settings, parts.world.memory_bytes))
        self._set_throttles(delta)
        parts.quotas.changed(delta)
        if parts.telemetry is not None:
            parts.telemetry.configs_are(delta.after.configs)
        if METADATA_VERSION in delta.changed_features:
            self._report_directories(delta.after)
        parts.fetchers.hold()
        yield from parts.partitions.apply_delta(delta)
        parts.fetchers.release()
        if parts.remote is not None:
            yield from parts.remote.metadata_changed(delta)
        self._look_at_deliveries(delta)
        parts.coordination.metadata_changed(delta)
        shares, has_shares = parts.late_shares.here, delta.after.features.level(SHARE_VERSION) > 0
        if shares is not None and SHARE_VERSION in delta.changed_features and not has_shares:
            shares.switched_off()
        if delta.changed_brokers:
            parts.fetchers.metadata_changed()
        parts.log_dir_moves.look()
        parts.assignments.look()
        parts.published.set()
        parts.lifecycle.metadata_advanced()

    def _set_throttles(self, delta: MetadataDelta) -> None:
        parts = self._parts
        image, node_id = delta.after, parts.static.node_id
        layers = parts.layers(image)
        parts.throttles.set_rates(layers.cluster_default, layers.per_broker)
        for kind, name in delta.changed_configs:
            if kind == TOPIC_RESOURCE:
                parts.throttles.set_topic(name, parts.topic_config(image, name), node_id)
        if delta.deleted_topics:
            parts.throttles.keep(image.topics.by_name)

    def _look_at_deliveries(self, delta: MetadataDelta) -> None:
        """Delayed delivery may be switched on or off for a topic."""
        parts = self._parts
        topics = {name for kind, name in delta.changed_configs if kind == TOPIC_RESOURCE}
        if topics:
            for partition in parts.partitions.led:
                if partition.topic in topics:
                    parts.look_at_deliveries(partition)

    def _report_directories(self, image: MetadataImage) -> None:
        """A registration at an old metadata.version has no log directories."""
        parts = self._parts
        own = image.cluster.brokers.get(parts.static.node_id)
        if own is not None and not own.log_directories and image.features.metadata_version >= DIRECTORIES_SINCE:
            parts.lifecycle.register_again()
