"""Real processes on three hosts: each host is killed in turn while records are produced and consumed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.ports import free_base_port
from barnabas.demo.ledger import Ledger, Verdict
from barnabas.demo.workload import CLIENT, Load, run_load
from barnabas.runtime.real import real_world

pytestmark = pytest.mark.feature("OP-02", "MB-16", "FI-03")
TOPIC, PARTITIONS, HOSTS = "hosts", 6, 3
QUICK = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


@pytest.fixture(params=[2, pytest.param(3, marks=pytest.mark.slow)])
def hosts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalCluster]:
    cells: int = request.param
    cluster = LocalCluster(tmp_path, free_base_port(), QUICK)
    cluster.make_larger(HOSTS * cells, cells)
    cluster.up()
    try:
        cluster.wait_ready()
        yield cluster
    finally:
        cluster.down()


def test_no_acknowledged_record_is_lost_when_whole_hosts_die(hosts: LocalCluster) -> None:
    verdict = trio.run(_kill_hosts_under_load, hosts)
    assert verdict.acked > 500
    assert (verdict.lost, verdict.duplicated, verdict.out_of_order) == (0, 0, 0)


async def _kill_hosts_under_load(cluster: LocalCluster) -> Verdict:
    servers = cluster.bootstrap_servers
    addresses = [each.rpartition(":") for each in servers.split(",")]
    assert len(addresses) == HOSTS, "one address for each host"
    brokers = [node.name for node in cluster.layout.brokers]
    cells = len(brokers) // HOSTS
    async with trio.open_nursery() as connections:
        bootstrap = [(host, int(port)) for host, _, port in addresses]
        client = Cluster(real_world(), connections, bootstrap, settings=CLIENT)
        await Admin.over(client).create_topics(NewTopic(TOPIC, PARTITIONS, 3, configs={"min.insync.replicas": "2"}))
        ledger = Ledger("hosts", PARTITIONS, client.now_ms())
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            await nursery.start(run_load, client, Load(TOPIC, 200, servers), ledger, stop)
            for host in range(HOSTS):
                names = brokers[host * cells : (host + 1) * cells]
                cluster.kill(*names)
                await _until_all_partitions_go_on(client, ledger)
                cluster.start(*names)
                await trio.to_thread.run_sync(cluster.wait_ready)
                await _until_all_partitions_go_on(client, ledger)
            stop.set()
        connections.cancel_scope.cancel()
    return ledger.verdict()


async def _until_all_partitions_go_on(client: Cluster, ledger: Ledger) -> None:
    """Each partition gets an ack of a record that is sent from now on."""
    numbers = [account.sent for account in ledger.accounts]
    with trio.fail_after(60):
        while not all(
            any(number >= first for number in account.acked) or account.settled > first
            for account, first in zip(ledger.accounts, numbers, strict=True)
        ):
            await trio.sleep(0.05)
