"""Classic groups with random clients, clocks, disk errors and failovers.

`classic_shell.Shell` checks the invariants of every step. Here: each request is answered once, each generation has one
assignment, and after the disturbance every client that wants to be a member is one.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.broker.groups.classic_group import ClassicGroup
from barnabas.broker.groups.classic_state import MOVES, ClassicState
from barnabas.broker.groups.group import Commit
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.broker.groups.classic_shell import GROUP, Asked, Person, Shell, subscription
from tests.examples import examples

PEOPLE = st.integers(0, 4)
ERRORS = [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR]
FORGETS_ITS_ID = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED}


def protocols(mask: int, topic: str) -> dict[str, bytes]:
    """A subset of three protocols that always contains the first."""
    names = ["range", *(name for bit, name in enumerate(["sticky", "robin"]) if mask >> bit & 1)]
    return {name: subscription(topic) for name in (reversed(names) if mask & 4 else names)}


class Chaos(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shell = Shell()
        self.people: list[Person] = []
        self.syncing: list[tuple[int, Asked]] = []
        self.assigned: dict[int, str] = {}
        """By generation: who assigned, and when."""
        self.moves: list[tuple[ClassicState, ClassicState]] = []
        self.group: ClassicGroup | None = None

    @initialize(seed=st.integers(0, 99), max_size=st.integers(2, 6), versions=st.lists(st.integers(2, 9), min_size=5))
    def begin(self, seed: int, max_size: int, versions: list[int]) -> None:
        self.shell = Shell(seed, group_max_size=max_size)
        instances = [None, None, None, "x", "y"]
        for instance, version in zip(instances, versions, strict=False):
            version = max(version, 5) if instance else version
            self.people.append(Person(self.shell, instance, join_version=version, rebalance_ms=15_000))

    def expect(self, person: Person, asked: Asked) -> None:
        """A client that has lost its membership joins again."""
        if not asked.waits and asked.error in FORGETS_ITS_ID:
            person.member_id = ""

    @rule(who=PEOPLE)
    def join(self, who: int) -> None:
        person = self.people[who]
        if person.joining is not None and not person.joining.waits:
            self.expect(person, person.joining)
            person.member_id = person.member_id and person.joined.member_id
        asked = person.join_once()
        if not asked.waits:
            person.member_id = asked.response.member_id
            self.expect(person, asked)
            if asked.error is ErrorCode.MEMBER_ID_REQUIRED:
                person.join_once()
        if self.shell.core.find(GROUP) is not None:
            person.learn_id()

    @rule(who=PEOPLE, mask=st.integers(0, 7), topic=st.sampled_from(["news", "sports"]))
    def change(self, who: int, mask: int, topic: str) -> None:
        self.people[who].protocols = protocols(mask, topic)

    def can_sync(self, person: Person) -> bool:
        return person.joining is not None and not person.joining.waits and person.joining.error is ErrorCode.NONE

    @rule(who=PEOPLE)
    def sync(self, who: int) -> None:
        person = self.people[who]
        if self.can_sync(person):
            person.member_id = person.joined.member_id
            person.signature = f" by {person.member_id} at {len(self.shell.asked)}"
            self.syncing.append((person.generation, person.sync()))
            self.expect(person, self.syncing[-1][1])

    @rule(who=PEOPLE)
    def heartbeat(self, who: int) -> None:
        person = self.people[who]
        if self.can_sync(person) and not self.shell.is_cut_off and person.heartbeat() in FORGETS_ITS_ID:
            person.member_id = ""

    @rule(who=PEOPLE, transactional=st.booleans())
    def commit(self, who: int, transactional: bool) -> None:
        person, group = self.people[who], self.shell.core.find(GROUP)
        if self.can_sync(person) and group is not None:
            commit = Commit(person.member_id, person.instance_id, person.generation, transactional, 9)
            try:
                group.check_commit(commit, self.shell.now)
            except KafkaError:
                assert person.member_id not in group.members or (
                    person.generation != group.generation or group.state is ClassicState.COMPLETING_REBALANCE
                )

    @rule(who=PEOPLE)
    def leave(self, who: int) -> None:
        self.people[who].leave()

    @rule(who=PEOPLE)
    def restart(self, who: int) -> None:
        self.people[who].member_id = ""
        self.people[who].joining = None

    @rule(duration_ms=st.sampled_from([1, 500, 3_000, 9_999, 15_000, 61_000, 301_000]))
    def wait(self, duration_ms: int) -> None:
        self.shell.pass_ms(duration_ms)

    @rule()
    def cut_off(self) -> None:
        self.shell.is_cut_off = True

    @rule()
    def replicate(self) -> None:
        self.shell.replicate()

    @rule(error=st.sampled_from([*ERRORS, None, None, None]))
    def disk(self, error: ErrorCode | None) -> None:
        self.shell.append_error = error

    @rule()
    def fail_over(self) -> None:
        self.shell.fail_over()

    @invariant()
    def one_assignment_for_each_generation(self) -> None:
        still = []
        for generation, asked in self.syncing:
            if asked.waits:
                still.append((generation, asked))
            elif asked.error is ErrorCode.NONE and asked.response.assignment:
                _, _, signature = asked.response.assignment.decode().partition(" by ")
                assert self.assigned.setdefault(generation, signature) == signature
                assert asked.response.assignment in self.shell.assignments.get(generation, [])
        self.syncing = still

    @invariant()
    def only_legal_moves(self) -> None:
        group = self.shell.core.find(GROUP)
        if group is not None and group.previous_state is not ClassicState.DEAD:
            assert (group.previous_state, group.state) in MOVES

    def teardown(self) -> None:
        if not self.people:
            return
        self.shell.append_error = None
        self.shell.replicate()
        self.settle()
        self.shell.fail_over()  # also checks that no request waits

    def settle(self) -> None:
        """Up to `group_max_size` clients reach a stable group and stay in it."""
        room = self.shell.settings.group_max_size
        for _ in range(40):
            for who in range(min(room, len(self.people))):
                person = self.people[who]
                joining = person.joining
                if joining is not None and joining.waits:
                    continue
                if self.can_sync(person):
                    person.member_id = person.joined.member_id
                    if person.heartbeat() is ErrorCode.NONE:
                        self.sync(who)
                        continue
                person.member_id = "" if joining is None or joining.error in FORGETS_ITS_ID else person.member_id
                self.join(who)
            self.shell.pass_ms(4_000)
        assert self.shell.state == "Stable", repr(self.shell.group)


TestChaos = pytest.mark.feature("CG-06", "CG-07", "CG-08", "CG-09", "CG-10", "CG-12")(Chaos.TestCase)
TestChaos.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
