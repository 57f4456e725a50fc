"""All regression scenarios by name: what each is about, where it comes from, and how it is played.

A scenario has one act or several, each with a simulated cluster of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scenarios import consumers, coordinators, producers, quorum, recovery, replication, transactions
from scenarios.stage import Stage

Story = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Act:
    """One story."""

    story: Story
    settings: Mapping[str, str] = field(default_factory=dict)
    features: Mapping[str, int] | None = None

    @property
    def name(self) -> str:
        return self.story.__name__

    def play(self, seed: int) -> Stage:
        """To its end, in a universe of its own; gives what is left of it. Violation, NotBroughtAbout."""
        stage = Stage(seed, self.settings, features=self.features)
        stage.play(self.story)
        return stage


@dataclass(frozen=True, slots=True)
class Scenario:
    number: int
    name: str
    title: str
    source: str
    """The system, and its issue, in which it went wrong."""
    acts: tuple[Act, ...]
    rows: tuple[str, ...] = ()
    """Rows of docs/features.md."""

    def play(self, seed: int) -> None:
        for act in self.acts:
            act.play(seed)


def _acts(*stories: Story | Act) -> tuple[Act, ...]:
    return tuple(story if isinstance(story, Act) else Act(story) for story in stories)


def _make(number: int, name: str, title: str, source: str, *stories: Story | Act, **more: Any) -> Scenario:
    return Scenario(number, name, title, source, _acts(*stories), **more)


REDPANDA = "Redpanda 21.10"
BUFSTREAM = "Bufstream 0.1"

_ALL = (
    _make(
        1,
        "duplicate",
        "an idempotent producer repeats a batch past a failover or a restart",
        f"{REDPANDA} #3039",
        producers.repeated_after_failover,
        producers.repeated_after_restart,
        rows=("PR-11", "PR-12", "ST-12", "FI-09"),
    ),
    _make(
        2,
        "inconsistent-offsets",
        "a deposed leader gives an offset for what is replaced",
        f"{REDPANDA} #3003",
        replication.deposed_leader_gives_offsets,
        rows=("RE-05", "RE-10", "RE-13", "FI-07", "FI-09"),
    ),
    _make(
        3,
        "aborted-read",
        "committed records are read past a failover in the midst of a transaction",
        f"{REDPANDA} #3036, #5090; KIP-207",
        transactions.open_transaction_past_failovers,
        transactions.elected_and_not_current,
        rows=("TX-08", "TX-09", "TX-10", "RE-03"),
    ),
    _make(
        4,
        "stale-replica",
        "a reader is at the end of a replica that lags, and does not know",
        f"{REDPANDA}; KIP-392",
        Act(consumers.stale_replica, consumers.RACKS),
        rows=("RE-15", "RE-14"),
    ),
    _make(
        5,
        "mistakes-are-contained",
        "freezes, cuts, nonsense and a mistake of our own take no node down, and are logged",
        REDPANDA,
        recovery.pauses_and_garbage,
        recovery.mistake_in_one_request,
        rows=("MB-02", "MB-03"),
    ),
    _make(
        6,
        "not-leader-after-append",
        "NOT_LEADER for what was appended is not taken for a failure",
        f"{REDPANDA}; KAFKA-13574",
        producers.not_leader_after_append,
        rows=("PR-10", "PR-11", "FI-09"),
    ),
    _make(
        7,
        "stuck-reader",
        "a deposed leader, cut off from all but its readers, sends them away",
        BUFSTREAM,
        consumers.cut_off_leader,
        consumers.writer_of_a_cut_off_leader,
        consumers.controllers_are_gone,
        rows=("RE-05", "RE-14", "CG-22", "FI-09"),
    ),
    _make(
        8,
        "stuck-producer",
        "producer ids are given again after a pause of the coordinator",
        BUFSTREAM,
        transactions.producer_ids_past_a_pause,
        rows=("TX-02",),
    ),
    _make(
        9,
        "offset-in-an-error",
        "no answer with an error names an offset",
        BUFSTREAM,
        producers.no_offset_in_errors,
        rows=("PR-10", "RE-09"),
    ),
    _make(
        10,
        "acked-too-early",
        "nothing is acknowledged, or shown, before all in sync have it",
        BUFSTREAM,
        producers.acked_below_the_high_watermark,
        rows=("RE-03", "RE-05", "RE-09", "RE-10", "FI-07"),
    ),
    _make(
        11,
        "nobody-to-ask",
        "brokers that start before their controllers wait, unready",
        BUFSTREAM,
        recovery.brokers_before_controllers,
        recovery.unready_is_not_asked,
        rows=("MB-01", "MB-03"),
    ),
    _make(
        12,
        "late-end-of-a-transaction",
        "a request that ends one transaction arrives in the midst of the next",
        "KAFKA-17754; KIP-890",
        transactions.late_commit,
        transactions.late_abort,
        rows=("TX-05", "TX-06", "FI-09"),
    ),
    _make(
        13,
        "hanging-transaction",
        "a batch arrives when its transaction was aborted",
        "KIP-890",
        transactions.late_first_batch,
        transactions.late_second_batch,
        Act(transactions.late_batch_of_an_old_client, features={"transaction.version": 1}),
        rows=("TX-05", "TX-07", "TX-11", "TX-14", "FI-09"),
    ),
    _make(
        14,
        "close-in-time",
        "clients close in time though nobody answers",
        "KAFKA-17734",
        consumers.clients_close_in_time,
        rows=("PR-14", "CL-03"),
    ),
    _make(
        15,
        "position-after-abort",
        "an abort does not move the reader",
        "KAFKA-17582",
        consumers.position_after_abort,
        rows=("TX-13", "CG-01"),
    ),
    _make(
        16,
        "timeout-of-a-transaction",
        "a transaction that took too long gets an error, and the process goes on",
        "KIP-588, KIP-360",
        transactions.timeout_is_not_the_end,
        rows=("TX-11", "TX-12"),
    ),
    _make(
        17,
        "last-replica-standing",
        "the last member of the ISR loses power, and may not lead",
        "KIP-966",
        replication.last_replica_loses_power,
        rows=("MB-15", "RE-10", "RE-11", "FI-07"),
    ),
    _make(
        18,
        "truncation-by-epoch",
        "logs that diverge are cut by epochs, and readers get an error",
        "KIP-101, KIP-279, KIP-320",
        replication.two_leaders_in_a_row_die,
        replication.chain_of_epochs,
        replication.reader_after_truncation,
        rows=("RE-12", "RE-13", "RE-10", "FI-07"),
    ),
    _make(
        19,
        "zombies",
        "a leader and a controller sleep through elections, and wake up",
        "KIP-497, KIP-903",
        replication.zombie_leader,
        replication.zombie_controller,
        rows=("FI-09", "RE-08", "RE-14", "KR-16"),
    ),
    _make(
        20,
        "refused-shrink",
        "a shrink of the ISR that the controller refuses has acknowledged nothing",
        "KAFKA-13091; KIP-497",
        replication.shrink_that_is_refused,
        rows=("RE-06", "RE-08", "RE-10", "FI-07"),
    ),
    _make(
        21,
        "fetches-of-another-time",
        "sessions that were forgotten, epochs that are over, offsets that are deleted",
        "KIP-227, KIP-320, KIP-903",
        replication.session_after_restart,
        replication.fetches_of_other_epochs,
        replication.epochs_below_the_log_start,
        rows=("RE-14", "RE-16", "RE-17", "FI-09"),
    ),
    _make(
        22,
        "coordinator-moves",
        "a coordinator answers nothing before it has read its log, and then all of it",
        "KAFKA-10793 and its like",
        consumers.coordinator_moves,
        consumers.deleted_offsets_stay_deleted,
        rows=("CG-03", "CG-04", "CG-12"),
    ),
    _make(
        23,
        "cleaning-and-transactions",
        "compaction, retention and deletion spare what readers of transactions need",
        "KAFKA-9777, KAFKA-12671 and their like",
        Act(transactions.compacted_transactions, transactions.CLEANING),
        transactions.half_of_an_aborted_transaction,
        transactions.deletion_and_a_lagging_follower,
        rows=("TX-09", "ST-08", "RE-17"),
    ),
    _make(
        24,
        "quorum",
        "votes, pre-votes, bridges, rings, full disks and snapshots of the controllers",
        "KIP-595, KIP-630, KIP-996",
        quorum.vote_before_a_power_cut,
        quorum.returning_controller,
        quorum.ring_and_bridge,
        quorum.full_disk,
        quorum.cut_off_controller_decides_nothing,
        Act(quorum.snapshots_and_cuts, quorum.SNAPSHOTS),
        rows=("KR-03", "KR-04", "KR-05", "KR-10", "KR-17", "FI-06"),
    ),
    _make(
        25,
        "crash-at-every-write",
        "a broker dies at each write of its recovery, and again in the next one",
        "ALICE; KAFKA-10702 and its like",
        Act(recovery.crash_at_every_write, recovery.RECOVERY),
        Act(recovery.power_cut_at_every_write, recovery.RECOVERY),
        rows=("ST-10", "ST-13", "FI-08"),
    ),
    _make(
        26,
        "cut-off-coordinator",
        "a coordinator is cut off from all nodes, and not from its clients",
        "our own, found by a review",
        coordinators.cut_off_coordinator,
        coordinators.cut_off_transactions,
        coordinators.member_of_a_cut_off_coordinator,
        coordinators.groups_without_controllers,
        rows=("CG-12", "TX-01", "FI-09"),
    ),
)

SCENARIOS: Mapping[str, Scenario] = {scenario.name: scenario for scenario in _ALL}
"""By name, in the order of their numbers."""


def find(name: str) -> Scenario | None:
    """By its name or its number."""
    if name.isdigit():
        return next((scenario for scenario in _ALL if scenario.number == int(name)), None)
    return SCENARIOS.get(name)
