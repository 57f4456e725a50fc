"""The functions that carry out each kind of fault, from its beginning to its end. `kinds.py` lists them.

A fault that is cancelled leaves things broken: `Nemesis.undo_all` mends them.
"""

from __future__ import annotations

from random import Random
from typing import Literal

import trio

from barnabas.client.settings import parse_address
from barnabas.cluster.fault_points import FAULT_POINTS
from barnabas.cluster.hostile.client import HostileClient
from barnabas.fault_proxy.rules import MessageRule
from barnabas.protocol.api_keys import ApiKey
from nemeses.certificates import rotate
from nemeses.choosing import between, happens, one_of, some_of
from nemeses.messages import PROVOKED_SECONDS, draw
from nemeses.nemesis import Fault, Story
from nemeses.shapes import CLIENT, SHAPES, groups_of
from nemeses.shapes import between as between_names
from worlds.cluster import Damage, LinkFault

DAMAGED_LOGS = "*-*/*.log"
LOOK_SECONDS = 0.25
TYPES: tuple[Literal["invoke", "info"], ...] = ("invoke", "info")


async def kill(fault: Fault) -> None:
    names = await fault.choose_nodes()
    await fault.may_end(names)
    async with fault.acting("kill"):
        await fault.cluster.kill(*names)
    await fault.hold()
    await fault.start_again()


async def stop(fault: Fault) -> None:
    names = await fault.choose_nodes(single=True)
    await fault.may_end(names)
    async with fault.acting("stop"):
        for name in names:
            await _stopped(fault, name)
    await fault.hold()
    await fault.start_again()


async def pause(fault: Fault) -> None:
    names = await fault.choose_nodes()
    async with fault.acting("pause"):
        for name in names:
            await fault.cluster.pause(name)
    await fault.hold()
    async with fault.acting("resume"):
        for name in names:
            await fault.cluster.resume(name)


async def partition(fault: Fault) -> None:
    chance, cluster = fault.chance, fault.cluster
    shape = one_of(chance, list(SHAPES))
    nodes = groups_of(chance, cluster.brokers, cluster.controllers)
    [victim, *_] = await fault.choose_nodes(nodes, single=True)
    fault.counts_as(shape)
    # A node that is cut off may still be killed.
    fault.nodes.clear()
    if victim not in nodes:
        victim = one_of(chance, nodes)
    pairs = fault.choose_links(SHAPES[shape](chance, nodes, victim))
    async with fault.acting("partition", shape=shape, targets=[victim], cut=[f"{a}>{b}" for a, b in pairs]):
        for source, target in pairs:
            await cluster.cut(source, target)
    await fault.hold()
    async with fault.acting("heal"):
        for source, target in pairs:
            await cluster.mend(source, target)


CUT_OFF_SESSIONS = 4.0
"""Minimum duration of a cut-off, in sessions: the broker is replaced, has to know that, and is asked after that."""


async def cut_off(fault: Fault) -> None:
    cluster = fault.cluster
    if any(other is not fault and other.kind == fault.kind and other.is_on for other in fault.nemesis.active):
        # One at a time: the others must be able to elect a leader in place of this one.
        fault.give_up()
    [victim, *_] = await fault.choose_nodes(cluster.brokers, single=True)
    # A broker that is cut off may still be killed.
    fault.nodes.clear()
    wanted = between_names([victim], [*cluster.brokers, *cluster.controllers])
    pairs = fault.choose_links(wanted)
    if pairs != wanted:
        # Another fault has cut some of these links, and would mend them while this one is on.
        fault.give_up()
    async with fault.acting("cut-off", targets=[victim], cut=[f"{a}>{b}" for a, b in pairs]):
        for source, target in pairs:
            await cluster.cut(source, target)
    beside = fault.nemesis.while_cut_off
    async with trio.open_nursery() as nursery:
        if beside is not None:
            nursery.start_soon(beside, victim)
        await trio.sleep(max(fault.seconds, CUT_OFF_SESSIONS * fault.nemesis.options.session_seconds))
        nursery.cancel_scope.cancel()
    async with fault.acting("heal"):
        for source, target in pairs:
            await cluster.mend(source, target)


