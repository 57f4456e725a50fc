"""The functions of the kinds of faults that exist in simulated worlds only."""

from __future__ import annotations

import trio

from nemeses.choosing import between, happens, one_of, some_of
from nemeses.faults import wait_until_struck
from nemeses.kinds import HOST_FORMS
from nemeses.nemesis import Fault, Story
from nemeses.shapes import between as links_between
from worlds.cluster import LinkFault

POWER_SHARE = 0.5
"""Share of `kill-at-write` that cuts the power."""
MOST_WRITES = 40
STALLED_LINKS = 3
STORE_OPERATIONS = ("put", "get", "delete")
STORM_ROUNDS = 4
MOST_DRIBBLE_SECONDS = 1.0
"""One byte at a time is expensive to simulate."""
CLIENT_SESSION_SECONDS = 12.0
"""Longer than the session of a member of a group, so that the group has expelled it when it comes back."""


async def torn_power(fault: Fault) -> None:
    [name, *_more] = await fault.choose_nodes(single=True)
    await fault.may_end([name], losing=True)
    async with fault.acting("torn-power"):
        await fault.simulated.torn_power_cut(name)
    await fault.hold()
    await fault.start_again()


async def host(fault: Fault) -> None:
    """All brokers of one host: no partition has two replicas among them."""
    cluster, chance = fault.simulated, fault.chance
    name = one_of(chance, sorted(cluster.hosts))
    cells = list(cluster.hosts[name])
    if await fault.free_nodes(cells) != cells:
        fault.give_up()
    form = one_of(chance, HOST_FORMS)
    fault.nodes += cells
    fault.counts_as(form)
    if form != "pause":
        await fault.may_end(cells, losing=form == "power")
    async with fault.acting("host", targets=cells, host=name, form=form):
        for cell in cells:
            if form == "kill":
                await cluster.kill(cell)
            elif form == "power":
                await cluster.power_cut(cell)
            else:
                await cluster.pause(cell)
    await fault.hold()
    if form == "pause":
        async with fault.acting("resume"):
            for cell in cells:
                await cluster.resume(cell)
    else:
        await fault.start_again()


async def kill_at_write(fault: Fault) -> None:
    chance, nemesis = fault.chance, fault.nemesis
    [name, *_more] = await fault.choose_nodes(single=True)
    count = chance.randrange(1, MOST_WRITES + 1)
    power_cut = happens(chance, POWER_SHARE)
    if power_cut:
        fault.counts_as("power")
    await fault.may_end([name], losing=power_cut)
    async with fault.acting("kill-at-write", count=count, power_cut=power_cut):
        await nemesis.kill_at_write(name, count, power_cut=power_cut)
    await wait_until_struck(fault, name)
    await fault.start_again()


async def disk_error(fault: Fault) -> None:
    chance, cluster = fault.chance, fault.simulated
    [name, *_more] = await fault.choose_nodes(single=True)
    operation, probability = one_of(chance, ["read", "write", "sync"]), one_of(chance, [1.0, 0.1])
    await fault.may_end([name])
    async with fault.acting("disk-error", operation=operation, probability=probability):
        await cluster.break_disk(name, operation, probability)
    await fault.hold()
    async with fault.acting("disk-repaired"):
        fault.value["failed"] = await cluster.repair_disk(name)
        if name in cluster.controllers:
            # The page cache still shows pages that a failed sync has lost, and a controller would trust them.
            await cluster.power_cut(name)
        elif (await cluster.states())[name] == "running":
            await fault.end(name)
    await fault.start_again()


async def slow_disk(fault: Fault) -> None:
    chance, cluster = fault.chance, fault.simulated
    [name, *_more] = await fault.choose_nodes(single=True)
    fault.nodes.clear()
    least_ms, mean_ms = one_of(chance, [20.0, 100.0]), one_of(chance, [50.0, 400.0, 1_500.0])
    async with fault.acting("slow-disk", least_ms=least_ms, mean_ms=mean_ms):
        await cluster.slow_disk(name, (least_ms, mean_ms))
    await fault.hold()
    async with fault.acting("disk-repaired"):
        await cluster.slow_disk(name, None)


