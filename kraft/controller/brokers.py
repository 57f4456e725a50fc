"""Decisions about nodes: registration, heartbeats, fencing, shutdown, removal (KIP-631, KIP-841, KIP-919).

A broker is fenced until it asks to be unfenced and has applied its own registration. It is fenced again when it is
silent for a session timeout, asks for it, or its process is known to be gone. A fenced broker is in no ISR and leads
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from barnabas.kraft.controller.full_directories import hand_over_full, note_full
from barnabas.kraft.controller.gatherings import starting_with, stopping_with
from barnabas.kraft.controller.partition_change import Replicas
from barnabas.kraft.controller.partition_notes import Located
from barnabas.kraft.controller.partitions import (
    BrokerMoves,
    check_broker_epoch,
    find_partitions,
    leaderless_partitions,
    leads_any,
    partition_changes,
    partitions_in_isr,
    partitions_in_isr_or_elr,
)
from barnabas.kraft.controller.quota_division import Standing
from barnabas.kraft.controller.state import ControllerResult, ControllerState, Steps
from barnabas.kraft.full_directories import reported_full
from barnabas.kraft.metadata.features import (
    CONTROLLER_REGISTRATION_SINCE,
    CORDONED_DIRECTORIES_SINCE,
    DIRECTORIES_SINCE,
    KRAFT_VERSION,
    METADATA_VERSION,
)
from barnabas.kraft.metadata.image import (
    BrokerImage,
    MetadataImage,
    directory_is_online,
    directory_is_reserved,
)
from barnabas.kraft.quota_reports import answer_parts, reported_use
from barnabas.protocol.broker_hosts import name_host, named_host
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from barnabas.protocol.messages.metadata_log import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas.protocol.primitives import uuid_to_string
from barnabas.protocol.schema import Message
from barnabas.runtime.decisions import DecisionKind

FENCE = 1
UNFENCE = -1
IN_CONTROLLED_SHUTDOWN = 1
"""Values of BrokerRegistrationChangeRecord; 0 leaves a field as it is."""

NO_PREVIOUS_EPOCH = -2
"""Compares unequal to any epoch a broker can name."""


# Registration


def register_broker(
    state: ControllerState, request: BrokerRegistrationRequest, version: int
) -> Steps[ControllerResult[BrokerRegistrationResponse]]:
    """Register a broker process. A new incarnation gets a new epoch, the offset of its registration, and starts
    fenced; the same incarnation may amend its registration."""
    image = state.image
    existing = image.cluster.brokers.get(request.broker_id)
    _check_registration(state, request, existing)
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        rack=request.rack,
        end_points=[
            BrokerEndpoint(name=it.name, host=it.host, port=it.port, security_protocol=it.security_protocol)
            for it in request.listeners
        ],
        features=[
            BrokerFeature(
                name=it.name,
                min_supported_version=it.min_supported_version,
                max_supported_version=it.max_supported_version,
            )
            for it in request.features
        ],
        log_dirs=list(request.log_dirs) if state.image.features.metadata_version >= DIRECTORIES_SINCE else [],
    )
    name_host(record, named_host(request))
    if existing is not None and existing.incarnation_id == request.incarnation_id:
        record.broker_epoch = existing.epoch
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
        return ControllerResult(BrokerRegistrationResponse(broker_epoch=existing.epoch), [record])
    stored_epoch = NO_PREVIOUS_EPOCH if existing is None else existing.epoch
    was_clean = version >= 3 and request.previous_broker_epoch == stored_epoch
    records = yield from _remove_previous(state, request, was_clean)
    record.broker_epoch = state.next_offset + len(records)
    state.notes.note(
        DecisionKind.LIFECYCLE,
        f"broker {request.broker_id}",
        f"broker {request.broker_id} is registered in epoch {record.broker_epoch}, fenced until it has caught up",
        cause="it was not known before"
        if existing is None
        else f"it restarted; its process of epoch {existing.epoch} ended {'cleanly' if was_clean else 'uncleanly'}",
        broker_epoch=record.broker_epoch,
        previous_broker_epoch=None if existing is None else existing.epoch,
        incarnation=uuid_to_string(request.incarnation_id),
    )
    state.effects.append(partial(state.sessions.start, request.broker_id, record.broker_epoch, state.now_ms))
    response = BrokerRegistrationResponse(broker_epoch=record.broker_epoch)
    return ControllerResult(response, [*records, record])


def _remove_previous(
    state: ControllerState, request: BrokerRegistrationRequest, was_clean: bool
) -> Steps[list[Message]]:
    """Take the previous incarnation out of ISRs and, if it did not stop cleanly or comes back without the directory of
    its replica, out of ELRs (KIP-966)."""
    image, broker_id, directories = state.image, request.broker_id, tuple(request.log_dirs)
    suspect: list[Located] = []
    if image.features.elr_enabled:
        suspect = yield from partitions_in_isr_or_elr(state, broker_id)
        cause = f"broker {broker_id} restarted after an unclean stop: its log may lack records"
        if was_clean:
            suspect = [it for it in suspect if not directory_is_online(it[2].directory_of(broker_id), directories)]
            cause = f"broker {broker_id} restarted without the log directory of its replica"
    known = {(topic.id, partition_id) for topic, partition_id, _ in suspect}
    in_sync = yield from partitions_in_isr(state, broker_id)
    left = [it for it in in_sync if (it[0].id, it[1]) not in known]
    records: list[Message] = []
    if suspect:
        moves = BrokerMoves(restarted_uncleanly=broker_id, directories=directories)
        records += yield from partition_changes(state, cause, suspect, moves)
    if left:
        cause = f"broker {broker_id} restarted"
        records += yield from partition_changes(state, cause, left, BrokerMoves(leaving=(broker_id,)))
    return records


def _check_registration(
    state: ControllerState, request: BrokerRegistrationRequest, existing: BrokerImage | None
) -> None:
    """Raises KafkaError if the broker may not register."""
    if request.cluster_id != state.defaults.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"this is cluster {state.defaults.cluster_id}, not {request.cluster_id}",
        )
    if (
        existing is not None
        and existing.incarnation_id != request.incarnation_id
        and state.sessions.is_valid(existing.id, existing.epoch, state.now_ms)
    ):
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"another broker {existing.id} sent a heartbeat within {state.sessions.session_timeout_ms} ms",
        )
    if request.is_migrating_zk_broker:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "brokers in migration from ZooKeeper are not supported")
    if state.image.features.metadata_version >= DIRECTORIES_SINCE:
        _check_directories(state.image, request)
    _check_features(state, request)


def _check_directories(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    directories = dict.fromkeys(request.log_dirs)
    if not directories:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "no log directory is named")
    if any(directory_is_reserved(it) for it in directories):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "a log directory has a reserved id")
    if len(directories) != len(request.log_dirs):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "a log directory is named twice")
    for broker in image.cluster.brokers.values():
        if broker.id != request.broker_id and any(it in directories for it in broker.log_directories):
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"broker {broker.id} has one of the log directories")


def _check_features(state: ControllerState, request: BrokerRegistrationRequest) -> None:
    """Every finalised level must be in the broker's range; a feature without a range has the range 0 to 0."""
    ranges = {it.name: (it.min_supported_version, it.max_supported_version) for it in request.features}
    if METADATA_VERSION not in ranges:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"the registration has no range of {METADATA_VERSION}")
    finalized = {**state.image.features.levels, KRAFT_VERSION: state.quorum.kraft_version}
    for name in dict.fromkeys([*ranges, *finalized]):
        lowest, highest = ranges.get(name, (0, 0))
        level = finalized.get(name, 0)
        if not lowest <= level <= highest:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}. "
                f"The broker wants a version between {lowest} and {highest}, inclusive.",
            )


