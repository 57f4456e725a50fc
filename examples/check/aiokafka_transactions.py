"""Wrong: outputs and offsets in one transaction, but aiokafka commits the offsets without the member's generation.

A member that was paused beyond its session commits what another one has done meanwhile (KIP-447 prevents that).
"""

from __future__ import annotations

import asyncio
import os
import signal

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

SERVERS, GROUP = os.environ["BOOTSTRAP_SERVERS"], os.environ["GROUP_ID"]


async def main() -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    consumer = AIOKafkaConsumer(
        os.environ["INPUT_TOPIC"],
        bootstrap_servers=SERVERS,
        group_id=GROUP,
        session_timeout_ms=int(os.environ["SESSION_TIMEOUT_MS"]),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=SERVERS,
        transactional_id=f"{GROUP}-{os.environ['INSTANCE']}",
        transaction_timeout_ms=10_000,
    )
    async with producer, consumer:
        while not stopping.is_set():
            records = [it for some in (await consumer.getmany(timeout_ms=200)).values() for it in some]
            if not records:
                continue
            async with producer.transaction():
                sent = [await producer.send(os.environ["OUTPUT_TOPIC"], it.value, it.key) for it in records]
                await asyncio.gather(*sent)
                await asyncio.sleep(0.05)  # the work
                done = {TopicPartition(it.topic, it.partition): it.offset + 1 for it in records}
                await producer.send_offsets_to_transaction(done, GROUP)


if __name__ == "__main__":
    asyncio.run(main())
