"""Mistakes of coordinators of groups and of transactions, and of logs about transactions."""

from __future__ import annotations

from typing import Any

from barnabas.broker.coordinator.outcome import Reply
from barnabas.broker.coordinator.shard import Shard
from barnabas.broker.groups.classic_group import ClassicGroup
from barnabas.broker.groups.offsets import Offsets
from barnabas.broker.internal_topics import GROUP_TOPIC
from barnabas.broker.transactions.markers import MarkerWriter
from barnabas.broker.transactions.transaction import Transaction
from barnabas.protocol.messages.sync_group import SyncGroupResponse
from barnabas.storage.log import PartitionLog


def answer_before_replication(_original: Any) -> Any:
    """A coordinator answers when it has written, not when that is replicated."""

    def answer_when_committed(self: Shard[Any], reply: Reply, response: object, required_offset: int) -> None:
        reply.answer(response)

    return answer_when_committed


def coordinate_on(_original: Any) -> Any:
    """A coordinator that reaches neither controllers nor followers continues to answer."""

    def may_be_deposed(_self: Shard[Any]) -> bool:
        return False

    return property(may_be_deposed)


def load_all_but_the_last(original: Any) -> Any:
    """A broker that takes over a partition of `__consumer_offsets` does not load its last batch."""

    def load_stretch(self: Shard[Any], offset: int) -> int:
        if self.partition.topic != GROUP_TOPIC:
            stretch: int = original(self, offset)
            return stretch
        end_offset = self.partition.log.log_end_offset
        for batch in list(self.partition.log.batches(offset))[:-1]:
            self._replay_batch(batch)
        return end_offset

    return load_stretch


def skip_a_partition(original: Any) -> Any:
    """One partition of each transaction gets no marker."""

    def route(self: MarkerWriter, ending: Any, partitions: Any) -> None:
        *others, last = sorted(partitions)
        if others:
            ending.left.discard(last)
        original(self, ending, others or [last])

    return route


def commit_what_was_aborted(original: Any) -> Any:
    """Offsets of an aborted transaction count."""

    def replay_marker(self: Offsets, producer: Any, committed: bool) -> None:
        original(self, producer, True)

    return replay_marker


def keep_the_epoch(original: Any) -> Any:
    """The end of a transaction does not raise the producer's epoch (as before KIP-890)."""

    def prepared(self: Transaction, commit: bool, transaction_version: int, *rest: Any) -> Transaction:
        transaction: Transaction = original(self, commit, 0, *rest)
        return transaction

    return prepared


def list_no_aborted(_original: Any) -> Any:
    """Readers of committed records get no list of aborted transactions."""

    def collect(*_: object) -> tuple[list[Any], bool]:
        return [], True

    return collect


def take_open_transactions_for_stable(_original: Any) -> Any:
    """Readers of committed records are given all that is replicated, open transactions, too."""

    def last_stable_offset(self: PartitionLog) -> int:
        return self.high_watermark

    return property(last_stable_offset)


def give_every_member_the_leaders_assignment(original: Any) -> Any:
    """All members of a group are assigned the same partitions."""

    def sync_response(self: ClassicGroup, member: Any) -> SyncGroupResponse:
        response: SyncGroupResponse = original(self, self.members.get(self.leader_id or "", member))
        return response

    return sync_response


def let_strangers_commit(_original: Any) -> Any:
    """A consumer outside a group can commit for it."""

    def check_commit(*_: object) -> None:
        pass

    return check_commit