# Heartbeats


def broker_heartbeat(
    state: ControllerState, request: BrokerHeartbeatRequest, version: int
) -> Steps[ControllerResult[BrokerHeartbeatResponse]]:
    """A broker is alive, asks to be fenced, unfenced or shut down, and reports failed directories.

    The session keeps the heartbeat; all else changes once the records are appended.
    """
    image = state.image
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    broker = image.cluster.brokers[request.broker_id]
    caught_up = request.current_metadata_offset >= broker.epoch
    response = BrokerHeartbeatResponse(is_caught_up=caught_up, is_fenced=broker.fenced)
    session = state.sessions.touch(broker.id, broker.epoch, request.current_metadata_offset, state.now_ms)
    records: list[Message] = []
    if session.controlled_shutdown_offset >= 0 and not broker.fenced:
        response.should_shut_down = yield from _may_stop(state, broker, session.controlled_shutdown_offset)
        if response.should_shut_down:
            records = yield from fence_records(state, broker, "its controlled shutdown is complete")
    elif request.want_shut_down:
        if broker.fenced:
            response.should_shut_down = True
        elif request.want_fence or not (yield from leads_any(state, broker.id)):
            records = yield from fence_records(state, broker, "it wants to stop and leads nothing")
            response.should_shut_down = True
        else:
            records = yield from _start_controlled_shutdown(state, broker)
    elif request.want_fence and not broker.fenced:
        records = yield from fence_records(state, broker, "it asked to be fenced")
    elif not request.want_fence and broker.fenced and caught_up and not broker.in_controlled_shutdown:
        # A broker in controlled shutdown is not unfenced; it comes back by another registration.
        records = yield from _unfence_records(state, broker, request.current_metadata_offset)
        response.is_fenced = False
    if response.should_shut_down or (request.want_fence and not broker.fenced):
        response.is_fenced = True
    if response.should_shut_down:
        state.effects.append(partial(state.sessions.end, broker.id))
    records += yield from _directory_records((yield from state.after(records)), request)
    yield from _divide_quotas(state, request, response)
    full = reported_full(request)
    note_full(state, broker, tuple(it for it in full if it in broker.log_directories))
    if full:
        after = yield from state.after(records)
        records += yield from hand_over_full(after, after.image.cluster.brokers[broker.id])
    return ControllerResult(response, records)


