"""What a controller that is not active tells of decisions as it reads them, for the active one may be gone when asked.

Only what the records say: who leads, who is fenced. Why, as far as the same records tell; the rest only the controller
that decided knows.
"""

from __future__ import annotations

from kraft.controller.partition_notes import election_told
from kraft.metadata.delta import MetadataDelta
from runtime.decisions import DecisionKind, Notepad

MAX_HEARD = 1000
"""So many partitions of one step are told one by one."""


def note_heard(notepad: Notepad, node_id: int, delta: MetadataDelta) -> None:
    """A step of the metadata log was committed and applied."""
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
                DecisionKind.FENCING, name, f"{name} is let in", cause=read, broker_epoch=epoch, fenced=0, hearsay=1
            )
        if broker.in_controlled_shutdown and not before.in_controlled_shutdown:
            causes.append(f"controlled shutdown of {name}")
            brokers.append(name)
    cause = "; ".join([*causes, read])
    told = 0
    for topic in delta.changed_topics.values():
        for index, after in topic.changed_partitions.items():
            previous = topic.previous(index)
            if previous is None or previous.leader == after.leader or told >= MAX_HEARD:
                continue
            told += 1
            name = f"{topic.name}-{index}"
            notepad.note(
                DecisionKind.ELECTION,
                name,
                election_told(name, previous, after),
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
