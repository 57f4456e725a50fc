"""Assembles and runs the page: watch, server, load and tour in one trio program."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import trio

from barnabas.client.schemas.lookup import RegistryLookup
from barnabas.client.security import channel_security
from barnabas.client.security_settings import NO_SECURITY, SecuritySettings
from barnabas.cluster.layout import Layout
from barnabas.https import Https
from barnabas.page.access import Access
from barnabas.page.asking import Asker
from barnabas.page.control import Faults, buttons
from barnabas.page.feed import Feed
from barnabas.page.groups import Groups
from barnabas.page.kafka_view import KafkaView
from barnabas.page.load import TOPIC, LoadRunner
from barnabas.page.local_side import LocalSide, until_ready
from barnabas.page.node_state import NodeName
from barnabas.page.schemas import Schemas
from barnabas.page.server import Page, PageAddress
from barnabas.page.topics import Topics
from barnabas.page.tour import Tour
from barnabas.page.watch import Address, Watch
from barnabas.rest.routes import rest_routes
from barnabas.rest.schema_values import SchemaValues
from barnabas.rest.service import Rest
from barnabas.runtime.http_token import HttpToken
from barnabas.runtime.process import SWITCH_SECONDS, settle_memory
from barnabas.runtime.real import real_world
from barnabas.security.node_rules import NodeRules, rules_of


@dataclass(frozen=True, slots=True)
class RestOptions:
    """Settings of the clients of the REST interface."""

    reader: Callable[[], Mapping[str, Any]]
    writer: Callable[[], Mapping[str, Any]]
    allow_writes: bool = False


@dataclass(slots=True)
class Show:
    """Options of a page."""

    listener: socket.socket
    address: PageAddress
    token: str
    bootstrap: Sequence[tuple[str, int]] = ()
    """Bootstrap servers of a cluster that is not local."""
    security: SecuritySettings = field(default=NO_SECURITY)
    """The security settings for that cluster."""
    http_token: HttpToken | None = None
    """Sent to the nodes' HTTP listeners, and needed by the page's readers."""
    https: Https | None = None
    """Serve HTTPS."""
    admin: Callable[[], Mapping[str, Any]] = dict
    """Returns the settings of an administrator's client."""
    registry: RegistryLookup | None = None
    """The schema registry; None: the page knows none."""
    rest: RestOptions | None = None
    """The REST interface; None: there is none."""
    open_side: Callable[[], LocalSide] | None = None
    """Opens a local cluster; blocking."""
    allow_faults: bool = False
    load: bool = False
    """Start the load at once."""
    tour: bool = False
    """Start the tour at once."""
    note: Callable[[str], None] = lambda text: None
    """Gets progress lines."""


async def show(options: Show, ready: Callable[[str], None]) -> None:
    """Runs until cancelled. `ready` gets the page's URL when it accepts requests."""
    if options.open_side is None:
        await _show(options, None, ready)
        return
    with trio.CancelScope(shield=True):
        side = await trio.to_thread.run_sync(options.open_side)
    try:
        await _show(options, side, ready)
    finally:
        with trio.CancelScope(shield=True):
            if await trio.to_thread.run_sync(side.close):
                options.note(f"the cluster in {side.cluster.layout.data} was stopped with its page; its data stays")


async def _show(options: Show, side: LocalSide | None, ready: Callable[[str], None]) -> None:
    if side is not None and side.links is not None:
        await until_ready(side)
    world = real_world()
    feed = Feed()
    watch = Watch(
        world,
        feed,
        addresses_of(side.cluster.layout, options.http_token) if side is not None else [],
        processes=side.processes if side is not None else dict,
        cut=(lambda: side.cut) if side is not None else list,
        discovery=None
        if side is not None
        else KafkaView(world, options.bootstrap, channel_security(options.security, world), options.http_token),
    )
    control, load, tour = None, None, None
    if options.allow_faults:
        assert side is not None
        load = LoadRunner(world, side.cluster.bootstrap_servers, feed)
        watch.at_each_poll.append(load.publish)
        faults = Faults(side, feed, world.wall_clock)
        tour = Tour(faults, load, feed, apache_kafka())
        control = buttons(faults, {"load": load, "tour": tour}, partial(_busy, tour))

    def hello(topic: str) -> Mapping[str, Any]:
        return {
            "allow_faults": control is not None,
            "bootstrap": _text(options.bootstrap) if side is None else side.cluster.bootstrap_servers,
            "nodes": [sight.node.to_json() for sight in watch.sights.values()],
            "topic": topic,
            "tour": control is not None,
            "links": control is not None and side is not None and side.links is not None,
            "apache_kafka": apache_kafka(),
        }

    def topic() -> str:
        known = watch.topics
        return TOPIC if TOPIC in known or not known or control is not None else known[0]

    watch.at_each_poll.append(lambda: feed.offer(watch.topics, topic(), hello))
    rules = NodeRules if side is None else partial(rules_of, side.cluster.layout.data)
    asker = Asker(options.admin)
    access = Access(asker, watch.fresh_states, watch.denials, rules)
    groups = Groups(asker, watch.shares, lambda: feed.is_read)
    rest = None
    if options.rest is not None:
        rest = Rest(asker, options.rest.reader, options.rest.writer, options.rest.allow_writes, _schema_values(options))
    page = Page(
        watch,
        feed,
        options.listener,
        options.address,
        options.token,
        hello,
        topic,
        control,
        access,
        options.http_token,
        groups,
        Topics(asker, has_records=rest is not None),
        None if rest is None else rest_routes(rest, options.token),
        options.https,
        Schemas(options.registry, asker.in_thread),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        nursery.start_soon(groups.run)
        if rest is not None:
            await nursery.start(rest.run)
        if load is not None:
            await nursery.start(load.run)
        if tour is not None:
            await nursery.start(tour.run)
        if tour is not None and options.tour:
            tour.start()
            tour.load_follows = options.load
        elif load is not None and options.load:
            load.start()
        # The view "Access" reads thousands of rows in a thread: neither that nor the collector may delay the feed.
        sys.setswitchinterval(SWITCH_SECONDS)
        settle_memory()
        ready(await nursery.start(page.serve))


def _schema_values(options: Show) -> SchemaValues | None:
    return None if options.registry is None else SchemaValues(options.registry)


def _text(addresses: Sequence[tuple[str, int]]) -> str:
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses)


def _busy(tour: Tour) -> str:
    return "the tour is running" if tour.is_running else ""


def addresses_of(layout: Layout, token: HttpToken | None = None) -> list[Address]:
    """HTTP addresses of the nodes of a local cluster."""
    return [
        Address(NodeName(node.name, node.id, node.role, layout.host_of(node)), "127.0.0.1", node.http_port, token)
        for node in layout.nodes
        if node.http_port is not None
    ]


def apache_kafka() -> Mapping[str, Any]:
    """Apache Kafka's gaps for the same faults, as measured."""
    found: Mapping[str, Any] = json.loads((Path(__file__).resolve().parent / "apache_kafka.json").read_text())
    return found
