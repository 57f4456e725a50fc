"""A whole replicated partition without a network, a disk or time: three brokers' cores, a controller, and a
ghost.

Messages wait in a list until someone delivers or drops them, in any order. A power cut takes what was not
flushed. The ghost remembers everything that was ever below a leader's high watermark; `check` holds the world
against it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from barnabas.broker.replication.follower import (
    APPEND,
    BoundsWanted,
    FetchAnswer,
    FetchWanted,
    Follower,
    Step,
    TruncateTo,
)
from barnabas.broker.replication.replica import (
    CommittedIsr,
    Effects,
    Follow,
    FollowerFetch,
    HighWatermarkAdvanced,
    IsrChangeWanted,
    LeadershipLost,
    LeadershipTaken,
    Replica,
    ReplicaSettings,
)
from barnabas.kraft.metadata.image import NO_LEADER, BrokerImage, PartitionImage
from barnabas.protocol.errors import ErrorCode
from barnabas.storage.leader_epochs import LeaderEpochs

NODES = (1, 2, 3)
LAG_MS = 1_000
OUT_OF_RANGE = FetchAnswer(ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1)

Record = tuple[int, int]
"""(leader epoch, number of the produce)"""


class ModelLog:
    """Records with their epochs; those below `durable_end` survive a power cut."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.epochs = LeaderEpochs()
        self.log_start_offset = self.local_log_start_offset = 0
        self.durable_end = 0

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    @property
    def latest_epoch(self) -> int:
        return self.epochs.latest_epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, len(self.records))

    def append(self, records: list[Record]) -> None:
        for epoch, number in records:
            if epoch > self.latest_epoch:
                self.epochs.assign(epoch, len(self.records))
            assert epoch == self.latest_epoch, "a leader's older epoch after a newer one"
            self.records.append((epoch, number))

    def cut(self, offset: int) -> None:
        del self.records[offset:]
        self.epochs.truncate_from_end(offset)
        self.durable_end = min(self.durable_end, offset)


@dataclass(frozen=True)
class Metadata:
    """One state of the metadata log."""

    partition: PartitionImage
    brokers: dict[int, BrokerImage]


class Controller:
    """Registrations, fencing, elections and AlterPartition, with eligible leader replicas (KIP-966)."""

    def __init__(self, min_isr: int) -> None:
        self.min_isr = min_isr
        self.last_known_leader = NO_LEADER
        self.unclean_leader: int | None = None
        self.epochs = 100
        brokers = {n: BrokerImage(n, n, bytes(16), {}, {}, fenced=False) for n in NODES}
        image = PartitionImage(NODES, (bytes(16),) * 3, NODES, leader=1, leader_epoch=1, partition_epoch=1)
        self.history = [Metadata(image, brokers)]

    @property
    def now(self) -> Metadata:
        return self.history[-1]

    @property
    def partition(self) -> PartitionImage:
        return self.now.partition

    @property
    def eligible(self) -> list[int]:
        """Brokers that may lead without loss."""
        return sorted({*self.partition.isr, *self.partition.elr})

    def _set_broker(self, node: int, **fields: object) -> None:
        brokers = dict(self.now.brokers)
        brokers[node] = replace(brokers[node], **fields)  # type: ignore[arg-type]
        self.history.append(Metadata(self.partition, brokers))

    def _change(self, isr: list[int], unclean: int | None = None) -> None:
        """Give the partition this ISR; ELR and leader follow from it."""
        old = self.partition
        elr = [n for n in self.eligible if n not in isr and n != unclean] if len(isr) < self.min_isr else []
        active = self.now.brokers
        leader = old.leader
        if leader not in isr or active[leader].fenced:
            leader = next((n for n in old.replicas if n in isr and not active[n].fenced), NO_LEADER)
        if leader == NO_LEADER:
            leader = next((n for n in old.replicas if n in elr and not active[n].fenced), NO_LEADER)
            if leader != NO_LEADER:
                isr, elr = [leader], [n for n in elr if n != leader]
        if not isr and not elr and unclean in old.elr:
            self.last_known_leader = unclean
        last = self.last_known_leader
        if leader == NO_LEADER and not isr and not elr and last != NO_LEADER and not active[last].fenced:
            leader, isr, self.unclean_leader = last, [last], last
        if leader != NO_LEADER:
            self.last_known_leader = leader
        new = replace(
            old,
            isr=tuple(isr),
            elr=tuple(elr),
            leader=leader,
            leader_epoch=old.leader_epoch + (leader != old.leader),
            partition_epoch=old.partition_epoch + 1,
        )
        if replace(new, partition_epoch=old.partition_epoch) != old:
            self.history.append(Metadata(new, self.now.brokers))

    def fence(self, node: int) -> None:
        if not self.now.brokers[node].fenced:
            self._set_broker(node, fenced=True)
            self._change([n for n in self.partition.isr if n != node])

    def register(self, node: int, *, clean: bool) -> int:
        self.epochs += 1
        self._set_broker(node, fenced=True, epoch=self.epochs)
        self._change([n for n in self.partition.isr if n != node], None if clean else node)
        return self.epochs

    def unfence(self, node: int) -> None:
        if self.now.brokers[node].fenced:
            self._set_broker(node, fenced=False)
            self._change(list(self.partition.isr))

    def elect(self, node: int) -> None:
        """A preferred leader election: any member of the ISR may take over from another."""
        old = self.partition
        if node in old.isr and node != old.leader and not self.now.brokers[node].fenced:
            self.last_known_leader = node
            new = replace(
                old, leader=node, leader_epoch=old.leader_epoch + 1, partition_epoch=old.partition_epoch + 1
            )
            self.history.append(Metadata(new, self.now.brokers))

    def alter_partition(
        self, node: int, broker_epoch: int, wanted: IsrChangeWanted
    ) -> CommittedIsr | ErrorCode | None:
        """None: the request itself is refused (STALE_BROKER_EPOCH)."""
        partition = self.partition
        if self.now.brokers[node].epoch != broker_epoch:
            return None
        if partition.leader != node or wanted.leader_epoch != partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if wanted.partition_epoch != partition.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        for member, epoch in wanted.isr:
            broker = self.now.brokers[member]
            if broker.fenced or epoch not in (-1, broker.epoch):
                return ErrorCode.INELIGIBLE_REPLICA
        self._change(sorted(wanted.members))
        partition = self.partition
        return CommittedIsr(partition.leader_epoch, partition.partition_epoch, partition.isr)


