"""The handler of each request on a controller's listener. Requests that are not in the table are not
advertised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from barnabas.kraft import descriptions
from barnabas.kraft.acl_requests import NO_AUTHORIZER, describe_acls
from barnabas.kraft.authorizer.permitted import Check, Permitted
from barnabas.kraft.authorizer.requirements import ON_CONTROLLERS
from barnabas.kraft.controller.controller import LATE_COMMANDS, load_commands
from barnabas.kraft.controller.partitions import list_partition_reassignments
from barnabas.kraft.controller_service import Command, ControllerService
from barnabas.kraft.cordoned_configs import refused_cordons
from barnabas.kraft.descriptions import Described
from barnabas.kraft.envelope import EnvelopeSlot, envelope_handler
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.kraft.rights import refuse, with_rights
from barnabas.protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.schema import Message
from barnabas.runtime.dispatch import Call, Dispatcher, Execution, Handler
from barnabas.runtime.late import Late
from barnabas.runtime.meter import INLINE_ANSWER_ELEMENTS
from barnabas.runtime.rooms import Rooms
from barnabas.runtime.sasl.handlers import SASL_HANDLERS
from barnabas.runtime.server import Steps

Refuse = Callable[[MetadataImage, Any], Message | None]

DECIDED = (
    ApiKey.ALTER_PARTITION,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
)
"""Requests of nodes of the cluster to the active controller."""

DECIDED_FOR_CLIENTS = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
)
"""Requests of clients to it: sent directly, or to a broker that forwards them."""

TOKEN_APIS = (ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN)

OF_QUORUM_FOR_CLIENTS = (ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER)
"""Requests of clients that the quorum serves: sent directly, or to a broker that forwards them."""

NODE_APIS = frozenset(DECIDED) | {
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.UPDATE_RAFT_VOTER,
}
"""APIs that nodes of the cluster use: they do not wait for clients."""


CHECK_OF: Late[Any] = Late("barnabas.kraft.authorizer.checks:check_of")
"""The check of the items of a request; only a node with an authorizer needs it."""

TOKEN_HANDLERS = "barnabas.kraft.token_requests:token_handlers"


def load_late_parts() -> None:
    """Load what few clusters need, before the node serves: processes that are forked from this one share it."""
    load_commands()
    for late in (CHECK_OF, Late[Any](TOKEN_HANDLERS)):
        late.load()


FEW_TOPICS = 100
"""In a cluster with more topics, requests about all of them are answered in a worker thread."""


def make_dispatcher(
    service: ControllerService, execution: Execution, protocols: Mapping[str, str] | None = None
) -> Dispatcher:
    """The table of a controller's listeners. `protocols` has the security protocol of each."""
    decide: Handler = partial(_decide, service)
    of_quorum = service.replica.handlers()
    for_clients: dict[ApiKey, Handler] = dict.fromkeys(DECIDED_FOR_CLIENTS, decide)
    for_clients |= {key: partial(_load_and_decide, service, late) for key, late in LATE_COMMANDS.items()}
    for_clients |= {
        ApiKey.LIST_PARTITION_REASSIGNMENTS: partial(_list_partition_reassignments, service),
        **{key: of_quorum[key] for key in OF_QUORUM_FOR_CLIENTS},
        **Rooms(are_late=True).handlers(TOKEN_HANDLERS, TOKEN_APIS, partial(_decide_on_all, service), protocols or {}),
        ApiKey.DESCRIBE_CONFIGS: partial(_describe_configs, service),
        ApiKey.DESCRIBE_ACLS: partial(describe_acls, lambda: service.committed),
    }
    if execution.authorizer is None:
        for_clients |= {ApiKey.CREATE_ACLS: _refuse_acls, ApiKey.DELETE_ACLS: _refuse_acls}
    envelope = envelope_handler(with_rights(for_clients, ON_CONTROLLERS, execution), execution)
    handlers: dict[ApiKey, Handler] = dict.fromkeys(DECIDED, decide)
    handlers |= SASL_HANDLERS
    handlers |= for_clients
    handlers |= of_quorum
    handlers |= {
        ApiKey.BROKER_HEARTBEAT: partial(_heartbeat, service),
        ApiKey.ENVELOPE: envelope,
        ApiKey.DESCRIBE_CLUSTER: partial(_describe_cluster, service),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: partial(_alter_configs, service),
    }

    def answer_versions(call: Call) -> None:
        kraft_version = service.replica.kraft_version
        call.answer(descriptions.api_versions(service.committed, kraft_version, call.message, call.version, served))

    handlers[ApiKey.API_VERSIONS] = answer_versions
    handlers = {key: _for_node(handle) if key in NODE_APIS else handle for key, handle in handlers.items()}
    dispatcher = Dispatcher(with_rights(handlers, ON_CONTROLLERS, execution), service.stopwatch, execution)
    served = dispatcher.advertised()
    return dispatcher


def _load_and_decide(service: ControllerService, late: Late[Any], call: Call) -> Steps | None:
    """A decision that may not be loaded yet: in the worker then, while others are served."""
    return _decide(service, call) if late.is_loaded else _decide_loaded(service, late, call)


def _decide_loaded(service: ControllerService, late: Late[Any], call: Call) -> Steps:
    yield late.load
    steps = _decide(service, call)
    if steps is not None:
        yield from steps


def _for_node(handle: Handler) -> Handler:
    def handle_of_node(call: Call) -> Steps | None:
        call.slot.comes_from_node()
        return handle(call)

    return handle_of_node


