"""Correct for exactly-once, ordered, with the client of Barnabas: outputs and offsets in one transaction (KIP-447)."""

from __future__ import annotations

import os
import signal

import trio

from barnabas import Consumer, Producer, errors

SERVERS, GROUP = os.environ["BOOTSTRAP_SERVERS"], os.environ["GROUP_ID"]


async def main() -> None:
    reason = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(until_sigterm, nursery.cancel_scope)
        reason = await transform()
        nursery.cancel_scope.cancel()
    raise SystemExit(reason)


async def until_sigterm(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        await anext(signals)
    scope.cancel()


async def transform() -> str:
    """Until a transaction cannot be committed; returns the reason."""
    async with (
        Producer(
            bootstrap_servers=SERVERS,
            transactional_id=f"{GROUP}-{os.environ['INSTANCE']}",
            transaction_timeout_ms=10_000,
        ) as producer,
        Consumer(
            os.environ["INPUT_TOPIC"],
            bootstrap_servers=SERVERS,
            group_id=GROUP,
            session_timeout_ms=int(os.environ["SESSION_TIMEOUT_MS"]),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer,
    ):
        while True:
            records = await consumer.poll(timeout_ms=200)
            if not records:
                continue
            try:
                async with producer.transaction():
                    for record in records:
                        await producer.enqueue(os.environ["OUTPUT_TOPIC"], record.value, key=record.key)
                    await producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
            except errors.ApplicationRecoverableException as error:
                # A rebalance came between, or the producer is fenced: the next process begins again.
                return f"aborted: {error}"


if __name__ == "__main__":
    trio.run(main)
