"""Each scenario finds the mistake that it is about: planted into the nodes or the client, it must break its promise.

Not just any failure counts: a `Violation`, which says what does not hold.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas.broker.apis.produce_response import ProduceAnswers
from barnabas.broker.coordinator.coordinator import Coordinator
from barnabas.broker.coordinator.shard import Shard
from barnabas.broker.groups.offsets import Offsets
from barnabas.broker.lifecycle import BrokerLifecycle
from barnabas.broker.replication.follower import Follower
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica import IsrChangeWanted, Leading, Replica
from barnabas.broker.transactions.transaction import EndStep, Transaction
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.consumer.partition_state import PartitionState
from barnabas.client.producer import partition_queue
from barnabas.kraft.controller.partition_change import PartitionChange
from barnabas.kraft.quorum_state import QuorumStateFile
from barnabas.kraft.raft import raft
from barnabas.kraft.raft.elections import Elections
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.storage.compaction import Transactions
from barnabas.storage.log import PartitionLog
from barnabas.storage.producer_tracker import ProducerTracker
from barnabas.storage.producers import ProducerStates
from barnabas.storage.recovery import LogLoader
from barnabas.storage.transaction_index import AbortedIndex
from scenarios.catalogue import SCENARIOS, Act
from scenarios.stage import Violation, leaves_of

pytestmark = pytest.mark.feature("FI-11")


def nothing(*_: object, **__: object) -> None:
    return None


def never(*_: object, **__: object) -> bool:
    return False


def always(*_: object, **__: object) -> bool:
    return True


def acknowledge_before_replication(self: Replica, required_offset: int) -> tuple[bool, ErrorCode | None]:
    return True, self.leader_error()


_start = Follower.start


def cut_at_the_high_watermark(self: Follower, leader_epoch: int) -> None:
    log: Any = self._log
    log.truncate_to(log.high_watermark)
    _start(self, leader_epoch)


_propose = Replica._propose


def count_on_a_proposal(self: Replica, role: Leading, isr: frozenset[int]) -> IsrChangeWanted:
    role.maximal_isr = isr
    return _propose(self, role, isr)


def end_whatever_is_open(self: Transaction, *_: object) -> EndStep:
    return EndStep.END if self.state.name == "ONGOING" else EndStep.REPEATED


_marker = Offsets.replay_marker


def commit_what_was_aborted(self: Offsets, producer: Any, committed: bool) -> None:
    _marker(self, producer, True)


_close = Consumer._close_in_time


async def close_in_its_own_time(self: Consumer, timeout_ms: int, *rest: Any, **more: Any) -> None:
    await _close(self, 30_000, *rest, **more)


_fail = ProduceAnswers.fail


def an_offset_in_an_error(self: Any, answer: Any, *rest: Any, **more: Any) -> None:
    _fail(self, answer, *rest, **more)
    answer.base_offset = 0


_gather = PartitionChange._gather_elr


def forgive_an_unclean_restart(self: PartitionChange) -> None:
    """Makes the last known replicas eligible again, whatever they lost."""
    self.unclean_restarts = ()
    _gather(self)
    if not self.isr:
        self._elr = tuple(sorted({*self._elr, *self.partition.isr, *self.partition.last_known_elr, *self.replicas}))


_objection = raft.objection


def grant_every_pre_vote(request: Any, role: Any, log_end: Any) -> str:
    return "" if request.pre_vote else _objection(request, role, log_end)


_register = BrokerLifecycle._register


async def register_or_give_up(self: BrokerLifecycle) -> None:
    self.times = replace(self.times, registration_timeout_ms=3_000)
    await _register(self)


def the_end_is_the_end(self: PartitionLog, epoch: int) -> tuple[int, int]:
    return epoch, self.log_end_offset


_begin_verification = ProducerStates.begin_verification


def verify_any_producer(self: ProducerStates, *arguments: Any, **more: Any) -> Any:
    try:
        return _begin_verification(self, *arguments, **more)
    except KafkaError:
        return None


_load = Shard.load


async def load_once_only(self: Shard[Any]) -> None:
    if self.epoch == 0:
        await _load(self)


_replay_record = Shard._replay_record


def overlook_tombstones(self: Shard[Any], record: Any, producer: Any) -> None:
    if record.value is not None:
        _replay_record(self, record, producer)


def campaign_at_once(self: Elections, _cause: str) -> None:
    """Without asking for pre-votes."""
    self.become_candidate(())


Patch = tuple[object, str, object]

PLANTED: dict[str, tuple[Patch, ...]] = {
    "repeated_after_failover": ((ProducerTracker, "check", nothing),),
    "repeated_after_restart": ((ProducerTracker, "_replay", nothing),),
    "deposed_leader_gives_offsets": ((Replica, "enough_replicas", acknowledge_before_replication),),
    "open_transaction_past_failovers": (
        (PartitionLog, "last_stable_offset", property(lambda self: self.high_watermark)),
    ),
    "elected_and_not_current": ((Replica, "high_watermark_is_current", property(always)),),
    "stale_replica": ((Replica, "is_forgotten", never),),
    "not_leader_after_append": (
        (
            partition_queue,
            "NEVER_APPENDED",
            partition_queue.NEVER_APPENDED | {ErrorCode.NOT_LEADER_OR_FOLLOWER},
        ),
    ),
    "cut_off_leader": ((Replica, "is_forgotten", never),),
    "writer_of_a_cut_off_leader": ((Partition, "_cannot_replicate", property(never)),),
    "controllers_are_gone": ((Replica, "is_forgotten", lambda self, _, may_be_fenced: may_be_fenced),),
    "cut_off_coordinator": ((Shard, "may_be_deposed", property(never)),),
    "cut_off_transactions": ((Shard, "may_be_deposed", property(never)),),
    "member_of_a_cut_off_coordinator": ((Coordinator, "check_forgotten", nothing),),
    "groups_without_controllers": ((Replica, "is_forgotten", lambda self, _, may_be_fenced: may_be_fenced),),
    "producer_ids_past_a_pause": ((Shard, "load", load_once_only),),
    "no_offset_in_errors": ((ProduceAnswers, "fail", an_offset_in_an_error),),
    "acked_below_the_high_watermark": ((Replica, "enough_replicas", acknowledge_before_replication),),
    "brokers_before_controllers": ((BrokerLifecycle, "_register", register_or_give_up),),
    "late_commit": ((Transaction, "check_end", end_whatever_is_open),),
    "late_abort": ((Transaction, "check_end", end_whatever_is_open),),
    "late_first_batch": ((Transaction, "_check_producer", nothing),),
    "late_second_batch": (
        (ProducerStates, "check", nothing),
        (ProducerStates, "begin_verification", verify_any_producer),
    ),
    "late_batch_of_an_old_client": (
        (ProducerStates, "_check_begins", nothing),
        (ProducerStates, "begin_verification", nothing),
    ),
    "clients_close_in_time": ((Consumer, "_close_in_time", close_in_its_own_time),),
    "position_after_abort": ((Offsets, "replay_marker", commit_what_was_aborted),),
    "timeout_is_not_the_end": ((Transaction, "check_end", end_whatever_is_open),),
    "last_replica_loses_power": ((PartitionChange, "_gather_elr", forgive_an_unclean_restart),),
    "two_leaders_in_a_row_die": ((Follower, "start", cut_at_the_high_watermark),),
    "chain_of_epochs": ((PartitionLog, "end_offset_for_epoch", the_end_is_the_end),),
    "reader_after_truncation": ((PartitionState, "validated", nothing),),
    "zombie_leader": (
        (Replica, "enough_replicas", acknowledge_before_replication),
        (Partition, "_cannot_replicate", property(never)),
    ),
    "shrink_that_is_refused": ((Replica, "_propose", count_on_a_proposal),),
    "fetches_of_other_epochs": ((Replica, "follower_error", nothing),),
    "coordinator_moves": ((Shard, "check_active", nothing),),
    "deleted_offsets_stay_deleted": ((Shard, "_replay_record", overlook_tombstones),),
    "compacted_transactions": ((Transactions, "is_aborted", never),),
    "half_of_an_aborted_transaction": ((AbortedIndex, "collect", lambda *_: ([], True)),),
    "vote_before_a_power_cut": ((QuorumStateFile, "write", nothing),),
    "returning_controller": ((Elections, "become_prospective", campaign_at_once),),
    "ring_and_bridge": ((raft, "objection", grant_every_pre_vote),),
    "crash_at_every_write": ((LogLoader, "_recover_from", nothing),),
    "power_cut_at_every_write": ((LogLoader, "_recover_from", nothing),),
}
"""The stories of scenarios, and what is planted for each."""

CHEAP = {
    "repeated_after_failover",
    "deposed_leader_gives_offsets",
    "open_transaction_past_failovers",
    "elected_and_not_current",
    "stale_replica",
    "not_leader_after_append",
    "no_offset_in_errors",
    "acked_below_the_high_watermark",
    "late_commit",
    "late_first_batch",
    "late_batch_of_an_old_client",
    "position_after_abort",
    "two_leaders_in_a_row_die",
    "shrink_that_is_refused",
    "coordinator_moves",
    "cut_off_coordinator",
    "cut_off_transactions",
    "member_of_a_cut_off_coordinator",
    "groups_without_controllers",
    "vote_before_a_power_cut",
}
"""Scenarios of each run of the tests; the others take longer."""


def act_of(name: str) -> Act:
    return next(act for scenario in SCENARIOS.values() for act in scenario.acts if act.name == name)


def planted(*, cheap: bool) -> list[str]:
    return [name for name in PLANTED if (name in CHEAP) == cheap]


def must_find(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, attribute, mistake in PLANTED[name]:
        monkeypatch.setattr(owner, attribute, mistake)
    with pytest.raises((Exception, BaseExceptionGroup)) as caught:
        act_of(name).play(1)
    found = [leaf for leaf in leaves_of(caught.value) if isinstance(leaf, Violation)]
    assert found, f"{caught.value!r} is no broken promise"


@pytest.mark.parametrize("name", planted(cheap=True))
def test_a_scenario_finds_what_it_is_about(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    must_find(name, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", planted(cheap=False))
def test_and_so_do_the_others(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    must_find(name, monkeypatch)