@dataclass
class ModelBroker:
    """One broker. Everything but log and checkpoint dies with the process."""

    node: int
    log: ModelLog = field(default_factory=ModelLog)
    checkpoint: int = 0
    alive: bool = False
    damaged: bool = False
    """Records were lost, and the controller does not know it yet."""
    epoch: int = 0
    incarnation: int = 0
    registered_at: int = 0
    """Index of this incarnation in the metadata log: nothing older is ever acted on."""
    applied: int = -1
    brokers: dict[int, BrokerImage] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)
    """Offsets that acks=all produces wait for."""
    fetching: bool = False
    replica: Replica = field(init=False)
    follower: Follower = field(init=False)


@dataclass
class Message:
    """Something under way."""

    text: str
    deliver: Callable[[], None]
    lost: Callable[[], None]


class Cluster:
    """The world. Every method is one thing that can happen."""

    def __init__(self, min_isr: int = 2) -> None:
        self.now_ms = 1_000_000
        self.settings = ReplicaSettings(LAG_MS, min_isr, hold_below_min_isr=True)
        self.controller = Controller(min_isr)
        self.brokers = {node: ModelBroker(node, epoch=node) for node in NODES}
        self.messages: list[Message] = []
        self.committed: list[Record] = []
        """The ghost: all that a leader's high watermark ever covered."""
        self.acked: dict[int, Record] = {}
        self.produced = 0
        self.ever_committed = 0
        for broker in self.brokers.values():
            self._boot(broker)
            self.learn(broker.node)

    # -- processes

    def _boot(self, broker: ModelBroker) -> None:
        broker.alive = True
        broker.incarnation += 1
        broker.applied = -1
        broker.fetching = False
        broker.waiting = []
        watermark = min(broker.checkpoint, broker.log.log_end_offset)
        broker.replica = Replica(
            broker.node,
            lambda node: broker.brokers.get(node),  # noqa: PLW0108 - the dict is replaced, so `get` must not be bound
            self.settings,
            broker.log.log_end_offset,
            watermark,
            leader_epoch=broker.log.latest_epoch,
        )
        broker.follower = Follower(broker.log)

    def kill(self, node: int) -> None:
        self.brokers[node].alive = False

    def power_cut(self, node: int, keep: int) -> None:
        """Lose unflushed records, from some offset on."""
        broker = self.brokers[node]
        broker.alive = False
        log = broker.log
        survives = log.durable_end + keep % (log.log_end_offset - log.durable_end + 1)
        if survives < log.log_end_offset:
            log.cut(survives)
            broker.damaged = True

    def stop_cleanly(self, node: int) -> None:
        """Controlled shutdown: the controller moves the leadership away, then all is flushed."""
        broker = self.brokers[node]
        if broker.alive:
            self.controller.fence(node)
            self.flush(node)
            broker.alive = False
            broker.damaged = False

    def start(self, node: int, *, clean: bool = False) -> None:
        broker = self.brokers[node]
        if not broker.alive:
            broker.epoch = self.controller.register(node, clean=clean)
            broker.registered_at = len(self.controller.history) - 1
            broker.damaged = False
            self._note_unclean()
            self._boot(broker)

    def fence(self, node: int) -> None:
        self.controller.fence(node)

    def expire_sessions(self) -> None:
        """The controller misses the heartbeats of the dead."""
        for broker in self.brokers.values():
            if not broker.alive:
                self.controller.fence(broker.node)

    def unfence(self, node: int) -> None:
        """A fenced broker that has caught up with the metadata is let in."""
        if self.brokers[node].alive and self.controller.now.brokers[node].epoch == self.brokers[node].epoch:
            self.learn(node)
            self.controller.unfence(node)
            self._note_unclean()

    def _note_unclean(self) -> None:
        """With nobody eligible left, the last known leader leads: then its log is the truth."""
        leader = self.controller.unclean_leader
        self.controller.unclean_leader = None
        if leader is not None:
            log = self.brokers[leader].log
            survived = log.records[: len(self.committed)]
            if survived != self.committed:
                self.lost_with_everybody = True
            self.committed = self.committed[: _common(self.committed, log.records)]
            self.acked = {
                offset: record for offset, record in self.acked.items() if offset < len(self.committed)
            }

    lost_with_everybody = False

    # -- disks and time

    def flush(self, node: int) -> None:
        broker = self.brokers[node]
        if broker.alive:
            broker.log.durable_end = broker.log.log_end_offset
            broker.checkpoint = broker.replica.high_watermark

    def wait(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        for broker in self.brokers.values():
            if broker.alive:
                self._carry_out(broker, broker.replica.tick(self.now_ms))

    # -- metadata

    def learn(self, node: int, states: int | None = None) -> None:
        """Apply the metadata log: the next so many states (one by one), or all of the rest in one jump."""
        broker = self.brokers[node]
        if not broker.alive:
            return
        last = len(self.controller.history) - 1
        first = max(broker.applied + 1, broker.registered_at)
        for target in [last] if states is None else range(first, min(first + states, last + 1)):
            if target > broker.applied:
                broker.applied = target
                metadata = self.controller.history[target]
                broker.brokers = metadata.brokers
                effects = broker.replica.partition_changed(
                    metadata.partition, broker.log.log_end_offset, self.now_ms
                )
                self._carry_out(broker, effects)

    # -- clients

    def produce(self, node: int, *, acks: int = -1) -> bool:
        """Append on a broker that believes to lead; returns whether it was appended."""
        broker = self.brokers[node]
        if not broker.alive or broker.replica.append_error(acks) is not None:
            return False
        self.produced += 1
        broker.log.append([(broker.replica.leader_epoch, self.produced)])
        end = broker.log.log_end_offset
        if acks == -1:
            broker.waiting.append(end)
        self._carry_out(broker, broker.replica.appended(end, self.now_ms))
        return True

    # -- messages

    def _send(self, text: str, deliver: Callable[[], None], lost: Callable[[], None] = lambda: None) -> None:
        self.messages.append(Message(text, deliver, lost))

    def deliver(self, number: int) -> None:
        if self.messages:
            self.messages.pop(number % len(self.messages)).deliver()

    def drop(self, number: int) -> None:
        if self.messages:
            self.messages.pop(number % len(self.messages)).lost()

    def round(self) -> None:
        """A moment in which nothing goes wrong."""
        leader = self.controller.partition.leader
        if leader != NO_LEADER:
            self.learn(leader)
            self.produce(leader)
        for node in NODES:
            self.learn(node)
            self.fetch(node)
        self.deliver_all()

    def deliver_all(self) -> None:
        while self.messages:
            self.messages.pop(0).deliver()

    def fetch(self, node: int) -> None:
        """The follower sends its next question, if it has one and none is under way."""
        broker = self.brokers[node]
        if not broker.alive or broker.fetching or broker.replica.leader_id in (NO_LEADER, node):
            return
        wanted = broker.follower.next(self.now_ms)
        if wanted is None:
            return
        broker.fetching = True
        incarnation, epoch, leader = broker.incarnation, broker.epoch, self.brokers[broker.replica.leader_id]

        def lost() -> None:
            if broker.incarnation == incarnation:
                broker.fetching = False

        def deliver() -> None:
            if not leader.alive:
                lost()
            elif isinstance(wanted, BoundsWanted):
                error = leader.replica.leader_error(wanted.leader_epoch)
                bounds = None if error else (leader.log.log_start_offset, leader.log.log_end_offset)
                self._send(
                    f"bounds to {node}", lambda: self._bounds(broker, incarnation, wanted, bounds), lost
                )
            else:
                answer, records, watermark = self._serve(leader, node, epoch, wanted)
                self._send(
                    f"answer to {node}",
                    lambda: self._fetched(broker, incarnation, wanted, answer, records, watermark),
                    lost,
                )

        self._send(f"fetch of {node} at {leader.node}: {wanted}", deliver, lost)

    def _serve(
        self, leader: ModelBroker, node: int, epoch: int, wanted: FetchWanted
    ) -> tuple[FetchAnswer, list[Record], int]:
        """The same as `Partition.follower_read`."""
        replica, log = leader.replica, leader.log
        error = replica.follower_error(node, epoch, wanted.leader_epoch)
        if error is not None:
            return FetchAnswer(error, -1, -1), [], -1
        if wanted.last_fetched_epoch >= 0:
            known, end = log.end_offset_for_epoch(wanted.last_fetched_epoch)
            if known < 0:
                return OUT_OF_RANGE, [], -1
            if known < wanted.last_fetched_epoch or end < wanted.fetch_offset:
                return FetchAnswer(0, known, end), [], -1
        if wanted.fetch_offset > log.log_end_offset:
            return OUT_OF_RANGE, [], -1
        fetch = FollowerFetch(node, epoch, wanted.fetch_offset, 0)
        self._carry_out(leader, replica.follower_fetched(fetch, log.log_end_offset, self.now_ms))
        return FetchAnswer(0, -1, -1), log.records[wanted.fetch_offset :], replica.high_watermark

    def _fetched(
        self,
        broker: ModelBroker,
        incarnation: int,
        wanted: FetchWanted,
        answer: FetchAnswer,
        records: list[Record],
        watermark: int,
    ) -> None:
        """The same as `Partition.fetched`."""
        if not broker.alive or broker.incarnation != incarnation:
            return
        broker.fetching = False
        step = broker.follower.answered(wanted, answer, self.now_ms)
        if step is APPEND:
            broker.log.append(records)
            self._carry_out(broker, broker.replica.replicated(broker.log.log_end_offset, watermark))
        elif step is not None:
            self._cut(broker, step)

    def _bounds(
        self, broker: ModelBroker, incarnation: int, wanted: BoundsWanted, bounds: tuple[int, int] | None
    ) -> None:
        if broker.alive and broker.incarnation == incarnation:
            broker.fetching = False
            step = broker.follower.bounds_answered(wanted, bounds, self.now_ms)
            if step is not None:
                self._cut(broker, step)

    def _cut(self, broker: ModelBroker, step: Step) -> None:
        assert isinstance(step, TruncateTo), "no log starts anywhere but at 0 here"
        broker.log.cut(step.offset)
        broker.checkpoint = min(broker.checkpoint, step.offset)
        broker.replica.truncated(broker.log.log_end_offset)
        broker.follower.truncated()

    # -- effects

    def _carry_out(self, broker: ModelBroker, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, HighWatermarkAdvanced):
                self._watermark(broker, effect.offset)
            elif isinstance(effect, IsrChangeWanted):
                self._propose(broker, effect)
            elif isinstance(effect, LeadershipTaken):
                broker.follower.stop()
                broker.log.epochs.assign(effect.leader_epoch, effect.start_offset)
            elif isinstance(effect, LeadershipLost):
                broker.waiting = []
            elif isinstance(effect, Follow):
                if effect.leader_id == NO_LEADER:
                    broker.follower.stop()
                else:
                    broker.follower.start(effect.leader_epoch)

    def _watermark(self, broker: ModelBroker, offset: int) -> None:
        if broker.replica.is_leader:
            covered = broker.log.records[:offset]
            both = min(len(covered), len(self.committed))
            assert covered[:both] == self.committed[:both], f"{broker.node} commits something else"
            if len(covered) > len(self.committed):
                self.ever_committed += len(covered) - len(self.committed)
                self.committed = list(covered)
            for end in [end for end in broker.waiting if end <= offset]:
                broker.waiting.remove(end)
                assert broker.replica.enough_replicas(end) == (True, None)
                self.acked[end - 1] = broker.log.records[end - 1]

    def _propose(self, broker: ModelBroker, proposal: IsrChangeWanted) -> None:
        incarnation, epoch = broker.incarnation, broker.epoch

        def answer(result: CommittedIsr | ErrorCode) -> None:
            if broker.alive and broker.incarnation == incarnation:
                effects = broker.replica.isr_change_answered(proposal, result, self.now_ms)
                self._carry_out(broker, effects)

        def again() -> None:
            if (
                broker.alive
                and broker.incarnation == incarnation
                and broker.replica.pending_isr_change == proposal
            ):
                self._propose(broker, proposal)

        def deliver() -> None:
            result = self.controller.alter_partition(broker.node, epoch, proposal)
            if result is None:
                again()
            else:
                self._send(f"ISR answer to {broker.node}", lambda: answer(result), again)

        if epoch == broker.epoch:
            self._send(f"AlterPartition of {broker.node}: {proposal}", deliver, again)

    # -- checks

    def check(self) -> None:
        """The promises, as of now."""
        for offset, record in self.acked.items():
            assert self.committed[offset] == record, f"acknowledged record at {offset} is not committed"
        for node in self.controller.eligible:
            broker = self.brokers[node]
            if not broker.damaged:
                held = broker.log.records[: len(self.committed)]
                assert held == self.committed, (
                    f"{node} may lead and lacks committed records: {self.describe()}"
                )
        for broker in self.brokers.values():
            epochs = broker.log.epochs.entries()
            assert epochs == sorted(set(epochs))
            assert [epoch for epoch, _ in broker.log.records] == sorted(
                epoch for epoch, _ in broker.log.records
            )
            if broker.alive and not broker.damaged:
                replica = broker.replica
                assert replica.high_watermark <= broker.log.log_end_offset == replica.log_end_offset
                below = broker.log.records[: replica.high_watermark]
                if not self.lost_with_everybody:
                    assert below == self.committed[: replica.high_watermark], (
                        f"{broker.node} shows uncommitted"
                    )

    def heal(self) -> None:
        """Everybody comes back and everything arrives: in the end all agree (liveness after safety)."""
        for message in list(self.messages):
            self.messages.remove(message)
            message.lost()
        for node in NODES:
            self.start(node)
            self.unfence(node)
        for _ in range(40):
            for node in NODES:
                self.unfence(node)
                self.learn(node)
                self.fetch(node)
                self.deliver_all()
            self.wait(LAG_MS // 4)
            self.check()
        leader = self.controller.partition.leader
        assert leader != NO_LEADER, self.describe()
        assert self.produce(leader), self.describe()
        for _ in range(12):
            for node in NODES:
                self.learn(node)
                self.fetch(node)
                self.deliver_all()
            self.wait(LAG_MS // 4)
        self.check()
        assert sorted(self.controller.partition.isr) == sorted(NODES), self.describe()
        logs = [self.brokers[node].log.records for node in NODES]
        assert logs[0] == logs[1] == logs[2] == self.committed, self.describe()
        watermarks = {self.brokers[node].replica.high_watermark for node in NODES}
        assert watermarks == {len(self.committed)}, self.describe()

    def describe(self) -> str:
        partition = self.controller.partition
        lines = [
            f"leader {partition.leader} epochs {partition.leader_epoch}/{partition.partition_epoch} "
            f"isr {partition.isr} elr {partition.elr} committed {len(self.committed)}"
        ]
        for broker in self.brokers.values():
            state = "up" if broker.alive else "down"
            lines.append(f"{broker.node} {state} {broker.replica.describe()} {broker.log.epochs.entries()}")
        return "\n".join([*lines, *(message.text for message in self.messages)])


def _common(some: list[Record], others: list[Record]) -> int:
    both = min(len(some), len(others))
    return next((place for place in range(both) if some[place] != others[place]), both)
