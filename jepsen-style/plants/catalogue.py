"""All plants by name."""

from __future__ import annotations

from dataclasses import replace

from barnabas.broker.apis.produce_response import ProduceAnswers
from barnabas.broker.apis.transactional_produce import TransactionalProduce
from barnabas.broker.coordinator.shard import Shard
from barnabas.broker.delayed.replay import Replay
from barnabas.broker.delayed.schedule import Schedule
from barnabas.broker.forwarding import Forwarding
from barnabas.broker.groups.classic_group import ClassicGroup
from barnabas.broker.groups.offsets import Offsets
from barnabas.broker.remote.copier import Copier
from barnabas.broker.remote.expirer import Expirer
from barnabas.broker.remote.follower_states import FollowerStates
from barnabas.broker.remote.reader import RemoteReader
from barnabas.broker.remote.remote_pass import RemotePass
from barnabas.broker.remote.segment_store import RemoteSegmentStore
from barnabas.broker.replication.follower import Follower
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica import Replica
from barnabas.broker.shares.acquisition import Acquisition
from barnabas.broker.shares.in_flight import InFlight
from barnabas.broker.shares.led_partitions import LedSharePartitions
from barnabas.broker.shares.share_partition import SharePartition
from barnabas.broker.shares.state_client import ShareStateClient
from barnabas.broker.shares.state_machine import ShareStateMachine
from barnabas.broker.shares.stored_state import StoredState
from barnabas.broker.transactions.machine import TransactionMachine
from barnabas.broker.transactions.markers import MarkerWriter
from barnabas.broker.transactions.transaction import Transaction
from barnabas.cluster.errors import WrongArgument
from barnabas.kraft.authorizer.compiled import CompiledAcls
from barnabas.kraft.authorizer.compiling import _Compiling
from barnabas.kraft.authorizer.standard import StandardAuthorizer
from barnabas.kraft.controller.placement import _Wheel
from barnabas.kraft.quorum_state import QuorumStateFile
from barnabas.kraft.raft.voter_changes import VoterChanges
from barnabas.kraft.raft.voters import ReplicaKey
from barnabas.runtime.background import Background
from barnabas.runtime.meter import Meter
from barnabas.runtime.sasl.mechanisms import _ScramUsers
from barnabas.runtime.server_connection import ServerConnection
from barnabas.storage.compaction import Compaction
from barnabas.storage.log import PartitionLog
from barnabas.storage.producers import ProducerStates
from barnabas.storage.transaction_index import AbortedIndex
from plants import (
    coordinating,
    delaying,
    preparing,
    producing,
    quorum,
    replication,
    rights,
    serving,
    sharing,
    tiering,
)
from plants.plant import Patch, Plant, Trial

_SOON = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "400"}
"""A node that is cut off is deposed long before the cut is healed."""
_LATE = {"broker.session.timeout.ms": "9000"}
"""A paused node is admitted again, but not before clients have retried."""
_CUT_OFF = Trial(nemesis=["partition"], interval_seconds=8.0, time_seconds=30.0, settings=_SOON)
_IMPATIENT = Trial(nemesis=["pause"], interval_seconds=8.0, time_seconds=30.0, settings=_LATE)
_ASIDE = Trial(
    "offsets", nemesis=["cut-off"], interval_seconds=8.0, time_seconds=90.0, concurrency=8, rate=4.0, settings=_SOON
)
"""Few commits: one that a coordinator accepts just before it learns that it is isolated holds up all its responses."""
_RIGHTS = Trial("rights", rate=40.0, concurrency=4, time_seconds=20.0, runs=3)

