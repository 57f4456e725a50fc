"""The function of the faults of the object store of tiered storage."""

from __future__ import annotations

import trio

from nemeses.choosing import happens, one_of
from nemeses.kinds import STORE_TROUBLES
from nemeses.nemesis import Fault, Story

LONG_SHARE = 0.2
LONG = 5.0
"""Some troubles last longer than the others by this factor: local segments pile up, and deletions wait."""


async def store(fault: Fault) -> None:
    """One trouble at a time, for all brokers."""
    chance, cluster = fault.chance, fault.tiered
    if any(other is not fault and other.kind == fault.kind and other.is_on for other in fault.nemesis.active):
        fault.give_up()
    trouble = one_of(chance, list(STORE_TROUBLES))
    fault.counts_as(trouble)
    async with fault.acting("store", trouble=trouble, targets=[]):
        await cluster.trouble_store(trouble)
    await trio.sleep(fault.seconds * (LONG if happens(chance, LONG_SHARE) else 1.0))
    async with fault.acting("store-well"):
        await cluster.trouble_store(None)


STORE: dict[str, Story] = {"store": store}
