"""Random histories with migrations: members of both protocols join, leave and fall silent; no partition has two
readers, and after the disturbance every partition has one.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.broker.groups import downgrades, upgrades
from barnabas.broker.groups.classic_group import ClassicGroup
from barnabas.broker.groups.consumer_group import ConsumerGroup
from barnabas.protocol.errors import ErrorCode
from tests.broker.groups.consumer_rig import GROUP, HEARTBEAT_MS, Reader
from tests.broker.groups.large_groups import TURN
from tests.broker.groups.test_migration import MixedRig, Old
from tests.examples import examples

NUMBERS = st.integers(0, 3)


class MixedHistories(RuleBasedStateMachine):
    """Classic members join and sync in steps of their own here; the leader of a classic generation assigns ranges."""

    rig_class = MixedRig
    refusals: tuple[ErrorCode, ...] = (ErrorCode.GROUP_ID_NOT_FOUND,)
    """Errors of a member that joins with the consumer protocol."""

    @initialize(policy=st.sampled_from(["bidirectional", "bidirectional", "upgrade"]))
    def begin(self, policy: str) -> None:
        self.rig = self.rig_class(group_consumer_migration_policy=policy)
        self.rig.create_topic("news", 4)
        self.old: dict[int, Old] = {}
        self.new: dict[int, Reader] = {}
        self.waiting: dict[int, list[object]] = {}
        self.born = 0

    # -- members with the consumer protocol

    @rule(number=NUMBERS)
    def join_new(self, number: int) -> None:
        if number in self.new:
            return
        self.born += 1
        reader = Reader(self.rig, f"new {number}.{self.born}", "news")
        reader.join()
        if reader.error is ErrorCode.NONE:
            self.new[number] = reader
        else:
            assert reader.error in self.refusals, reader.response.error_message

    @rule(number=NUMBERS)
    def beat_new(self, number: int) -> None:
        reader = self.new.get(number)
        if reader is None:
            return
        reader.beat()
        if reader.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND):
            reader.join()
        if reader.error is not ErrorCode.NONE:
            del self.new[number]

    @rule(number=NUMBERS)
    def leave_new(self, number: int) -> None:
        if number in self.new:
            self.new.pop(number).leave()

    # -- members with the classic protocol

    @rule(number=NUMBERS)
    def join_old(self, number: int) -> None:
        if number not in self.old:
            self.old[number] = Old(self.rig, "news")
            self._join(number)

    def _join(self, number: int) -> None:
        """Sends the request; the answer may come later."""
        member = self.old[number]
        member.generation = -1
        answers = member.join()
        if answers and isinstance(answers[0], ErrorCode):
            # It starts again without partitions.
            self.old[number] = Old(self.rig, "news")
            return
        if answers:
            self._sync(number)
        else:
            self.waiting[number] = answers

    def _sync(self, number: int) -> None:
        member = self.old[number]
        assignments: dict[str, bytes] = {}
        if member.joined.leader == member.member_id:
            from barnabas.protocol.embedded_consumer import write_assignment

            ids = [each.member_id for each in member.joined.members]
            assignments = {
                member_id: write_assignment({"news": list(range(4))[place :: len(ids)]}, 3)
                for place, member_id in enumerate(ids)
            }
        # Eager protocol: it has revoked everything before it joins.
        elif member.joined.leader:
            member.owned = {}
        error = self._try_sync(member, assignments)
        if error is not ErrorCode.NONE:
            member.owned = {}

    @staticmethod
    def _try_sync(member: Old, assignments: dict[str, bytes]) -> ErrorCode:
        try:
            return member.sync(assignments)
        except ValueError:
            # It waits for the leader, and asks again with the next heartbeat.
            return ErrorCode.REBALANCE_IN_PROGRESS

    def _receive(self, number: int) -> None:
        """Process answers that have arrived."""
        answers = self.waiting.get(number)
        if not answers:
            return
        del self.waiting[number]
        member = self.old[number]
        first = answers[0]
        if isinstance(first, ErrorCode) or first.error_code != ErrorCode.NONE:  # type: ignore[attr-defined]
            if isinstance(first, ErrorCode) or first.error_code != ErrorCode.REBALANCE_IN_PROGRESS:  # type: ignore[attr-defined]
                self.old[number] = Old(self.rig, "news")
            return
        member.take(answers)
        self._sync(number)

    @rule(number=NUMBERS)
    def beat_old(self, number: int) -> None:
        if number not in self.old:
            return
        self._receive(number)
        if number in self.waiting:
            return
        member = self.old[number]
        if member.generation < 0:
            self._join(number)
            return
        error = member.beat()
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            if isinstance(self.rig.directory.get(GROUP), ConsumerGroup):
                self._join(number)
            else:
                member.owned = {}
                self._join(number)
        elif error is not ErrorCode.NONE:
            self.old[number] = Old(self.rig, "news")
            self._join(number)
        elif not member.owned:
            self._try_sync(member, {})

    @rule(number=NUMBERS)
    def leave_old(self, number: int) -> None:
        if number in self.old:
            self._receive(number)
            self.waiting.pop(number, None)
            self.old.pop(number).leave()

    @rule(number=NUMBERS, is_old=st.booleans())
    def die(self, number: int, is_old: bool) -> None:
        if is_old:
            self.old.pop(number, None)
            self.waiting.pop(number, None)
        else:
            self.new.pop(number, None)

    # -- environment

    @rule(duration_ms=st.sampled_from([1, 3_000, 20_000, 60_000]))
    def wait(self, duration_ms: int) -> None:
        self.rig.pass_ms(duration_ms)

    @rule(compacted=st.booleans())
    def fail_over(self, compacted: bool) -> None:
        for number, answers in list(self.waiting.items()):
            if not answers:
                del self.waiting[number]
                self.old[number].generation = -1
        self.rig.fail_over(compacted)

    @invariant()
    def a_fresh_core_knows_the_same_consumer_group(self) -> None:
        if not hasattr(self, "rig"):
            return
        group = self.rig.directory.get(GROUP)
        if not isinstance(group, ConsumerGroup) or self.rig.directory.is_frozen(GROUP):
            return
        other = ConsumerGroup(GROUP)
        from barnabas.protocol.records.coordinator import decode_key, decode_versioned
        from tests.broker.groups.consumer_rig import TYPES

        for key_bytes, value_bytes in self.rig.log:
            key = decode_key(TYPES, key_bytes)
            assert key is not None
            if key.API_KEY == 2:
                continue
            value = None if value_bytes is None else decode_versioned(TYPES[key.API_KEY].value, value_bytes)[0]
            other.replay(key, value)
            if key.API_KEY == 3 and value is None:
                other = ConsumerGroup(GROUP)
        assert (other.epoch, other.assignment_epoch, other.members, other.targets) == (
            group.epoch,
            group.assignment_epoch,
            group.members,
            group.targets,
        )

    @invariant()
    def nobody_reads_what_another_one_reads(self) -> None:
        """Only members count: a fenced client may not know it yet."""
        if not hasattr(self, "rig"):
            return
        group = self.rig.directory.get(GROUP)
        if not isinstance(group, ConsumerGroup | ClassicGroup):
            return
        readers: dict[tuple[str, int], str] = {}
        members: list[Old | Reader] = [*self.old.values(), *self.new.values()]
        for member in members:
            if member.member_id not in group.members:
                continue
            for partition in member.partitions:
                other = readers.setdefault(partition, member.member_id)
                assert other == member.member_id, f"{partition} is read by {other} and {member.member_id}: {group}"

    @precondition(lambda self: bool(self.old or self.new))
    @rule()
    def be_quiet(self) -> None:
        """All follow the protocol for a while: then every partition has exactly one reader."""
        for _ in range(60):
            self.rig.pass_ms(HEARTBEAT_MS)
            for number in list(self.new):
                self.beat_new(number)
            for number in list(self.old):
                self.beat_old(number)
        if not self.old and not self.new:
            return
        reads = [partition for old in self.old.values() for partition in old.partitions]
        reads += [partition for new in self.new.values() for partition in new.partitions]
        assert sorted(reads) == [("news", number) for number in range(4)], self.rig.directory.get(GROUP)


TestMixedHistories = pytest.mark.feature("CG-16")(MixedHistories.TestCase)
TestMixedHistories.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)


class TurningRig(MixedRig):
    """Every conversion takes turns, one for each member, and a batch may fail."""

    may_fail = True

    def check(self) -> None:
        if not self.directory.is_frozen(GROUP):
            super().check()

    def await_answer(self, answers: list[Any]) -> None:
        while not answers:
            self.turn(fails=self.may_fail and self._chance.random() < 0.1)

    def turn(self, *, fails: bool) -> None:
        self.monotonic_ms = max(self.monotonic_ms, self.timers.deadline_ms(TURN) or 0)
        self.broken = ErrorCode.COORDINATOR_NOT_AVAILABLE if fails else None
        self.take_turn(TURN)
        self.broken = None


class TurningHistories(MixedHistories):
    """The same with conversions in turns: groups are frozen in between, coordinators are lost, batches fail."""

    rig_class = TurningRig
    refusals = (
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    )

    def __init__(self) -> None:
        super().__init__()
        self._patches = [
            mock.patch.object(upgrades, "AT_ONCE_ITEMS", 0),
            mock.patch.object(upgrades, "TURN_ITEMS", 1),
            mock.patch.object(downgrades, "AT_ONCE_ITEMS", 0),
            mock.patch.object(downgrades, "MEMBERS_IN_A_TURN", 1),
        ]
        for patch in self._patches:
            patch.start()

    def teardown(self) -> None:
        for patch in self._patches:
            patch.stop()

    @precondition(lambda self: self.rig.directory.is_frozen(GROUP))
    @rule(fails=st.sampled_from([False, False, True]))
    def turn(self, fails: bool) -> None:
        assert isinstance(self.rig, TurningRig)
        self.rig.turn(fails=fails)

    @precondition(lambda self: bool(self.old or self.new))
    @rule()
    def be_quiet(self) -> None:
        assert isinstance(self.rig, TurningRig)
        self.rig.may_fail = False
        super().be_quiet()
        self.rig.may_fail = True


TestTurningHistories = pytest.mark.feature("CG-16")(TurningHistories.TestCase)
TestTurningHistories.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)
