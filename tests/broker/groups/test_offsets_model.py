"""Committed offsets against a simple model: after any history, and in every new coordinator that reads the log, they
equal the model's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.broker.coordinator.outcome import ProducerStamp
from barnabas.broker.groups.machine import GroupMachine
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.broker.groups.machine_bench import Bench
from tests.broker.groups.offset_words import commit, delete_offsets, everything, fetch, txn_commit
from tests.examples import examples

Place = tuple[str, str, int]
"""Group, topic, partition."""

EVERY_PLACE: list[Place] = [("g", "t", 0), ("g", "t", 1), ("h", "t", 0), ("h", "u", 0)]
"""Few, so that commits collide."""

PLACES = st.sampled_from(EVERY_PLACE)
PRODUCERS = st.sampled_from([7, 8])
OFFSETS = st.integers(0, 1000)


@dataclass
class Model:
    """Every commit gets a number; commits of a transaction take effect with their own number when it commits."""

    number: int = 0
    committed: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """Number and offset."""
    pending: dict[int, dict[Place, tuple[int, int]]] = field(default_factory=dict)

    def commit(self, place: Place, offset: int) -> None:
        self.number += 1
        self.committed[place] = (self.number, offset)

    def commit_in(self, producer_id: int, place: Place, offset: int) -> None:
        self.number += 1
        self.pending.setdefault(producer_id, {})[place] = (self.number, offset)

    def end(self, producer_id: int, committed: bool) -> None:
        for place, entry in self.pending.pop(producer_id, {}).items():
            if committed:
                self.committed[place] = max(entry, self.committed.get(place, (0, 0)))

    def forget(self, place: Place) -> None:
        self.committed.pop(place, None)
        for entries in self.pending.values():
            entries.pop(place, None)

    def is_pending(self, place: Place) -> bool:
        return any(place in entries for entries in self.pending.values())

    def offsets_of(self, group: str) -> dict[tuple[str, int], int]:
        return {
            (topic, partition): offset
            for (owner, topic, partition), (_, offset) in self.committed.items()
            if owner == group
        }

    def groups(self) -> set[str]:
        return {group for entries in (self.committed, *self.pending.values()) for group, _, _ in entries}


class OffsetsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.bench.create_topic("t", 2)
        self.bench.create_topic("u", 2)
        self.bench.reload()
        self.model = Model()
        self.counted = {"commits": 0, "deleted": 0, "expired": 0}

    @rule(place=PLACES, offset=OFFSETS)
    def commit(self, place: Place, offset: int) -> None:
        group, topic, partition = place
        assert commit(self.bench, topic, offset, partition=partition, group=group) == ErrorCode.NONE
        self.model.commit(place, offset)
        self.counted["commits"] += 1

    @rule(producer_id=PRODUCERS, place=PLACES, offset=OFFSETS)
    def commit_in_transaction(self, producer_id: int, place: Place, offset: int) -> None:
        group, topic, partition = place
        assert txn_commit(self.bench, topic, offset, producer_id, partition=partition, group=group) == 0
        self.model.commit_in(producer_id, place, offset)
        self.counted["commits"] += 1

    @rule(producer_id=PRODUCERS, committed=st.booleans())
    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.bench.end_transaction(ProducerStamp(producer_id, 0), committed)
        self.model.end(producer_id, committed)

    @rule(place=PLACES)
    def delete(self, place: Place) -> None:
        group, topic, partition = place
        if group in self.model.groups():
            assert delete_offsets(self.bench, topic, partition, group=group) == [ErrorCode.NONE]
            self.counted["deleted"] += place in self.model.committed or self.model.is_pending(place)
        else:
            with pytest.raises(KafkaError):
                delete_offsets(self.bench, topic, partition, group=group)
        self.model.forget(place)

    @rule(group=st.sampled_from(["g", "h"]))
    def delete_group(self, group: str) -> None:
        if group in self.model.groups():
            self.bench.ask(self.bench.machine.delete, group)
        for place in EVERY_PLACE:
            if place[0] == group:
                self.model.forget(place)

    @rule(topic=st.sampled_from(["t", "u"]))
    def recreate_topic(self, topic: str) -> None:
        for place in EVERY_PLACE:
            if place[1] == topic:
                self.model.forget(place)
        self.bench.delete_topic(topic)
        self.bench.create_topic(topic, 2)
        self.bench.advance(0)

    @rule()
    def lose_the_coordinator(self) -> None:
        self.bench.reload()
        self.bench.advance(0)

    @rule(place=PLACES, offset=OFFSETS)
    def fail_to_write(self, place: Place, offset: int) -> None:
        group, topic, partition = place
        self.bench.broken = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        with pytest.raises(KafkaError):
            commit(self.bench, topic, offset, partition=partition, group=group)
        self.bench.broken = None
        self.counted["commits"] += 1  # as in Kafka

    @invariant()
    def offsets_are_what_the_model_says(self) -> None:
        for group in ("g", "h"):
            assert everything(self.bench, group) == self.model.offsets_of(group)
        for group, topic, partition in EVERY_PLACE:
            stable = fetch(self.bench, topic, partition, group, stable=True)
            is_pending = self.model.is_pending((group, topic, partition))
            assert (stable is ErrorCode.UNSTABLE_OFFSET_COMMIT) == is_pending

    @invariant()
    def events_are_counted_once_for_each_partition(self) -> None:
        assert {name: getattr(self.bench.events, name) for name in self.counted} == self.counted

    @invariant()
    def groups_are_those_with_offsets(self) -> None:
        machine: GroupMachine = self.bench.machine
        assert {group.group_id for group in machine.offsets.all_groups()} == self.model.groups()


TestOffsetsModel = pytest.mark.feature("CG-03", "CG-04", "CG-12", "TX-04")(OffsetsMachine.TestCase)
TestOffsetsModel.settings = settings(
    max_examples=examples(80), stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
