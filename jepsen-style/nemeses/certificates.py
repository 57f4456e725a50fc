"""The fault `rotate`: certificates are replaced while nodes run, one after the other or all with their authority."""

from __future__ import annotations

import trio

from barnabas.runtime.tls.reload import POLL_SECONDS
from nemeses.choosing import one_of
from nemeses.kinds import ROTATIONS
from nemeses.nemesis import Fault
from worlds.cluster import AuthorityStep

NOTICED_SECONDS = POLL_SECONDS + 2.0
"""A node that runs has looked at its files by then."""


async def rotate(fault: Fault) -> None:
    form = one_of(fault.chance, ROTATIONS)
    if form != "certificate" and _others_under_way(fault):
        fault.give_up()
    fault.value["form"] = form
    fault.counts_as(form)
    if form == "authority":
        await _replace_authority(fault)
    elif form == "certificate":
        await _renew(fault)
    else:
        await _spoil(fault)


async def _renew(fault: Fault) -> None:
    names = await fault.choose_nodes()
    # They may be killed or cut off before they notice.
    fault.nodes.clear()
    async with fault.acting("rotate"):
        for name in names:
            await fault.cluster.renew_certificate(name)
    await trio.sleep(max(fault.seconds, NOTICED_SECONDS))
    async with fault.acting("heal"):
        pass


async def _spoil(fault: Fault) -> None:
    """A node whose file is broken runs on, and is held: it could not start."""
    [name, *_more] = await fault.choose_nodes(single=True)
    async with fault.acting("rotate"):
        await fault.cluster.spoil_certificate(name)
    await trio.sleep(max(fault.seconds, NOTICED_SECONDS))
    async with fault.acting("heal"):
        await fault.cluster.renew_certificate(name)


async def _replace_authority(fault: Fault) -> None:
    """Follows operators: all nodes trust both, all get new certificates, all trust the new one alone."""
    cluster = fault.cluster
    targets = [*cluster.brokers, *cluster.controllers]

    async def take(step: AuthorityStep, f: str) -> None:
        async with fault.acting(f, targets=targets, step=step):
            await cluster.change_authority(step)

    await take("trust both", "rotate")
    await trio.sleep(NOTICED_SECONDS)
    await take("switch", "rotate-switch")
    await trio.sleep(NOTICED_SECONDS)
    await take("trust the new one", "heal")


def _others_under_way(fault: Fault) -> bool:
    """A node whose file is broken keeps the certificate of the old authority, for which an operator would wait."""
    others = [other for other in fault.nemesis.active if other is not fault and other.kind == fault.kind]
    return any(other.value.get("form") in ("broken file", "authority") for other in others)