async def _bad_links(fault: Fault, badness: LinkFault, details: dict[str, object]) -> None:
    chance, cluster = fault.chance, fault.cluster
    nodes = [*cluster.brokers, *cluster.controllers]
    victim = one_of(chance, nodes)
    # All links of one node, or some links anywhere.
    if happens(chance, 0.5):
        pairs = [pair for other in (*nodes, CLIENT) if other != victim for pair in ((victim, other), (other, victim))]
        if happens(chance, 0.3):
            pairs = [pair for pair in pairs if pair[0] == victim]
    else:
        everything = [(a, b) for a in (*nodes, CLIENT) for b in (*nodes, CLIENT) if a != b]
        pairs, victim = some_of(chance, everything, len(everything) // 4), ""
    pairs = fault.choose_links(pairs)
    targets = [victim] if victim else list(dict.fromkeys(target for _source, target in pairs))
    async with fault.acting(fault.kind, targets=targets, links=[f"{a}>{b}" for a, b in pairs], **details):
        await fault.set_links(badness)
    await fault.hold()
    async with fault.acting("heal"):
        await fault.set_links(LinkFault())


async def slow(fault: Fault) -> None:
    chance = fault.chance
    latency_ms = float(one_of(chance, [5, 20, 50, 200, 500]))
    rate = one_of(chance, [0, 0, 20_000, 200_000])
    badness = LinkFault(latency_ms=latency_ms, jitter_ms=latency_ms / 5, bytes_per_second=rate)
    await _bad_links(fault, badness, {"latency_ms": latency_ms, "bytes_per_second": rate})


async def lossy(fault: Fault) -> None:
    chance = fault.chance
    loss = one_of(chance, [0.01, 0.05, 0.2, 0.5])
    reset_after = one_of(chance, [0, 0, 3_000, 30_000])
    badness = LinkFault(loss=loss, reset_after_bytes=reset_after)
    await _bad_links(fault, badness, {"loss": loss, "reset_after_bytes": reset_after})


async def half_open(fault: Fault) -> None:
    await _bad_links(fault, LinkFault(half_open=True), {})


async def message(fault: Fault) -> None:
    cluster, nemesis = fault.cluster, fault.nemesis
    traffic = nemesis.traffic.expected(fault.seconds)
    drawn = await draw(fault.chance, cluster, traffic, nemesis.options.wishes)
    if drawn is None:
        fault.give_up()
    rule = drawn.rule
    details: dict[str, object] = {"api": drawn.api_name, "action": rule.action, "direction": rule.direction}
    details |= {"source": rule.source or "anybody", "probability": rule.probability}
    if rule.action == "delay":
        details["delay_ms"] = rule.delay_ms
    if drawn.provoked_by is not None:
        details["provoked_by"] = _describe_hold(drawn.provoked_by)
    async with fault.acting("message", targets=drawn.targets, **details):
        fault.rule = await cluster.add_rule(rule)
        provoking = None if drawn.provoked_by is None else await cluster.add_rule(drawn.provoked_by)
    if provoking is not None:
        await trio.sleep(PROVOKED_SECONDS)
        await cluster.clear_rule(provoking)
    await fault.hold()
    async with fault.acting("heal"):
        await fault.clear_rule()


def _describe_hold(rule: MessageRule) -> str:
    ends = f" of {rule.source}" if rule.source else f" to {rule.target}"
    return f"{ApiKey(rule.api_key).name}{ends}: each {rule.direction} held for {PROVOKED_SECONDS:g} s"


async def clock(fault: Fault) -> None:
    chance = fault.chance
    names = await fault.choose_nodes()
    fault.nodes.clear()
    sign = one_of(chance, [-1, 1])
    offset_ms = sign * int(1.5 ** between(chance, 6, 31))
    async with fault.acting("clock", offset_ms=offset_ms):
        for name in names:
            await fault.nemesis.set_clock(name, offset_ms)
    await fault.hold()
    async with fault.acting("clock-reset"):
        for name in names:
            await fault.nemesis.set_clock(name, 0)


async def power(fault: Fault) -> None:
    [name, *_more] = await fault.choose_nodes(single=True)
    await fault.may_end([name], losing=True)
    async with fault.acting("power"):
        await fault.cluster.power_cut(name)
    await fault.hold()
    await fault.start_again()


async def disk_full(fault: Fault) -> None:
    names = await fault.choose_nodes(single=True)
    await fault.may_end(names)
    async with fault.acting("disk-full"):
        for name in names:
            await fault.nemesis.fill_disk(name, full=True)
    await fault.hold()
    states = await fault.cluster.states()
    async with fault.acting("disk-freed"):
        for name in names:
            await fault.nemesis.fill_disk(name, full=False)
            if states[name] == "running":
                # A node whose disk refused writes is restarted, since it may have given up the log directory.
                await fault.end(name)
    await fault.start_again()


async def _damaged(fault: Fault, damage: Damage | None) -> None:
    """Damages the disk of a broker, whose records it then fetches from the other replicas."""
    cluster = fault.cluster
    [name, *_more] = await fault.choose_nodes(cluster.brokers, single=True)
    await fault.may_end([name], losing=True)
    async with fault.acting(fault.kind):
        await cluster.kill(name)
        if damage is None:
            await cluster.wipe(name)
        else:
            fault.value["damaged"] = list(await cluster.damage(name, damage))
    await fault.hold()
    await fault.start_again()


async def flip(fault: Fault) -> None:
    await _damaged(fault, Damage("flip", DAMAGED_LOGS, probability=one_of(fault.chance, [0.0001, 0.001, 0.01])))


async def truncate(fault: Fault) -> None:
    await _damaged(fault, Damage("truncate", DAMAGED_LOGS, bytes_=one_of(fault.chance, [1, 20, 300, 5_000])))


async def wipe(fault: Fault) -> None:
    await _damaged(fault, None)


async def membership(fault: Fault) -> None:
    cluster = fault.cluster
    [name, *_more] = await fault.choose_nodes(cluster.brokers, single=True)
    await fault.may_end([name])
    async with fault.acting("stop"):
        await _stopped(fault, name)
    async with fault.acting("unregister"):
        await cluster.unregister(name)
    await fault.hold()
    await fault.start_again("register")


async def _stopped(fault: Fault, name: str) -> None:
    """Stops a node and waits for its end, even if the run ends meanwhile: a node that is about to stop looks as if it
    ran, and would not be started again."""
    with trio.CancelScope(shield=True):
        await fault.cluster.stop(name)


async def kill_at(fault: Fault) -> None:
    chance, cluster, nemesis = fault.chance, fault.cluster, fault.nemesis
    [name, *_more] = await fault.choose_nodes(single=True)
    point = _some_point(fault, name)
    power_cut = "power" not in cluster.cannot and happens(chance, 0.3)
    if power_cut:
        fault.counts_as("power")
    await fault.may_end([name], losing=power_cut)
    async with fault.acting("kill-at", point=point, power_cut=power_cut):
        await nemesis.kill_at(name, point, power_cut=power_cut)
    await wait_until_struck(fault, name)
    await fault.start_again()


async def pause_at(fault: Fault) -> None:
    cluster = fault.cluster
    [name, *_more] = await fault.choose_nodes(single=True)
    point = _some_point(fault, name)
    async with fault.acting("pause-at", point=point):
        await fault.nemesis.pause_at(name, point)
    await wait_until_struck(fault, name)
    async with fault.acting("resume"):
        if (await cluster.states())[name] == "paused":
            await cluster.resume(name)


def _some_point(fault: Fault, name: str) -> str:
    """A fault point in the code of nodes of this role."""
    cluster, wanted = fault.cluster, fault.nemesis.options.points
    role = "broker" if name in cluster.brokers else "controller"
    of_role: list[str] = [*FAULT_POINTS[role], *getattr(cluster, "more_points", {}).get(role, ())]
    return one_of(fault.chance, [each for each in of_role if each in wanted] or of_role)


async def wait_until_struck(fault: Fault, name: str) -> None:
    """Waits until an armed node has come to its point, and then for a while; or until the fault is over."""
    with trio.move_on_after(fault.seconds):
        while (await fault.cluster.states())[name] == "running":
            await trio.sleep(LOOK_SECONDS)
    struck = await fault.nemesis.disarm(name)
    fault.value["struck"] = struck
    if struck:
        await trio.sleep(between(fault.chance, 0.0, fault.seconds))


HOSTILE_SECONDS = 8.0
"""Minimum duration of a hostile client."""
HOSTILE_PAUSES_SECONDS = (0.02, 0.05, 0.2)
"""Mean time between two of its requests: one of these."""


async def hostile(fault: Fault) -> None:
    """A hostile client for as long as the fault lasts. It is blamed for each node that ends meanwhile and that no fault
    holds."""
    cluster = fault.cluster
    problems: list[str] = []

    def report(problem: str) -> None:
        """Reports at once, since the run may end before the fault."""
        problems.append(problem)
        value = {"number": fault.number, "kind": fault.kind, "problems": problems}
        for type_ in TYPES:
            fault.nemesis.report(type_, "hostile-report", value)

    addresses = {"broker": [parse_address(address) for address in cluster.bootstrap_servers.split(",")]}
    # Where controllers can be reached by clients at all.
    addresses |= getattr(cluster, "controller_addresses", {})
    world = cluster.world(f"hostile-{fault.number}")
    pause_seconds = fault.nemesis.options.hostile_pause_seconds or one_of(fault.chance, HOSTILE_PAUSES_SECONDS)
    client = HostileClient(world, Random(fault.chance.randbytes(16)), addresses, report, pause_seconds)
    async with fault.acting("hostile"):
        pass
    try:
        with trio.move_on_after(max(fault.seconds, HOSTILE_SECONDS)):
            await client.run()
    finally:
        fault.nemesis.counts.update({f"hostile: {what}": count for what, count in client.counts.items()})
    for name, state in (await cluster.states()).items():
        if state == "dead" and not fault.nemesis.is_held(name):
            report(f"{name} ended")
    async with fault.acting("hostile-end", requests=client.counts["requests"], problems=problems):
        pass


async def restart_all(fault: Fault) -> None:
    """Kills every node that no other fault holds, and starts all of them again."""
    cluster = fault.cluster
    names = await fault.free_nodes([*cluster.brokers, *cluster.controllers])
    if len(names) <= (len(cluster.brokers) + len(cluster.controllers)) // 2:
        fault.give_up()
    fault.nodes += names
    await fault.may_end(names)
    async with fault.acting("restart-all", targets=names):
        await cluster.kill(*names)
    await fault.hold()
    await fault.start_again()


EVERYWHERE: dict[str, Story] = {
    "kill": kill,
    "stop": stop,
    "pause": pause,
    "partition": partition,
    "slow": slow,
    "lossy": lossy,
    "half-open": half_open,
    "message": message,
    "clock": clock,
    "power": power,
    "disk-full": disk_full,
    "flip": flip,
    "truncate": truncate,
    "wipe": wipe,
    "membership": membership,
    "kill-at": kill_at,
    "pause-at": pause_at,
    "cut-off": cut_off,
    "hostile": hostile,
    "restart-all": restart_all,
    "rotate": rotate,
}
"""Kinds that exist in simulated and in real worlds."""
