"""Shell: delayed delivery on one broker: holds records in the partitions that it leads, and delivers them in time.

A leader reads the pending records of a partition back from its log when its epoch begins, and forgets them with it.
Until they are read, records are held, and none is delivered.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import trio

from barnabas.broker.delayed.carrying import LEAST_GAIN, Carrying, batches_at, to_carry
from barnabas.broker.delayed.delivery import (
    READ_BYTES,
    READ_IN_A_DELIVERY_BYTES,
    Delivery,
    OpenedBatches,
    build_delivery,
    open_batches,
    readable,
    runs_of,
)
from barnabas.broker.delayed.pending import PendingRecords
from barnabas.broker.delayed.replay import Replay, SegmentScan
from barnabas.broker.delayed.schedule import Due
from barnabas.broker.metadata_cache import INTERNAL_TOPICS
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica import ACKS_ALL
from barnabas.broker.timing_wheel import TimerEntry, TimingWheel
from barnabas.broker.traffic import DelayedEvents
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import CorruptBatch, read_header
from barnabas.protocol.records.delayed import OWN_OFFSET, Pending, build_pending, pending_offsets
from barnabas.protocol.records.delivery_time import AT_ONCE
from barnabas.runtime.background import Background
from barnabas.runtime.decisions import DecisionKind, Notepad
from barnabas.runtime.world import World
from barnabas.storage.log import AppendResult, OffsetOutOfRange, PartitionLog
from barnabas.storage.producers import Warrant
from barnabas.storage.segment_list import LogSlice

log = logging.getLogger(__name__)

MOST_AT_ONCE = 1_000
"""Records of one batch that delivers."""
LONGEST_SLEEP_MS = 1_000
"""A clock that jumps forward is noticed after this time."""
RETRY_MS = 200
"""Time until the next attempt if a delivery could not be appended."""
RELOAD_MS = 5_000
"""Time until the next attempt if the log could not be read."""
FOUND_IN_A_STEP = 1_000
CARRIED_AT_ONCE = 100
"""Places of the log that are read at a time, to be carried forward."""

_ADMITTED = Warrant(is_admitted=True)


@dataclass(frozen=True, slots=True)
class DelayedPorts:
    world: World
    background: Background
    wheel: TimingWheel
    decisions: Notepad


class LedDeliveries:
    """The pending records of one partition, for one leader epoch."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.pending = PendingRecords()
        self.is_loaded = False
        self.opened = OpenedBatches()
        self.most = MOST_AT_ONCE
        self.is_delivering = False
        self.lock = trio.Lock()
        """Held while some records are neither in the schedule nor delivered."""
        self.carrying: Carrying | None = None
        self.timer: TimerEntry | None = None

    @property
    def is_current(self) -> bool:
        partition = self.partition
        return partition.is_leader and partition.leader_epoch == self.epoch


