"""The broker's session with the controller: registration, heartbeats, fencing, controlled shutdown (KIP-631).

A starting broker sends a heartbeat whenever it has caught up a little more, so that it is unfenced within milliseconds;
afterwards every `broker.heartbeat.interval.ms`. Heartbeats have a connection of their own: if it ends and a new
connection is refused, the controller knows that this process died.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import trio

from barnabas.broker.controller_channel import ControllerChannel
from barnabas.kraft.full_directories import report_full
from barnabas.kraft.metadata.features import obstacle
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
)
from barnabas.runtime.process import CannotRun
from barnabas.runtime.world import World

log = logging.getLogger(__name__)

REGISTRATION_ATTEMPT_MS = 5_000
"""A controller that has not answered by then may not have received the request."""
RETRY_BACKOFF_MS = 100


class BrokerState(Enum):
    STARTING = "starting"
    """Registering, or registered and catching up with the metadata log."""
    RUNNING = "running"
    """Unfenced at least once."""
    PENDING_CONTROLLED_SHUTDOWN = "pending-controlled-shutdown"
    """The controller is asked to move leaderships away."""
    SHUTTING_DOWN = "shutting-down"
    """The broker leads nothing, or the controller could not be reached in time."""


@dataclass(frozen=True, slots=True)
class HeartbeatTimes:
    heartbeat_interval_ms: int
    session_timeout_ms: int
    registration_timeout_ms: int


class ClusterQuotas(Protocol):
    """Quotas of the whole cluster: heartbeats report their use, and answers give this broker's parts."""

    def report(self, request: BrokerHeartbeatRequest) -> None: ...

    def answered(self, response: BrokerHeartbeatResponse) -> None: ...


def registered_features(ranges: Mapping[str, tuple[int, int]]) -> list[Feature]:
    """Feature ranges in the form of a registration."""
    return [
        Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
        for name, (lowest, highest) in sorted(ranges.items())
    ]


class RegistrationRefused(CannotRun):
    """The controller refuses this broker (wrong cluster id, unsupported features): a restart would not help."""