_SHARE = Trial("share", rate=40.0, concurrency=6, time_seconds=25.0, quiet_seconds=3.0, runs=5)
_DELAYED = Trial("delayed", rate=30.0, concurrency=4, time_seconds=20.0, quiet_seconds=3.0, runs=3)
_DELAYED_KILLS = replace(_DELAYED, nemesis=["kill"], interval_seconds=6.0, time_seconds=30.0, runs=5)
_TWO_PHASE = Trial("two-phase", rate=30.0, concurrency=4, time_seconds=25.0, quiet_seconds=3.0, runs=5)
_TIERED = Trial(
    "tiered",
    rate=30.0,
    time_seconds=40.0,
    quiet_seconds=3.0,
    settings={
        "remote.log.storage.system.enable": "true",
        "barnabas.remote.store.url": "file:///store",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "300",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    },
    runs=5,
)
_SHARE_KILLS = replace(_SHARE, nemesis=["kill"], interval_seconds=6.0, time_seconds=40.0)

_SHARE_CUTS = replace(_SHARE_KILLS, nemesis=["partition", "pause", "kill"], interval_seconds=4.0, runs=30)
"""Leaders that are deposed, or cut off from share coordinators, while members acknowledge."""


class NoSuchPlant(WrongArgument):
    """There is no plant of that name; the message is one line with the names that exist."""


def find(name: str | None) -> Plant | None:
    """The plant of that name, None for None. Raises NoSuchPlant."""
    if name is None:
        return None
    plant = PLANTS.get(name)
    if plant is None:
        raise NoSuchPlant(f"there is no plant {name}; there are: {', '.join(PLANTS)}")
    return plant


