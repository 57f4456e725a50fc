"""The quota of a client is that of the most specific entity that has one (KIP-55, KIP-546, KIP-612)."""

from __future__ import annotations

import math

import pytest

from barnabas.kraft.metadata.image import EMPTY_IMAGE, ClientQuotas, MetadataImage, QuotaEntity
from barnabas.kraft.metadata.ip_quotas import IpQuotas
from barnabas.kraft.metadata.replay import ImageReplay
from barnabas.kraft.metadata.snapshot import difference, image_to_records, quota_record
from tests.kraft.metadata.quota_lookup import QuotaLevel, QuotaMatch, quota_for
from tests.kraft.metadata.replaying import applied

RATE = "producer_byte_rate"
BY_LEVEL: list[QuotaEntity] = [
    (("client-id", "app"), ("user", "alice")),
    (("client-id", None), ("user", "alice")),
    (("user", "alice"),),
    (("client-id", "app"), ("user", None)),
    (("client-id", None), ("user", None)),
    (("user", None),),
    (("client-id", "app"),),
    (("client-id", None),),
]
"""An entity of each level, the first that counts first."""


def rate_of(quotas: ClientQuotas, user: str = "alice", client_id: str = "app") -> QuotaMatch | None:
    return quota_for(quotas, user, client_id, RATE)


@pytest.mark.feature("QU-03")
def test_each_level_yields_to_those_before_it() -> None:
    quotas: ClientQuotas = {}
    for level in reversed(QuotaLevel):
        quotas[BY_LEVEL[level]] = {RATE: 100.0 + level}
        assert rate_of(quotas) == (100.0 + level, level)
    for level in QuotaLevel:
        assert rate_of(quotas) == (100.0 + level, level)
        del quotas[BY_LEVEL[level]]
    assert rate_of(quotas) is None


@pytest.mark.feature("QU-03")
def test_names_of_others_do_not_count() -> None:
    quotas: ClientQuotas = {entity: {RATE: float(level)} for level, entity in enumerate(BY_LEVEL)}
    assert rate_of(quotas, "bob") == (3.0, QuotaLevel.DEFAULT_USER_AND_CLIENT)
    assert rate_of(quotas, "bob", "other") == (4.0, QuotaLevel.DEFAULT_USER_AND_DEFAULT_CLIENT)
    assert rate_of(quotas, "alice", "") == (1.0, QuotaLevel.USER_AND_DEFAULT_CLIENT)


@pytest.mark.feature("QU-03")
def test_keys_are_looked_up_one_by_one() -> None:
    quotas: ClientQuotas = {BY_LEVEL[0]: {"consumer_byte_rate": 1.0}, BY_LEVEL[7]: {RATE: 2.0}}
    assert rate_of(quotas) == (2.0, QuotaLevel.DEFAULT_CLIENT)
    assert quota_for(quotas, "alice", "app", "consumer_byte_rate") == (1.0, QuotaLevel.USER_AND_CLIENT)
    assert quota_for(quotas, "alice", "app", "request_percentage") is None


def test_a_quota_that_is_no_number_limits_nobody() -> None:
    """Kafka's controllers accept one."""
    assert rate_of({BY_LEVEL[0]: {RATE: math.nan}, BY_LEVEL[7]: {RATE: 1.0}}) == (math.inf, 0)


@pytest.mark.feature("QU-08")
def test_an_address_has_its_own_rate_or_the_default_in_any_spelling() -> None:
    rate = "connection_creation_rate"
    none = IpQuotas()
    assert none.ip_quota("10.0.0.1") is None
    quotas = IpQuotas(
        {(("ip", "10.0.0.1"),): {rate: 5.0}, (("ip", "0:0::1"),): {rate: 6.0}, (("user", "10.0.0.2"),): {RATE: 9.0}}
    )
    assert [quotas.ip_quota(ip) for ip in ("10.0.0.1", "::ffff:10.0.0.1", "::1", "10.0.0.2")] == [5.0, 5.0, 6.0, None]
    quotas.apply({(("ip", None),): {rate: 1.0}})
    assert [quotas.ip_quota(ip) for ip in ("10.0.0.1", "10.0.0.2", "client-host")] == [5.0, 1.0, 1.0]
    quotas.apply({(("ip", "10.0.0.1"),): None, (("ip", None),): None})
    assert [quotas.ip_quota(ip) for ip in ("10.0.0.1", "10.0.0.2", "::1")] == [None, None, 6.0]


# Deltas


@pytest.fixture
def image() -> MetadataImage:
    return applied(EMPTY_IMAGE, [quota_record(BY_LEVEL[0], RATE, 1.0), quota_record(BY_LEVEL[2], RATE, 2.0)], 1, 1, 0)


@pytest.mark.feature("QU-04", "MB-20")
def test_a_delta_names_the_entities_that_changed_with_all_their_quotas(image: MetadataImage) -> None:
    replay = ImageReplay(image)
    replay.replay(quota_record(BY_LEVEL[0], "request_percentage", 50.0))
    replay.replay(quota_record(BY_LEVEL[2], RATE, None))
    delta = replay.finish(9, 1, 0)
    assert delta.changed_quotas == {BY_LEVEL[0]: {RATE: 1.0, "request_percentage": 50.0}, BY_LEVEL[2]: None}
    assert delta.after.others.quotas == {BY_LEVEL[0]: {RATE: 1.0, "request_percentage": 50.0}}
    assert image.others.quotas == {BY_LEVEL[0]: {RATE: 1.0}, BY_LEVEL[2]: {RATE: 2.0}}, "images do not change"


@pytest.mark.feature("QU-04", "MB-20")
def test_a_snapshot_keeps_quotas_and_yields_the_same_delta(image: MetadataImage) -> None:
    changes = [quota_record(BY_LEVEL[2], RATE, None), quota_record(BY_LEVEL[7], RATE, 3.0)]
    later = applied(image, changes, 3, 1, 0)
    loaded = applied(EMPTY_IMAGE, image_to_records(later), 3, 1, 0)
    assert loaded.others == later.others
    assert difference(image, loaded).changed_quotas == {BY_LEVEL[2]: None, BY_LEVEL[7]: {RATE: 3.0}}
    assert difference(later, loaded).is_empty
