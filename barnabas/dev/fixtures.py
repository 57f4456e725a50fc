"""Fixtures of the pytest plug-in for a broker in the test process.

    def test_mine(barnabas_broker, barnabas_topic):
        my_program(bootstrap_servers=barnabas_broker, topic=barnabas_topic)

The code of the broker is loaded when a test first uses one of them. Each worker of pytest-xdist has its own broker.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.dev.embedded import EmbeddedServers
    from barnabas.fault_proxy.embedded import ProxiedServers

_MOST_OF_A_NAME = 200
"""Characters of a topic's name that come from the test; Kafka allows 249 in all."""
_numbers = count(1)


@pytest.fixture(scope="session")
def barnabas_broker(barnabas_settings: Mapping[str, str]) -> Iterator[EmbeddedServers]:
    """The bootstrap servers of a broker in this process, in memory; one for all tests of a run."""
    from barnabas.dev.embedded import embedded

    with embedded(settings=barnabas_settings) as servers:
        yield servers


@pytest.fixture
def barnabas_topic(barnabas_broker: EmbeddedServers, request: pytest.FixtureRequest) -> str:
    """The name of a new topic. `@pytest.mark.barnabas_topic(partitions=3)` gives it more than one partition."""
    mark = request.node.get_closest_marker("barnabas_topic")
    name = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:_MOST_OF_A_NAME]
    return barnabas_broker.create_topic(f"{name}-{next(_numbers)}", **(mark.kwargs if mark else {}))


@pytest.fixture
def barnabas_reset(barnabas_broker: EmbeddedServers) -> Iterator[EmbeddedServers]:
    """`barnabas_broker` without topics, groups and transactions: what earlier tests left is deleted first."""
    barnabas_broker.reset()
    yield barnabas_broker


@pytest.fixture
def barnabas_proxy(barnabas_broker: EmbeddedServers) -> Iterator[ProxiedServers]:
    """The bootstrap servers of a proxy before `barnabas_broker`, without rules: `barnabas_proxy.fail("Produce", …)`."""
    from barnabas.fault_proxy.embedded import proxy

    with proxy(to=barnabas_broker) as servers:
        yield servers
