"""Steps of a migration against a cluster whose brokers describe it with older metadata."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio.testing

from barnabas.cli.offset_reset import Partition
from barnabas.client.errors import BrokerIdNotRegisteredException
from barnabas.migration.migrating import LOOKS_AGAIN, Migrating, Options
from barnabas.migration.plan import CannotMigrate, Cluster, Migration, Placement, Quorum
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


@pytest.mark.feature("OP-05")
async def test_a_move_that_a_broker_does_not_know_to_be_complete_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """It failed with "reassign it by hand" on a busy machine: the controller listed no move any longer, and the broker
    that described the partition still showed both replicas.
    """
    partition = Partition("t", 0)
    both = replace(STOPPED, in_service=frozenset({11}), placements={partition: Placement((11, 1), (11,), 11)})
    moved = replace(STOPPED, fenced=frozenset(), placements={partition: Placement((11,), (11,), 11)})
    descriptions = [both, both, moved]

    async def observe(_: Migrating) -> Cluster:
        return descriptions.pop(0)

    monkeypatch.setattr(Migrating, "observe", observe)
    assert await Migrating(Registrations(), Migration({1: 11}), Options(), print).run() is None  # type: ignore[arg-type]
    assert descriptions == []

    descriptions = [both] * (LOOKS_AGAIN + 1)
    with pytest.raises(CannotMigrate, match="reassign it by hand"):
        await Migrating(Registrations(), Migration({1: 11}), Options(), print).run()  # type: ignore[arg-type]