class DelayedDeliveries:
    def __init__(self, ports: DelayedPorts) -> None:
        self._ports = ports
        self._led: dict[tuple[bytes, int], LedDeliveries] = {}
        self.events = DelayedEvents()

    def __iter__(self) -> Iterator[LedDeliveries]:
        return iter(list(self._led.values()))

    # -- leadership and configs

    def look(self, partition: Partition) -> None:
        """The leadership of the partition, or its config, may have changed."""
        led = self._led.get(partition.key)
        wanted = (
            partition.is_leader
            and partition.log.config.barnabas_delayed_delivery_enable
            and partition.topic not in INTERNAL_TOPICS
        )
        if led is not None:
            if wanted and led.partition is partition and led.is_current:
                return
            self._drop(led)
        if wanted:
            led = self._led[partition.key] = LedDeliveries(partition)
            self._ports.background.spawn(self._load, led, partition.log.log_end_offset)

    def _drop(self, led: LedDeliveries) -> None:
        if self._led.get(led.partition.key) is led:
            del self._led[led.partition.key]
        led.partition.log.pending_from = None
        if led.timer is not None:
            led.timer.cancel()
            led.timer = None

    def _is_current(self, led: LedDeliveries) -> bool:
        return led.is_current and self._led.get(led.partition.key) is led

    # -- holding

    def hold(self, partition: Partition, batch: memoryview, times: array[int], acks: int) -> AppendResult:
        """Append a produced batch of which some records are not due. Raises KafkaError if nothing was appended.

        The offsets are those where the batch waits.
        """
        self.look(partition)
        led = self._led.get(partition.key)
        if led is None:
            raise KafkaError(partition.replica.append_error(acks) or ErrorCode.NOT_LEADER_OR_FOLLOWER)
        config, now_ms = partition.log.config, self._ports.world.wall_clock.now_ms()
        most = config.barnabas_delayed_delivery_max_pending_records
        if len(led.pending.schedule) + len(times) > most:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{partition.name} has {len(led.pending.schedule)} pending records; at most {most} are allowed "
                "(barnabas.delayed.delivery.max.pending.records)",
            )
        # Records of the batch that are due are delivered at once, and the others in their time.
        times = array("q", [now_ms if time_ms == AT_ONCE else time_ms for time_ms in times])
        pending = Pending(OWN_OFFSET, times, bytes(batch))
        buffer = bytearray(build_pending(pending, read_header(batch), now_ms))
        result = partition.append(buffer, [(0, read_header(buffer))], acks, _ADMITTED)
        if not result.duplicate:
            held = pending._replace(arrival_offset=result.first_offset)
            for time_ms, arrival in pending_offsets(held):
                led.pending.found(time_ms, arrival)
            self._moved(led)
            self._set_timer(led)
        return result

    # -- reading back

    async def _load(self, led: LedDeliveries, end_offset: int) -> None:
        world, partition = self._ports.world, led.partition
        began_ms = world.monotonic.now_ms()
        while True:
            try:
                replay = await self._replayed(led, end_offset)
                break
            except (KafkaError, CorruptBatch, OSError) as error:
                if not self._is_current(led):
                    return
                log.error("%s: its pending records cannot be read: %s", partition.name, error)
            await trio.sleep(RELOAD_MS / 1000)
        if replay is None:
            return
        for _ in replay.fill(led.pending, FOUND_IN_A_STEP):
            await trio.lowlevel.checkpoint()
            if not self._is_current(led):
                return
        led.is_loaded = True
        count = len(led.pending)
        self._moved(led)
        self._set_timer(led)
        self._ports.decisions.note(
            DecisionKind.LIFECYCLE,
            partition.name,
            f"{partition.name} has {count} pending records",
            cause=f"its log was read back in {world.monotonic.now_ms() - began_ms} ms",
            leader_epoch=led.epoch,
            offset=end_offset,
            routine=not count,
        )

    async def _replayed(self, led: LedDeliveries, end_offset: int) -> Replay | None:
        """None if the epoch ended meanwhile. Raises KafkaError, OSError."""
        replay = Replay()
        partition_log = led.partition.log
        upper_offset = end_offset
        for base_offset in [segment.base_offset for segment in reversed(partition_log.segments)]:
            scan = SegmentScan()
            offset = base_offset
            while offset < upper_offset:
                offset = max(offset, partition_log.log_start_offset)
                try:
                    part = partition_log.read(offset, READ_BYTES, upper_offset)
                except OffsetOutOfRange:
                    continue
                if part is None:
                    break
                await self._ports.world.run_blocking(partial(_scan, scan, part))
                if not self._is_current(led):
                    return None
                offset = max(scan.next_offset, offset + 1)
            replay.add(scan)
            upper_offset = min(upper_offset, base_offset)
            if replay.is_complete_at(base_offset) or base_offset <= partition_log.log_start_offset:
                break
        return replay

    # -- delivering

    def _moved(self, led: LedDeliveries) -> None:
        if led.is_loaded:
            partition_log = led.partition.log
            partition_log.pending_from = led.pending.floor(partition_log.log_end_offset)

    def _set_timer(self, led: LedDeliveries, least_ms: int = 0) -> None:
        wake_ms = led.pending.schedule.wake_ms()
        if wake_ms is None or not led.is_loaded or led.is_delivering or not self._is_current(led):
            return
        world = self._ports.world
        wait_ms = max(least_ms, min(wake_ms - world.wall_clock.now_ms(), LONGEST_SLEEP_MS))
        deadline_ms = world.monotonic.now_ms() + wait_ms
        if led.timer is not None:
            if led.timer.pending and led.timer.deadline_ms <= deadline_ms:
                return
            led.timer.cancel()
        led.timer = self._ports.wheel.add(deadline_ms, partial(self._wake, led))

    def _wake(self, led: LedDeliveries) -> None:
        led.timer = None
        wake_ms = led.pending.schedule.wake_ms()
        if wake_ms is None or not self._is_current(led) or led.is_delivering:
            return
        if wake_ms > self._ports.world.wall_clock.now_ms():
            self._set_timer(led)
            return
        led.is_delivering = True
        self._ports.background.spawn(self._deliver_due, led)

    async def _deliver_due(self, led: LedDeliveries) -> None:
        """Deliver all that is due, in slices."""
        wait_ms = 0
        schedule, clock = led.pending.schedule, self._ports.world.wall_clock
        try:
            while self._is_current(led):
                wake_ms = schedule.wake_ms()
                if wake_ms is None or wake_ms > clock.now_ms():
                    break
                async with led.lock:
                    taken = schedule.take(clock.now_ms(), led.most)
                    if taken and not await self._deliver(led, taken):
                        wait_ms = RETRY_MS
                        break
                await trio.lowlevel.checkpoint()
        except Exception:
            log.exception("%s: delivery failed, its log is read again", led.partition.name)
            self._drop(led)
            await trio.sleep(RELOAD_MS / 1000)
            self.look(led.partition)
            return
        finally:
            led.is_delivering = False
        self._set_timer(led, wait_ms)

    async def _deliver(self, led: LedDeliveries, taken: list[Due]) -> bool:
        """Deliver the first of these, and give the others back. False if nothing could be done now."""
        try:
            delivery = await self._built(led, taken)
            if self._is_current(led):
                self._append(led, delivery)
        except (KafkaError, OSError) as error:
            led.pending.schedule.give_back(taken)
            led.most = max(1, led.most // 2)
            log.info("%s: %d due records cannot be delivered now: %s", led.partition.name, len(taken), error)
            return False
        led.pending.schedule.give_back(taken[delivery.records :])
        return True

    async def _built(self, led: LedDeliveries, taken: list[Due]) -> Delivery:
        partition_log = led.partition.log
        start_offset, place_of = partition_log.log_start_offset, led.pending.place_of
        gone = {due for due in taken if place_of(due.arrival_offset) < start_offset}
        places = readable([due for due in taken if due not in gone] if gone else taken, led.pending, led.opened)
        slices = _slices(partition_log, places)
        floor = led.pending.floor(partition_log.log_end_offset)
        limit_bytes = min(partition_log.config.max_message_bytes, partition_log.config.segment_bytes // 2)
        now_ms = self._ports.world.wall_clock.now_ms()
        opened = led.opened

        def work() -> Delivery:
            open_batches(map(_bytes_of, slices), places, opened)
            built = build_delivery(taken, gone, opened, floor, limit_bytes, now_ms)
            opened.trim()
            return built

        delivery = await self._ports.world.run_blocking(work)
        if not delivery.records and self._is_current(led):
            name, place = led.partition.name, place_of(taken[0].arrival_offset)
            raise CorruptBatch(f"{name}: the batch at offset {place} does not have its pending record")
        return delivery

    def _append(self, led: LedDeliveries, delivery: Delivery) -> None:
        """Raises KafkaError."""
        world = self._ports.world
        world.fault_point("delayed.delivery.built")
        if delivery.batches:
            led.partition.append(delivery.buffer, delivery.batches, ACKS_ALL, _ADMITTED)
            world.fault_point("delayed.delivery.appended")
        led.most = min(MOST_AT_ONCE, led.most * 2)
        led.pending.delivered(delivery.delivered)
        led.pending.delivered(delivery.vanished)
        if led.carrying is not None:
            led.carrying.delivered(delivery.delivered)
            led.carrying.delivered(delivery.vanished)
        self._moved(led)
        self.events.delivered(world.wall_clock.now_ms(), [due.time_ms for due in delivery.delivered])


    # -- retention

    def make_room(self) -> None:
        """To be called before retention: carries pending batches out of the segments that it wants to delete."""
        now_ms = self._ports.world.wall_clock.now_ms()
        for led in self:
            up_to = led.partition.log.deletable_to(now_ms)
            floor = led.partition.log.pending_from
            if floor is not None and floor < up_to and led.carrying is None and led.is_loaded:
                led.carrying = Carrying(up_to)
                self._ports.background.spawn(self._carry, led, led.carrying)

    async def _carry(self, led: LedDeliveries, carrying: Carrying) -> None:
        try:
            await self._carry_all(led, carrying)
        except (KafkaError, OSError) as error:
            log.warning("%s: pending records are not carried forward: %s", led.partition.name, error)
        finally:
            led.carrying = None

    async def _carry_all(self, led: LedDeliveries, carrying: Carrying) -> None:
        """Raises KafkaError, OSError."""
        world, pending, partition = self._ports.world, led.pending, led.partition
        pending.forget_carried(partition.log.log_start_offset)
        async with led.lock:
            records = pending.schedule.snapshot()
        wanted = await world.run_blocking(partial(to_carry, records, pending.carried, carrying.up_to))
        places = list(wanted)
        count = sum(map(len, wanted.values()))
        if not places or count * LEAST_GAIN > carrying.up_to - places[0]:
            return
        carrying.begin(arrival for arrivals in wanted.values() for arrival in arrivals)
        while places and self._is_current(led):
            # At most so many places in a slice; the bytes are bounded by `_slices`.
            slices = _slices(partition.log, places[:CARRIED_AT_ONCE])
            upper_offset = slices[-1].upper_offset if slices else places[0] + 1
            read = [place for place in places[:CARRIED_AT_ONCE] if place < upper_offset]
            batches = await world.run_blocking(partial(batches_at, map(_bytes_of, slices), read))
            for buffer, copy, alive in carrying.copies(batches, pending, world.wall_clock.now_ms()):
                if not self._is_current(led):
                    return
                result = partition.append(buffer, [(0, read_header(buffer))], ACKS_ALL, _ADMITTED)
                pending.carry(result.first_offset, copy.arrival_offset, len(copy.times), alive)
                await trio.lowlevel.checkpoint()
            places = places[len(read) :]
            self._moved(led)


def _bytes_of(part: LogSlice) -> bytes:
    return part.file.pread(part.size_bytes, part.position)


def _scan(scan: SegmentScan, part: LogSlice) -> None:
    scan.feed(_bytes_of(part))


def _slices(partition_log: PartitionLog, places: list[int]) -> list[LogSlice]:
    """The batches with these offsets, and some others; those with the last offsets may be left out. Raises KafkaError.
    """
    slices: list[LogSlice] = []
    left_bytes = READ_IN_A_DELIVERY_BYTES
    for run in runs_of(places):
        offset = max(run.first_offset, partition_log.log_start_offset)
        while offset <= run.last_offset and left_bytes > 0:
            part = partition_log.read(offset, READ_BYTES, run.last_offset + 1)
            if part is None:
                # The batch has the last place and offsets behind it.
                part = partition_log.read(offset, 1, partition_log.log_end_offset)
            if part is None:
                break
            slices.append(part)
            left_bytes -= part.size_bytes
            offset = max(part.upper_offset, offset + 1)
    return slices
