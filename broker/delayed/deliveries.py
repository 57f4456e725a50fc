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

from barnabas.broker.delayed.delivery import (
    OPENED_BYTES,
    Delivery,
    OpenedBatches,
    build_delivery,
    open_batches,
    readable,
)
from barnabas.broker.delayed.led_deliveries import ADMITTED, MOST_AT_ONCE, LedDeliveries
from barnabas.broker.delayed.log_reading import bytes_of, read_back, slices_at
from barnabas.broker.delayed.making_room import make_room
from barnabas.broker.delayed.schedule import Due
from barnabas.broker.metadata_cache import INTERNAL_TOPICS
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica import ACKS_ALL
from barnabas.broker.timing_wheel import TimingWheel
from barnabas.broker.traffic import DelayedEvents
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import CorruptBatch, read_header
from barnabas.protocol.records.delayed import OWN_OFFSET, Pending, build_pending, pending_offsets
from barnabas.runtime.background import Background
from barnabas.runtime.decisions import DecisionKind, Notepad
from barnabas.runtime.world import World
from barnabas.storage.log_results import AppendResult

log = logging.getLogger(__name__)

LONGEST_SLEEP_MS = 1_000
"""A clock that jumps forward is noticed after this time."""
PAUSE_MS = 5
"""Least time between deliveries of a partition that is not behind: what is due in between goes in one batch."""
RETRY_MS = 200
"""Time until the next attempt if a delivery could not be appended."""
RELOAD_MS = 5_000
"""Time until the next attempt if the log could not be read."""
FOUND_IN_A_STEP = 1_000
KEPT_OPEN_MS = 60_000
"""If nothing is due for so long, produced batches are not kept open."""
BUILT_AT_ONCE = 50
"""Up to so many small records are built into a batch at once: a thread would cost more."""


@dataclass(frozen=True, slots=True)
class DelayedPorts:
    world: World
    background: Background
    wheel: TimingWheel
    decisions: Notepad


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
        if led.is_dropped:
            return
        led.is_dropped = True
        del self._led[led.partition.key]
        led.partition.log.pending_from = None
        if led.timer is not None:
            led.timer.cancel()
            led.timer = None

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
        pending = Pending(OWN_OFFSET, times, bytes(batch))
        buffer = bytearray(build_pending(pending, read_header(batch), now_ms))
        result = partition.append(buffer, [(0, read_header(buffer))], acks, ADMITTED)
        if not result.duplicate:
            steps = self._held(led, pending._replace(arrival_offset=result.first_offset, batch=b""))
            if next(steps, True) is None:
                self._ports.background.spawn(_in_background, steps)
        return result

    def _held(self, led: LedDeliveries, held: Pending) -> Iterator[None]:
        """The batch was appended: add its records to the schedule, in steps."""
        led.pending.reserve(held.arrival_offset)
        for done, (time_ms, arrival) in enumerate(pending_offsets(held), 1):
            led.pending.found(time_ms, arrival)
            if done % FOUND_IN_A_STEP == 0 and done < len(held.times):
                yield None
        led.pending.release(held.arrival_offset)
        led.moved()
        self._set_timer(led)

    # -- reading back

    async def _load(self, led: LedDeliveries, end_offset: int) -> None:
        world, partition = self._ports.world, led.partition
        began_ms = world.monotonic.now_ms()
        while True:
            try:
                replay = await read_back(world, led, end_offset)
                break
            except (KafkaError, CorruptBatch, OSError) as error:
                if not led.is_current:
                    return
                log.error("%s: its pending records cannot be read: %s", partition.name, error)
            await trio.sleep(RELOAD_MS / 1000)
        if replay is None:
            return
        for _ in replay.fill(led.pending, FOUND_IN_A_STEP):
            await trio.lowlevel.checkpoint()
            if not led.is_current:
                return
        led.is_loaded = True
        count = len(led.pending)
        led.moved()
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

    # -- delivering

    def _set_timer(self, led: LedDeliveries, least_ms: int = 0) -> None:
        wake_ms = led.pending.schedule.wake_ms()
        if wake_ms is None or not led.is_loaded or led.is_delivering or not led.is_current:
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
        if wake_ms is None or not led.is_current or led.is_delivering:
            return
        if wake_ms > self._ports.world.wall_clock.now_ms():
            self._set_timer(led)
            return
        led.is_delivering = True
        self._ports.background.spawn(self._deliver_due, led)

    async def _deliver_due(self, led: LedDeliveries) -> None:
        """Deliver all that is due, in slices."""
        wait_ms = PAUSE_MS
        schedule, clock = led.pending.schedule, self._ports.world.wall_clock
        try:
            while led.is_current:
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
        wake_ms = schedule.wake_ms()
        if wake_ms is None or wake_ms > clock.now_ms() + KEPT_OPEN_MS:
            led.opened = OpenedBatches()
        self._set_timer(led, wait_ms)

    async def _deliver(self, led: LedDeliveries, taken: list[Due]) -> bool:
        """Deliver the first of these, and give the others back. False if nothing could be done now."""
        try:
            delivery = await self._built(led, taken)
            if led.is_current:
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
        slices = slices_at(partition_log, places)
        floor = led.pending.floor(partition_log.log_end_offset)
        limit_bytes = min(partition_log.config.max_message_bytes, partition_log.config.segment_bytes // 2)
        now_ms = self._ports.world.wall_clock.now_ms()
        opened, kept_bytes = led.opened, OPENED_BYTES // len(self._led)

        def work() -> Delivery:
            open_batches(map(bytes_of, slices), places, opened)
            built = build_delivery(taken, gone, opened, floor, limit_bytes, now_ms)
            opened.trim(kept_bytes)
            return built

        if not slices and len(taken) <= BUILT_AT_ONCE and opened.is_light(taken):
            delivery = work()
        else:
            delivery = await self._ports.world.run_blocking(work)
        if not delivery.records and led.is_current:
            name, place = led.partition.name, place_of(taken[0].arrival_offset)
            raise CorruptBatch(f"{name}: the batch at offset {place} does not have its pending record")
        return delivery

    def _append(self, led: LedDeliveries, delivery: Delivery) -> None:
        """Raises KafkaError."""
        world = self._ports.world
        world.fault_point("delayed.delivery.built")
        if delivery.batches:
            led.partition.append(delivery.buffer, delivery.batches, ACKS_ALL, ADMITTED)
            world.fault_point("delayed.delivery.appended")
        led.most = min(MOST_AT_ONCE, led.most * 2)
        led.pending.delivered(delivery.delivered)
        led.pending.delivered(delivery.vanished)
        if led.carrying is not None:
            led.carrying.delivered(delivery.delivered)
            led.carrying.delivered(delivery.vanished)
        led.moved()
        self.events.delivered(world.wall_clock.now_ms(), [due.time_ms for due in delivery.delivered])

    # -- retention

    def make_room(self) -> None:
        """To be called before retention: carries pending batches out of the segments that it wants to delete."""
        for led in self:
            make_room(led, self._ports.world, self._ports.background)


async def _in_background(steps: Iterator[None]) -> None:
    for _ in steps:
        await trio.lowlevel.checkpoint()
