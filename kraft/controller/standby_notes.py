"""Decision notes of a standby controller, made from the records that it reads: the active one may be gone later.

Only facts of the records: leaders, fenced brokers, and causes as far as the same records show them. Other causes are
known to the controller that decided alone.
"""

from __future__ import annotations

from barnabas.kraft.controller.partition_notes import describe_election
from barnabas.kraft.controller.state import Pace, Steps
from barnabas.kraft.metadata.delta import MetadataDelta
from barnabas.runtime.decisions import DecisionKind, Notepad

MAX_NOTES = 1000
"""Elections of one step that are noted one by one."""


def note_replayed(notepad: Notepad, node_id: int, delta: MetadataDelta) -> Steps[None]:
    """Note the decisions of a step of the metadata log that was committed and applied."""
    read = f"controller {node_id} read it in the metadata log"
    causes, brokers = [], []
    for broker_id, broker in delta.changed_brokers.items():
        before = delta.before.cluster.brokers.get(broker_id)
        if broker is None or before is None:
            continue
        name = f"broker {broker_id}"
        if broker.fenced and not before.fenced:
            seen = "its process was seen to be gone" if broker_id in delta.fenced_on_evidence else ""
            causes.append(f"{name} is fenced" + (f", {seen}" if seen else ""))
            brokers.append(name)
            cause = "; ".join(it for it in (seen, read) if it)
            epoch = broker.epoch
            notepad.note(
                DecisionKind.FENCING, name, f"{name} is fenced", cause=cause, broker_epoch=epoch, fenced=1, hearsay=1
            )
        elif before.fenced and not broker.fenced:
            brokers.append(name)
            epoch = broker.epoch
            notepad.note(
                DecisionKind.FENCING, name, f"{name} is unfenced", cause=read, broker_epoch=epoch, fenced=0, hearsay=1
            )
        if broker.in_controlled_shutdown and not before.in_controlled_shutdown:
            causes.append(f"controlled shutdown of {name}")
            brokers.append(name)
    cause = "; ".join([*causes, read])
    noted = 0
    pace = Pace()
    for topic in delta.changed_topics.values():
        for index, after in topic.changed_partitions.items():
            if pace.is_full():
                yield None
            previous = topic.previous(index)
            if previous is None or previous.leader == after.leader or noted >= MAX_NOTES:
                continue
            if not notepad.accepts(DecisionKind.ELECTION):
                continue
            noted += 1
            name = f"{topic.name}-{index}"
            notepad.note(
                DecisionKind.ELECTION,
                name,
                describe_election(name, previous, after),
                also=brokers,
                cause=cause,
                leader=after.leader,
                leader_before=previous.leader,
                leader_epoch=after.leader_epoch,
                partition_epoch=after.partition_epoch,
                isr=after.isr,
                isr_before=previous.isr,
                replicas=after.replicas,
                metadata_offset=delta.after.offset,
                hearsay=1,
            )