async def store(fault: Fault) -> None:
    """The object store of tiered storage, if the cluster has one."""
    chance, cluster = fault.chance, fault.simulated
    how, operation = one_of(chance, cluster.store_faults), one_of(chance, [*STORE_OPERATIONS, "all"])
    probability = one_of(chance, [1.0, 1.0, 0.3])
    async with fault.acting("store", targets=[how], operation=operation, probability=probability):
        await cluster.break_object_store(how, operation, probability)
    await fault.hold()
    async with fault.acting("heal"):
        await cluster.heal_object_store()


async def stall(fault: Fault) -> None:
    cluster = fault.simulated
    pairs = fault.choose_links(some_of(fault.chance, _links(fault), STALLED_LINKS))
    async with fault.acting("stall", targets=_ends(pairs), links=[f"{a}>{b}" for a, b in pairs]):
        for source, target in pairs:
            await cluster.stall(source, target, on=True)
    await fault.hold()
    async with fault.acting("heal"):
        for source, target in pairs:
            await cluster.stall(source, target, on=False)


async def cut_client(fault: Fault) -> None:
    """A client that the cluster may have given up when it comes back."""
    chance, cluster = fault.chance, fault.simulated
    hosts = cluster.client_hosts()
    if not hosts:
        fault.give_up()
    host = one_of(chance, hosts)
    pairs = fault.choose_links(links_between([host], [*cluster.brokers, *cluster.controllers]))
    async with fault.acting("cut-client", targets=[host], cut=[f"{a}>{b}" for a, b in pairs]):
        for source, target in pairs:
            await cluster.cut(source, target)
    await trio.sleep(max(fault.seconds, one_of(chance, [0.0, CLIENT_SESSION_SECONDS])))
    async with fault.acting("heal"):
        for source, target in pairs:
            await cluster.mend(source, target)


async def reconnect_storm(fault: Fault) -> None:
    """Every host loses all connections, connects again, and loses them again."""
    chance = fault.chance
    pairs = fault.choose_links(_links(fault))
    async with fault.acting("reconnect-storm", targets=_ends(pairs), rounds=STORM_ROUNDS):
        for _ in range(STORM_ROUNDS):
            await fault.set_links(LinkFault(reset_after_bytes=1))
            await trio.sleep(between(chance, 0.02, 0.3))
            await fault.set_links(LinkFault())
            await trio.sleep(between(chance, 0.05, 0.5))
    async with fault.acting("heal"):
        pass


async def dribble(fault: Fault) -> None:
    chance, cluster = fault.chance, fault.simulated
    host = one_of(chance, _hosts(fault))
    async with fault.acting("dribble", targets=[host]):
        await cluster.dribble(host, on=True)
    await trio.sleep(between(chance, 0.1, MOST_DRIBBLE_SECONDS))
    async with fault.acting("heal"):
        await cluster.dribble(host, on=False)


async def names_gone(fault: Fault) -> None:
    chance, cluster = fault.chance, fault.simulated
    hosts = [host for host in _hosts(fault) if happens(chance, 0.5)]
    if not hosts:
        fault.give_up()
    async with fault.acting("names-gone", targets=hosts):
        await cluster.hide_names(hosts, on=True)
    await fault.hold()
    async with fault.acting("heal"):
        await cluster.hide_names(hosts, on=False)


def _hosts(fault: Fault) -> list[str]:
    cluster = fault.simulated
    return [*cluster.brokers, *cluster.controllers, *cluster.client_hosts()]


def _links(fault: Fault) -> list[tuple[str, str]]:
    """All links between different hosts."""
    hosts = _hosts(fault)
    return [(one, other) for one in hosts for other in hosts if one != other]


def _ends(pairs: list[tuple[str, str]]) -> list[str]:
    return list(dict.fromkeys(end for pair in pairs for end in pair))


SIMULATED: dict[str, Story] = {
    "host": host,
    "torn-power": torn_power,
    "kill-at-write": kill_at_write,
    "disk-error": disk_error,
    "slow-disk": slow_disk,
    "store": store,
    "stall": stall,
    "cut-client": cut_client,
    "reconnect-storm": reconnect_storm,
    "dribble": dribble,
    "names-gone": names_gone,
}
