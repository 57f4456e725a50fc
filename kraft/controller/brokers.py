"""Decisions about nodes: registration, heartbeats, fencing, shutdown, removal (KIP-631, KIP-841, KIP-919).

A broker is fenced until it asks not to be and has applied its own registration, and again when it is silent
for a session timeout, asks for it, or its process is known to be gone. A fenced broker is in no ISR and leads
nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kraft.controller.full_directories import hand_over_full, note_full
from kraft.controller.partition_change import Replicas
from kraft.controller.partition_notes import Located
from kraft.controller.partitions import (
    BrokerMoves,
    check_broker_epoch,
    leaderless_partitions,
    leads_any,
    partition_changes,
    partitions_in_isr,
    partitions_in_isr_or_elr,
)
from kraft.controller.state import ControllerResult, ControllerState
from kraft.full_directories import reported_full
from kraft.metadata.features import (
    CONTROLLER_REGISTRATION_SINCE,
    CORDONED_DIRECTORIES_SINCE,
    DIRECTORIES_SINCE,
    METADATA_VERSION,
)
from kraft.metadata.image import (
    BrokerImage,
    FeaturesImage,
    MetadataImage,
    directory_is_online,
    directory_is_reserved,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from protocol.messages.metadata_log import (
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
from protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from protocol.primitives import uuid_to_string
from protocol.schema import Message
from runtime.decisions import DecisionKind

log = logging.getLogger("kraft.controller")

FENCE = 1
UNFENCE = -1
IN_CONTROLLED_SHUTDOWN = 1
"""Values of BrokerRegistrationChangeRecord; 0 leaves a field as it is."""

NO_PREVIOUS_EPOCH = -2
"""Compares unequal to any epoch a broker can name."""


# Registration


def register_broker(
    state: ControllerState, request: BrokerRegistrationRequest, version: int
) -> ControllerResult[BrokerRegistrationResponse]:
    """A broker process introduces itself. A new incarnation gets a new epoch, the offset of its registration,
    and starts fenced; the same incarnation may amend what it said."""
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
        log_dirs=list(request.log_dirs),
    )
    if existing is not None and existing.incarnation_id == request.incarnation_id:
        record.broker_epoch = existing.epoch
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
        log.info("broker %d amends its registration, epoch %d", existing.id, existing.epoch)
        return ControllerResult(BrokerRegistrationResponse(broker_epoch=existing.epoch), [record])
    stored_epoch = NO_PREVIOUS_EPOCH if existing is None else existing.epoch
    was_clean = version >= 3 and request.previous_broker_epoch == stored_epoch
    records = _leave_behind(state, request, was_clean)
    record.broker_epoch = state.next_offset + len(records)
    state.notes.note(
        DecisionKind.LIFECYCLE,
        f"broker {request.broker_id}",
        f"broker {request.broker_id} is registered in epoch {record.broker_epoch}, fenced until it has caught up",
        cause="it was not known before"
        if existing is None
        else f"it started anew; its life in epoch {existing.epoch} ended {'cleanly' if was_clean else 'uncleanly'}",
        broker_epoch=record.broker_epoch,
        previous_broker_epoch=None if existing is None else existing.epoch,
        incarnation=uuid_to_string(request.incarnation_id),
    )
    state.sessions.start(request.broker_id, record.broker_epoch, state.now_ms)
    response = BrokerRegistrationResponse(broker_epoch=record.broker_epoch)
    return ControllerResult(response, [*records, record])


def _leave_behind(state: ControllerState, request: BrokerRegistrationRequest, was_clean: bool) -> list[Message]:
    """Take the previous incarnation out of ISRs and, where it did not stop cleanly or comes without the directory of
    its replica, out of ELRs (KIP-966)."""
    image, broker_id, directories = state.image, request.broker_id, tuple(request.log_dirs)
    suspect: list[Located] = []
    if image.features.elr_enabled:
        suspect = partitions_in_isr_or_elr(image, broker_id)
        cause = f"broker {broker_id} started anew after it had not stopped cleanly: its log may lack records"
        if was_clean:
            suspect = [it for it in suspect if not directory_is_online(it[2].directory_of(broker_id), directories)]
            cause = f"broker {broker_id} started anew without the log directory that its replica was in"
    known = {(topic.id, partition_id) for topic, partition_id, _ in suspect}
    left = [it for it in partitions_in_isr(image, broker_id) if (it[0].id, it[1]) not in known]
    records: list[Message] = []
    if suspect:
        moves = BrokerMoves(restarted_uncleanly=broker_id, directories=directories)
        records += partition_changes(state, cause, suspect, moves)
    if left:
        records += partition_changes(state, f"broker {broker_id} started anew", left, BrokerMoves(leaving=(broker_id,)))
    return records


def _check_registration(
    state: ControllerState, request: BrokerRegistrationRequest, existing: BrokerImage | None
) -> None:
    """Raises KafkaError with the code that tells the broker why it may not join."""
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
            f"another broker {existing.id} was heard within {state.sessions.session_timeout_ms} ms",
        )
    if request.is_migrating_zk_broker:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "brokers in migration are not taken")
    if state.image.features.metadata_version >= DIRECTORIES_SINCE:
        _check_directories(state.image, request)
    _check_features(state.image.features, request)


def _check_directories(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    directories = request.log_dirs
    if not directories:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "no log directory is named")
    if any(directory_is_reserved(it) for it in directories):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "a log directory has a reserved id")
    if len(set(directories)) != len(directories):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "a log directory is named twice")
    for broker in image.cluster.brokers.values():
        if broker.id != request.broker_id and any(it in directories for it in broker.log_directories):
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"broker {broker.id} has one of the log directories")


def _check_features(features: FeaturesImage, request: BrokerRegistrationRequest) -> None:
    """Every finalised level must be within the broker's range; a range it does not name is 0 to 0."""
    ranges = {it.name: (it.min_supported_version, it.max_supported_version) for it in request.features}
    if METADATA_VERSION not in ranges:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"no range of {METADATA_VERSION} is named")
    finalized = {METADATA_VERSION: features.metadata_version} | features.finalized
    for name in dict.fromkeys([*ranges, *finalized]):
        lowest, highest = ranges.get(name, (0, 0))
        level = finalized.get(name, 0)
        if not lowest <= level <= highest:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{name} is finalised at {level}, the broker supports {lowest} to {highest}",
            )


