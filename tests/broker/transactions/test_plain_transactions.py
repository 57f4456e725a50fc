"""Histories of transactional ids beside plain rules: every answer, record, marker, decision note and timer.

Producers of all versions begin, add, verify and end; some come back, some are late, some claim what others prepared;
markers hang, writes fail, producer ids run out, coordinators move. Each seed is another one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from barnabas.broker.coordinator.outcome import NOBODY, ProducerStamp
from barnabas.broker.transactions import machine
from barnabas.broker.transactions.machine import TransactionFilter
from barnabas.broker.transactions.transaction import TopicPartition, Transaction, TransactionState
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.broker.transactions.transaction_shell import A, Asked, B, C, Shell

pytestmark = pytest.mark.feature("TX-01", "TX-02", "TX-03", "TX-06", "TX-08", "TX-15", "OB-07")

E, S = ErrorCode, TransactionState
IDS = ("payments", "orders", "stock")
TIMED_OUT_AT_ONCE, PARTITIONS_AT_ONCE, EXPIRED_AT_ONCE = 2, 2, 1
LAST_EPOCH, FOR_EVER_MS = 32766, 2**31 - 1
TIMEOUTS_MS = (60_000, 20_000)
TIMEOUT_CHECK_MS, EXPIRY_CHECK_MS, EXPIRES_MS, HANGS_MS, RETRY_MS = 60_000, 60_000, 200_000, 30_000, 500
HELD_MS = {0: 100, 2: 20}
"""How long a request waits for the end of the transaction before, by its version."""
AT_REST, PREPARED, DONE = (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT), (S.PREPARE_COMMIT, S.PREPARE_ABORT), (4, 5)
BROKEN = E.COORDINATOR_NOT_AVAILABLE
NONE = ProducerStamp(-1, -1)


def is_claimed(it: Transaction) -> bool:
    return it.state is S.ONGOING and it.next_producer_id != -1


def next_of(it: Transaction) -> ProducerStamp:
    return ProducerStamp(it.next_producer_id, max(0, it.next_producer_epoch))


def client_of(it: Transaction) -> ProducerStamp:
    """The producer that may end it."""
    return next_of(it) if is_claimed(it) else ProducerStamp(it.producer_id, it.producer_epoch)


def afterwards(it: Transaction) -> ProducerStamp:
    return ProducerStamp(it.producer_id, it.producer_epoch) if it.next_producer_id == -1 else next_of(it)


class Refused(Exception):
    def __init__(self, code: ErrorCode) -> None:
        self.code = code


class History:
    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.shell = Shell(
            chance.choice([0, 1, 2, 2, 2]),
            transaction_two_phase_commit_enable=chance.random() < 0.8,
            transactional_id_expiration_ms=EXPIRES_MS,
            transaction_remove_expired_transaction_cleanup_interval_ms=EXPIRY_CHECK_MS,
            transaction_abort_timed_out_transaction_cleanup_interval_ms=TIMEOUT_CHECK_MS,
            add_partitions_to_txn_retry_backoff_ms=HELD_MS[2],
            add_partitions_to_txn_retry_backoff_max_ms=HELD_MS[0],
        )
        self.plain: dict[str, Transaction] = {}
        self.ongoing: list[str] = []
        self.prepared: dict[str, bool] = {}
        """Return True if they were reported."""
        self.given: dict[str, tuple[ProducerStamp, ProducerStamp]] = {}
        self.held: dict[str, list[tuple[Asked, ProducerStamp, frozenset[TopicPartition], int]]] = {}
        self.markers: list[tuple[str, ProducerStamp]] = []
        """Those that partitions have not accepted yet."""
        self.timers: dict[tuple[str, str], tuple[int, int, Any]] = {}
        self.order = 0
        self.wanted: dict[Asked, tuple[ErrorCode, Any] | None] = {}
        self.notes: list[tuple[str, str]] = []
        self.noted = 0
        self.last_id = 999
        self.had: list[ProducerStamp] = [ProducerStamp(1000, 0)]
        self.begins()

    # -- the coordinator's state

    @property
    def wall_ms(self) -> int:
        return self.shell.now.wall_ms

    def begins(self) -> None:
        self.given, self.held, self.timers, self.markers = {}, {}, {}, []
        self.prepared = dict.fromkeys(self.prepared, False)
        self.schedule("timeouts", "", TIMEOUT_CHECK_MS)
        self.schedule("expiry", "", EXPIRY_CHECK_MS)
        self.decided([name for name, it in self.plain.items() if it.state in PREPARED])

    def schedule(self, kind: str, name: str, time_ms: int, what: Any = None) -> None:
        self.order += 1
        self.timers[kind, name] = (self.shell.now_ms + time_ms, self.order, what)

    def write(self, name: str, after: Transaction | None) -> None:
        if name in self.ongoing:
            self.ongoing.remove(name)
        self.prepared.pop(name, None)
        if after is None:
            del self.plain[name]
            self.given.pop(name, None)
            return
        if self.shell.level < 1 and after.transaction_version < 2 and after.next_producer_id == -1:
            # Its record has no more fields.
            after = replace(after, previous_producer_id=-1, next_producer_epoch=-1, transaction_version=0)
        self.plain[name] = after
        if after.state is S.ONGOING:
            self.ongoing.append(name)
        elif after.state in PREPARED:
            self.prepared[name] = False

    @property
    def is_broken(self) -> bool:
        return self.shell.append_error is not None

    def decided(self, names: list[str]) -> None:
        """The results are written; partitions learn of them."""
        ended = [(name, ProducerStamp(self.plain[name].producer_id, self.plain[name].producer_epoch)) for name in names]
        for each in ended:
            self.markers.append(each)
            if not self.shell.markers_hang:
                self.take_markers()

    def take_markers(self) -> None:
        markers, self.markers = self.markers, []
        for name, producer in markers:
            self.completes(name, producer)

    def new_id(self) -> ProducerStamp:
        if not self.shell.has_producer_ids:
            raise Refused(E.COORDINATOR_LOAD_IN_PROGRESS)
        self.last_id += 1
        return ProducerStamp(self.last_id, 0)

    def note(self, name: str, what: str, cause: str) -> None:
        self.notes.append((f"transaction {name} {what}", cause))

    # -- InitProducerId

    def init(self) -> None:
        chance, shell = self.chance, self.shell
        name = chance.choice([*IDS, *IDS, *IDS, ""])
        timeout_ms = chance.choice([*TIMEOUTS_MS * 4, 900_000, 0, 900_001])
        had = chance.choice([None, None, self.somebody(name)])
        if had is not None and chance.random() < 0.05:
            had = had._replace(producer_epoch=-1)
        more = {"enable2_pc": chance.random() < 0.4, "keep_prepared_txn": chance.random() < 0.3}
        asked = shell.init(had, name, timeout_ms, **more)
        try:
            self.wanted[asked] = (
                E.NONE,
                self.initialize(name, had, timeout_ms, more["enable2_pc"], more["keep_prepared_txn"]),
            )
        except Refused as refused:
            self.wanted[asked] = refused.code, None
        if asked.error is E.NONE:
            self.had.append(asked.producer)

    def initialize(
        self, name: str, had: ProducerStamp | None, timeout_ms: int, two_phase: bool, keep: bool
    ) -> ProducerStamp:
        shell = self.shell
        is_possible = shell.settings.transaction_two_phase_commit_enable
        if not name or (had is not None and (had.producer_id == -1) != (had.producer_epoch == -1)):
            raise Refused(E.INVALID_REQUEST)
        if two_phase and not is_possible:
            raise Refused(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if keep and (not is_possible or shell.level < 2):
            raise Refused(E.UNSUPPORTED_VERSION)
        if keep and not two_phase:
            raise Refused(E.INVALID_REQUEST)
        if not two_phase and not 0 < timeout_ms <= 900_000:
            raise Refused(E.INVALID_TRANSACTION_TIMEOUT)
        timeout_ms = FOR_EVER_MS if two_phase else timeout_ms
        before = self.plain.get(name)
        if before is None:
            before, given = Transaction(name, -1, -1, timeout_ms), self.new_id()
            cause = "requested by InitProducerId; the id was unknown"
        elif before.state in PREPARED:
            raise Refused(E.CONCURRENT_TRANSACTIONS)
        elif before.state is S.ONGOING:
            return self.initialize_open(name, before, had, keep)
        else:
            given = self.next_producer(name, before, had)
            cause = f"requested by InitProducerId; epoch {before.producer_epoch} is fenced"
            if given.producer_id != before.producer_id:
                cause = f"requested by InitProducerId; the epochs of producer {before.producer_id} are exhausted"
        self.remember(name, had, given)
        self.fails_if_broken()
        after = Transaction(name, *given, timeout_ms, updated_ms=self.wall_ms, previous_producer_id=before.producer_id)
        self.write(name, replace(after, transaction_version=before.transaction_version))
        self.note(name, f"belongs to producer {given.producer_id} in epoch {given.producer_epoch}", cause)
        return given

    def fails_if_broken(self) -> None:
        if self.is_broken:
            raise Refused(BROKEN)

    def remember(self, name: str, had: ProducerStamp | None, given: ProducerStamp) -> None:
        self.given.pop(name, None)
        if had is not None:
            self.given[name] = (had, given)

    def next_producer(self, name: str, before: Transaction, had: ProducerStamp | None) -> ProducerStamp:
        current = ProducerStamp(before.producer_id, before.producer_epoch)
        if had not in (None, current):
            assert had is not None
            if self.given.get(name) == (had, current) or was_ended_by(before, had):
                return current
            raise Refused(E.PRODUCER_FENCED)
        return self.new_id() if current.producer_epoch >= LAST_EPOCH else bumped(current)

    def initialize_open(self, name: str, before: Transaction, had: ProducerStamp | None, keep: bool) -> ProducerStamp:
        client = client_of(before)
        if had not in (None, client):
            raise Refused(E.PRODUCER_FENCED)
        if not keep or before.timeout_ms != FOR_EVER_MS:
            fenced = self.fenced(before)
            self.fails_if_broken()
            self.write(name, fenced)
            cause = "another producer started with this id (InitProducerId) and fences the previous one"
            self.note_prepared(name, before, cause)
            self.decided([name])
            raise Refused(E.CONCURRENT_TRANSACTIONS)
        given = self.new_id() if client.producer_epoch >= LAST_EPOCH else bumped(client)
        self.remember(name, None, given)
        self.fails_if_broken()
        self.write(
            name,
            replace(
                before,
                next_producer_id=given.producer_id,
                next_producer_epoch=given.producer_epoch or -1,
                updated_ms=self.wall_ms,
                previous_producer_id=before.producer_id,
            ),
        )
        self.note(
            name,
            f"stays open; producer {given.producer_id} in epoch {given.producer_epoch} may complete it",
            "requested by InitProducerId (KeepPreparedTxn); producers before it are fenced",
        )
        return given

    def note_prepared(self, name: str, before: Transaction, cause: str) -> None:
        after = self.plain[name]
        result = "committed" if after.state is S.PREPARE_COMMIT else "aborted"
        epochs = before.producer_epoch, after.producer_epoch
        change = "" if epochs[0] == epochs[1] else f", its producer's epoch goes {epochs[0]} -> {epochs[1]}"
        self.note(name, f"is to be {result}{change}", cause)

    # -- ends

    def successor(self, before: Transaction, version: int) -> ProducerStamp | None:
        client = client_of(before)
        if client.producer_epoch >= LAST_EPOCH and version >= 2:
            return self.new_id()
        if is_claimed(before):
            return bumped(client) if version >= 2 else client
        return None

    def fenced(self, before: Transaction) -> Transaction:
        """Aborted by the coordinator, with an epoch that nobody has."""
        version = 2 if self.shell.level >= 2 else 0
        successor = self.successor(before, 2 if is_claimed(before) else version) or NONE
        return replace(
            before,
            state=S.PREPARE_ABORT,
            producer_epoch=min(before.producer_epoch + 1, LAST_EPOCH + 1),
            next_producer_id=successor.producer_id,
            next_producer_epoch=successor.producer_epoch or -1,
            previous_producer_id=before.producer_id,
            updated_ms=self.wall_ms,
            transaction_version=version,
        )

    def end(self) -> None:
        chance = self.chance
        name = chance.choice([*IDS, *IDS, *IDS, *IDS, ""])
        producer, commit, version = self.somebody(name), chance.random() < 0.6, chance.choice([0, 2, 2])
        asked = self.shell.end(producer, commit, version, name)
        try:
            self.wanted[asked] = E.NONE, self.ended(name, producer, commit, version)
        except Refused as refused:
            self.wanted[asked] = refused.code, None
        if asked.error is E.NONE:
            self.had.append(asked.producer)

    def ended(self, name: str, producer: ProducerStamp, commit: bool, version: int) -> ProducerStamp:
        before = self.must_get(name)
        if before.state in PREPARED:
            if version < 2:
                self.check_producer(before, producer)
            raise Refused(E.CONCURRENT_TRANSACTIONS)
        current = ProducerStamp(before.producer_id, before.producer_epoch)
        is_commit = before.state is S.COMPLETE_COMMIT
        if version >= 2 and was_ended_by(before, producer):
            if commit == is_commit:
                return current
            raise Refused(E.PRODUCER_FENCED if commit else E.INVALID_TXN_STATE)
        self.check_producer(before, producer)
        if before.state is not S.ONGOING:
            if version < 2 and before.state in DONE and commit == is_commit:
                return current
            if version < 2 or commit:
                raise Refused(E.INVALID_TXN_STATE)
        successor = self.successor(before, version)
        self.fails_if_broken()
        next_id, next_epoch = successor or NONE
        self.write(
            name,
            replace(
                before,
                state=S.PREPARE_COMMIT if commit else S.PREPARE_ABORT,
                producer_epoch=min(before.producer_epoch + (version >= 2), LAST_EPOCH + 1),
                next_producer_id=next_id,
                next_producer_epoch=next_epoch or -1,
                previous_producer_id=client_of(before).producer_id,
                started_ms=self.wall_ms if before.state in AT_REST else before.started_ms,
                updated_ms=self.wall_ms,
                transaction_version=version,
            ),
        )
        answer = afterwards(self.plain[name])
        self.note_prepared(name, before, "requested by its producer (EndTxn)")
        self.decided([name])
        return answer

    def must_get(self, name: str) -> Transaction:
        if not name:
            raise Refused(E.INVALID_REQUEST)
        if name not in self.plain:
            raise Refused(E.INVALID_PRODUCER_ID_MAPPING)
        return self.plain[name]

    @staticmethod
    def check_producer(before: Transaction, producer: ProducerStamp) -> None:
        client = client_of(before)
        if is_claimed(before) and producer == (before.producer_id, before.producer_epoch):
            raise Refused(E.PRODUCER_FENCED)
        if producer.producer_id != client.producer_id:
            raise Refused(E.INVALID_PRODUCER_ID_MAPPING)
        if producer != client:
            raise Refused(E.PRODUCER_FENCED)

    def completes(self, name: str, producer: ProducerStamp) -> None:
        before = self.plain.get(name)
        if before is None or before.state not in PREPARED or producer != (before.producer_id, before.producer_epoch):
            return
        held = self.held.pop(name, [])
        if held:
            del self.timers["held", name]
        if self.is_broken:
            self.schedule("complete", name, RETRY_MS, producer)
            for asked, *_ in held:
                self.wanted[asked] = E.CONCURRENT_TRANSACTIONS, None
            return
        after = afterwards(before)
        commits = before.state is S.PREPARE_COMMIT
        self.write(
            name,
            replace(
                before,
                state=S.COMPLETE_COMMIT if commits else S.COMPLETE_ABORT,
                producer_id=after.producer_id,
                producer_epoch=after.producer_epoch,
                previous_producer_id=before.producer_id
                if before.next_producer_id == -1
                else before.previous_producer_id,
                next_producer_id=-1,
                next_producer_epoch=-1,
                partitions=frozenset(),
                updated_ms=self.wall_ms,
            ),
        )
        took = f"all {len(before.partitions)} partitions have their marker, {self.wall_ms - before.updated_ms} ms"
        self.note(name, f"is {'committed' if commits else 'aborted'}", f"{took} after the decision")
        for asked, of, partitions, version in held:
            try:
                if (longer := self.added(name, of, partitions, version)) is not None:
                    self.write(name, longer)
                self.wanted[asked] = E.NONE, None
            except Refused as refused:
                self.wanted[asked] = refused.code, None

    # -- partitions

    def added(
        self, name: str, producer: ProducerStamp, partitions: frozenset[TopicPartition], version: int
    ) -> Transaction | None:
        """None if it has them."""
        before = self.plain[name]
        self.check_producer(before, producer)
        if is_claimed(before):
            raise Refused(E.INVALID_TXN_STATE)
        is_open = before.state is S.ONGOING
        if is_open and partitions <= before.partitions:
            return None
        return replace(
            before,
            state=S.ONGOING,
            partitions=before.partitions | partitions,
            started_ms=before.started_ms if is_open else self.wall_ms,
            updated_ms=self.wall_ms,
            previous_producer_id=before.producer_id,
            transaction_version=version,
        )

    def add(self) -> None:
        chance = self.chance
        name = chance.choice([*IDS, *IDS, *IDS, *IDS, ""])
        producer, version = self.somebody(name), chance.choice([0, 2, 2])
        partitions = chance.sample([A, B, C], chance.choice([1, 1, 2, 3]))
        asked = self.shell.add(producer, *partitions, version=version, transactional_id=name)
        try:
            before = self.must_get(name)
            if before.state in PREPARED:
                self.wanted[asked] = None
                held = self.held.setdefault(name, [])
                held.append((asked, producer, frozenset(partitions), version))
                if len(held) == 1:
                    self.schedule("held", name, HELD_MS[version])
                return
            longer = self.added(name, producer, frozenset(partitions), version)
            if longer is not None:
                self.fails_if_broken()
                self.write(name, longer)
            self.wanted[asked] = E.NONE, None
        except Refused as refused:
            self.wanted[asked] = refused.code, None

    def verify(self) -> None:
        producer = self.somebody(IDS[0])
        partitions = self.chance.sample([A, B, C], self.chance.choice([1, 2]))
        asked = self.shell.verify(producer, *partitions)
        try:
            before = self.must_get(IDS[0])
            self.check_producer(before, producer)
            if before.state in PREPARED:
                raise Refused(E.CONCURRENT_TRANSACTIONS)
            self.wanted[asked] = E.NONE, None
            assert asked.response == sorted(set(partitions) - before.partitions)
        except Refused as refused:
            self.wanted[asked] = refused.code, None

    def somebody(self, name: str) -> ProducerStamp:
        """Mostly the producer that may go on."""
        known = self.plain.get(name)
        if known is None or self.chance.random() < 0.25:
            return self.chance.choice(self.had[-5:])
        if self.chance.random() < 0.1:
            return ProducerStamp(known.producer_id, known.producer_epoch)
        return client_of(known)

    # -- the rest of the world

    def time(self) -> None:
        chance, shell = self.chance, self.shell
        ends = [at_ms - shell.now_ms for at_ms, _, _ in self.timers.values()]
        time_ms = max(0, chance.choice([1, 30_000, 90_000, EXPIRES_MS, *ends, *[it - 1 for it in ends]]))
        until_ms, now_ms = shell.now_ms + time_ms, shell.now_ms
        shell.pass_ms(time_ms)
        while True:
            (kind, name), (at_ms, _, what) = min(self.timers.items(), key=lambda it: it[1][:2])
            if at_ms > until_ms:
                break
            now_ms = shell.now_ms = max(now_ms, at_ms)
            del self.timers[kind, name]
            self.is_due(kind, name, what)
        shell.now_ms = until_ms

    def is_due(self, kind: str, name: str, what: Any) -> None:
        if kind == "held":
            for asked, *_ in self.held.pop(name):
                self.wanted[asked] = E.CONCURRENT_TRANSACTIONS, None
        elif kind == "complete":
            self.completes(name, what)
        elif kind == "timeouts":
            self.time_out()
        else:
            self.expire()

    def time_out(self) -> None:
        noted = len(self.notes)
        for name, is_reported in self.prepared.items():
            it = self.plain[name]
            waited_ms = self.wall_ms - it.updated_ms
            if waited_ms >= HANGS_MS and not is_reported:
                self.prepared[name] = True
                result = "committed" if it.state is S.PREPARE_COMMIT else "aborted"
                places = ", ".join(f"{topic}-{index}" for topic, index in sorted(it.partitions))
                self.note(
                    name,
                    "hangs",
                    f"it is to be {result} since {waited_ms} ms, and not all of its partitions have accepted their "
                    f"marker: {places}",
                )
        late = [
            name
            for name in self.ongoing
            if self.plain[name].timeout_ms != FOR_EVER_MS
            and self.plain[name].started_ms + self.plain[name].timeout_ms < self.wall_ms
        ]
        fenced: dict[str, Transaction] = {}
        partitions = 0
        for name in late[:TIMED_OUT_AT_ONCE]:
            partitions += len(self.plain[name].partitions)
            if fenced and partitions > PARTITIONS_AT_ONCE:
                break
            try:
                fenced[name] = self.fenced(self.plain[name])
            except Refused:
                continue
        self.schedule("timeouts", "", 0 if fenced and len(fenced) < len(late) else TIMEOUT_CHECK_MS)
        if fenced and self.is_broken:
            self.schedule("timeouts", "", TIMEOUT_CHECK_MS)
            del self.notes[noted:]
            return
        for name, after in fenced.items():
            before = self.plain[name]
            self.write(name, after)
            open_ms = self.wall_ms - before.started_ms
            why = f"it was open for {open_ms} ms, its timeout is {before.timeout_ms} ms (transaction.timeout.ms)"
            self.note_prepared(name, before, why)
        self.decided(list(fenced))

    def expire(self) -> None:
        old = [
            name
            for name, it in self.plain.items()
            if it.state in AT_REST and self.wall_ms - it.updated_ms >= EXPIRES_MS
        ]
        self.schedule("expiry", "", 0 if len(old) > EXPIRED_AT_ONCE else EXPIRY_CHECK_MS)
        if old and self.is_broken:
            self.schedule("expiry", "", EXPIRY_CHECK_MS)
            return
        for name in old[:EXPIRED_AT_ONCE]:
            unused_ms = self.wall_ms - self.plain[name].updated_ms
            self.note(name, "is forgotten", f"it was unused for {unused_ms} ms (transactional.id.expiration.ms)")
            self.write(name, None)

    def age(self) -> None:
        """A producer comes close to its last epoch."""
        name = self.chance.choice(IDS)
        before = self.plain.get(name)
        if before is None or before.state not in AT_REST or before.producer_epoch >= LAST_EPOCH - 1:
            return
        epoch = LAST_EPOCH - self.chance.choice([0, 1, 2])
        aged = replace(
            before, state=S.EMPTY, producer_epoch=epoch, started_ms=-1, previous_producer_id=before.producer_id
        )
        self.shell._append(aged.record(self.shell.level))
        self.had.append(ProducerStamp(aged.producer_id, epoch))
        self.write(name, aged)

    def partitions_hang(self) -> None:
        self.shell.markers_hang = self.chance.random() < 0.5

    def accept_markers(self) -> None:
        self.shell.take_markers()
        self.take_markers()

    def run_out(self) -> None:
        self.shell.has_producer_ids = self.chance.random() < 0.7

    def moves(self) -> None:
        for held in self.held.values():
            for asked, *_ in held:
                self.wanted[asked] = E.NOT_COORDINATOR, None
        self.shell.append_error = None
        self.shell.fail_over()
        self.begins()

    def step(self, steps: list[Callable[[], None]]) -> None:
        self.shell.append_error = BROKEN if self.chance.random() < 0.08 else None
        self.chance.choice(steps)()
        self.shell.append_error = None
        self.check()

    # -- checks

    def check(self) -> None:
        shell = self.shell
        for asked, want in list(self.wanted.items()):
            if want is None:
                assert asked.waits
                continue
            assert (asked.error, want[1] and asked.producer) == want, (asked.error, asked.response)
            del self.wanted[asked]
        decided = shell.decisions.since(self.noted + 1)
        self.noted += len(decided)
        assert [(it.what, it.cause) for it in decided] == self.notes
        self.notes = []
        transactions = {it.transactional_id: it for it in shell.machine.transactions}
        assert (transactions, len(shell.machine)) == (self.plain, len(self.plain))
        assert [(it.transactional_id, it.producer) for it in shell.on_their_way] == self.markers
        for (kind, name), (at_ms, _, _) in self.timers.items():
            assert shell.timers.deadline_ms((name, kind) if name else kind) == at_ms
        assert len(shell.timers.due) == len(self.timers)
        for name in (*IDS, "", "nobody"):
            self.check_description(name)
        self.check_list()

    def check_description(self, name: str) -> None:
        try:
            ((_, described),) = self.shell.machine.describe(name, NOBODY, self.shell.now).answers
        except KafkaError as error:
            assert name not in self.plain
            assert error.code is (E.TRANSACTIONAL_ID_NOT_FOUND if name else E.INVALID_REQUEST)
            return
        it = self.plain[name]
        assert (described.producer_id, described.producer_epoch) == (it.producer_id, it.producer_epoch)
        assert described.transaction_state == it.state.name.title().replace("_", "")
        assert (described.transaction_start_time_ms, described.transaction_timeout_ms) == (it.started_ms, it.timeout_ms)
        shown = [(topic.topic, index) for topic in described.topics for index in topic.partitions]
        assert shown == sorted(it.partitions)

    def check_list(self) -> None:
        chance = self.chance
        states = chance.choice([None, frozenset(chance.sample(list(S), 3))])
        ids = chance.choice([frozenset[int](), frozenset({1000, 1001})])
        longer_ms = chance.choice([-1, 0, 1_000, 60_000])
        found = list(self.shell.machine.matching(TransactionFilter(states, ids, longer_ms), self.shell.now))
        expected = [
            it
            if (states is None or it.state in states)
            and (not ids or it.producer_id in ids)
            and (longer_ms < 0 or self.wall_ms - it.started_ms > longer_ms)
            else None
            for it in self.plain.values()
        ]
        assert found == expected


def bumped(producer: ProducerStamp) -> ProducerStamp:
    return ProducerStamp(producer.producer_id, producer.producer_epoch + 1)


def was_ended_by(it: Transaction, producer: ProducerStamp) -> bool:
    """True if the end that this producer asked for has given the id its present producer (version 2)."""
    if it.state not in DONE or it.transaction_version < 2:
        return False
    if producer.producer_id == it.producer_id:
        return bumped(producer).producer_epoch == it.producer_epoch
    return it.producer_epoch == 0 and producer == (it.previous_producer_id, LAST_EPOCH)


@pytest.mark.parametrize("seed", range(30))
def test_transactions_are_as_plain_rules_say(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "TIMED_OUT_AT_ONCE", TIMED_OUT_AT_ONCE)
    monkeypatch.setattr(machine, "PARTITIONS_AT_ONCE", PARTITIONS_AT_ONCE)
    monkeypatch.setattr(machine, "EXPIRED_AT_ONCE", EXPIRED_AT_ONCE)
    history = History(seed)
    steps: list[Callable[[], None]] = [history.init] * 4 + [history.add] * 6 + [history.end] * 6 + [history.time] * 4
    steps += [history.verify, history.verify, *[history.age] * 3, history.partitions_hang, history.accept_markers]
    steps += [history.run_out, history.moves]
    for _ in range(120):
        history.step(steps)
