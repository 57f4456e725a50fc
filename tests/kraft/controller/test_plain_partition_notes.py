"""Notes of changes of partitions beside plain sentences, which follow from the partition before and after alone."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from barnabas.kraft.controller.partition_notes import is_alarming, note_change
from barnabas.kraft.metadata.image import MIGRATING_DIRECTORY, NO_LEADER, PartitionImage, TopicImage
from barnabas.protocol.messages.metadata_log import PartitionChangeRecord
from barnabas.runtime.decisions import DecisionKind, Note
from tests.kraft.controller.conftest import Cluster

NAME, CAUSE = "t-3", "a broker is gone"
BROKERS = (1, 2, 3, 4)


def a_partition(chance: random.Random) -> PartitionImage:
    """Replicas, some of them in sync, some eligible, some on the move."""
    replicas = chance.sample(BROKERS, chance.choice([1, 2, 3, 3, 4]))
    isr = [it for it in replicas if chance.random() < 0.6]
    elr = [it for it in replicas if it not in isr and chance.random() < 0.5]
    return PartitionImage(
        tuple(replicas),
        (MIGRATING_DIRECTORY,) * len(replicas),
        tuple(isr),
        removing_replicas=tuple(it for it in replicas[:1] if chance.random() < 0.2),
        adding_replicas=tuple(it for it in replicas[1:3] if chance.random() < 0.15),
        elr=tuple(elr),
        last_known_elr=tuple(chance.sample(replicas, chance.choice([0, 0, 1]))),
        leader=chance.choice([*isr, *isr, NO_LEADER]) if isr else NO_LEADER,
        leader_epoch=chance.randrange(9),
        partition_epoch=chance.randrange(9),
    )


def change(chance: random.Random, before: PartitionImage, other: PartitionImage) -> PartitionChangeRecord:
    """Takes over parts of another partition, each or none of them."""
    record = PartitionChangeRecord(partition_id=3)
    if chance.random() < 0.5:
        record.isr = list(other.isr)
    if chance.random() < 0.5:
        record.leader = chance.choice([other.leader, *(record.isr or before.isr or [NO_LEADER]), NO_LEADER])
    if chance.random() < 0.3:
        record.eligible_leader_replicas = list(other.elr)
    if chance.random() < 0.35:
        record.replicas = list(other.replicas)
        record.directories = list(other.directories)
    if chance.random() < 0.5:
        record.removing_replicas = list(chance.choice([other.removing_replicas, ()]))
    if chance.random() < 0.5:
        record.adding_replicas = list(chance.choice([other.adding_replicas, ()]))
    return record


def after_change(before: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    fields: dict[str, Any] = {"partition_epoch": before.partition_epoch + 1}
    named = {
        "isr": record.isr,
        "elr": record.eligible_leader_replicas,
        "replicas": record.replicas,
        "directories": record.directories,
        "removing_replicas": record.removing_replicas,
        "adding_replicas": record.adding_replicas,
    }
    fields |= {name: tuple(value) for name, value in named.items() if value is not None}
    if record.leader != -2:
        fields |= {"leader": record.leader, "leader_epoch": before.leader_epoch + 1}
    return replace(before, **fields)


def reason(before: PartitionImage, after: PartitionImage) -> str:
    """For the choice of the leader."""
    new = after.leader
    if new == NO_LEADER:
        eligible = f" and ELR {list(after.elr)}" if after.elr else ""
        known = f"ISR {list(after.isr)}{eligible}"
        return f"no replica of {list(after.replicas)} that has all that was committed may lead, {known}"
    if new in before.isr or (new in after.isr and after.isr != (new,)):
        return f"{new} was first in sync among replicas {list(after.replicas)}"
    if new in before.elr:
        elr = list(before.elr)
        return f"nobody in sync was left; {new} was in the ELR {elr}, it has all that was committed"
    if new in before.last_known_elr:
        return f"nobody else was left, {new} was the last that had all; whether it lacks records cannot be known"
    return f"{new} was not in sync and is taken all the same: records may be lost"


def election(before: PartitionImage, after: PartitionImage) -> list[Note]:
    if after.leader != before.leader:
        what = f"leader of {NAME} moved {before.leader} -> {after.leader} in epoch {after.leader_epoch}"
        if before.leader == NO_LEADER:
            what = f"leader of {NAME} is {after.leader} in epoch {after.leader_epoch}, after there was none"
        if after.leader == NO_LEADER:
            what = f"{NAME} has no leader since epoch {after.leader_epoch}"
        return [Note(DecisionKind.ELECTION, NAME, what, (), f"{CAUSE}; {reason(before, after)}")]
    if after.isr != before.isr:
        lists = f"{list(before.isr)} -> {list(after.isr)}"
        return [
            Note(
                DecisionKind.ISR,
                NAME,
                f"ISR of {NAME} changed {lists} in leader epoch {after.leader_epoch}",
                (),
                CAUSE,
            )
        ]
    if after.elr != before.elr:
        lists = f"{list(before.elr)} -> {list(after.elr)}"
        return [Note(DecisionKind.ISR, NAME, f"eligible leader replicas of {NAME} changed {lists}", (), CAUSE)]
    return []


def moves(before: PartitionImage, after: PartitionImage) -> list[Note]:
    """A reassignment begins, ends, is given up, or was made at once."""
    old, new = (before.adding_replicas, before.removing_replicas), (after.adding_replicas, after.removing_replicas)
    stays = [it for it in after.replicas if it not in after.removing_replicas]
    facts: dict[str, Any] = {}
    cause = CAUSE
    if new not in (((), ()), old):
        held = [it for it in before.replicas if it not in before.adding_replicas]
        what = f"{NAME} begins to move from brokers {held} to {stays}"
        facts = {"adding": after.adding_replicas, "removing": after.removing_replicas}
    elif new == ((), ()) and old != ((), ()):
        if set(before.removing_replicas) & set(after.replicas):
            what = f"the move of {NAME} was given up, it stays on {stays}"
        else:
            what, cause = f"the move of {NAME} is complete, it is on {stays}", f"all of them are in sync; {CAUSE}"
    elif before.replicas != after.replicas:
        what = f"replicas of {NAME} changed {list(before.replicas)} -> {stays}"
    else:
        return []
    return [Note(DecisionKind.REASSIGNMENT, NAME, what, (), cause, facts)]


@pytest.mark.feature("OB-07")
def test_the_sentences_about_a_change_follow_from_before_and_after() -> None:
    chance = random.Random(1)
    cluster = Cluster()
    kinds = set()
    for _ in range(4_000):
        before = a_partition(chance)
        record = change(chance, before, a_partition(chance))
        after = after_change(before, record)
        state = cluster.controller._state(0, 0)
        also = chance.choice([(), ("broker 1",)])
        note_change(state, (TopicImage("t", bytes(16), {3: before}), 3, before), record, CAUSE, also=also)
        facts: dict[str, Any] = {
            "leader": after.leader,
            "leader_before": before.leader,
            "leader_epoch": after.leader_epoch,
            "partition_epoch": after.partition_epoch,
            "isr": after.isr,
            "isr_before": before.isr,
            "replicas": after.replicas,
        }
        if before.elr or after.elr:
            facts |= {"elr": after.elr, "elr_before": before.elr}
        first, second = election(before, after), moves(before, after)
        expected = [replace(it, facts=facts, also=also) for it in first]
        expected += [replace(it, facts=facts | dict(it.facts)) for it in second]
        assert state.notes == expected
        for note in state.notes:
            known = {*before.isr, *before.elr}
            is_election = note.kind is DecisionKind.ELECTION
            assert is_alarming(note) == (is_election and after.leader not in known)
        kinds |= {(it.kind, *it.text.split()[:4]) for it in expected}
    assert len({kind for kind, *_ in kinds}) == 3