STRICT_SINCE = {ApiKey.CREATE_TOPICS: 6, ApiKey.CREATE_PARTITIONS: 3, ApiKey.DELETE_TOPICS: 5}
"""Versions from which a client understands that a quota of mutations refuses its request. Older ones are only held
back."""


def _decide(service: ControllerService, call: Call, refuse: Refuse | None = None) -> Steps | None:
    """Decide on a request; it is answered when the decision is committed. Items that the client has no right to are
    taken out before.

    `refuse` is the check that the broker of a forwarded request has made; it returns a refusal, or None.
    """
    check = CHECK_OF.maker()(ApiKey(call.request.api_key)) if call.has_authorizer else None
    if check is None:
        _decide_on(service, call, Permitted(call.message), refuse)
        return None
    return _check_and_decide(service, call, check, refuse)


def _check_and_decide(service: ControllerService, call: Call, check: Check, refuse: Refuse | None) -> Steps:
    image = service.core.pending if service.core.is_active else service.committed
    permitted = yield from check(call.message, call.may, image)
    _decide_on(service, call, permitted, refuse)


def _decide_on_all(service: ControllerService, call: Call) -> None:
    """Decide on a request whose sender may make it."""
    _decide_on(service, call, Permitted(call.message), None)


def _decide_on(service: ControllerService, call: Call, permitted: Permitted, refuse: Refuse | None) -> None:
    refused = None if refuse is None else refuse(service.committed, permitted.request)
    if refused is not None and service.core.is_active:
        call.answer(permitted.complete(refused))
        return
    strict_since = STRICT_SINCE.get(ApiKey(call.request.api_key))
    mutations = None if strict_since is None else call.mutations(strict=call.version >= strict_since)

    def answer(response: Message | None, is_long: bool) -> None:
        if response is not None:
            if mutations is not None:
                call.hold_back(mutations.throttle_ms())
            call.is_large = call.is_large or is_long
            call.answer(permitted.complete(response))
        else:
            _not_active(service, call)

    service.execute(
        Command(
            permitted.request,
            call.version,
            answer,
            call.failed,
            call.request.connection_id,
            call.request.api_key in DECIDED_FOR_CLIENTS,
            lambda: call.slot.connection_closed,
            call.request.principal,
            mutations,
        )
    )


def _alter_configs(service: ControllerService, call: Call) -> Steps | None:
    """A change of configs that no broker has checked."""
    return _decide(service, call, refused_cordons)


def _refuse_acls(call: Call) -> Steps | None:
    """CreateAcls and DeleteAcls without an authorizer."""
    return refuse(call, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)


def _heartbeat(service: ControllerService, call: Call) -> None:
    request: BrokerHeartbeatRequest = call.message
    if service.core.is_active:
        broker = service.core.pending.cluster.brokers.get(request.broker_id)
        if broker is not None and broker.epoch == request.broker_epoch:
            service.watch.heartbeat_on(call.request.connection_id, broker)
            hold_ms = service.heartbeat_arrived(request)
            if hold_ms:
                call.spawn(_decide_later, service, call, hold_ms)
                return
    _decide(service, call)


async def _decide_later(service: ControllerService, call: Call, hold_ms: int) -> None:
    await service.wait_for_others(call.message, hold_ms)
    _decide(service, call)


def _not_active(service: ControllerService, call: Call) -> None:
    """Refuse with NOT_CONTROLLER: the sender looks for the active controller."""
    if isinstance(call.slot, EnvelopeSlot):
        call.slot.refuse(ErrorCode.NOT_CONTROLLER)
        return
    message = f"node {service.core.defaults.node_id} is not the active controller"
    steps = refuse(call, ErrorCode.NOT_CONTROLLER, message)
    if steps is not None:
        call.spawn(call.take_steps, steps)


def _list_partition_reassignments(service: ControllerService, call: Call) -> Steps:
    if not service.core.is_active:
        _not_active(service, call)
        return
    list_them = partial(list_partition_reassignments, service.committed, call.message)
    asks_for_all = call.message.topics is None and len(service.committed.topics.by_name) > FEW_TOPICS
    if call.is_large or asks_for_all:
        # Images do not change, so this one can be read in another thread.
        call.is_large = True
        call.answer((yield list_them))
    else:
        call.answer(list_them())


def _describe_configs(service: ControllerService, call: Call) -> Steps:
    described = _described(service)
    permitted = Permitted(call.message)
    if call.has_authorizer:
        check: Check = CHECK_OF.maker()(ApiKey.DESCRIBE_CONFIGS)
        permitted = yield from check(call.message, call.may, described.image)
    response = yield from descriptions.describe_configs(described, permitted.request)
    call.is_large = call.is_large or sum(len(it.configs) for it in response.results) > INLINE_ANSWER_ELEMENTS
    call.answer(permitted.complete(response))


def _describe_cluster(service: ControllerService, call: Call) -> None:
    listener_name = call.request.listener_name
    response = descriptions.describe_cluster(_described(service), call.message, call.version, listener_name)
    if call.message.include_cluster_authorized_operations and not response.error_code:
        may_ask = call.may_on_cluster(AclOperation.DESCRIBE)
        operations = call.authorized_operations(AclResourceType.CLUSTER, CLUSTER_NAME) if may_ask else 0
        response.cluster_authorized_operations = operations
    call.answer(response)


def _described(service: ControllerService) -> Described:
    leader_id = service.replica.leader_and_epoch.leader_id
    return Described(service.committed, service.core.defaults, -1 if leader_id is None else leader_id)
