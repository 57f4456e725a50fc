"""Rate limits of replication: samples, rates, and which partitions they concern (KIP-73)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.replication.quota import ReplicationQuota, ThrottledReplicas
from barnabas.broker.replication.throttles import ReplicationThrottles
from barnabas.runtime.quotas.rate import QuotaWindows
from barnabas.settings.topic import TopicConfig

pytestmark = pytest.mark.feature("RE-20")


def test_a_rate_is_taken_over_at_least_one_sample() -> None:
    quota = ReplicationQuota(QuotaWindows(samples=10, window_ms=1000), lambda: 100)
    assert not quota.is_exceeded(0) and quota.rate(0) == 0
    quota.record(100, 0)
    assert quota.rate(1) == 100, "not 100 000 a second"
    assert not quota.is_exceeded(999)
    quota.record(1, 999)
    assert quota.is_exceeded(999) and quota.rate(999) == 101
    assert not quota.is_exceeded(1100), "time passed, and nothing was sent"


def test_old_samples_do_not_count() -> None:
    quota = ReplicationQuota(QuotaWindows(samples=3, window_ms=1000), lambda: 100)
    quota.record(1_000_000, 0)
    assert quota.is_exceeded(2999)
    assert quota.rate(3000) == 0


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 5000)), min_size=1, max_size=200))
def test_a_sender_that_stops_at_the_limit_stays_near_it(wishes: list[tuple[int, int]]) -> None:
    """Kafka's promise: what passes in the time of all samples is the limit and one excess."""
    quota = ReplicationQuota(QuotaWindows(samples=11, window_ms=1000), lambda: 1000)
    now_ms, sent = 0, []
    for pause_ms, size in wishes:
        now_ms += pause_ms
        if not quota.is_exceeded(now_ms):
            quota.record(size, now_ms)
            sent.append((now_ms, size))
    window = [size for at_ms, size in sent if at_ms > now_ms - 10_000]
    assert sum(window) <= 1000 * 11 + 5000 + 1000


@given(st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 900)), min_size=1, max_size=60))
def test_a_rate_is_that_of_the_samples_that_count(passed: list[tuple[int, int]]) -> None:
    """A sample begins with the first record after the one before it has ended."""
    windows = QuotaWindows(samples=3, window_ms=1000)
    quota = ReplicationQuota(windows, lambda: 700)
    samples: list[list[tuple[int, int]]] = []
    now_ms = 0
    for pause_ms, size in passed:
        now_ms += pause_ms
        if samples and now_ms < samples[-1][0][0] + 1000:
            samples[-1].append((now_ms, size))
        else:
            samples.append([(now_ms, size)])
        quota.record(size, now_ms)
        counted = [sample for sample in samples[-3:] if sample[0][0] > now_ms - 3000]
        bytes_passed = sum(size for sample in counted for _, size in sample)
        rate = bytes_passed * 1000 / max(1000, now_ms - counted[0][0][0])
        assert quota.rate(now_ms) == rate
        assert quota.is_exceeded(now_ms) == (rate > 700)
    assert quota.rate(now_ms + 3000) == 0


def test_throttled_replicas_are_named_or_all() -> None:
    throttled = ThrottledReplicas()
    assert not throttled and ("t", 0) not in throttled
    throttled.set("t", ["0:1", "1:2", "3:1"], 1)
    assert [index for index in range(5) if ("t", index) in throttled] == [0, 3]
    throttled.set("u", ["*"], 1)
    assert ("u", 17) in throttled
    throttled.set("t", [], 1)
    assert ("t", 0) not in throttled
    throttled.keep({})
    assert not throttled


def test_a_replica_in_sync_is_never_held_back() -> None:
    throttles = ReplicationThrottles(QuotaWindows(), QuotaWindows())
    throttles.leader.replicas.set("t", ["*"], 1)
    throttles.set_rates({"leader.replication.throttled.rate": "10"}, {"leader.replication.throttled.rate": "0"})
    throttles.leader.passed(("t", 0), 1000, 0)
    assert throttles.leader.holds_back(("t", 0), 0, in_sync=False)
    assert not throttles.leader.holds_back(("t", 0), 0, in_sync=True)
    assert not throttles.leader.holds_back(("other", 0), 0, in_sync=False)
    throttles.set_rates({}, {})
    assert not throttles.leader.holds_back(("t", 0), 0, in_sync=False), "the limit was removed"


@given(st.lists(st.sampled_from(["leader", "follower", "log dirs"]), unique=True), st.booleans())
def test_each_limit_is_of_its_own(limited: list[str], is_default: bool) -> None:
    keys = {
        "leader": "leader.replication.throttled.rate",
        "follower": "follower.replication.throttled.rate",
        "log dirs": "replica.alter.log.dirs.io.max.bytes.per.second",
    }
    rates = {keys[name]: "10" for name in limited}
    throttles = ReplicationThrottles(QuotaWindows(2, 1_000), QuotaWindows(5, 1_000))
    quotas = {"leader": throttles.leader.quota, "follower": throttles.follower.quota, "log dirs": throttles.log_dirs}
    throttles.set_rates(rates if is_default else {}, {} if is_default else rates)
    for quota in quotas.values():
        quota.record(50, 0)
    assert {name for name, quota in quotas.items() if quota.is_exceeded(0)} == {*limited}
    assert {name for name, quota in quotas.items() if quota.rate(3_000)} == {"log dirs"}, "its samples last longer"


def test_topics_name_their_throttled_replicas() -> None:
    throttles = ReplicationThrottles(QuotaWindows(), QuotaWindows())
    config = TopicConfig(
        leader_replication_throttled_replicas=("0:1", "1:2"), follower_replication_throttled_replicas=("2:1",)
    )
    throttles.set_topic("t", config, 1)
    sides = (throttles.leader.replicas, throttles.follower.replicas)
    assert [[index for index in range(4) if ("t", index) in side] for side in sides] == [[0], [2]]
    throttles.keep({"u": None})
    assert not any(sides)