@dataclass(slots=True)
class BrokerLifecycle:
    """Registers the broker and keeps its session alive."""

    world: World
    controller: ControllerChannel
    registration: BrokerRegistrationRequest
    times: HeartbeatTimes
    metadata_offset: Callable[[], int]
    """Last offset of the metadata log that this broker has applied."""
    offline_directories: Callable[[], list[bytes]]
    note_epoch: Callable[[int], Awaitable[None]]
    """Called with the broker epoch before anything happens in it."""
    full_directories: Callable[[], list[bytes]] = list
    cordoned_directories: Callable[[], list[bytes] | None] = lambda: None
    """None as long as this broker does not know its configs (KIP-1066)."""
    obstacle: Callable[[], str] = lambda: ""
    """Reason why controllers refuse this broker, as far as the metadata log shows it; empty if it does not."""
    quotas: ClusterQuotas | None = None
    """None if quotas hold for this broker alone."""

    broker_epoch: int = -1
    state: BrokerState = BrokerState.STARTING
    fenced: bool = True
    registered: trio.Event = field(default_factory=trio.Event)
    last_contact_ms: int = 0
    """Time at which the last answered heartbeat was sent."""
    unfenced_once: trio.Event = field(default_factory=trio.Event)
    may_shut_down: trio.Event = field(default_factory=trio.Event)
    _ready_to_unfence: bool = False
    _registers_again: bool = False
    _wake: trio.Event = field(default_factory=trio.Event)

    def ready_to_unfence(self) -> None:
        """The first metadata is applied and the listeners are open: ask to be unfenced from now on."""
        self._ready_to_unfence = True
        self.heartbeat_soon()

    def heartbeat_soon(self) -> None:
        """Send a heartbeat now: something changed that the controller waits for."""
        self._wake.set()

    def register_again(self) -> None:
        """Send the registration of this incarnation once more: the metadata holds only a part of it."""
        self._registers_again = True
        self.heartbeat_soon()

    def metadata_advanced(self) -> None:
        """More of the metadata log was applied; a fenced broker may have caught up by it."""
        if self.fenced and self._ready_to_unfence and self.state is BrokerState.STARTING:
            self.heartbeat_soon()

    def may_be_fenced(self) -> bool:
        """True if the controller has fenced this broker, or has not answered for a session timeout by the own clock.
        (The controller's session ends later: it began when the heartbeat arrived.)
        """
        if self.state is BrokerState.STARTING:
            return False
        silent_ms = self.world.monotonic.now_ms() - self.last_contact_ms
        return self.fenced or silent_ms > self.times.session_timeout_ms

    def begin_controlled_shutdown(self) -> None:
        if self.state in (BrokerState.STARTING, BrokerState.RUNNING):
            log.info("asking the controller to move leaderships away")
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            self.heartbeat_soon()

    async def run(self) -> None:
        """Register, then send heartbeats until cancelled, or until the controller allows the shutdown: one more
        heartbeat would unfence the broker again.
        """
        await self._register()
        while True:
            self._wake = trio.Event()
            if self._registers_again:
                await self._register_again()
            succeeded = await self._heartbeat()
            if self.state is BrokerState.SHUTTING_DOWN:
                return
            wait_ms = self.times.heartbeat_interval_ms if succeeded else RETRY_BACKOFF_MS
            with trio.move_on_after(wait_ms / 1000):
                await self._wake.wait()

    async def _register(self) -> None:
        deadline_ms = self.world.monotonic.now_ms() + self.times.registration_timeout_ms
        while True:
            left_ms = deadline_ms - self.world.monotonic.now_ms()
            if left_ms <= 0:
                refused = self.obstacle()
                raise RegistrationRefused(
                    f"no controller registered this broker within {self.times.registration_timeout_ms} ms"
                    f" (initial.broker.registration.timeout.ms){refused and f': {refused}'}"
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
            finalized: Mapping[str, int] = {}
            if refusal is ErrorCode.UNSUPPORTED_VERSION:
                finalized = await self._finalized_features()
            if refusal in (ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION):
                reason = obstacle(finalized) or ""
                raise RegistrationRefused(
                    f"the controller refused to register this broker: {refusal.name}{reason and f' ({reason})'}"
                )
            # DUPLICATE_BROKER_REGISTRATION: the session of this broker's previous incarnation has not ended yet.
            log.info("registration refused, retrying: %s", refusal.name)
            await trio.sleep(RETRY_BACKOFF_MS / 1000)
        self.broker_epoch = response.broker_epoch
        log.info("registered with broker epoch %d", self.broker_epoch)
        await self.note_epoch(self.broker_epoch)
        self.registered.set()

    async def _finalized_features(self) -> Mapping[str, int]:
        """The levels that the cluster has finalised, as the active controller reports them; none if it does not."""
        request = ApiVersionsRequest(client_software_name="barnabas", client_software_version="1")
        try:
            response: ApiVersionsResponse = await self.controller.call(request, timeout_ms=REGISTRATION_ATTEMPT_MS)
        except KafkaError as error:
            log.info("the controller did not report its features: %s", error)
            return {}
        return {it.name: it.max_version_level for it in response.finalized_features}

    async def _register_again(self) -> None:
        """Report the log directories to a cluster whose metadata.version can hold them now (KIP-858)."""
        try:
            response: BrokerRegistrationResponse = await self.controller.call(
                self.registration, timeout_ms=REGISTRATION_ATTEMPT_MS
            )
        except KafkaError as error:
            log.warning("registration failed: %s", error)
            return
        if response.error_code == ErrorCode.NONE:
            self._registers_again = False
            log.info("registered again with broker epoch %d", response.broker_epoch)
        else:
            log.warning("registration refused: %s", error_code(response.error_code).name)

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
            cordoned_log_dirs=self.cordoned_directories(),
        )
        report_full(request, self.full_directories())
        if self.quotas is not None:
            self.quotas.report(request)
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
        self.last_contact_ms = sent_ms
        if self.quotas is not None:
            self.quotas.answered(response)
        self._apply(response)
        # While the controller moves leaderships away, ask again soon.
        return not shutting_down or self.may_shut_down.is_set()

    def _apply(self, response: BrokerHeartbeatResponse) -> None:
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