# Heartbeats


def broker_heartbeat(
    state: ControllerState, request: BrokerHeartbeatRequest, version: int
) -> ControllerResult[BrokerHeartbeatResponse]:
    """A broker says it lives, what it wants to be, and which directories failed."""
    image = state.image
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    broker = image.cluster.brokers[request.broker_id]
    caught_up = request.current_metadata_offset >= broker.epoch
    response = BrokerHeartbeatResponse(is_caught_up=caught_up, is_fenced=broker.fenced)
    session = state.sessions.touch(broker.id, broker.epoch, request.current_metadata_offset, state.now_ms)
    records: list[Message] = []
    if session.controlled_shutdown_offset >= 0 and not broker.fenced:
        response.should_shut_down = _may_stop(state, broker, session.controlled_shutdown_offset)
        if response.should_shut_down:
            records = fence_records(state, broker, "its controlled shutdown is complete")
    elif request.want_shut_down:
        if broker.fenced:
            response.should_shut_down = True
        elif request.want_fence or not leads_any(image, broker.id):
            records = fence_records(state, broker, "it wants to stop and leads nothing")
            response.should_shut_down = True
        else:
            records = _start_controlled_shutdown(state, broker)
            session.controlled_shutdown_offset = state.next_offset + len(records) - 1
    elif request.want_fence and not broker.fenced:
        records = fence_records(state, broker, "it asked to be fenced")
    elif not request.want_fence and broker.fenced and caught_up and not broker.in_controlled_shutdown:
        # Who is about to stop may lead nothing; it comes back by registering anew.
        records = _unfence_records(state, broker, request.current_metadata_offset)
        response.is_fenced = False
    if response.should_shut_down or (request.want_fence and not broker.fenced):
        response.is_fenced = True
    if response.should_shut_down:
        state.sessions.end(broker.id)
    records += _directory_records(state.after(records), request)
    full = reported_full(request)
    note_full(state, broker, tuple(it for it in full if it in broker.log_directories))
    if full:
        after = state.after(records)
        records += hand_over_full(after, after.image.cluster.brokers[broker.id])
    return ControllerResult(response, records)


