"""A cluster of others for checks: one broker in the test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import barnabas


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with barnabas.embedded(settings={"group.initial.rebalance.delay.ms": "0"}) as found:
        yield found