def _divide_quotas(
    state: ControllerState, request: BrokerHeartbeatRequest, response: BrokerHeartbeatResponse
) -> Steps[None]:
    """Answer a report of the use of quotas that hold for the whole cluster."""
    report = reported_use(request)
    if report is None:
        return
    brokers = {it.id: _standing(state, it) for it in state.image.cluster.brokers.values()}
    sender = (request.broker_id, request.broker_epoch)
    parts = yield from state.quota_division.report(brokers, sender, report, state.now_ms)
    if parts is not None:
        answer_parts(response, report.sequence, parts)


def _standing(state: ControllerState, broker: BrokerImage) -> Standing:
    if not broker.fenced:
        return Standing.ACTIVE
    return Standing.GONE if state.sessions.get(broker.id) is None else Standing.FENCED


def _may_stop(state: ControllerState, broker: BrokerImage, shutdown_offset: int) -> Steps[bool]:
    """True if the broker may stop: it leads nothing, and every active broker has read that."""
    if (yield from leads_any(state, broker.id)):
        return False
    for other in state.image.cluster.brokers.values():
        if not other.active:
            continue
        session = state.sessions.get(other.id)
        if session is None or session.metadata_offset < shutdown_offset:
            return False
    return True


def _start_controlled_shutdown(state: ControllerState, first: BrokerImage) -> Steps[list[Message]]:
    """Move the leaderships of `first` away, and of all that asked to stop with it. They may stop once all active
    brokers have applied the records."""
    brokers = stopping_with(state.image, state.sessions, first)
    records: list[Message] = []
    for broker in brokers:
        state.notes.note(
            DecisionKind.LIFECYCLE,
            f"broker {broker.id}",
            f"broker {broker.id} begins its controlled shutdown",
            cause="it asked to stop, and its leaderships move away first",
            broker_epoch=broker.epoch,
        )
        if not broker.in_controlled_shutdown:
            records.append(
                BrokerRegistrationChangeRecord(
                    broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN
                )
            )
    ids = tuple(broker.id for broker in brokers)
    partitions = yield from partitions_in_isr(state, *ids)
    cause = f"controlled shutdown of {_named(ids)}"
    records += yield from partition_changes(state, cause, partitions, BrokerMoves(leaving=ids))
    offset = state.next_offset + len(records) - 1
    for session in map(state.sessions.get, ids):
        if session is not None:
            state.effects.append(partial(session.start_controlled_shutdown, offset))
    return records


def _named(ids: Sequence[int]) -> str:
    """`broker 1`, or `brokers 1, 2`"""
    return f"broker{'s' if len(ids) > 1 else ''} {', '.join(map(str, sorted(ids)))}"


def fence_records(
    state: ControllerState, broker: BrokerImage, cause: str, *, on_evidence: bool = False
) -> Steps[list[Message]]:
    """Take the broker out of every ISR, then fence it. A FenceBrokerRecord at the end means that there was evidence,
    before the session could have ended.
    """
    return _fence(state, [(broker, cause)], f"broker {broker.id} is fenced, {cause}", on_evidence=on_evidence)


