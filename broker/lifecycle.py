"""The broker as the controller knows it: registered, heard from, fenced or not, shutting down (KIP-631).

A starting broker heartbeats at once whenever it has caught up a little more, so that it is unfenced within
milliseconds; afterwards once per `broker.heartbeat.interval.ms`. Heartbeats have a connection of their own: that
connection's end, together with a refused dial, is what tells the controller that this process died.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

import trio

from broker.controller_channel import ControllerChannel
from kraft.full_directories import report_full
from protocol.errors import ErrorCode, KafkaError, error_code
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from runtime.process import CannotRun
from runtime.world import World

log = logging.getLogger(__name__)

REGISTRATION_ATTEMPT_MS = 5_000
"""A controller that has not answered by then may never have heard of it."""
RETRY_PAUSE_MS = 100


class BrokerState(Enum):
    STARTING = "starting"
    """Registering, or registered and catching up with the metadata log."""
    RUNNING = "running"
    """Unfenced at least once."""
    PENDING_CONTROLLED_SHUTDOWN = "pending-controlled-shutdown"
    """Asked the controller to move leaderships away."""
    SHUTTING_DOWN = "shutting-down"
    """Nothing is led any more, or the controller could not be asked in time."""


@dataclass(frozen=True, slots=True)
class HeartbeatTimes:
    heartbeat_interval_ms: int
    session_timeout_ms: int
    registration_timeout_ms: int


class RegistrationRefused(CannotRun):
    """The controller will not have this broker (wrong cluster id, unsupported features): starting again won't help."""


@dataclass(slots=True)
class BrokerLifecycle:
    """Registers the broker and keeps its session alive."""

    world: World
    controller: ControllerChannel
    registration: BrokerRegistrationRequest
    times: HeartbeatTimes
    metadata_offset: Callable[[], int]
    """The last offset of the metadata log that this broker has applied."""
    offline_directories: Callable[[], list[bytes]]
    full_directories: Callable[[], list[bytes]] = list

    broker_epoch: int = -1
    state: BrokerState = BrokerState.STARTING
    fenced: bool = True
    registered: trio.Event = field(default_factory=trio.Event)
    last_heard_ms: int = 0
    """When the last heartbeat that was answered was sent."""
    unfenced_once: trio.Event = field(default_factory=trio.Event)
    may_shut_down: trio.Event = field(default_factory=trio.Event)
    _ready_to_unfence: bool = False
    _wake: trio.Event = field(default_factory=trio.Event)

    def ready_to_unfence(self) -> None:
        """The first metadata is applied and the listeners are open: from now on ask to be unfenced."""
        self._ready_to_unfence = True
        self.heartbeat_soon()

    def heartbeat_soon(self) -> None:
        """Something changed that the controller waits for: do not wait for the next interval."""
        self._wake.set()

    def metadata_advanced(self) -> None:
        """More of the metadata log was applied; a fenced broker may have caught up by it."""
        if self.fenced and self._ready_to_unfence and self.state is BrokerState.STARTING:
            self.heartbeat_soon()

    def may_be_fenced(self) -> bool:
        """The controller says so; or it has not been heard of for as long as a session lasts, by our own clock. (Its
        own count began later than ours.)
        """
        if self.state is BrokerState.STARTING:
            return False
        silent_ms = self.world.monotonic.now_ms() - self.last_heard_ms
        return self.fenced or silent_ms > self.times.session_timeout_ms

    def begin_controlled_shutdown(self) -> None:
        if self.state in (BrokerState.STARTING, BrokerState.RUNNING):
            log.info("asking the controller to move leaderships away")
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            self.heartbeat_soon()

    async def run(self) -> None:
        """Register, then heartbeat until cancelled, or until the controller lets this broker go: one more would take it
        back into office.
        """
        await self._register()
        while True:
            self._wake = trio.Event()
            heard = await self._heartbeat()
            if self.state is BrokerState.SHUTTING_DOWN:
                return
            pause_ms = self.times.heartbeat_interval_ms if heard else RETRY_PAUSE_MS
            with trio.move_on_after(pause_ms / 1000):
                await self._wake.wait()

    async def _register(self) -> None:
        deadline_ms = self.world.monotonic.now_ms() + self.times.registration_timeout_ms
        while True:
            left_ms = deadline_ms - self.world.monotonic.now_ms()
            if left_ms <= 0:
                raise RegistrationRefused(
                    f"no controller registered this broker within {self.times.registration_timeout_ms} ms"
                    " (initial.broker.registration.timeout.ms)"
                )
            try:
                response: BrokerRegistrationResponse = await self.controller.call(
                    self.registration, timeout_ms=min(left_ms, REGISTRATION_ATTEMPT_MS)
                )
            except KafkaError as error:
                log.warning("registration failed: %s", error)
                continue
            if response.error_code == ErrorCode.NONE:
                break
            refusal = error_code(response.error_code)
            if refusal in (ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION):
                raise RegistrationRefused(f"the controller refused to register this broker: {refusal.name}")
            # DUPLICATE_BROKER_REGISTRATION: our own earlier incarnation still has a session; it ends soon.
            log.info("registration refused for now: %s", refusal.name)
            await trio.sleep(RETRY_PAUSE_MS / 1000)
        self.broker_epoch = response.broker_epoch
        log.info("registered with broker epoch %d", self.broker_epoch)
        self.registered.set()

    async def _heartbeat(self) -> bool:
        """One exchange; False if it failed."""
        shutting_down = self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        request = BrokerHeartbeatRequest(
            broker_id=self.registration.broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self.metadata_offset(),
            want_fence=not self._ready_to_unfence,
            want_shut_down=shutting_down,
            offline_log_dirs=self.offline_directories(),
        )
        report_full(request, self.full_directories())
        sent_ms = self.world.monotonic.now_ms()
        try:
            response: BrokerHeartbeatResponse = await self.controller.call(
                request, timeout_ms=self.times.session_timeout_ms // 2
            )
        except KafkaError as error:
            log.info("heartbeat failed: %s", error)
            return False
        if response.error_code != ErrorCode.NONE:
            log.warning("heartbeat refused: %s", error_code(response.error_code).name)
            return False
        self.last_heard_ms = sent_ms
        self._heard(response)
        # While the controller moves leaderships away, or has seen us catch up but not unfenced us, news comes soon.
        return not shutting_down or self.may_shut_down.is_set()

    def _heard(self, response: BrokerHeartbeatResponse) -> None:
        if response.is_fenced != self.fenced:
            log.info("fenced by the controller" if response.is_fenced else "unfenced")
            self.fenced = response.is_fenced
        if self.state is BrokerState.STARTING and not response.is_fenced:
            self.state = BrokerState.RUNNING
            self.unfenced_once.set()
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN and response.should_shut_down:
            log.info("the controller allows the shutdown")
            self.state = BrokerState.SHUTTING_DOWN
            self.may_shut_down.set()