def _may_stop(state: ControllerState, broker: BrokerImage, shutdown_offset: int) -> bool:
    """Whether nobody needs this broker any more: it leads nothing, and every active broker knows."""
    if leads_any(state.image, broker.id):
        return False
    for other in state.image.cluster.brokers.values():
        if not other.active:
            continue
        session = state.sessions.get(other.id)
        if session is None or session.metadata_offset < shutdown_offset:
            return False
    return True


def _start_controlled_shutdown(state: ControllerState, broker: BrokerImage) -> list[Message]:
    state.notes.note(
        DecisionKind.LIFECYCLE,
        f"broker {broker.id}",
        f"broker {broker.id} begins its controlled shutdown",
        cause="it asked to stop, and what it leads moves away first",
        broker_epoch=broker.epoch,
    )
    records: list[Message] = []
    if not broker.in_controlled_shutdown:
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN
            )
        )
    partitions = partitions_in_isr(state.image, broker.id)
    cause = f"controlled shutdown of broker {broker.id}"
    return records + partition_changes(state, cause, partitions, BrokerMoves(leaving=(broker.id,)))


def fence_records(
    state: ControllerState, broker: BrokerImage, cause: str, *, on_evidence: bool = False
) -> list[Message]:
    """Take the broker out of every ISR, then fence it. The kind of the last record tells who replays it whether there
    was evidence: that is before a session could have ended.
    """
    return _fence(state, [(broker, cause)], f"broker {broker.id} is fenced, {cause}", on_evidence=on_evidence)


def _fence(
    state: ControllerState, fenced: Sequence[tuple[BrokerImage, str]], why: str, *, on_evidence: bool = False
) -> list[Message]:
    """Brokers that go together, each with the cause of it; `why` their partitions change."""
    ids = tuple(broker.id for broker, _ in fenced)
    partitions = partitions_in_isr(state.image, *ids)
    for broker, cause in fenced:
        log.warning("fencing broker %d (epoch %d): %s", broker.id, broker.epoch, cause)
        state.notes.note(
            DecisionKind.FENCING,
            f"broker {broker.id}",
            f"broker {broker.id} is fenced",
            cause=cause,
            broker_epoch=broker.epoch,
            fenced=1,
            partitions=sum(broker.id in partition.isr for _, _, partition in partitions),
        )
    records = partition_changes(state, why, partitions, BrokerMoves(leaving=ids))
    for broker, _ in fenced:
        records.append(
            FenceBrokerRecord(id=broker.id, epoch=broker.epoch)
            if on_evidence
            else BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE)
        )
    return records


def _unfence_records(state: ControllerState, broker: BrokerImage, applied_offset: int) -> list[Message]:
    """Unfence the broker, then let it lead what has no leader."""
    state.notes.note(
        DecisionKind.FENCING,
        f"broker {broker.id}",
        f"broker {broker.id} is let in",
        cause="it asked for it, and has the metadata log past its own registration",
        broker_epoch=broker.epoch,
        fenced=0,
        metadata_applied=applied_offset,
    )
    return [
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=UNFENCE),
        *partition_changes(
            state,
            f"broker {broker.id} is let in again",
            leaderless_partitions(state.image),
            BrokerMoves(returning=broker.id),
        ),
    ]


def _directory_records(state: ControllerState, request: BrokerHeartbeatRequest) -> list[Message]:
    """What offline and cordoned directories change (KIP-858, KIP-1066)."""
    image = state.image
    broker = image.cluster.brokers[request.broker_id]
    records: list[Message] = []
    failed = [it for it in broker.log_directories if it in request.offline_log_dirs]
    if failed and image.features.metadata_version >= DIRECTORIES_SINCE:
        hit: list[Located] = [
            it for it in partitions_in_isr(image, broker.id) if it[2].directory_of(broker.id) in failed
        ]
        cause = f"a directory of broker {broker.id} went offline"
        records = partition_changes(state, cause, hit, BrokerMoves(leaving=(broker.id,)))
        online = [it for it in broker.log_directories if it not in failed]
        log.warning("broker %d lost %d log directories, %d remain", broker.id, len(failed), len(online))
        state.notes.note(
            DecisionKind.LOG,
            f"broker {broker.id}",
            f"{len(failed)} log directories of broker {broker.id} are offline, {len(online)} remain",
            cause="it says so in its heartbeat",
            broker_epoch=broker.epoch,
            partitions=len(hit),
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
        log.info("broker %d has %d cordoned log directories", broker.id, len(cordoned))
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=list(cordoned)
            )
        )
    return records