def _fence(
    state: ControllerState, fenced: Sequence[tuple[BrokerImage, str]], why: str, *, on_evidence: bool = False
) -> Steps[list[Message]]:
    """Fence brokers together, each with its cause; `why` is the cause of the changes of their partitions."""
    ids = tuple(broker.id for broker, _ in fenced)
    partitions = yield from partitions_in_isr(state, *ids)
    for broker, cause in fenced:
        state.notes.note(
            DecisionKind.FENCING,
            f"broker {broker.id}",
            f"broker {broker.id} is fenced",
            cause=cause,
            broker_epoch=broker.epoch,
            fenced=1,
            partitions=sum(broker.id in partition.isr for _, _, partition in partitions),
        )
    records = yield from partition_changes(state, why, partitions, BrokerMoves(leaving=ids))
    for broker, _ in fenced:
        records.append(
            FenceBrokerRecord(id=broker.id, epoch=broker.epoch)
            if on_evidence
            else BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE)
        )
    return records


def _unfence_records(state: ControllerState, first: BrokerImage, applied_offset: int) -> Steps[list[Message]]:
    """Unfence the broker, and all that asked for it with it; then let them lead partitions without a leader."""
    brokers = starting_with(state.image, state.sessions, first)
    for broker in brokers:
        session = state.sessions.get(broker.id)
        state.notes.note(
            DecisionKind.FENCING,
            f"broker {broker.id}",
            f"broker {broker.id} is unfenced",
            cause="it asked for it, and has applied the metadata log past its own registration",
            broker_epoch=broker.epoch,
            fenced=0,
            metadata_applied=applied_offset if session is None else session.metadata_offset,
        )
    leaderless = yield from leaderless_partitions(state)
    ids = tuple(broker.id for broker in brokers)
    cause = f"{_named(ids)} {'is' if len(ids) == 1 else 'are'} unfenced"
    return [
        *(
            BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=UNFENCE)
            for broker in brokers
        ),
        *(yield from partition_changes(state, cause, leaderless, BrokerMoves(returning=ids))),
    ]


def _directory_records(state: ControllerState, request: BrokerHeartbeatRequest) -> Steps[list[Message]]:
    """Changes because of offline and cordoned directories (KIP-858, KIP-1066)."""
    image = state.image
    broker = image.cluster.brokers[request.broker_id]
    records: list[Message] = []
    offline = frozenset(request.offline_log_dirs)
    failed = [it for it in broker.log_directories if it in offline]
    if failed and image.features.metadata_version >= DIRECTORIES_SINCE:
        affected: list[Located] = yield from find_partitions(
            state, lambda it: broker.id in it.isr and it.directory_of(broker.id) in failed
        )
        cause = f"a log directory of broker {broker.id} went offline"
        records = yield from partition_changes(state, cause, affected, BrokerMoves(leaving=(broker.id,)))
        online = [it for it in broker.log_directories if it not in failed]
        state.notes.note(
            DecisionKind.LOG,
            f"broker {broker.id}",
            f"{len(failed)} log directories of broker {broker.id} are offline, {len(online)} remain",
            cause="its heartbeat reports it",
            broker_epoch=broker.epoch,
            partitions=len(affected),
        )
        if online:  # a broker without any directory left stops by itself
            records.append(
                BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=online)
            )
    cordoned = request.cordoned_log_dirs
    if (
        cordoned is not None
        and image.features.metadata_version >= CORDONED_DIRECTORIES_SINCE
        and tuple(sorted(cordoned)) != broker.cordoned_log_directories
    ):
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=list(cordoned)
            )
        )
    return records


# Fencing without a request


def fence_broker(
    state: ControllerState, broker_id: int, broker_epoch: int, cause: str
) -> Steps[ControllerResult[bool]]:
    """Fence one incarnation on evidence that its process is gone. The answer is True if that changes anything."""
    broker = state.image.cluster.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        return ControllerResult(False)
    state.effects.append(partial(state.sessions.end, broker_id))
    if broker.fenced:
        return ControllerResult(False)
    return ControllerResult(True, (yield from fence_records(state, broker, cause, on_evidence=True)))


