"""One broker for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from barnabas.dev.embedded import EmbeddedServers, embedded


@pytest.fixture(scope="module")
def barnabas_broker(barnabas_settings: Mapping[str, str]) -> Iterator[EmbeddedServers]:
    with embedded(settings=barnabas_settings) as servers:
        yield servers
