"""All attacks by name, in the order in which they are performed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from attacks import client_metrics, connections, costs, decisions, endings, groups, lies, share_groups
from attacks.scene import Scene


@dataclass(frozen=True, slots=True)
class Attack:
    """One way to hurt a cluster."""

    name: str
    play: Callable[[Scene], None]
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the nodes. Attacks with other settings get another cluster."""

    @property
    def title(self) -> str:
        return (self.play.__doc__ or self.name).strip()


_ALL = (
    Attack("list-offsets", costs.list_offsets_of_one_partition),
    Attack("offset-fetch", costs.offset_fetch_of_many_groups),
    Attack("bomb", costs.bomb_looked_up),
    Attack("bomb-of-good-records", costs.bomb_of_good_records),
    Attack("bomb-compacted", costs.bomb_compacted),
    Attack("snappy-crumbs", costs.snappy_crumbs),
    Attack("describe-groups", costs.describe_one_group),
    Attack("describe-producers", costs.describe_one_partition),
    Attack("find-coordinator", costs.find_many_coordinators),
    Attack("metadata-unknown", costs.metadata_of_unknown_topics),
    Attack("topic-partitions", costs.partitions_of_unknown_topics),
    Attack("share-offsets", share_groups.share_group_offsets),
    Attack("share-states", share_groups.share_states),
    Attack("share-acknowledgements", share_groups.share_acknowledgements),
    Attack("restless-member", groups.restless_member),
    Attack("many-transactional-ids", groups.many_transactional_ids),
    Attack("controller-commands", decisions.controller_commands),
    Attack("describe-configs", decisions.describe_many_configs),
    Attack("closed-connection", connections.closed_connection),
    Attack("never-read", connections.never_read),
    Attack("announced-frames", connections.announced_frames),
    Attack("idle-connections", connections.idle_connections),
    Attack("random-frames", connections.random_frames),
    Attack("slow-http", connections.slow_http),
    Attack("poison", lies.poison),
    Attack("log-injection", lies.forged_log_lines),
    Attack("forwarded-order", lies.order_of_forwarded_requests),
    Attack("commit-goes-back", lies.commit_goes_back),
    Attack("long-client-id", endings.long_client_id),
    Attack("long-transactional-id", endings.long_transactional_id),
    Attack("long-group-id", endings.long_group_id),
    Attack("descriptors", connections.descriptors_used_up),
    Attack("metrics-labels", client_metrics.metrics_with_many_labels, client_metrics.SETTINGS),
    Attack("metrics-values", client_metrics.metrics_of_many_clients, client_metrics.SETTINGS),
    Attack("metrics-patterns", client_metrics.expensive_subscriptions, client_metrics.SETTINGS),
    Attack("never-idle", connections.never_idle, {"connections.max.idle.ms": "4000"}),
)

ATTACKS: Mapping[str, Attack] = {attack.name: attack for attack in _ALL}
