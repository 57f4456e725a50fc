"""Core: the throttles of one broker's replication, as its configs set them (KIP-73, KIP-113)."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.replication.quota import ReplicationQuota, ThrottledReplicas
from barnabas.runtime.quotas.rate import QuotaWindows
from barnabas.settings.topic import TopicConfig

UNLIMITED = (1 << 63) - 1
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


class Throttle:
    """One direction: which partitions are limited, and how much of them passed."""

    __slots__ = ("quota", "replicas")

    def __init__(self, quota: ReplicationQuota) -> None:
        self.quota = quota
        self.replicas = ThrottledReplicas()

    def holds_back(self, key: tuple[str, int], now_ms: int, *, in_sync: bool) -> bool:
        """True if the partition `key` (topic, index) has to wait. A replica that is in sync never waits."""
        return not in_sync and key in self.replicas and self.quota.is_exceeded(now_ms)

    def passed(self, key: tuple[str, int], size_bytes: int, now_ms: int) -> None:
        """Count records of a partition; those of replicas in sync count as well."""
        if size_bytes and key in self.replicas:
            self.quota.record(size_bytes, now_ms)


class ReplicationThrottles:
    """`leader` limits what this broker sends to followers, `follower` what it fetches, `log_dirs` its own copies."""

    def __init__(self, windows: QuotaWindows, log_dir_windows: QuotaWindows) -> None:
        self._rates: dict[str, int] = {}
        self.leader = Throttle(ReplicationQuota(windows, lambda: self._rates.get(LEADER_RATE, UNLIMITED)))
        self.follower = Throttle(ReplicationQuota(windows, lambda: self._rates.get(FOLLOWER_RATE, UNLIMITED)))
        self.log_dirs = ReplicationQuota(log_dir_windows, lambda: self._rates.get(LOG_DIRS_RATE, UNLIMITED))

    def set_topic(self, topic: str, config: TopicConfig, broker_id: int) -> None:
        """Apply the configs of a topic."""
        self.leader.replicas.set(topic, config.leader_replication_throttled_replicas, broker_id)
        self.follower.replicas.set(topic, config.follower_replication_throttled_replicas, broker_id)

    def keep(self, topics: Mapping[str, object]) -> None:
        """Forget topics that do not exist."""
        self.leader.replicas.keep(topics)
        self.follower.replicas.keep(topics)

    def set_rates(self, cluster_default: Mapping[str, str], per_broker: Mapping[str, str]) -> None:
        """Dynamic configs of all brokers and of this one, which come first."""
        texts = {**cluster_default, **per_broker}
        self._rates = {
            key: int(texts[key]) for key in (LEADER_RATE, FOLLOWER_RATE, LOG_DIRS_RATE) if texts.get(key, "").isdigit()
        }
