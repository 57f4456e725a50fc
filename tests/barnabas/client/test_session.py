"""A client from its opening to its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ConfigException
from barnabas.client.session import cluster_settings_of, first_failure, open_cluster
from barnabas.client.settings import ClientSettings
from barnabas.runtime.simulated import Universe, make_world, run_simulation

SETTINGS = ClientSettings.of({"bootstrap_servers": "b1:9092"})

pytestmark = pytest.mark.feature("CL-02")


def play(scenario: Callable[[Cluster], Awaitable[object]]) -> None:
    async def story(universe: Universe) -> None:
        async with open_cluster(SETTINGS, make_world("client", universe)) as cluster:
            await scenario(cluster)

    run_simulation(1, story)


def test_an_exception_of_the_block_is_raised_unchanged() -> None:
    mine = ValueError("mine")

    async def fail(cluster: Cluster) -> None:
        raise mine

    with pytest.raises(ValueError, match="mine") as failure:
        play(fail)
    assert failure.value is mine
    several = ExceptionGroup("mine", [ValueError("a"), KeyError("b")])

    async def fail_twice(cluster: Cluster) -> None:
        raise several

    with pytest.raises(ExceptionGroup) as failures:
        play(fail_twice)
    assert failures.value is several


def test_an_exception_of_a_task_ends_the_block_and_is_raised_alone() -> None:
    async def break_down() -> None:
        raise RuntimeError("a task of the client")

    async def wait(cluster: Cluster) -> None:
        nursery = await cluster.open_nursery()
        nursery.start_soon(break_down)
        await trio.sleep_forever()

    with pytest.raises(RuntimeError, match="a task of the client"):
        play(wait)


def test_a_cancel_goes_through() -> None:
    async def wait(cluster: Cluster) -> None:
        await trio.sleep_forever()

    async def story(universe: Universe) -> bool:
        with trio.move_on_after(5) as scope:
            async with open_cluster(SETTINGS, make_world("client", universe)) as cluster:
                await wait(cluster)
        return scope.cancelled_caught

    assert run_simulation(1, story)


def test_the_first_error_that_is_none_of_a_cancel() -> None:
    async def main() -> trio.Cancelled:
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as error:
                return error
        raise AssertionError

    cancelled = trio.run(main)
    wanted = KeyError("wanted")
    assert first_failure(BaseExceptionGroup("", [cancelled])) is None
    nested = BaseExceptionGroup("", [cancelled, BaseExceptionGroup("", [cancelled]), ExceptionGroup("", [wanted])])
    assert first_failure(nested) is wanted


def test_every_setting_of_patience_is_a_clients() -> None:
    chosen = {
        "request_timeout_ms": 1,
        "retry_backoff_ms": 2,
        "retry_backoff_max_ms": 3,
        "reconnect_backoff_ms": 4,
        "reconnect_backoff_max_ms": 5,
        "socket_connection_setup_timeout_ms": 6,
        "socket_connection_setup_timeout_max_ms": 7,
        "connections_max_idle_ms": 8,
        "metadata_max_age_ms": 9,
        "metadata_recovery_strategy": "none",
        "metadata_recovery_rebootstrap_trigger_ms": 10,
        "allow_auto_create_topics": False,
    }
    patience = cluster_settings_of(ClientSettings.of({"bootstrap_servers": "b1", **chosen}), 11)
    assert {name: getattr(patience, name) for name in patience.__slots__} == {**chosen, "metadata_max_idle_ms": 11}
    with pytest.raises(ConfigException, match="metadata_recovery_strategy"):
        ClientSettings.of({"bootstrap_servers": "b1", "metadata_recovery_strategy": "hope"})
