"""Wrong: works on records in batches, and when its partitions are revoked it commits their positions and drops the
batch."""

from __future__ import annotations

import os
import signal

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

SERVERS = os.environ["BOOTSTRAP_SERVERS"]
AT_ONCE = 50


def main() -> None:
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stopping.append(number))
    producer = Producer({"bootstrap.servers": SERVERS})
    consumer = Consumer(
        {
            "bootstrap.servers": SERVERS,
            "group.id": os.environ["GROUP_ID"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    batch: list[Message] = []

    def revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        positions = [place for place in consumer.position(partitions) if place.offset >= 0]
        batch.clear()
        if positions:
            try:
                consumer.commit(offsets=positions, asynchronous=False)
            except KafkaException as error:
                print(f"not committed: {error}", flush=True)

    consumer.subscribe([os.environ["INPUT_TOPIC"]], on_revoke=revoked)
    while not stopping:
        records = [record for record in consumer.consume(20, 0.2) if record.error() is None]
        batch += records
        if not batch or (records and len(batch) < AT_ONCE):
            continue
        for record in batch:
            producer.produce(os.environ["OUTPUT_TOPIC"], record.value(), record.key())
        producer.flush()
        done = {(it.topic(), it.partition()): it.offset() + 1 for it in batch}
        places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in done.items()]
        try:
            consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            print(f"not committed: {error}", flush=True)
        batch.clear()
    consumer.close()


if __name__ == "__main__":
    main()
