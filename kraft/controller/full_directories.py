"""Decisions about replicas whose log directory is full: others lead, and no write waits for them.

The report of a broker is kept with its session; no record carries it. While its directory is full, a replica is not
elected if another one in sync has room, and it joins no ISR. It leaves an ISR whose other members have room and are
enough for min.insync.replicas: else all acks=all writes would wait for it. Nothing changes if too few would remain.
"""

from __future__ import annotations

from barnabas.kraft.controller.partition_notes import note_change
from barnabas.kraft.controller.partitions import change_of, has_room, partitions_in_isr
from barnabas.kraft.controller.state import ControllerState, Steps
from barnabas.kraft.metadata.image import BrokerImage
from barnabas.protocol.schema import Message
from barnabas.runtime.decisions import DecisionKind


def note_full(state: ControllerState, broker: BrokerImage, full: tuple[bytes, ...]) -> None:
    """Keep the full log directories that a broker reported with its heartbeat."""
    session = state.sessions.get(broker.id)
    if session is None or session.full_directories == full:
        return
    session.full_directories = full
    count = f"{len(full)} log directories of broker {broker.id} are full" if full else "all of them have room again"
    state.reports.note(
        DecisionKind.LOG,
        f"broker {broker.id}",
        f"broker {broker.id} may lead only where nobody else in sync can" if full else f"broker {broker.id} has room",
        cause=f"its heartbeat reports it: {count}",
        broker_epoch=broker.epoch,
    )


def hand_over_full(state: ControllerState, broker: BrokerImage) -> Steps[list[Message]]:
    """Changes that move leaderships away from this broker's full directories."""
    session = state.sessions.get(broker.id)
    if session is None or not session.full_directories or broker.fenced:
        return []
    records: list[Message] = []
    cause = f"the log directory of broker {broker.id} is full"
    for located in (yield from partitions_in_isr(state, broker.id)):
        if state.pace.is_full():
            yield None
        partition = located[2]
        if has_room(state, partition, broker.id):
            continue
        change = change_of(state, located)
        with_room = tuple(it for it in partition.isr if change.rules.has_room(it) and change.rules.may_lead(it))
        if not with_room:
            continue
        if len(with_room) >= change.rules.min_insync_replicas:
            change.isr = tuple(it for it in partition.isr if change.rules.has_room(it))
        record = change.build()
        if record is not None:
            records.append(record)
            note_change(state, located, record, cause, also=(f"broker {broker.id}",))
    return records
