"""Tokens for changes of the cluster (KIP-599)."""

from __future__ import annotations

import pytest

from barnabas.runtime.quotas.rate import QuotaWindows
from barnabas.runtime.quotas.token_bucket import TokenBucket

pytestmark = pytest.mark.feature("QU-08")

QUOTA = 5.0


@pytest.fixture
def bucket() -> TokenBucket:
    """Ten windows of one second: a burst of 50."""
    return TokenBucket(QuotaWindows(samples=10))


def test_a_new_bucket_is_full(bucket: TokenBucket) -> None:
    assert bucket.tokens(QUOTA, 123) == 50


def test_tokens_come_back_by_the_quota(bucket: TokenBucket) -> None:
    bucket.record(60, QUOTA, 0)
    assert bucket.tokens(QUOTA, 0) == -10
    assert bucket.tokens(QUOTA, 2_000) == 0
    bucket.record(60, QUOTA, 2_000)
    assert bucket.tokens(QUOTA, 2_000) == -60


def test_a_bucket_never_has_more_than_its_burst(bucket: TokenBucket) -> None:
    bucket.record(10, QUOTA, 0)
    assert bucket.tokens(QUOTA, 60_000) == 50
    bucket.record(-20, QUOTA, 60_000)
    assert bucket.tokens(QUOTA, 60_000) == 50


def test_the_throttle_lasts_until_there_are_zero_tokens(bucket: TokenBucket) -> None:
    assert bucket.throttle_ms(QUOTA, 0) == 0
    bucket.record(110, QUOTA, 0)
    assert bucket.throttle_ms(QUOTA, 0) == 12_000
    assert bucket.throttle_ms(QUOTA, 11_999) == 1
    assert bucket.throttle_ms(QUOTA, 12_000) == 0


def test_a_new_quota_fills_the_bucket_at_its_own_rate(bucket: TokenBucket) -> None:
    bucket.record(60, QUOTA, 0)
    assert bucket.tokens(QUOTA, 1_000) == -5
    assert bucket.tokens(QUOTA * 2, 2_000) == 5
