"""Steps of a migration against a cluster whose brokers describe it with older metadata."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio.testing

from barnabas.client.errors import BrokerIdNotRegisteredException
from barnabas.migration.migrating import Migrating, Options
from barnabas.migration.plan import Cluster, Migration, Quorum
from barnabas.protocol.errors import ErrorCode

STOPPED = Cluster(frozenset({11}), frozenset({1}), {}, frozenset(), Quorum(101, {}, {}, {}))


class Registrations:
    """The controller's answers to UnregisterBroker."""

    def __init__(self) -> None:
        self.brokers = {1, 11}

    async def unregister_broker(self, broker_id: int) -> None:
        if broker_id not in self.brokers:
            raise BrokerIdNotRegisteredException(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id}")
        self.brokers.remove(broker_id)


@pytest.mark.feature("OP-05")
async def test_a_broker_that_describes_an_older_cluster_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    descriptions = [STOPPED, STOPPED, STOPPED, replace(STOPPED, fenced=frozenset())]

    async def observe(_: Migrating) -> Cluster:
        return descriptions.pop(0)

    monkeypatch.setattr(Migrating, "observe", observe)
    admin: Any = Registrations()
    reported: list[str] = []
    assert await Migrating(admin, Migration({1: 11}), Options(), reported.append).run() is None
    assert admin.brokers == {11}
    assert reported == ["unregister broker 1"], "the second and third description were old"
    assert descriptions == []