_ALL = (
    Plant(
        "ack-before-replication",
        "acks=all is answered as soon as the leader has written",
        [Patch(Replica, "enough_replicas", replication.acknowledge_before_replication)],
        ["lost-write", "unseen", "inconsistent-offsets"],
        _CUT_OFF,
        _CUT_OFF,
    ),
    Plant(
        "high-watermark-off-by-one",
        "the high watermark is the end of the ISR plus one",
        [Patch(Replica, "_advance", replication.advance_by_one_too_many)],
        ["lost-write", "unseen", "inconsistent-offsets", "high-watermark-regress"],
        _CUT_OFF,
        _CUT_OFF,
    ),
    Plant(
        "truncation-by-high-watermark",
        "a follower of a new leader cuts its log at its own high watermark (before KIP-101)",
        [Patch(Follower, "start", replication.cut_at_the_high_watermark)],
        ["lost-write", "unseen", "inconsistent-offsets"],
        Trial(story="leaders-die-in-turn", runs=3),
        Trial(story="leaders-die-in-turn", runs=3),
    ),
    Plant(
        "deposed-leader-serves",
        "a leader does not learn that another was elected, and continues to serve",
        [Patch(Replica, "partition_changed", replication.go_on_leading)],
        ["not-whole", "nonlinearizable", "commit-regress"],
        replace(_CUT_OFF, nemesis=["pause"], time_seconds=15.0, quiet_seconds=20.0, runs=24),
        replace(_CUT_OFF, nemesis=["pause"], time_seconds=15.0, quiet_seconds=20.0),
    ),
    Plant(
        "reads-past-high-watermark",
        "consumers are given what is written, replicated or not, committed or not",
        [Patch(Partition, "_read", replication.read_to_the_end)],
        ["G1a", "precommitted-read", "inconsistent-offsets", "lost-write"],
        Trial(),
        Trial(),
    ),
    Plant(
        "no-dedup",
        "a batch that an idempotent producer sends again is written again",
        [Patch(ProducerStates, "check", producing.take_repetitions)],
        ["duplicate"],
        _IMPATIENT,
        _IMPATIENT,
    ),
    Plant(
        "no-fencing",
        "the epochs of producers mean nothing: who was fenced goes on writing and ending transactions",
        [
            Patch(ProducerStates, "check", producing.take_old_epochs),
            Patch(ProducerStates, "begin_verification", producing.verify_no_old_epochs),
            Patch(Transaction, "_check_producer", producing.know_no_epochs),
        ],
        ["zombie-append", "zombie-commit", "G1a"],
        Trial("fences"),
        Trial("fences"),
    ),
    Plant(
        "unverified-writes",
        "a late batch of a transaction that is over begins a new one that never ends (before KIP-890)",
        [
            Patch(TransactionalProduce, "_verified", producing.append_despite_the_verification),
            Patch(ProducerStates, "_check_begins", producing.let_anything_begin_a_transaction),
        ],
        ["unseen", "G1a"],
        Trial(nemesis=["pause"]),
        Trial(nemesis=["pause"]),
    ),
    Plant(
        "offset-zero-in-errors",
        "a refused batch is answered with offset 0, as if it had been taken",
        [Patch(ProduceAnswers, "fail", producing.answer_errors_with_offset_zero)],
        ["inconsistent-offsets", "lost-write", "unseen"],
        _CUT_OFF,
        _CUT_OFF,
    ),
    Plant(
        "last-stable-offset-too-high",
        "readers of committed records are given open transactions",
        [Patch(PartitionLog, "last_stable_offset", coordinating.take_open_transactions_for_stable)],
        ["G1a", "precommitted-read", "G1c"],
        Trial(),
        Trial(),
    ),
    Plant(
        "no-aborted-list",
        "readers of committed records get no list of aborted transactions",
        [Patch(AbortedIndex, "collect", coordinating.list_no_aborted)],
        ["G1a"],
        Trial(),
        Trial(),
    ),
    Plant(
        "marker-skipped",
        "one partition of each transaction gets no marker",
        [Patch(MarkerWriter, "_route", coordinating.skip_a_partition)],
        ["unseen", "G1a"],
        Trial(),
        Trial(),
    ),
    Plant(
        "epoch-kept",
        "the end of a transaction does not raise its producer's epoch",
        [Patch(Transaction, "prepared", coordinating.keep_the_epoch)],
        ["unseen", "G1a", "lost-write"],
    ),
    Plant(
        "aborted-offsets-count",
        "offsets of an aborted transaction are committed",
        [Patch(Offsets, "replay_marker", coordinating.commit_what_was_aborted)],
        ["aborted-offsets", "lost-offsets", "lost-output"],
        Trial(story="offsets-of-an-abort", runs=3),
        Trial(story="offsets-of-an-abort", runs=3),
    ),
    Plant(
        "lost-commit",
        "a group coordinator that takes over does not load the last batch",
        [Patch(Shard, "_load_stretch", coordinating.load_all_but_the_last)],
        ["lost-commit", "commit-regress"],
        Trial("group", nemesis=["kill"]),
        Trial("group", nemesis=["kill"]),
    ),
    Plant(
        "coordinator-answers-early",
        "a coordinator responds before its records are replicated",
        [Patch(Shard, "_answer_when_committed", coordinating.answer_before_replication)],
        ["lost-commit", "commit-regress", "two-owners"],
        replace(_CUT_OFF, workload="group"),
        replace(_CUT_OFF, workload="group"),
    ),
    Plant(
        "deposed-coordinator",
        "a coordinator that reaches neither controllers nor followers continues to answer its clients",
        [Patch(Shard, "may_be_deposed", coordinating.coordinate_on)],
        ["deposed-coordinator"],
        _ASIDE,
        _ASIDE,
    ),
    Plant(
        "strangers-commit",
        "members that are out of their group may commit for it",
        [Patch(ClassicGroup, "check_commit", coordinating.let_strangers_commit)],
        ["stale-generation", "commit-regress"],
    ),
    Plant(
        "two-owners",
        "all members of a group are assigned what its leader is",
        [Patch(ClassicGroup, "sync_response", coordinating.give_every_member_the_leaders_assignment)],
        ["two-owners"],
        Trial("group"),
        Trial("group"),
    ),
    Plant(
        "forgotten-vote",
        "a voter keeps its vote in memory only",
        [Patch(QuorumStateFile, "write", quorum.forget_votes)],
        ["two-leaders"],
        Trial(story="voter-comes-again", runs=3),
        Trial(story="voter-comes-again", runs=3),
    ),
    Plant(
        "two-changes-of-voters",
        "a leader changes the voters again before its previous change is committed",
        [Patch(VoterChanges, "_refusal", quorum.change_voters_twice_at_once)],
        ["broken-promise"],
    ),
    Plant(
        "change-before-commit",
        "a new leader changes the voters before it has committed anything",
        [Patch(VoterChanges, "_refusal", quorum.change_voters_before_a_commit)],
        ["broken-promise"],
    ),
    Plant(
        "votes-by-id-alone",
        "a voter that lost its disk goes on to vote with an empty one",
        [Patch(ReplicaKey, "matches", quorum.take_another_disk_for_the_voter)],
        ["broken-promise"],
    ),
    Plant(
        "two-replicas-on-a-host",
        "replicas of a partition are placed on brokers that share a host",
        [Patch(_Wheel, "next", quorum.place_without_hosts)],
        ["broken-promise"],
    ),
    Plant(
        "deleted-acls-apply",
        "an authorizer goes on to apply ACLs that are deleted",
        [Patch(_Compiling, "remove", rights.keep_deleted_acls)],
        ["forbidden-success", "false-denial"],
        _RIGHTS,
    ),
    Plant(
        "rights-by-name-alone",
        "an authorizer remembers its decisions by the name of the resource: for every user, operation and type",
        [Patch(StandardAuthorizer, "_decide", rights.remember_by_name)],
        ["forbidden-success", "false-denial"],
        _RIGHTS,
    ),
    Plant(
        "forwarded-as-broker",
        "a request that a broker forwards has the rights of the broker",
        [Patch(StandardAuthorizer, "_decide", rights.trust_what_is_forwarded)],
        ["forbidden-success"],
        _RIGHTS,
    ),
    Plant(
        "denials-lose",
        "an ACL that allows wins over those that deny",
        [Patch(CompiledAcls, "match", rights.let_denials_lose)],
        ["forbidden-success"],
        _RIGHTS,
    ),
    Plant(
        "passwords-are-kept",
        "a broker goes on to take the first password that it saw of a user",
        [Patch(_ScramUsers, "_identify", rights.remember_passwords)],
        ["login-with-old-password", "refused-login"],
        _RIGHTS,
    ),
    Plant(
        "locks-never-expire",
        "an acquisition lock has no end: what a member keeps, nobody else gets",
        [Patch(SharePartition, "next_deadline_ms", sharing.never_expire)],
        ["not-drained", "broken-promise"],
        _SHARE,
        _SHARE,
    ),
    Plant(
        "anyone-acknowledges",
        "a member may acknowledge records that another one has acquired",
        [Patch(SharePartition, "_check_owner", sharing.let_others_acknowledge)],
        ["acknowledged-unheld", "accepted-twice", "redelivered", "broken-promise"],
        _SHARE,
        _SHARE,
    ),
    Plant(
        "counts-are-not-stored",
        "delivery counts are not stored: after a failover they begin again",
        [Patch(ShareStateClient, "write", sharing.store_no_counts)],
        ["count-went-back", "broken-promise"],
        _SHARE_KILLS,
        replace(_SHARE_KILLS, runs=20),
    ),
    Plant(
        "confirmed-before-stored",
        "an acknowledgement is confirmed before its state is stored, also if that fails",
        [Patch(LedSharePartitions, "_store", sharing.answer_before_it_is_stored)],
        ["redelivered", "accepted-twice", "broken-promise"],
        _SHARE_CUTS,
        _SHARE_CUTS,
    ),
    Plant(
        "share-leaders-are-not-fenced",
        "a leader that was replaced goes on to deliver records, and share coordinators store what it writes",
        [
            Patch(LedSharePartitions, "leadership_changed", sharing.lead_on),
            Patch(ShareStateMachine, "write", sharing.fence_no_leaders),
        ],
        ["redelivered", "accepted-twice", "count-went-back", "acknowledged-unheld", "broken-promise"],
        _SHARE_CUTS,
        _SHARE_CUTS,
    ),
    Plant(
        "snapshot-drops-a-batch",
        "a snapshot of a share partition's state has all batches but the first",
        [Patch(StoredState, "snapshot_record", sharing.snapshot_without_a_batch)],
        ["redelivered", "accepted-twice", "count-went-back", "broken-promise"],
        replace(_SHARE_KILLS, runs=20),
        replace(_SHARE_KILLS, runs=20),
    ),
    Plant(
        "release-skips-a-record",
        "what a member leaves behind is released but for one record",
        [Patch(SharePartition, "release", sharing.release_all_but_the_last)],
        ["not-drained", "broken-promise"],
        _SHARE,
        _SHARE,
    ),
    Plant(
        "stored-states-are-not-read",
        "a new leader of a share partition takes the start offset alone from the stored state",
        [Patch(ShareStateClient, "read", sharing.forget_what_is_acknowledged)],
        ["redelivered", "accepted-twice", "count-went-back", "broken-promise"],
        _SHARE_KILLS,
        _SHARE_KILLS,
    ),
    Plant(
        "start-passes-acquired-records",
        "the start offset of a share partition moves over records that members still have",
        [Patch(InFlight, "advance", sharing.skip_what_is_acquired)],
        ["lost-record", "never-delivered", "broken-promise"],
        _SHARE,
        _SHARE,
    ),
    Plant(
        "deliveries-are-not-counted",
        "a record that is delivered again has the delivery count that it had",
        [Patch(Acquisition, "_acquire_again", sharing.count_no_deliveries)],
        ["count-went-back", "count-over-limit", "not-drained", "broken-promise"],
        _SHARE,
        _SHARE,
    ),
    Plant(
        "delivers-early",
        "a delayed record is delivered almost a second before its time",
        [Patch(Schedule, "add", delaying.deliver_early)],
        ["early"],
        _DELAYED,
        _DELAYED,
    ),
    Plant(
        "delivers-again",
        "a new leader delivers the delayed records again that its predecessor has delivered",
        [Patch(Replay, "add", delaying.deliver_again)],
        ["delivered-twice"],
        _DELAYED_KILLS,
        _DELAYED_KILLS,
    ),
    Plant(
        "forgets-pending-records",
        "a new leader does not know the delayed records that wait in its log",
        [Patch(Replay, "add", delaying.forget_what_is_pending)],
        ["undelivered"],
        _DELAYED_KILLS,
        _DELAYED_KILLS,
    ),
    Plant(
        "prepared-are-aborted-at-the-start",
        "a producer that starts aborts the transaction that its predecessor has prepared",
        [Patch(Transaction, "is_two_phase", preparing.abort_at_the_start)],
        ["lost-write"],
        _TWO_PHASE,
        _TWO_PHASE,
    ),
    Plant(
        "prepared-time-out",
        "a prepared transaction is aborted a second after it began",
        [Patch(Transaction, "timed_out", preparing.let_time_end_it)],
        ["lost-write"],
        _TWO_PHASE,
        _TWO_PHASE,
    ),
    Plant(
        "claims-forget-who-prepared",
        "the second producer that claims a prepared transaction is given another state than the one that was decided",
        [Patch(TransactionMachine, "_claim", preparing.forget_who_prepared_it)],
        ["lost-write"],
        _TWO_PHASE,
        _TWO_PHASE,
    ),
    Plant(
        "deletes-what-is-not-copied",
        "local retention deletes closed segments that are not in the remote store",
        [Patch(Copier, "_learn", tiering.take_what_is_closed_for_copied)],
        ["lost-write", "unseen"],
        _TIERED,
    ),
    Plant(
        "failed-copies-count",
        "a segment counts as remote although the store has not taken all of it",
        [Patch(RemoteSegmentStore, "copy", tiering.take_a_failed_copy_for_done)],
        ["lost-write", "unseen"],
        replace(_TIERED, nemesis=["store"], interval_seconds=4.0, runs=10),
    ),
    Plant(
        "copies-what-is-not-committed",
        "closed segments are copied although a transaction in them is open",
        [Patch(Copier, "round", tiering.copy_open_transactions)],
        ["broken-promise"],
    ),
    Plant(
        "expires-another-lineage",
        "a leader deletes remote segments that leaders before it wrote",
        [Patch(Expirer, "_facts", tiering.expire_earlier_epochs)],
        ["lost-write", "unseen"],
        replace(_TIERED, nemesis=["kill"], interval_seconds=6.0, time_seconds=60.0, runs=10),
    ),
    Plant(
        "begins-without-producers",
        "a follower that begins behind remote segments does not know their producers",
        [Patch(FollowerStates, "_build", tiering.begin_without_producers)],
        ["broken-promise"],
    ),
    Plant(
        "begins-with-one-epoch",
        "a follower that begins behind remote segments knows their last leader epoch alone",
        [Patch(FollowerStates, "_build", tiering.begin_with_one_epoch)],
        ["broken-promise"],
    ),
    Plant(
        "remote-reads-skip",
        "a read of a remote segment begins one batch too late",
        [Patch(RemoteReader, "_first_batch", tiering.skip_the_first_batch)],
        ["lost-write", "int-poll-skip", "poll-skip"],
        _TIERED,
    ),
    Plant(
        "remote-reads-hide-aborts",
        "readers of committed records are given aborted ones from remote segments",
        [Patch(RemoteReader, "_aborted", tiering.list_no_aborted_transactions)],
        ["G1a"],
        _TIERED,
    ),
    Plant(
        "tombstones-leave-disks",
        "a cleaner removes tombstones of a tiered log although older records of their keys are remote",
        [Patch(Compaction, "__init__", tiering.let_tombstones_go)],
        ["broken-promise", "lost-write"],
    ),
    Plant(
        "passes-forget-keys",
        "compaction in the store reads only the last of the segments that were copied since the pass before",
        [Patch(RemotePass, "_map_keys", tiering.map_the_last_segment_alone)],
        ["broken-promise", "lost-write"],
    ),
    Plant(
        "passes-claim-too-much",
        "compaction in the store takes what it has written for clean up to the end of the log",
        [Patch(RemotePass, "_cleaned_to", tiering.take_all_for_clean)],
        ["broken-promise", "lost-write"],
    ),
    Plant(
        "failures-end-nodes",
        "what fails while a request is carried out in the background ends the node",
        [
            Patch(Background, "_run", serving.let_failures_out),
            Patch(Shard, "_append", serving.fail_on_long_ids),
        ],
        ["hostile"],
    ),
    Plant(
        "requests-of-the-gone",
        "requests of a closed connection are carried out, all of them",
        [Patch(ServerConnection, "_serve", serving.serve_closed_connections)],
        ["hostile"],
    ),
    Plant(
        "heads-alone-are-checked",
        "a leader looks at the head of a produced batch, and never at its records",
        [Patch(Partition, "produce_limits", serving.check_heads_alone)],
        ["hostile"],
    ),
    Plant(
        "forwarded-in-any-order",
        "requests that one connection sends to the controller overtake each other",
        [Patch(Forwarding, "forward", serving.forward_all_at_once)],
        ["hostile"],
    ),
    Plant(
        "requests-in-one-step",
        "a request is served in one step of the event loop, however much it names",
        [Patch(Meter, "step_ends", serving.never_end_a_step)],
        ["hostile"],
    ),
)

PLANTS = {plant.name: plant for plant in _ALL}
