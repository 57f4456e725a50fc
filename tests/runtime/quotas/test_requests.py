"""The quotas of one request, and the one for which its client is held back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.protocol.api_keys import ApiKey
from barnabas.runtime.identity import Principal
from barnabas.runtime.quotas.levels import QuotaLevels
from barnabas.runtime.quotas.rate import QuotaWindows
from barnabas.runtime.quotas.requests import RequestQuotas, Throttled
from barnabas.runtime.quotas.source import QuotaType

pytestmark = pytest.mark.feature("QU-04", "QU-06")


@pytest.mark.parametrize(
    ("producer_byte_rate", "noted"), [(1.0, [QuotaType.PRODUCE]), (10_000.0, [QuotaType.REQUEST])]
)
def test_a_produce_above_two_quotas_is_held_back_by_the_one_that_takes_longer(
    producer_byte_rate: float, noted: list[QuotaType]
) -> None:
    entity = (("client-id", "app"),)
    limits = {QuotaType.PRODUCE.key: producer_byte_rate, QuotaType.REQUEST.key: 0.01}
    clock: Any = SimpleNamespace(now_ms=lambda: 1_000_000)
    quotas = RequestQuotas(QuotaWindows(), QuotaWindows(), clock, QuotaLevels({entity: limits}))
    found: list[Throttled] = []
    quotas.on_throttled = found.append
    request: Any = SimpleNamespace(
        api_key=ApiKey.PRODUCE, api_version=9, principal=Principal("alice"), client_id="app", body=bytes(1_000)
    )
    arrival_ms = quotas.arrival_throttle_ms(request)
    throttle_ms = quotas.throttle_ms(request, SimpleNamespace(acks=1), 0.5, arrival_ms)
    assert [it.quota for it in found] == noted
    assert throttle_ms == found[0].throttle_ms
