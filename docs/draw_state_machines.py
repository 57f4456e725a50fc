"""Draws docs/state-machines.md from the tables that the code looks at before it moves.

Usage: `make diagrams`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from barnabas.broker.groups import classic_state, consumer_group, consumer_member
from barnabas.broker.groups.state_transitions import Moves, State
from barnabas.broker.groups.streams import member as streams_member
from barnabas.broker.groups.streams import streams_group
from barnabas.broker.shares import record_state
from barnabas.broker.transactions import transaction
from barnabas.client.producer import transaction_manager as client_transactions
from barnabas.storage import cleaning
from barnabas.storage.remote import segment as remote_segment

PAGE = Path(__file__).resolve().parent / "state-machines.md"


class Arrow(NamedTuple):
    before: Enum
    after: Enum
    why: str = ""


class Machine(NamedTuple):
    """One state machine as it is drawn."""

    heading: str
    sentence: str
    begin: Enum
    arrows: tuple[Arrow, ...]


def arrows(moves: Moves[State]) -> tuple[Arrow, ...]:
    return tuple(Arrow(before, after) for before, followers in moves.items() for after in followers)


def cleaning_arrows() -> Iterator[Arrow]:
    for (before, event), (after, pauses) in cleaning.MOVES.items():
        why = event.name.lower()
        if pauses < 0:
            yield Arrow(before, after, f"{why}, but not the last")
            yield Arrow(before, cleaning.Phase.IDLE, f"the last {why}")
        else:
            yield Arrow(before, after, why)


MACHINES = (
    Machine(
        "Classic group",
        "A group whose members join and sync: `broker/groups/classic_state.py`; emigration means that its partition is "
        "led elsewhere, or that it becomes a consumer group.",
        classic_state.ClassicState.EMPTY,
        tuple(Arrow(before, after, why) for (before, after), why in classic_state.MOVES.items()),
    ),
    Machine(
        "Consumer group",
        "A group whose coordinator assigns (KIP-848), `broker/groups/consumer_group.py`; its state follows from its "
        "epochs and from its members.",
        consumer_group.GroupState.EMPTY,
        arrows(consumer_group.GROUP_MOVES),
    ),
    Machine(
        "Member of a consumer group",
        "How far one member has come towards its target assignment: `broker/groups/consumer_member.py`; unknown is "
        "what a newer version has written.",
        consumer_member.MemberState.STABLE,
        arrows(consumer_member.MEMBER_MOVES),
    ),
    Machine(
        "Streams group",
        "A group of a Kafka Streams application (KIP-1071), `broker/groups/streams/streams_group.py`; its state "
        "follows from its topology, its epochs and its members.",
        streams_group.StreamsGroupState.EMPTY,
        arrows(streams_group.STREAMS_GROUP_MOVES),
    ),
    Machine(
        "Member of a streams group",
        "How far one member has come towards its tasks: `broker/groups/streams/member.py`; unknown is what a newer "
        "version has written.",
        streams_member.MemberState.STABLE,
        arrows(streams_member.MEMBER_MOVES),
    ),
    Machine(
        "Record of a share partition",
        "The delivery of one record to a share group (KIP-932): `broker/shares/record_state.py`; an acknowledgement "
        "moves it once it is stored.",
        record_state.RecordState.AVAILABLE,
        tuple(Arrow(before, after, why) for (before, after), why in record_state.MOVES.items()),
    ),
    Machine(
        "Transaction",
        "What the coordinator knows of one transactional id: `broker/transactions/transaction.py`.",
        transaction.TransactionState.EMPTY,
        tuple(
            Arrow(before, after)
            for before in transaction.TransactionState
            for after, olds in transaction.LEGAL_PREVIOUS.items()
            if before in olds
        ),
    ),
    Machine(
        "Transactions of a producer",
        "The same from the client's side: `barnabas/client/producer/transaction_manager.py`.",
        client_transactions.TransactionState.UNINITIALIZED,
        arrows(client_transactions.TRANSITIONS),
    ),
    Machine(
        "Log cleaning",
        "Whether one log may be cleaned, and whether what a cleaning made may still be used, `storage/cleaning.py`: "
        "truncation and deletion pause it, and pauses are counted.",
        cleaning.Phase.IDLE,
        tuple(cleaning_arrows()),
    ),
    Machine(
        "Remote segment",
        "A segment in the remote store (KIP-405), as the records of `__remote_log_metadata` move it: "
        "`storage/remote/segment.py`. A record that repeats its state is allowed; others are ignored.",
        remote_segment.SegmentState.COPY_SEGMENT_STARTED,
        tuple(Arrow(before, after, why) for (before, after), why in remote_segment.MOVES.items()),
    ),
)


def name(state: Enum) -> str:
    """`PREPARE_COMMIT` as PrepareCommit."""
    return "".join(word.capitalize() for word in state.name.split("_"))


def diagram(machine: Machine) -> Iterator[str]:
    """Mermaid source of a state machine. A state without outgoing transitions is final."""
    yield "stateDiagram-v2"
    yield f"    [*] --> {name(machine.begin)}"
    for before, after, why in machine.arrows:
        yield f"    {name(before)} --> {name(after)}" + (f" : {why}" if why else "")
    going_on = [arrow.before for arrow in machine.arrows if arrow.before is not arrow.after]
    for state in dict.fromkeys(arrow.after for arrow in machine.arrows):
        if state not in going_on:
            yield f"    {name(state)} --> [*]"


def page(machines: Iterable[Machine] = MACHINES) -> str:
    lines = ["# State machines", "", "Drawn by `make diagrams` from the tables in the code; there are no other moves."]
    for machine in machines:
        lines += ["", f"## {machine.heading}", "", machine.sentence, "", "```mermaid", *diagram(machine), "```"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
