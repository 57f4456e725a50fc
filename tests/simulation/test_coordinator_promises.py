"""The promises of groups, transactions and producers catch each way to break them, and let its legal neighbour pass."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.kraft.metadata.image import EMPTY_IMAGE
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import EndTxn, build_end_txn_batch
from barnabas.protocol.records.record import Record
from simulation.findings import Findings
from simulation.ghosts import Batch
from simulation.invariants.groups import Coordinator, GroupPartition, GroupPromises
from simulation.invariants.partitions import PartitionPromises
from simulation.invariants.places import PartitionKey
from simulation.invariants.producers import check_producers

pytestmark = pytest.mark.feature("FI-11")

KEY, OTHER = PartitionKey("t", 0), PartitionKey("t", 1)
PLACE = GroupPartition("g", KEY)


@pytest.fixture
def findings() -> Findings:
    return Findings(lambda: 0.0)


class Group:
    """Members whose last response is as old as the test says."""

    def __init__(self, findings: Findings) -> None:
        self.promises = GroupPromises(findings)
        self.unheard_ms = dict.fromkeys("ABC", 0)

    def takes_on(self, client: str) -> None:
        self.promises.takes_on(PLACE, client, lambda: self.unheard_ms[client], 6_000)


def test_two_owners_with_live_sessions(findings: Findings) -> None:
    group = Group(findings)
    group.takes_on("A")
    group.promises.gives_up(PLACE, "A")
    group.takes_on("B")
    assert not findings.broken
    group.unheard_ms["B"] = 6_100
    group.takes_on("C")  # the session of B is over; it does not know that yet
    assert not findings.broken
    group.takes_on("A")
    assert "A takes it on, C has it" in findings.broken[0]


def test_one_that_was_killed_owns_nothing(findings: Findings) -> None:
    group = Group(findings)
    group.takes_on("A")
    group.promises.is_gone("A")
    group.takes_on("B")
    assert not findings.broken
    assert group.promises.owners(PLACE) == ["B"]


class Led:
    """A group with a session of 6 s, whose coordinator is first node 1, then node 2."""

    def __init__(self) -> None:
        self.now = 100.0
        self.findings = Findings(lambda: self.now)
        self.promises = GroupPromises(self.findings)
        self.promises.leads(0, 1)

    def heard(self, client: str, by: int) -> None:
        """Records a response that came ten milliseconds after its request."""
        self.promises.heard(client, Coordinator(0, by), 10)

    def takes_on(self, client: str) -> None:
        self.promises.takes_on(PLACE, client, lambda: self.promises.unheard_ms(client), 6_000)


def test_an_owner_with_answers_of_a_deposed_coordinator_does_not_count() -> None:
    group = Led()
    group.heard("A", by=1)
    group.takes_on("A")
    group.promises.leads(0, 2)
    group.now += 6.0
    group.heard("A", by=1)
    group.heard("B", by=2)
    group.takes_on("B")
    assert group.findings.broken == []


def test_an_owner_in_its_session_counts_whichever_node_answered_it_since() -> None:
    group = Led()
    group.heard("A", by=1)
    group.takes_on("A")
    group.promises.leads(0, 2)
    group.now += 1.0
    group.heard("A", by=2)
    group.now += 5.0
    group.heard("A", by=1)
    group.heard("B", by=2)
    group.takes_on("B")
    assert "B takes it on, A has it, accepted 5010 ms ago" in group.findings.broken[0]


def test_the_last_leader_is_the_coordinator_while_there_is_none() -> None:
    group = Led()
    group.heard("A", by=1)
    group.takes_on("A")
    group.promises.leads(0, -1)
    group.now += 6.0
    group.heard("A", by=1)
    group.takes_on("B")
    assert "B takes it on, A has it, accepted 10 ms ago" in group.findings.broken[0]


def test_assignments_by_a_deposed_coordinator_do_not_count() -> None:
    group = Led()
    group.promises.leads(0, 2)
    group.heard("A", by=2)
    group.takes_on("A")
    group.promises.begins_at(PLACE, "A", 0)
    group.promises.commits(PLACE, "A", 5)
    group.promises.committed(PLACE, 5)
    group.heard("B", by=2)
    group.heard("B", by=1)
    group.takes_on("B")  # by what it had when node 1 was the coordinator
    group.promises.begins_at(PLACE, "B", 0)
    group.promises.gives_up(PLACE, "A")
    group.heard("C", by=2)
    group.takes_on("C")
    group.promises.begins_at(PLACE, "C", 5)
    assert group.findings.broken == []
    group.promises.gives_up(PLACE, "C")
    group.heard("B", by=2)  # with all that it has
    group.takes_on("A")
    assert "A takes it on, B has it" in group.findings.broken[0]


def test_a_member_that_returns_has_no_response_yet() -> None:
    group = Led()
    group.heard("A", by=1)
    group.promises.is_gone("A")
    assert group.promises.unheard_ms("A") > 6_000


def test_a_member_whose_session_is_over_may_miss_its_group() -> None:
    group = Led()
    assert not group.promises.may_miss_its_group("A", 6_000), "it never was in it"
    group.heard("A", by=1)
    group.now += 5.0
    assert not group.promises.may_miss_its_group("A", 6_000), "its session is alive"
    group.promises.leads(0, 2)
    group.now += 1.0
    group.heard("A", by=1)
    assert group.promises.may_miss_its_group("A", 6_000), "only a former coordinator answered"
    group.heard("A", by=2)
    assert not group.promises.may_miss_its_group("A", 6_000)
    group.now += 6.0
    assert group.promises.may_miss_its_group("A", 6_000)
    group.promises.is_gone("A")
    assert not group.promises.may_miss_its_group("A", 6_000), "its next life was not in it yet"


def test_two_owners_in_one_generation(findings: Findings) -> None:
    promises = GroupPromises(findings)
    for generation, client in ((1, "A"), (2, "B"), (3, "A"), (3, "A"), (-1, "B"), (-1, "A")):
        promises.takes_on_in(generation, PLACE, client)
    assert findings.broken == []
    promises.takes_on_in(3, PLACE, "B")
    assert "A and B both take it on in generation 3" in findings.broken[0]


def test_a_commit_that_was_acknowledged_and_lost(findings: Findings) -> None:
    promises = GroupPromises(findings)
    promises.begins_at(PLACE, "A", -1)
    promises.commits(PLACE, "A", 5)
    promises.committed(PLACE, 5)
    promises.commits(PLACE, "A", 9)  # nobody answers
    promises.begins_at(PLACE, "B", 4)
    assert "5 was committed, and B gets 4" in findings.broken[0]


def test_a_commit_that_only_the_next_owner_saw(findings: Findings) -> None:
    """A has processed all 9 records and is killed while its transaction commits. B has nothing left to read and will
    never commit, but the group is at its end.
    """
    promises = GroupPromises(findings)
    promises.begins_at(PLACE, "A", 0)
    promises.commits(PLACE, "A", 5)
    promises.committed(PLACE, 5)
    promises.commits(PLACE, "A", 9)
    assert promises.known_offset(PLACE) == 5, "no later commit is known"
    promises.begins_at(PLACE, "B", 9)
    assert promises.known_offset(PLACE) == 9
    assert not findings.broken


def test_a_position_behind_a_marker_is_not_what_is_committed(findings: Findings) -> None:
    """A member that takes a partition on may skip a marker before anybody looks at its position."""
    promises = GroupPromises(findings)
    promises.begins_at(PLACE, "A", 0, is_committed=False)
    promises.commits(PLACE, "A", 36)
    promises.committed(PLACE, 36)
    promises.begins_at(PLACE, "B", 37, is_committed=False)
    promises.begins_at(PLACE, "C", 36, is_committed=False)
    assert findings.broken == []
    promises.begins_at(PLACE, "D", 35, is_committed=False)
    assert "36 was committed, and D gets 35" in findings.broken[0]


def test_a_commit_that_only_the_next_owner_saw_and_lost(findings: Findings) -> None:
    promises = GroupPromises(findings)
    promises.begins_at(PLACE, "A", 0)
    promises.commits(PLACE, "A", 5)
    promises.committed(PLACE, 5)
    promises.commits(PLACE, "A", 9)  # nobody answers
    promises.begins_at(PLACE, "B", 9)
    promises.begins_at(PLACE, "C", 5)
    assert "9 was committed, and C gets 5" in findings.broken[0]


def test_a_late_commit_of_the_same_owner_may_win(findings: Findings) -> None:
    promises = GroupPromises(findings)
    promises.begins_at(PLACE, "A", 0)
    for offset in (5, 9):
        promises.commits(PLACE, "A", offset)
    promises.committed(PLACE, 9)
    promises.begins_at(PLACE, "B", 5)
    assert not findings.broken


def test_a_commit_of_an_earlier_owner(findings: Findings) -> None:
    promises = GroupPromises(findings)
    promises.begins_at(PLACE, "A", 0)
    promises.commits(PLACE, "A", 5)
    promises.begins_at(PLACE, "B", 0)
    promises.commits(PLACE, "B", 8)
    promises.committed(PLACE, 8)
    promises.commits(PLACE, "A", 6)
    promises.begins_at(PLACE, "C", 5)
    assert "8 was committed, and C gets 5" in findings.broken[0]


class Log:
    """Committed batches of producer 7."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def data(self, epoch: int, sequence: int, records: int = 2, *, transactional: bool = True) -> Log:
        written = [Record(0, 1, None, b"x")] * records
        options = {"producer_id": 7, "producer_epoch": epoch, "base_sequence": sequence}
        self.parts.append(build_batch(written, transactional=transactional, **options))
        return self

    def marker(self, epoch: int, coordinator_epoch: int = 0, *, committed: bool = True) -> Log:
        self.parts.append(build_end_txn_batch(EndTxn(committed, coordinator_epoch), 7, epoch, 1))
        return self

    def __iter__(self) -> Iterator[Batch]:
        offset = 0
        for part in self.parts:
            size = read_header(part, 0).last_offset_delta + 1
            yield Batch(offset, offset + size, 0, part)
            offset += size


