"""Writes an invoice for every order, each exactly once: `python billing.py BOOTSTRAP`."""

from __future__ import annotations

import json
import sys

import trio

from barnabas import Consumer, Producer

ORDERS, INVOICES, GROUP = "orders", "invoices", "billing"


def invoice_of(order: bytes) -> bytes:
    """The invoice of an order."""
    fields = json.loads(order)
    return json.dumps({"order": fields["order"], "amount": fields["pieces"] * fields["price"]}).encode()


async def bill(bootstrap_servers: str, worker: str, world=None) -> None:
    """One worker, until it is cancelled. Any number of them share the work; each needs a name of its own."""
    common = {"bootstrap_servers": bootstrap_servers, "world": world}
    async with (
        Producer(transactional_id=f"{GROUP}-{worker}", **common) as producer,
        Consumer(ORDERS, group_id=GROUP, auto_offset_reset="earliest", enable_auto_commit=False, **common) as consumer,
    ):
        while True:
            orders = await consumer.poll(timeout_ms=500)
            if not orders:
                continue
            # The invoices and how far the orders were read become visible together, or not at all.
            async with producer.transaction():
                for order in orders:
                    await producer.enqueue(INVOICES, invoice_of(order.value), key=order.key)
                await producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())


if __name__ == "__main__":
    trio.run(bill, sys.argv[1], "1")
