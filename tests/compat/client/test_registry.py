"""Two registries before our cluster and before Apache Kafka: they elect one that writes, and agree."""

from __future__ import annotations

from typing import Any

import trio

from barnabas.registry.candidate import ElectionSettings
from barnabas.registry.running import RegistryOptions, RunningRegistry, run_registry
from barnabas.web import listen
from tests.barnabas.registry.rig import record
from tests.barnabas.registry.test_running import ask, schemas
from tests.compat.client.any_cluster import AnyCluster

SCHEMA, GROWN = record("a:int"), record("a:int", "b:int=0")


async def test_two_registries_write_through_one(any_cluster: AnyCluster) -> None:
    clients: dict[str, Any] = {"bootstrap_servers": any_cluster.bootstrap_servers}
    topic, group = any_cluster.new_name("_schemas"), any_cluster.new_name("registries")
    settings = ElectionSettings(group, heartbeat_interval_ms=200)
    registries: list[RunningRegistry] = []
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            listener = listen("127.0.0.1", 0, "the registry")
            options = RegistryOptions(listener, "127.0.0.1", clients, topic, election=settings)
            registries.append(await nursery.start(run_registry, options))
        one, other = registries
        with trio.fail_after(30):
            while sorted(each.service.election.leads for each in registries) != [False, True]:
                await trio.sleep(0.05)
            assert (await ask(one.url, "POST", schemas("s"), {"schema": SCHEMA}))[1]["id"] == 1
            assert (await ask(other.url, "POST", schemas("s"), {"schema": GROWN}))[1]["id"] == 2
            while await ask(one.url, "GET", schemas("s")) != (200, [1, 2]):
                await trio.sleep(0.05)
            assert await ask(other.url, "GET", schemas("s")) == (200, [1, 2])
        nursery.cancel_scope.cancel()
