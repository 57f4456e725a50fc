"""Shell: the share partitions that this broker leads: loads, stores and drops them, and runs their acquisition locks.

One write of a share partition is under way at a time, and what changes meanwhile goes with the next one: so the stored
state is never older than what a later write left.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import trio

from barnabas.broker.apis.partition_lookup import PartitionLookup
from barnabas.broker.fetch_context import InSteps
from barnabas.broker.purgatory import Purgatory
from barnabas.broker.replication.partition import Partition
from barnabas.broker.shares.dead_letters import DeadLetterWriter
from barnabas.broker.shares.decision_notes import (
    note_dropped,
    note_given_up,
    note_loaded,
    note_not_copied,
    note_removed_from_log,
)
from barnabas.broker.shares.in_flight import Change
from barnabas.broker.shares.share_configs import BY_DURATION, EARLIEST, ShareConfigs
from barnabas.broker.shares.share_partition import Acknowledgement, SharePartition
from barnabas.broker.shares.state import UNINITIALIZED_OFFSET, SharePartitionKey, ShareStateChange, ShareStateStore
from barnabas.broker.timing_wheel import TimerEntry, TimingWheel
from barnabas.broker.traffic import ShareGroupEvents
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.background import Background
from barnabas.runtime.backoff import Backoff
from barnabas.runtime.decisions import Notepad
from barnabas.runtime.steps import in_turns
from barnabas.runtime.world import Clock

log = logging.getLogger(__name__)

MOST_STORED_TOGETHER = 2_000
"""State batches of one write."""
MOST_REMEMBERED = 1_000
"""Share partitions whose last error is remembered."""

MOST_COPIED = 500
"""Dead letters that are copied together."""
FIRST_COPY_MS, LAST_COPY_MS = 200, 30_000
"""Time until the next attempt to copy dead letters, after the first failure and at most."""

_REPORTED = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""Errors of the store, as clients get them; others are UNKNOWN_SERVER_ERROR."""
_OUTDATED = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors of the store after which a share partition is dropped, to be read again."""

Done = Callable[[KafkaError | None], None]


@dataclass(frozen=True, slots=True)
class LedPorts:
    lookup: PartitionLookup
    store: ShareStateStore
    configs: Callable[[str], ShareConfigs]
    """By group id."""
    background: Background
    wheel: TimingWheel
    monotonic: Clock
    wall_clock: Clock
    decisions: Notepad
    dead_letters: DeadLetterWriter


class StoreError(NamedTuple):
    """A failed request to the share coordinator, and when (wall clock)."""

    error: KafkaError
    at_ms: int


class _ToStore(NamedTuple):
    change: Change
    done: Done | None
    """None: the change counts already."""


class LedSharePartition:
    """One share partition on its leader, from its first use until the leadership or the last member is gone."""

    def __init__(self, key: SharePartitionKey, partition: Partition) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.core: SharePartition | None = None
        """None until its state is read."""
        self.error: KafkaError | None = None
        """Why there is no state, or none any more."""
        self.store_error: StoreError | None = None
        """Why the last change was not stored; None if it was."""
        self.lock_timeouts = 0
        """Records whose acquisition lock expired."""
        self._to_store: deque[_ToStore] = deque()
        self._is_storing = False
        self._stored = trio.Event()
        self._timer: TimerEntry | None = None
        self.is_copying = False
        """Dead letters are being copied."""
        self.drop_cause = ""
        """Set if it is to be dropped once its dead letters are copied."""

    @property
    def topic_partition(self) -> tuple[bytes, int]:
        return self.key.topic_id, self.key.partition


class LedSharePartitions:
    def __init__(self, ports: LedPorts) -> None:
        self._ports = ports
        self.events = ShareGroupEvents()
        self.fetches: Purgatory[Hashable] = Purgatory(ports.wheel)
        """Fetches that wait for something to acquire: by share partition, and by (topic id, index)."""
        self._by_group: dict[str, dict[tuple[bytes, int], LedSharePartition]] = {}
        self._by_partition: dict[tuple[bytes, int], dict[str, LedSharePartition]] = {}
        self.not_loaded: dict[SharePartitionKey, tuple[str, StoreError]] = {}
        """Topic and error of the last attempt, for those whose state could not be read; the newest last."""
        self._storing: dict[SharePartitionKey, LedSharePartition] = {}
        """Dropped ones that are still being stored."""

    def __iter__(self) -> Iterator[LedSharePartition]:
        return (led for of_group in self._by_group.values() for led in of_group.values())

    def find(self, key: SharePartitionKey) -> LedSharePartition | None:
        """None if it is not in use."""
        return self._by_group.get(key.group_id, {}).get((key.topic_id, key.partition))

    def use(self, key: SharePartitionKey) -> LedSharePartition:
        """The share partition; it may be loading. Raises KafkaError if this broker does not lead it."""
        led = self.find(key)
        if led is None:
            led = LedSharePartition(key, self._ports.lookup.find_leader(key.topic_id, key.partition))
            self._by_group.setdefault(key.group_id, {})[led.topic_partition] = led
            self._by_partition.setdefault(led.topic_partition, {})[key.group_id] = led
            self._ports.background.spawn(self._load, led)
        led.drop_cause = ""
        return led

    # -- loading

    async def _load(self, led: LedSharePartition) -> None:
        began_ms = self._ports.monotonic.now_ms()
        before = self._storing.get(led.key)
        if before is not None:
            await before._stored.wait()
        try:
            state = await self._ports.store.read(led.key, led.leader_epoch)
            start_offset, cause = state.start_offset, "an earlier leader stored it"
            if start_offset == UNINITIALIZED_OFFSET:
                start_offset, cause = self._first_offset(led)
            core = SharePartition(state, start_offset)
        except KafkaError as error:
            self._not_loaded(led, reported(error))
            return
        except ValueError as error:
            log.error("the stored state of share partition %s cannot be used: %s", led.key.coordinator_key, error)
            self._not_loaded(led, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"its stored state is invalid: {error}"))
            return
        except Exception:
            log.exception("the state of share partition %s is not read", led.key.coordinator_key)
            self._not_loaded(led, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        if led.error is not None:
            return
        led.core = core
        self.not_loaded.pop(led.key, None)
        self.events.loads.took((self._ports.monotonic.now_ms() - began_ms) / 1000)
        offsets = (core.start_offset, core.end_offset)
        note_loaded(self._ports.decisions, led.key.group_id, led.partition.name, offsets, cause)
        self._copy_dead_letters(led)
        self.wake(led)

    def _not_loaded(self, led: LedSharePartition, error: KafkaError) -> None:
        log.info("share partition %s cannot be read: %s", led.key.coordinator_key, error)
        self.not_loaded.pop(led.key, None)
        self.not_loaded[led.key] = led.partition.topic, StoreError(error, self._ports.wall_clock.now_ms())
        if len(self.not_loaded) > MOST_REMEMBERED:
            del self.not_loaded[next(iter(self.not_loaded))]
        if led.error is None:
            self._remove(led, error)

    def _first_offset(self, led: LedSharePartition) -> tuple[int, str]:
        """The start offset of a share partition that nobody has read, and its cause. Raises KafkaError."""
        configs, partition_log = self._ports.configs(led.key.group_id), led.partition.log
        cause = f"share.auto.offset.reset is {configs.offset_reset}"
        if configs.offset_reset == EARLIEST:
            return partition_log.log_start_offset, cause
        if not led.partition.replica.high_watermark_is_current:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, "the high watermark of the new leader is not known yet")
        if configs.offset_reset == BY_DURATION:
            found = partition_log.offset_for_timestamp(self._ports.wall_clock.now_ms() - configs.back_ms)
            if found is not None and found.offset < partition_log.high_watermark:
                return found.offset, cause
        return partition_log.high_watermark, cause

    # -- dropping

    def drop(self, led: LedSharePartition, cause: str) -> None:
        """Forget it: the next use reads its state again."""
        if led.error is None:
            note_dropped(self._ports.decisions, led.key.group_id, led.partition.name, cause)
            self._remove(led, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, cause))

    def drop_group(self, group_id: str, cause: str) -> None:
        for led in self.of_group(group_id):
            self.drop(led, cause)

    def drop_unused_group(self, group_id: str, cause: str) -> None:
        """No member reads it any more. What waits for a dead letter still gets it."""
        for led in self.of_group(group_id):
            if self._has_letters(led):
                led.drop_cause = cause
            else:
                self.drop(led, cause)

    def _has_letters(self, led: LedSharePartition) -> bool:
        """True if there are records to be copied, or may be once the changes under way are stored."""
        if led.core is None or not (led.core.has_dead_letters or led.is_copying or led._is_storing):
            return False
        return led.core.has_dead_letters or self._ports.configs(led.key.group_id).terms.has_dead_letters

    def _drop_unused(self, led: LedSharePartition) -> None:
        if led.drop_cause and not self._has_letters(led):
            self.drop(led, led.drop_cause)

    def of_group(self, group_id: str) -> list[LedSharePartition]:
        return list(self._by_group.get(group_id, {}).values())

    def _remove(self, led: LedSharePartition, error: KafkaError) -> None:
        led.error = error
        of_group, of_partition = self._by_group[led.key.group_id], self._by_partition[led.topic_partition]
        del of_group[led.topic_partition], of_partition[led.key.group_id]
        if not of_group:
            del self._by_group[led.key.group_id]
        if not of_partition:
            del self._by_partition[led.topic_partition]
        if led._timer is not None:
            led._timer.cancel()
            led._timer = None
        if led._is_storing:
            self._storing[led.key] = led
        self.wake(led)

    def leadership_changed(self, partition: Partition) -> None:
        """Drop what belongs to an earlier leader epoch of the partition, or to one that is led elsewhere."""
        for led in list(self._by_partition.get(partition.key, {}).values()):
            if not self._is_led(led):
                self.drop(led, "the leader of the partition has changed")

    def _is_led(self, led: LedSharePartition) -> bool:
        partition = led.partition
        is_here = self._ports.lookup.partitions.find(partition.topic_id, partition.index) is partition
        return is_here and partition.is_leader and partition.leader_epoch == led.leader_epoch

    # -- waiting fetches

    def partition_changed(self, partition: Partition) -> None:
        """There may be more records, or an error."""
        if self.fetches.delayed:
            self.fetches.check_and_complete(partition.key)

    def wake(self, led: LedSharePartition) -> None:
        """There may be more to acquire."""
        if self.fetches.delayed:
            self.fetches.check_and_complete(led.key)

    # -- acknowledging

    def acknowledge(
        self, led: LedSharePartition, member_id: str, acknowledgements: Sequence[Acknowledgement], done: Done
    ) -> None:
        self._take(self._acknowledging(led, member_id, acknowledgements, done))

    def _acknowledging(
        self, led: LedSharePartition, member_id: str, acknowledgements: Sequence[Acknowledgement], done: Done
    ) -> InSteps[None]:
        core = led.core
        if core is None:
            done(KafkaError(ErrorCode.INVALID_RECORD_STATE, "none of its records is acquired"))
            return
        terms = self._ports.configs(led.key.group_id).terms
        try:
            change = yield from core.acknowledge(member_id, acknowledgements, self._ports.monotonic.now_ms(), terms)
        except KafkaError as error:
            done(error)
            return
        finally:
            self.set_timer(led)
        self.events.acknowledged.update(change.acknowledged)
        self._store(led, change, done)

    def release(self, led: LedSharePartition, member_id: str) -> None:
        """Make available all that the member has acquired."""
        self._take(self._releasing(led, member_id))

    def _releasing(self, led: LedSharePartition, member_id: str) -> InSteps[None]:
        if led.core is not None:
            change = yield from led.core.release(member_id, self._ports.configs(led.key.group_id).terms)
            self._store(led, change, _logged(led, f"of what member {member_id} released"))

    def log_start_moved(self, led: LedSharePartition) -> None:
        core, start_offset = led.core, led.partition.log.log_start_offset
        if core is not None and core.start_offset < start_offset:
            offsets = (core.start_offset, start_offset)
            core.log_start_moved(start_offset)
            note_removed_from_log(self._ports.decisions, led.key.group_id, led.partition.name, offsets)

    # -- acquisition locks

    def set_timer(self, led: LedSharePartition) -> None:
        """Make sure that the timer runs when the first lock expires."""
        if led.core is None or led.error is not None:
            return
        deadline_ms = led.core.next_deadline_ms()
        if deadline_ms is None or (led._timer is not None and led._timer.deadline_ms <= deadline_ms):
            return
        if led._timer is not None:
            led._timer.cancel()

        def due() -> None:
            led._timer = None
            self._take(self._expiring(led))

        led._timer = self._ports.wheel.add(deadline_ms, due)

    def _expiring(self, led: LedSharePartition) -> InSteps[None]:
        if led.core is None or led.error is not None:
            return
        terms = self._ports.configs(led.key.group_id).terms
        change = yield from led.core.expire(self._ports.monotonic.now_ms(), terms)
        self.set_timer(led)
        if change.has_available:
            self.wake(led)
        if change.stored:
            led.lock_timeouts += sum(it.last_offset - it.first_offset + 1 for it in change.stored)
            self._store(led, change, None)
            self.wake(led)

    # -- dead letters

    def _copy_dead_letters(self, led: LedSharePartition) -> None:
        core = led.core
        if core is None or led.error is not None or led.is_copying or not core.has_dead_letters:
            return
        led.is_copying = True
        self._ports.background.spawn(self._copy_all, led, core)

    async def _copy_all(self, led: LedSharePartition, core: SharePartition) -> None:
        """Copy what is to be archived into the dead-letter topic, however long that takes, and archive it."""
        backoff = Backoff(FIRST_COPY_MS, LAST_COPY_MS)
        try:
            while led.error is None:
                configs = self._ports.configs(led.key.group_id)
                letters = core.next_dead_letters(MOST_COPIED, configs.terms)
                if not letters:
                    break
                if configs.dead_letter_topic:
                    try:
                        letters = await self._ports.dead_letters.copy(led.key.group_id, led.partition, letters, configs)
                    except KafkaError as error:
                        note_not_copied(self._ports.decisions, led.key.group_id, led.partition.name, letters, error)
                        self.events.dead_letter_failures += 1
                        await trio.sleep(backoff.next_ms() / 1000)
                        continue
                    backoff = Backoff(FIRST_COPY_MS, LAST_COPY_MS)
                    self.events.dead_letters += sum(it.last_offset - it.first_offset + 1 for it in letters)
                self._store(led, core.archive(letters), _logged(led, "of its dead letters"))
        finally:
            led.is_copying = False
            self._drop_unused(led)

    # -- storing

    def _store(self, led: LedSharePartition, change: Change, done: Done | None) -> None:
        if led.error is not None and not led._is_storing:
            # Its successor may have read the state already.
            if done is not None:
                done(led.error)
            return
        if change.given_up:
            limit = self._ports.configs(led.key.group_id).terms.delivery_count_limit
            note_given_up(self._ports.decisions, led.key.group_id, led.partition.name, change.given_up, limit)
        if not change.stored:
            if done is not None:
                done(None)
            return
        led._to_store.append(_ToStore(change, done))
        if not led._is_storing:
            led._is_storing = True
            led._stored = trio.Event()
            self._ports.background.spawn(self._store_all, led)

    async def _store_all(self, led: LedSharePartition) -> None:
        try:
            while led._to_store:
                await self._store_some(led)
        finally:
            led._is_storing = False
            led._stored.set()
            if self._storing.get(led.key) is led:
                del self._storing[led.key]
            self._drop_unused(led)

    async def _store_some(self, led: LedSharePartition) -> None:
        core, taken = led.core, _taken(led._to_store)
        assert core is not None
        batches = sorted(batch for each in taken for batch in each.change.stored)
        failure: KafkaError | None = None
        try:
            for start in range(0, len(batches), MOST_STORED_TOGETHER):
                some = tuple(batches[start : start + MOST_STORED_TOGETHER])
                state = ShareStateChange(
                    core.state_epoch, led.leader_epoch, core.start_offset, core.delivery_complete_count, some
                )
                await self._ports.store.write(led.key, state)
        except KafkaError as error:
            log.info("the state of share partition %s is not stored: %s", led.key.coordinator_key, error)
            failure = error
        except Exception:
            log.exception("the state of share partition %s is not stored", led.key.coordinator_key)
            failure = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        led.store_error = None if failure is None else StoreError(failure, self._ports.wall_clock.now_ms())
        terms = self._ports.configs(led.key.group_id).terms
        has_news = False
        for each in taken:
            if each.done is not None:
                now_ms = self._ports.monotonic.now_ms()
                steps = core.finish(each.change, terms, now_ms, stored=failure is None)
                has_news = await in_turns(steps) or has_news
                each.done(None if failure is None else reported(failure))
        if failure is not None and failure.code in _OUTDATED:
            self.drop(led, f"its state could not be stored: {failure.code.name}")
            return
        self.set_timer(led)
        self._copy_dead_letters(led)
        if has_news:
            self.wake(led)

    # -- time

    def after(self, deadline_ms: int, callback: Callable[[], None]) -> None:
        """Call back at a time of the monotonic clock."""
        self._ports.wheel.add(deadline_ms, callback)

    # -- steps

    def _take(self, steps: InSteps[None]) -> None:
        """Take the first step now, and the others in the background, whatever happens to the connection."""
        try:
            next(steps)
        except StopIteration:
            return
        self._ports.background.spawn(in_turns, steps)


def _taken(to_store: deque[_ToStore]) -> list[_ToStore]:
    """The next changes that are stored together. Behind one that counts already, others may have the same records."""
    taken = [to_store.popleft()]
    size = len(taken[0].change.stored)
    while to_store and taken[-1].done is not None and size < MOST_STORED_TOGETHER:
        taken.append(to_store.popleft())
        size += len(taken[-1].change.stored)
    return taken


def _logged(led: LedSharePartition, what: str) -> Done:
    def done(error: KafkaError | None) -> None:
        if error is not None:
            log.info("the state %s in %s is not stored: %s", what, led.key.coordinator_key, error)

    return done


def reported(error: KafkaError) -> KafkaError:
    """An error of the store, as clients get it."""
    return KafkaError(_REPORTED.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR), error.message)
