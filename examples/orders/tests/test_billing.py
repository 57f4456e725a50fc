"""Every order has one invoice, whatever happens to the cluster meanwhile."""

from __future__ import annotations

import json
from collections import Counter

import trio

from barnabas import Consumer, Producer
from billing import INVOICES, ORDERS, bill, invoice_of


def order(number: int) -> bytes:
    return json.dumps({"order": number, "pieces": 2, "price": number}).encode()


async def write_orders(bootstrap_servers: str, numbers: range, world=None) -> None:
    async with Producer(bootstrap_servers=bootstrap_servers, world=world) as producer:
        for number in numbers:
            await producer.send(ORDERS, order(number), key=b"%d" % number)


async def read_invoices(bootstrap_servers: str, count: int, world=None) -> Counter[int]:
    """Number of invoices for each order, once there are `count` in all."""
    seen: Counter[int] = Counter()
    settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed", "group_id": "audit"}
    async with Consumer(INVOICES, bootstrap_servers=bootstrap_servers, world=world, **settings) as consumer:
        with trio.fail_after(120):
            while seen.total() < count:
                for record in await consumer.poll(timeout_ms=500):
                    seen[json.loads(record.value)["order"]] += 1
    return seen


def test_an_invoice() -> None:
    assert json.loads(invoice_of(order(7))) == {"order": 7, "amount": 14}


async def test_one_invoice_for_each_order_while_the_network_splits(barnabas_simulated_cluster) -> None:
    cluster = barnabas_simulated_cluster
    for topic in (ORDERS, INVOICES):
        await cluster.create_topic(topic, partitions=3)
    async with trio.open_nursery() as nursery:
        for worker in ("1", "2"):
            nursery.start_soon(bill, cluster.bootstrap_servers, worker, cluster.client_world(f"worker-{worker}"))
        await write_orders(cluster.bootstrap_servers, range(30), cluster.world)
        cluster.partition([await cluster.leader_of(ORDERS), await cluster.active_controller()])
        await write_orders(cluster.bootstrap_servers, range(30, 60), cluster.world)
        await trio.sleep(60)  # of virtual time
        cluster.heal()
        await write_orders(cluster.bootstrap_servers, range(60, 90), cluster.world)
        seen = await read_invoices(cluster.bootstrap_servers, 90, cluster.world)
        nursery.cancel_scope.cancel()
    assert seen == Counter(range(90))


async def test_one_invoice_for_each_order_while_a_broker_is_killed(barnabas_cluster) -> None:
    cluster = barnabas_cluster
    for topic in (ORDERS, INVOICES):
        cluster.create_topic(topic, partitions=3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bill, cluster.bootstrap_servers, "1")
        await write_orders(cluster.bootstrap_servers, range(20))
        await trio.to_thread.run_sync(cluster.kill, cluster.leader_of(INVOICES))
        await write_orders(cluster.bootstrap_servers, range(20, 40))
        seen = await read_invoices(cluster.bootstrap_servers, 40)
        nursery.cancel_scope.cancel()
    assert seen == Counter(range(40))