@pytest.mark.feature("PR-12", "TX-05", "TX-07")
@pytest.mark.parametrize(
    ("log", "wrong"),
    [
        (Log().data(0, 0).data(0, 2).marker(1).data(1, 0).marker(2), ""),
        (Log().data(0, 0).marker(0).data(0, 2).marker(0), ""),
        (Log().data(0, 0, transactional=False).data(0, 2, transactional=False), ""),
        (Log().data(0, 0).data(0, 3).marker(1), "sequence 3 where 2 was next"),
        (Log().data(0, 0).data(0, 0).marker(1), "sequence 0 where 2 was next"),
        (Log().data(0, 4).marker(1), "sequence 4 where 0 was next"),
        (Log().data(0, 0).marker(1).data(0, 2), "it was at epoch 1"),
        (Log().data(0, 0).marker(1, 5).data(1, 0).marker(2, 4), "after one of epoch 5"),
        (Log().data(0, 0).marker(1).data(1, 0), "a transaction open since"),
        (Log().data(0, 0).data(1, 0).marker(2), "what it began at 0 has not ended"),
    ],
)
def test_batches_of_a_producer_in_a_log(findings: Findings, log: Log, wrong: str) -> None:
    check_producers(findings, KEY, log)
    assert (wrong in findings.broken[0]) if wrong else not findings.broken


@pytest.mark.feature("TX-09")
def test_records_of_a_transaction_without_a_marker_are_not_delivered(findings: Findings) -> None:
    partitions = PartitionPromises(findings, lambda *_: None, lambda: EMPTY_IMAGE, lambda _: 2)
    begun, ended = list(Log().data(0, 0).marker(1))
    producers = partitions._of(KEY).producers
    assert producers.take(begun) is None
    partitions.read_committed(KEY, 1, 0)
    assert not findings.broken
    partitions.read_committed(KEY, 1, 2)
    assert "began at 0 has no marker yet" in findings.broken[0]
    assert producers.take(ended) is None
    partitions.read_committed(KEY, 1, 2)
    assert len(findings.broken) == 1


@pytest.mark.feature("TX-07")
def test_a_transaction_that_never_ends_is_reported_when_all_is_quiet(findings: Findings) -> None:
    partitions = PartitionPromises(findings, lambda *_: None, lambda: EMPTY_IMAGE, lambda _: 2)
    for batch in Log().data(0, 0):
        partitions._of(KEY).producers.take(batch)
    partitions.check_ended(KEY)
    assert "a transaction open since 0" in findings.broken[0]
