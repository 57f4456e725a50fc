"""Shell: carries pending batches out of the segments that retention wants to delete."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

import trio

from barnabas.broker.delayed.carrying import LEAST_GAIN, Carrying, batches_at, to_carry
from barnabas.broker.delayed.led_deliveries import ADMITTED, LedDeliveries
from barnabas.broker.delayed.log_reading import bytes_of, slices_at
from barnabas.broker.replication.replica import ACKS_ALL
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records.batch import read_header
from barnabas.runtime.background import Background
from barnabas.runtime.world import World
from barnabas.storage.log_retention import deletable_to

log = logging.getLogger(__name__)

CARRIED_AT_ONCE: Final = 100
"""Places of the log that are read at a time, to be carried forward."""


def make_room(led: LedDeliveries, world: World, background: Background) -> None:
    """Begins to carry, if retention wants to delete pending records."""
    led.moved()
    up_to = deletable_to(led.partition.log, world.wall_clock.now_ms())
    floor = led.partition.log.pending_from
    if floor is not None and floor < up_to and led.carrying is None and led.is_loaded:
        led.carrying = Carrying(up_to)
        background.spawn(_carry, world, led, led.carrying)


async def _carry(world: World, led: LedDeliveries, carrying: Carrying) -> None:
    try:
        await _carry_all(world, led, carrying)
    except (KafkaError, OSError) as error:
        log.warning("%s: pending records are not carried forward: %s", led.partition.name, error)
    finally:
        led.carrying = None


async def _carry_all(world: World, led: LedDeliveries, carrying: Carrying) -> None:
    """Raises KafkaError, OSError."""
    pending, partition = led.pending, led.partition
    pending.forget_carried(partition.log.log_start_offset)
    async with led.lock:
        records = pending.schedule.snapshot()
    wanted = await world.run_blocking(partial(to_carry, records, pending.carried, carrying.up_to))
    places = list(wanted)
    count = sum(map(len, wanted.values()))
    if not places or count * LEAST_GAIN > carrying.up_to - places[0]:
        return
    carrying.begin(arrival for arrivals in wanted.values() for arrival in arrivals)
    while places and led.is_current:
        # At most so many places in a slice; the bytes are bounded by `slices_at`.
        slices = slices_at(partition.log, places[:CARRIED_AT_ONCE])
        upper_offset = slices[-1].upper_offset if slices else places[0] + 1
        read = [place for place in places[:CARRIED_AT_ONCE] if place < upper_offset]
        batches = await world.run_blocking(partial(batches_at, map(bytes_of, slices), read))
        for buffer, copy, alive in carrying.copies(batches, pending, world.wall_clock.now_ms()):
            if not led.is_current:
                return
            result = partition.append(buffer, [(0, read_header(buffer))], ACKS_ALL, ADMITTED)
            pending.carry(result.first_offset, copy.arrival_offset, len(copy.times), alive)
            await trio.lowlevel.checkpoint()
        places = places[len(read) :]
        led.moved()
