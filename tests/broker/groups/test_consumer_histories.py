"""Consumer groups under random histories: no partition ever has two owners, and after the disturbance every partition
has one.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.broker.groups import assignment_turns
from barnabas.broker.groups.consumer_group import ConsumerGroup, GroupState
from barnabas.broker.groups.consumer_member import STATIC_LEAVE_EPOCH
from barnabas.protocol.errors import ErrorCode
from tests.broker.groups.consumer_rig import GROUP, HEARTBEAT_MS, Reader, Rig
from tests.examples import examples

MEMBERS = st.integers(0, 5)
TOPICS = ("apples", "pears", "plums")
SUBSCRIPTIONS = st.lists(st.sampled_from(TOPICS), unique=True, min_size=1)
PATTERNS = ("", "p.*", "apples|plums", "none")


def durable(group: ConsumerGroup) -> tuple[object, ...]:
    """The durable state of a group."""
    return (
        group.epoch,
        group.metadata_hash,
        group.assignment_epoch,
        group.assignment_timestamp_ms,
        group.members,
        group.targets,
        group.subscribed.resolved,
        dict(group.owners),
        group._static_members,
        dict(group.subscribed._by_name),
        dict(group.subscribed._by_pattern),
        dict(group.subscribed.patterns),
        dict(group._assignors),
    )


class Histories(RuleBasedStateMachine):
    """Members join, leave, fall silent and lose answers; topics change; coordinators fail over."""

    @initialize(interval_ms=st.sampled_from([0, 1_000]), seed=st.integers(0, 99), in_turns=st.booleans())
    def begin(self, interval_ms: int, seed: int, in_turns: bool) -> None:
        """`in_turns`: targets are computed and written in many turns, as those of large groups."""
        self.patch = pytest.MonkeyPatch()
        if in_turns:
            self.patch.setattr(assignment_turns, "MOST_AT_ONCE", 0)
            self.patch.setattr(assignment_turns, "WRITTEN_AT_ONCE", 1)
        self.rig = Rig(seed, group_consumer_assignment_interval_ms=interval_ms)
        self.rig.create_topic("apples", 3)
        self.readers: dict[int, Reader] = {}
        self.born = 0

    def read_by(self, number: int) -> set[tuple[str, int]]:
        """Partitions that this consumer believes it owns."""
        return self.readers[number].partitions if number in self.readers else set()

    @rule(
        number=MEMBERS,
        topics=SUBSCRIPTIONS,
        pattern=st.sampled_from(PATTERNS),
        assignor=st.sampled_from([None, "uniform", "range"]),
    )
    def join(self, number: int, topics: list[str], pattern: str, assignor: str | None) -> None:
        if number in self.readers:
            return
        self.born += 1
        fields: dict[str, object] = {"instance_id": f"instance {number}"} if number < 2 else {}
        if pattern:
            fields["subscribed_topic_regex"] = pattern
        if assignor:
            fields["server_assignor"] = assignor
        reader = Reader(self.rig, f"member {number}.{self.born}", *topics, **fields)
        reader.join()
        if reader.error is ErrorCode.UNRELEASED_INSTANCE_ID:
            assert number < 2, "it was silent, and its session is not over"
            return
        assert reader.error is ErrorCode.NONE
        self.readers[number] = reader

    def settle_error(self, number: int) -> None:
        """A fenced client abandons its partitions and rejoins."""
        reader = self.readers[number]
        if reader.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            reader.join()
        if reader.error is not ErrorCode.NONE:
            del self.readers[number]

    @rule(number=MEMBERS, says_all=st.booleans())
    def beat(self, number: int, says_all: bool) -> None:
        if number in self.readers:
            if says_all:
                self.readers[number].beat()
            else:
                self.readers[number].just_beat()
            self.settle_error(number)

    @rule(number=MEMBERS)
    def lose_an_answer(self, number: int) -> None:
        """The consumer misses an answer: it continues as before, and sends all fields."""
        if number not in self.readers:
            return
        reader = self.readers[number]
        epoch, owned = reader.epoch, reader.owned
        reader.beat()
        reader.epoch, reader.owned, reader.missed_an_answer = epoch, owned, True

    @rule(number=MEMBERS, topics=SUBSCRIPTIONS)
    def subscribe(self, number: int, topics: list[str]) -> None:
        if number in self.readers:
            self.readers[number].topics = topics
            self.readers[number].beat(subscribed_topic_names=topics)
            self.settle_error(number)

    @rule(number=MEMBERS, pattern=st.sampled_from(PATTERNS))
    def subscribe_to_pattern(self, number: int, pattern: str) -> None:
        if number in self.readers:
            self.readers[number].fields["subscribed_topic_regex"] = pattern
            self.readers[number].beat(subscribed_topic_regex=pattern)
            self.settle_error(number)

    @rule(number=MEMBERS, for_a_while=st.booleans())
    def leave(self, number: int, for_a_while: bool) -> None:
        if number in self.readers:
            reader = self.readers.pop(number)
            reader.leave(-2 if for_a_while and reader.fields.get("instance_id") else -1)

    @rule(number=MEMBERS)
    def die(self, number: int) -> None:
        """The client stops; its session expires later."""
        self.readers.pop(number, None)

    @rule(duration_ms=st.sampled_from([1, 500, 5_000, 30_000, 60_000]))
    def wait(self, duration_ms: int) -> None:
        self.rig.pass_ms(duration_ms)

    @rule(turns=st.integers(1, 4))
    def take_turns(self, turns: int) -> None:
        """Some steps of an assignment that is computed or written in turns."""
        for _ in range(turns):
            self.rig.take_turn(("consumer-assignment", GROUP))

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 7))
    def create_or_grow(self, name: str, partitions: int) -> None:
        if name not in self.rig.image.topics.by_name:
            self.rig.create_topic(name, partitions)
        elif len(self.rig.image.topics.by_name[name].partitions) < 12:
            self.rig.add_partitions(name, partitions)

    @rule(name=st.sampled_from(TOPICS))
    def delete(self, name: str) -> None:
        if name in self.rig.image.topics.by_name:
            self.rig.delete_topic(name)
            for reader in self.readers.values():
                reader.owned = {key: owned for key, owned in reader.owned.items() if key in self.rig.image.topics.by_id}

    @rule(compacted=st.booleans())
    def fail_over(self, compacted: bool) -> None:
        group = self.rig.core.find(GROUP)
        before = None if group is None else durable(group)
        self.rig.fail_over(compacted)
        group = self.rig.core.find(GROUP)
        assert before == (None if group is None else durable(group)), "a fresh core that reads the log knows the same"

    @invariant()
    def no_partition_is_read_by_two(self) -> None:
        """Also from the consumers' own view, except for those that were fenced and have not noticed it."""
        if not hasattr(self, "rig"):
            return
        group = self.rig.core.find(GROUP)
        readers: dict[tuple[str, int], str] = {}
        for reader in self.readers.values():
            if group is None or reader.member_id not in group.members:
                continue
            if group.members[reader.member_id].epoch == STATIC_LEAVE_EPOCH:
                continue
            for partition in sorted(reader.partitions):
                other = readers.setdefault(partition, reader.member_id)
                assert other == reader.member_id, f"{partition} is read by {other} and {reader.member_id}"

    def everybody_beats(self) -> None:
        for number in list(self.readers):
            self.readers[number].beat()
            self.settle_error(number)

    @precondition(lambda self: bool(self.readers))
    @rule()
    def be_quiet(self) -> None:
        """Dead members expire, live ones send heartbeats: then every partition has exactly one owner."""
        for _ in range(40):
            self.rig.pass_ms(HEARTBEAT_MS)
            self.everybody_beats()
            if not self.readers:
                return
        group = self.rig.group
        assert group.state is GroupState.STABLE, group
        assert set(group.members) == {reader.member_id for reader in self.readers.values()}
        image = self.rig.image.topics
        subscribed = {
            name
            for reader in self.readers.values()
            for name in group.subscribed.topics_of(group.members[reader.member_id])
        }
        expected = {
            (name, number) for name in subscribed if name in image.by_name for number in image.by_name[name].partitions
        }
        owned = [partition for reader in self.readers.values() for partition in reader.partitions]
        assert len(owned) == len(set(owned))
        assert set(owned) == expected
        for reader in self.readers.values():
            for name, _ in reader.partitions:
                assert name in group.subscribed.topics_of(group.members[reader.member_id])

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.patch.undo()


TestHistories = pytest.mark.feature("CG-14")(Histories.TestCase)
TestHistories.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
