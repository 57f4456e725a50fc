"""Correct for at-least-once, ordered, with aiokafka: works, waits until the output is acknowledged, then commits."""

from __future__ import annotations

import asyncio
import os
import signal

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import CommitFailedError, KafkaError

SERVERS = os.environ["BOOTSTRAP_SERVERS"]


async def main() -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    consumer = AIOKafkaConsumer(
        os.environ["INPUT_TOPIC"],
        bootstrap_servers=SERVERS,
        group_id=os.environ["GROUP_ID"],
        session_timeout_ms=int(os.environ["SESSION_TIMEOUT_MS"]),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with AIOKafkaProducer(bootstrap_servers=SERVERS, enable_idempotence=True) as producer, consumer:
        while not stopping.is_set():
            records = [it for some in (await consumer.getmany(timeout_ms=200)).values() for it in some]
            sent = [await producer.send(os.environ["OUTPUT_TOPIC"], it.value, it.key) for it in records]
            await asyncio.gather(*sent)
            done = {TopicPartition(it.topic, it.partition): it.offset + 1 for it in records}
            if done:
                try:
                    await consumer.commit(done)
                except (CommitFailedError, KafkaError) as error:
                    # Another instance has the partitions now, and works on these records again.
                    print(f"not committed: {error!r}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
