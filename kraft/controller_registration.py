"""A controller registers its endpoints and features with the active one (KIP-919), each time it starts."""

from __future__ import annotations

import logging

import trio

from barnabas.kraft.controller_service import Command, ControllerService
from barnabas.kraft.metadata.features import CONTROLLER_REGISTRATION_SINCE, SUPPORTED_FEATURES
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import Channel, ChannelError
from barnabas.runtime.uuids import random_uuid
from barnabas.runtime.world import World
from barnabas.settings.controller import ControllerSettings
from barnabas.settings.listeners import protocol_code

log = logging.getLogger("kraft.controller")

RETRY_PAUSE_MS = 200
ARRIVAL_MS = 5000
"""Time for a committed registration to come back by the log."""


def registration_request(settings: ControllerSettings, incarnation_id: bytes) -> ControllerRegistrationRequest:
    """The registration of this controller."""
    return ControllerRegistrationRequest(
        controller_id=settings.node_id,
        incarnation_id=incarnation_id,
        zk_migration_ready=False,
        listeners=[
            Listener(name=it.name, host=it.host, port=it.port, security_protocol=protocol_code(it))
            for it in settings.advertised_listeners or settings.listeners
        ],
        features=[
            Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in sorted(SUPPORTED_FEATURES.items())
        ],
    )


async def keep_registered(service: ControllerService, settings: ControllerSettings, world: World) -> None:
    """Register, and again if a committed registration of this process is not there; until cancelled."""
    request = registration_request(settings, random_uuid(world.chance))
    async with trio.open_nursery() as nursery:
        while True:
            changed = service.changed
            if not _is_due(service, request):
                await changed.wait()
                continue
            registered = await _register(service, settings, world, nursery, request)
            with trio.move_on_after((ARRIVAL_MS if registered else RETRY_PAUSE_MS) / 1000):
                while _is_due(service, request):
                    await service.changed.wait()


def _is_due(service: ControllerService, request: ControllerRegistrationRequest) -> bool:
    image = service.committed
    known = image.cluster.controllers.get(request.controller_id)
    return image.features.metadata_version >= CONTROLLER_REGISTRATION_SINCE and (
        known is None or known.incarnation_id != request.incarnation_id
    )


async def _register(
    service: ControllerService,
    settings: ControllerSettings,
    world: World,
    nursery: trio.Nursery,
    request: ControllerRegistrationRequest,
) -> bool:
    """One attempt with the current leader; True once the registration is committed."""
    known = service.replica.quorum_endpoints()
    if known.leader_id == settings.node_id:
        return await _register_here(service, request)
    if known.leader is None:
        return False
    client_id = f"controller-{settings.node_id}-registration"
    channel = Channel(
        world,
        nursery,
        known.leader.host,
        known.leader.port,
        client_id=client_id,
        security=service.replica.config.security,
    )
    try:
        response: ControllerRegistrationResponse = await channel.call(
            request, timeout_ms=settings.controller_quorum_request_timeout_ms
        )
    except ChannelError as error:
        log.info("registration with controller %s failed: %s", known.leader_id, error)
        return False
    finally:
        channel.close()
    return response.error_code == ErrorCode.NONE


async def _register_here(service: ControllerService, request: ControllerRegistrationRequest) -> bool:
    answered = trio.Event()
    answers: list[Message | Exception | None] = []

    def answer(response: Message | None, _is_long: bool) -> None:
        answers.append(response)
        answered.set()

    def failed(error: Exception) -> None:
        answers.append(error)
        answered.set()

    service.execute(Command(request, request.VERSIONS.highest, answer, failed))
    await answered.wait()
    if isinstance(answers[0], Exception):
        raise answers[0]
    return answers[0] is not None
