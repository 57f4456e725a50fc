"""The broker as the controller knows it: what it says in its heartbeats, and when it stops saying anything."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from barnabas.broker.controller_channel import ControllerChannel
from barnabas.broker.lifecycle import BrokerLifecycle, BrokerState, HeartbeatTimes
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.runtime.world import World

TIMES = HeartbeatTimes(heartbeat_interval_ms=500, session_timeout_ms=3_000, registration_timeout_ms=60_000)


class Clock:
    def now_ms(self) -> int:
        return int(trio.current_time() * 1000)


class OneClock:
    """The part of a world that a lifecycle uses."""

    monotonic = Clock()


class Controller:
    """Takes every broker in; lets it go when it asks."""

    def __init__(self) -> None:
        self.received: list[BrokerHeartbeatRequest] = []

    async def call(self, request: Any, *, timeout_ms: int) -> Any:
        await trio.sleep(0.001)
        if isinstance(request, BrokerRegistrationRequest):
            return BrokerRegistrationResponse(broker_epoch=7)
        assert isinstance(request, BrokerHeartbeatRequest)
        self.received.append(request)
        leaves = request.want_shut_down
        return BrokerHeartbeatResponse(
            is_caught_up=True, is_fenced=request.want_fence or leaves, should_shut_down=leaves
        )


def lifecycle(controller: Controller) -> BrokerLifecycle:
    return BrokerLifecycle(
        world=cast(World, OneClock()),
        controller=cast(ControllerChannel, controller),
        registration=BrokerRegistrationRequest(broker_id=1),
        times=TIMES,
        metadata_offset=lambda: 10,
        offline_directories=list,
        note_epoch=_nothing_to_note,
    )


async def _nothing_to_note(_: int) -> None:
    await trio.lowlevel.checkpoint()


@pytest.mark.feature("MB-05")
async def test_after_a_controlled_shutdown_no_heartbeat_unfences_the_broker(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    controller = Controller()
    broker = lifecycle(controller)
    broker.ready_to_unfence()
    nursery.start_soon(broker.run)
    await broker.unfenced_once.wait()
    await trio.sleep(2)
    assert broker.state is BrokerState.RUNNING
    assert len(controller.received) >= 4
    broker.begin_controlled_shutdown()
    await broker.may_shut_down.wait()
    # Closing its logs may take a while.
    await trio.sleep(10)
    assert controller.received[-1].want_shut_down
    assert [each.want_shut_down for each in controller.received].count(True) == 1
    assert broker.fenced
