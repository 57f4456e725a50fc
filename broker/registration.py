"""A broker's registration with the controller."""

from __future__ import annotations

from barnabas.broker.lifecycle import registered_features
from barnabas.broker.log_store import LogStore
from barnabas.kraft.metadata.features import SUPPORTED_FEATURES
from barnabas.protocol.broker_hosts import name_host
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, Listener
from barnabas.runtime.uuids import random_uuid
from barnabas.runtime.world import World
from barnabas.settings.broker import BrokerSettings
from barnabas.settings.listeners import protocol_code


def registration(settings: BrokerSettings, world: World, store: LogStore) -> BrokerRegistrationRequest:
    """The request of this incarnation, which gets a new random id."""
    request = BrokerRegistrationRequest(
        broker_id=settings.node_id,
        cluster_id=store.directories.cluster_id,
        incarnation_id=random_uuid(world.chance),
        listeners=[
            Listener(name=each.name, host=each.host, port=each.port, security_protocol=protocol_code(each))
            for each in settings.advertised_listeners
        ],
        features=registered_features(SUPPORTED_FEATURES),
        rack=settings.broker_rack,
        log_dirs=store.online_ids,
        previous_broker_epoch=store.directories.previous_broker_epoch,
    )
    name_host(request, settings.host)
    return request