# Fencing without being asked


def fence_broker(state: ControllerState, broker_id: int, broker_epoch: int, cause: str) -> ControllerResult[bool]:
    """Fence one incarnation on evidence that its process is gone. The answer: whether that changed
    anything."""
    broker = state.image.cluster.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        return ControllerResult(False)
    state.sessions.end(broker_id)
    if broker.fenced:
        return ControllerResult(False)
    return ControllerResult(True, fence_records(state, broker, cause, on_evidence=True))


def fence_stale_brokers(state: ControllerState) -> ControllerResult[Replicas]:
    """Fence the active brokers that have been silent for beyond their sessions; the answer is their ids.

    All in one go: when another controller takes over all sessions begin together, and those who do not find it in time
    end together. One after the other the last would be the only one that counts as having all, whether or not it lives.
    Without ELR the last one it is, for that is all that an ISR can tell then.
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
        state.sessions.end(broker_id)
        silent = "" if last_contact_ms < 0 else f" for {state.now_ms - last_contact_ms} ms"
        cause = f"its session of {timeout_ms} ms ran out, nothing was heard from it{silent}"
        fenced.append((state.image.cluster.brokers[broker_id], cause))
    ids = tuple(broker.id for broker, _ in fenced)
    if len(fenced) == 1:
        return ControllerResult(ids, fence_records(state, *fenced[0]))
    listed = ", ".join(map(str, sorted(ids)))
    why = f"brokers {listed} are fenced, their sessions of {timeout_ms} ms ran out together"
    return ControllerResult(ids, _fence(state, fenced, why))


def _last_contact_ms(state: ControllerState, broker: BrokerImage) -> int:
    """When it was heard last; -1 if nobody knows."""
    session = state.sessions.get(broker.id)
    return -1 if session is None else session.last_contact_ms


def next_session_check_ms(state: ControllerState) -> int | None:
    """When the next session of an unfenced broker can end; None if there is none."""
    checks = [
        state.sessions.expires_ms(broker.id, broker.epoch) or state.now_ms
        for broker in state.image.cluster.brokers.values()
        if not broker.fenced
    ]
    return min(checks, default=None)


# Removal; controllers


def unregister_broker(
    state: ControllerState, request: UnregisterBrokerRequest, version: int
) -> ControllerResult[UnregisterBrokerResponse]:
    """Forget a broker. It stays in replica lists, where it counts as offline."""
    broker = state.image.cluster.brokers.get(request.broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {request.broker_id} is not registered")
    log.warning("unregistering broker %d (epoch %d)", broker.id, broker.epoch)
    state.notes.note(
        DecisionKind.LIFECYCLE,
        f"broker {broker.id}",
        f"broker {broker.id} is forgotten",
        cause="UnregisterBroker asked for it",
        broker_epoch=broker.epoch,
    )
    cause = f"broker {broker.id} is unregistered"
    partitions = partitions_in_isr(state.image, broker.id)
    records = partition_changes(state, cause, partitions, BrokerMoves(leaving=(broker.id,)))
    state.sessions.end(broker.id)
    records.append(UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch))
    return ControllerResult(UnregisterBrokerResponse(error_message=None), records)


def register_controller(
    state: ControllerState, request: ControllerRegistrationRequest, version: int
) -> ControllerResult[ControllerRegistrationResponse]:
    """A controller tells its endpoints and the feature ranges it supports (KIP-919)."""
    if state.image.features.metadata_version < CONTROLLER_REGISTRATION_SINCE:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "controllers cannot register at this metadata.version")
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
        cause="it told its listeners and features",
        incarnation=uuid_to_string(request.incarnation_id),
    )
    return ControllerResult(ControllerRegistrationResponse(error_message=None), [record])
