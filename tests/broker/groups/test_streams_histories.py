"""Random histories of one streams group beside its invariants (KIP-1071)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.broker.groups import assignment_turns
from barnabas.broker.groups.group_memory import MEMBER_BYTES
from barnabas.broker.groups.state_transitions import is_legal
from barnabas.broker.groups.streams.member import MEMBER_MOVES, MemberState
from barnabas.broker.groups.streams.streams_group import STREAMS_GROUP_MOVES, StreamsGroup, StreamsGroupState
from barnabas.broker.groups.streams.tasks import TaskId
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.broker.groups.streams_rig import Roles, Streams, subtopology, tasks, topology

SENT = topology(
    subtopology("0", ["words"], sinks=["by-key"], changelogs=["store-0"]),
    subtopology("1", ["other"], repartitions={"by-key": 0}),
)
MEMBERS = ("a1", "a2", "b1", "c1")
"""The first letter is the process."""


class Client:
    """A member as a client implements it."""

    def __init__(self) -> None:
        self.epoch = 0
        self.given: Roles = ({}, {})
        """Tasks of the last answer that has some."""
        self.owned: Roles = ({}, {})
        """Tasks that it runs now."""


class History(RuleBasedStateMachine):
    @initialize(replicas=st.integers(0, 2), delay_ms=st.sampled_from((0, 3000)), in_turns=st.booleans())
    def begin(self, replicas: int, delay_ms: int, in_turns: bool) -> None:
        """`in_turns`: targets are computed and written in many turns, as those of large groups."""
        self.patch = pytest.MonkeyPatch()
        if in_turns:
            self.patch.setattr(assignment_turns, "MOST_AT_ONCE", 0)
            self.patch.setattr(assignment_turns, "WRITTEN_AT_ONCE", 1)
        self.app = Streams(
            group__streams__num__standby__replicas=str(replicas),
            group__streams__initial__rebalance__delay__ms=str(delay_ms),
        )
        self.app.bench.create_topic("words", partitions=3)
        self.app.bench.create_topic("other", partitions=2)
        self.clients: dict[str, Client] = {}
        self.epochs = (0, 0)
        self.state = StreamsGroupState.EMPTY
        self.states: dict[str, MemberState] = {}

    # -- what happens

    @rule(member_id=st.sampled_from(MEMBERS))
    def join(self, member_id: str) -> None:
        client = self.clients[member_id] = Client()
        self._take(client, self.app.join(member_id, SENT, process_id=member_id[0]))

    @rule(member_id=st.sampled_from(MEMBERS), reports=st.booleans(), is_lost=st.booleans())
    def beat(self, member_id: str, reports: bool, is_lost: bool) -> None:
        client = self.clients.get(member_id)
        if client is None:
            return
        if reports:
            # Stop what was taken away, and run what was given.
            client.owned = client.given
        try:
            answer = self.app.beat(member_id, client.epoch, client.owned if reports else None)
        except KafkaError as error:
            assert error.code in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.GROUP_ID_NOT_FOUND,
            )
            del self.clients[member_id]
            return
        if not is_lost:
            self._take(client, answer)

    def _take(self, client: Client, answer: object) -> None:
        client.epoch = answer.member_epoch  # type: ignore[attr-defined]
        client.given = tasks(answer) or client.given  # type: ignore[arg-type]

    @rule(member_id=st.sampled_from(MEMBERS))
    def leave(self, member_id: str) -> None:
        is_client = self.clients.pop(member_id, None) is not None
        if is_client and self._group is not None and member_id in self._group.members:
            self.app.leave(member_id)

    @rule()
    def create_internal_topics(self) -> None:
        missing = [it for it in self.app.missing if it.name not in self.app.bench.image.topics.by_name]
        self.app.missing = tuple(missing)
        self.app.create_missing()

    @rule()
    def lose_an_internal_topic(self) -> None:
        if "by-key" in self.app.bench.image.topics.by_name:
            self.app.bench.delete_topic("by-key")

    @rule(milliseconds=st.sampled_from((1, 3000, 46_000)))
    def wait(self, milliseconds: int) -> None:
        self.app.bench.advance(milliseconds)

    @rule(turns=st.integers(1, 4), fails=st.booleans())
    def take_turns(self, turns: int, fails: bool) -> None:
        """An assignment that is under way goes on a little."""
        self.app.bench.broken = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE) if fails else None
        for _ in range(turns):
            self.app.bench.take_turn(("streams-assignment", "app"))
        self.app.bench.broken = None

    @rule()
    def fail_over(self) -> None:
        before = self._shown()
        self.app.bench.reload()
        assert self._shown() == before, "the log has everything"

    @rule(member_id=st.sampled_from(MEMBERS))
    def fail_to_write(self, member_id: str) -> None:
        before = self._shown()
        self.app.bench.broken = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            self.app.join(member_id, SENT, process_id=member_id[0])
        except KafkaError as error:
            assert error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.app.bench.broken = None
        assert self._shown() == before

    # -- what always holds

    @property
    def _group(self) -> StreamsGroup | None:
        return self.app.bench.machine.streams.find("app")

    def _shown(self) -> object:
        group = self._group
        if group is None:
            return None
        return (
            group.epoch,
            group.assignment_epoch,
            group.metadata_hash,
            group.validated_topology_epoch,
            group.assignment_configs,
            group.members,
            group.targets,
            group.state,
            group.metadata_bytes,
        )

    @invariant()
    def a_task_is_active_once_and_in_a_process_once(self) -> None:
        active: Counter[TaskId] = Counter()
        for member in () if self._group is None else self._group.members.values():
            for held in (member.assigned, member.revoking):
                active.update(TaskId(it, number) for it, numbers in held.active.items() for number in numbers)
        assert max(active.values(), default=1) == 1

    @invariant()
    def what_members_sent_is_counted(self) -> None:
        if self._group is not None:
            group = self._group
            held = 0 if group.topology is None else group.topology.size_bytes
            held += sum(MEMBER_BYTES + member.size_bytes() for member in group.members.values())
            assert group.held.size_bytes == held == self.app.bench.machine.groups.memory.held_bytes

    @invariant()
    def running_clients_share_no_active_task(self) -> None:
        members = {} if self._group is None else self._group.members
        running = Counter(
            TaskId(it, number)
            for member_id, client in self.clients.items()
            if member_id in members and client.epoch == members[member_id].epoch
            for it, numbers in client.owned[0].items()
            for number in numbers
        )
        assert max(running.values(), default=1) == 1

    @invariant()
    def all_tasks_are_assigned_when_it_is_stable(self) -> None:
        group = self._group
        if group is None or group.state is not StreamsGroupState.STABLE:
            return
        active = Counter(
            it for member in group.members.values() for it, numbers in member.assigned.active.items() for _ in numbers
        )
        assert active == {"0": 3, "1": 3}
        assert all(member.assigned.without_epochs() == group.targets[it] for it, member in group.members.items())

    @invariant()
    def epochs_grow_and_moves_are_legal(self) -> None:
        group = self._group
        if group is None:
            return
        epochs = (group.epoch, group.assignment_epoch)
        assert epochs >= self.epochs and group.assignment_epoch <= group.epoch
        assert is_legal(STREAMS_GROUP_MOVES, self.state, group.state)
        self.epochs, self.state = epochs, group.state
        for member_id, member in group.members.items():
            assert member.previous_epoch <= member.epoch <= group.assignment_epoch
            assert is_legal(MEMBER_MOVES, self.states.get(member_id, MemberState.STABLE), member.state)
        self.states = {member_id: member.state for member_id, member in group.members.items()}

    def teardown(self) -> None:
        """Members that go on reach a stable group."""
        if not hasattr(self, "app"):
            return
        try:
            self._settle()
        finally:
            self.patch.undo()

    def _settle(self) -> None:
        self.join("a1")
        self.join("b1")
        # Longer than a session: fenced clients do not come back.
        for _ in range(20):
            self.app.bench.advance(3000)
            for member_id in list(self.clients):
                self.beat(member_id, reports=True, is_lost=False)
            self.create_internal_topics()
            if not self.clients:
                self.join("a1")
        assert self._group is not None
        assert self._group.state is StreamsGroupState.STABLE, self._group
        self.all_tasks_are_assigned_when_it_is_stable()


@pytest.mark.feature("CG-20")
class TestHistories(History.TestCase):  # type: ignore[misc]
    settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