def fence_stale_brokers(state: ControllerState) -> Steps[ControllerResult[Replicas]]:
    """Fence the active brokers whose sessions ended; the answer is their ids.

    With ELR all are fenced together: after a failover of the controllers all sessions begin together, and those of
    brokers that do not find the new one in time end together. Fenced one by one, the last would be the only eligible
    replica, whether or not it is alive. Without ELR they are fenced one by one, because an ISR keeps its last member.
    """
    stale = sorted(
        (_last_contact_ms(state, broker), broker.id)
        for broker in state.image.cluster.brokers.values()
        if not broker.fenced and not state.sessions.is_valid(broker.id, broker.epoch, state.now_ms)
    )
    if not stale:
        return ControllerResult(())
    if not state.image.features.elr_enabled:
        del stale[1:]
    timeout_ms = state.sessions.session_timeout_ms
    fenced: list[tuple[BrokerImage, str]] = []
    for last_contact_ms, broker_id in stale:
        state.effects.append(partial(state.sessions.end, broker_id))
        silent = "no heartbeat" if last_contact_ms < 0 else f"no heartbeat for {state.now_ms - last_contact_ms} ms"
        cause = f"its session of {timeout_ms} ms expired, {silent}"
        fenced.append((state.image.cluster.brokers[broker_id], cause))
    ids = tuple(broker.id for broker, _ in fenced)
    if len(fenced) == 1:
        return ControllerResult(ids, (yield from fence_records(state, *fenced[0])))
    listed = ", ".join(map(str, sorted(ids)))
    why = f"brokers {listed} are fenced, their sessions of {timeout_ms} ms expired together"
    return ControllerResult(ids, (yield from _fence(state, fenced, why)))


def _last_contact_ms(state: ControllerState, broker: BrokerImage) -> int:
    """Time of the last heartbeat; -1 if it is unknown."""
    session = state.sessions.get(broker.id)
    return -1 if session is None else session.last_contact_ms


def next_session_check_ms(state: ControllerState) -> int | None:
    """Time at which the next session of an unfenced broker can end; None if there is none."""
    checks = [
        state.sessions.expires_ms(broker.id, broker.epoch) or state.now_ms
        for broker in state.image.cluster.brokers.values()
        if not broker.fenced
    ]
    return min(checks, default=None)


# Removal; controllers


def unregister_broker(
    state: ControllerState, request: UnregisterBrokerRequest, version: int
) -> Steps[ControllerResult[UnregisterBrokerResponse]]:
    """Remove the registration of a broker. It stays in replica lists, where it counts as offline."""
    broker = state.image.cluster.brokers.get(request.broker_id)
    if broker is None:
        message = f"Broker ID {request.broker_id} is not currently registered"
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, message)
    state.notes.note(
        DecisionKind.LIFECYCLE,
        f"broker {broker.id}",
        f"broker {broker.id} is unregistered",
        cause="UnregisterBroker asked for it",
        broker_epoch=broker.epoch,
    )
    cause = f"broker {broker.id} is unregistered"
    partitions = yield from partitions_in_isr(state, broker.id)
    records = yield from partition_changes(state, cause, partitions, BrokerMoves(leaving=(broker.id,)))
    state.effects.append(partial(state.sessions.end, broker.id))
    records.append(UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch))
    return ControllerResult(UnregisterBrokerResponse(error_message=None), records)


def register_controller(
    state: ControllerState, request: ControllerRegistrationRequest, version: int
) -> ControllerResult[ControllerRegistrationResponse]:
    """Register the endpoints and the feature ranges of a controller (KIP-919)."""
    if state.image.features.metadata_version < CONTROLLER_REGISTRATION_SINCE:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, "The current MetadataVersion is too old to support controller registrations."
        )
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=[
            ControllerEndpoint(name=it.name, host=it.host, port=it.port, security_protocol=it.security_protocol)
            for it in request.listeners
        ],
        features=[
            ControllerFeature(
                name=it.name,
                min_supported_version=it.min_supported_version,
                max_supported_version=it.max_supported_version,
            )
            for it in request.features
        ],
    )
    state.notes.note(
        DecisionKind.LIFECYCLE,
        f"controller {request.controller_id}",
        f"controller {request.controller_id} is registered",
        cause="it started",
        incarnation=uuid_to_string(request.incarnation_id),
    )
    return ControllerResult(ControllerRegistrationResponse(error_message=None), [record])
