"""Certificates of simulated nodes are replaced while nodes run: the code that reads them runs in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from barnabas import Admin, NewTopic, Producer
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.runtime.channel import Channel
from barnabas.runtime.tls.channel import TlsChannelSecurity
from barnabas.runtime.tls.connection import TlsConnection
from barnabas.runtime.tls.options import TlsOptions
from barnabas.runtime.tls.reload import POLL_SECONDS, TlsHolder
from barnabas.runtime.world import World
from nemeses.certificates import NOTICED_SECONDS
from running.experiment import NODE_SETTINGS
from running.seed import run_plan
from simulation.cluster import SimCluster
from simulation.conditions import Conditions
from simulation.node_certificates import FILE_SETTINGS, FOLDER, KEYS, TRUSTED, put
from simulation.secure_nodes import NODES_PORT
from tests.simulation.plans import usual
from worlds.cluster import LinkFault
from worlds.world_options import WorldOptions, run_in

pytestmark = [pytest.mark.feature("FI-03"), pytest.mark.feature("SE-02")]

TOPIC = "t"
EXPIRED = Path(__file__).with_name("expired.pem")
"""Valid on the clock of a simulation, and expired on that of this machine, which OpenSSL looks at."""


def play(directory: Path, story: Callable[[SimCluster], Awaitable[None]]) -> None:
    conditions = Conditions(secure=True)
    options = WorldOptions("sim", 3, directory, settings=NODE_SETTINGS, conditions=conditions)
    run_in(options, story)  # type: ignore[arg-type]


def der(name: str) -> bytes:
    """The certificate in one of the prepared files."""
    return x509.load_pem_x509_certificates((FOLDER / name).read_bytes())[0].public_bytes(Encoding.DER)


def outside(cluster: SimCluster) -> tuple[World, TlsChannelSecurity]:
    """Somebody on a host of its own who has a certificate of the first authority, and trusts both."""
    world, disk = cluster.world("client-8"), cluster.universe.disk("client-8")
    put(disk, KEYS, (FOLDER / "node-1-1.pem").read_bytes())
    put(disk, TRUSTED, b"".join((FOLDER / f"authority-{number}.pem").read_bytes() for number in (1, 2)))
    return world, TlsChannelSecurity(TlsHolder(TlsOptions.of(FILE_SETTINGS), world, client=True))


async def shown(cluster: SimCluster, name: str) -> bytes | None:
    """The certificate that a broker shows to a new connection."""
    world, security = outside(cluster)
    connection = await security.secure(await world.network.dial(name, NODES_PORT), name)
    assert isinstance(connection, TlsConnection)
    connection.close()
    return connection.peer_certificate


def lines(directory: Path, name: str, text: str) -> list[str]:
    return [line for line in (directory / "logs" / f"{name}.log").read_text().splitlines() if text in line]


async def make_topic(cluster: SimCluster) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world("client-9")) as admin:
        await admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=3)])


async def write(cluster: SimCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world("client-0")) as producer:
        await producer.send(TOPIC, value=b"x", partition=0)


def test_new_connections_see_the_new_certificate_and_open_ones_go_on(tmp_path: Path) -> None:
    async def story(cluster: SimCluster) -> None:
        world, security = outside(cluster)
        controller = cluster.controllers[0]
        port = cluster.cluster.nodes[controller].node.port
        async with trio.open_nursery() as nursery:
            channel = Channel(world, nursery, controller, port, client_id="outside", security=security)
            lost: list[bool] = []
            channel.on_closed = lost.append
            await channel.call(ApiVersionsRequest(), timeout_ms=5_000)
            for name in (controller, "broker-2"):
                await cluster.renew_certificate(name)
            assert await shown(cluster, "broker-2") == der("node-1-1.pem"), "nobody has looked at the file yet"
            await trio.sleep(NOTICED_SECONDS)
            assert await shown(cluster, "broker-2") == der("node-1-2.pem")
            await channel.call(ApiVersionsRequest(), timeout_ms=5_000)
            assert not lost
            channel.close()
            nursery.cancel_scope.cancel()

    play(tmp_path, story)


def test_a_broken_file_is_reported_and_the_old_certificate_stays(tmp_path: Path) -> None:
    async def story(cluster: SimCluster) -> None:
        await cluster.spoil_certificate("broker-1")
        await trio.sleep(3 * NOTICED_SECONDS)
        assert await shown(cluster, "broker-1") == der("node-1-1.pem")
        await make_topic(cluster)
        await write(cluster)
        await cluster.heal()
        await trio.sleep(NOTICED_SECONDS)
        assert await shown(cluster, "broker-1") == der("node-1-2.pem")
        assert not cluster.findings.broken

    play(tmp_path, story)
    reports = lines(tmp_path, "broker-1", "the changed certificates cannot be used, and the old ones stay")
    assert len(reports) == 2, "one of each listener"


def test_the_authority_of_all_nodes_is_replaced_while_they_run(tmp_path: Path) -> None:
    async def story(cluster: SimCluster) -> None:
        await make_topic(cluster)
        for step in ("trust both", "switch", "trust the new one"):
            await cluster.change_authority(step)
            await trio.sleep(NOTICED_SECONDS)
            await write(cluster)
        assert await shown(cluster, "broker-3") == der("node-2-2.pem")
        # Every connection is a new one now, and the old authority is trusted by nobody.
        for one in (*cluster.brokers, *cluster.controllers):
            for other in (*cluster.brokers, *cluster.controllers):
                if one != other:
                    await cluster.set_link(one, other, LinkFault(reset_after_bytes=1))
        await trio.sleep(1)
        await cluster.heal()
        await cluster.wait_ready()
        await write(cluster)

    play(tmp_path, story)
    for name in ("broker-1", "controller-101"):
        assert not lines(tmp_path, name, "trust our certificate")


def test_the_others_go_on_without_a_broker_whose_certificate_has_expired(tmp_path: Path) -> None:
    async def story(cluster: SimCluster) -> None:
        await make_topic(cluster)
        put(cluster.universe.disk("broker-3"), KEYS, EXPIRED.read_bytes())
        await trio.sleep(POLL_SECONDS + 2)
        for controller in cluster.controllers:
            await cluster.set_link("broker-3", controller, LinkFault(reset_after_bytes=1))
        await trio.sleep(1)
        await cluster.heal()
        await trio.sleep(10)
        alive = cluster.watch.quorum.image.cluster.brokers
        assert alive[3].fenced and not alive[1].fenced and not alive[2].fenced
        await write(cluster)
        # A new file is enough, and the broker is back.
        assert cluster.certificates is not None
        cluster.certificates.install("broker-3")
        await trio.sleep(POLL_SECONDS + 5)
        assert not cluster.watch.quorum.image.cluster.brokers[3].fenced

    play(tmp_path, story)
    for name in ("controller-101", "controller-102", "controller-103"):
        refusals = lines(tmp_path, name, "from broker-3: the peer's certificate was refused: certificate has expired")
        assert len(refusals) == 1, "one line in a minute, however often it tries"


def test_a_seed_with_rotations_is_the_same_again() -> None:
    plan = usual(11, "queue", nemesis=("rotate", "rotate", "kill"))
    plan = replace(plan, condition=(*plan.condition, "secure=true"))
    first, second = run_plan(plan), run_plan(plan)
    assert first.passed, first.broken
    assert first.counts["fault: rotate"] > 1
    assert first.digest == second.digest
