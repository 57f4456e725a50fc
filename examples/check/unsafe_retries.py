"""Wrong for ordered: without idempotence, a batch that is retried comes after those that were sent behind it."""

from __future__ import annotations

import os
import signal

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

SERVERS = os.environ["BOOTSTRAP_SERVERS"]


def main() -> None:
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stopping.append(number))
    producer = Producer(
        {
            "bootstrap.servers": SERVERS,
            "enable.idempotence": False,
            "retries": 10,
            "request.timeout.ms": 3000,
            "socket.timeout.ms": 3000,
            "linger.ms": 0,
            "batch.num.messages": 1,
        }
    )
    consumer = Consumer(
        {
            "bootstrap.servers": SERVERS,
            "group.id": os.environ["GROUP_ID"],
            "session.timeout.ms": int(os.environ["SESSION_TIMEOUT_MS"]),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    failed: list[object] = []

    def delivered(error: object, _record: object) -> None:
        if error:
            failed.append(error)

    consumer.subscribe([os.environ["INPUT_TOPIC"]])
    while not stopping:
        records = [record for record in consumer.consume(50, 0.2) if record.error() is None]
        for record in records:
            producer.produce(os.environ["OUTPUT_TOPIC"], record.value(), record.key(), on_delivery=delivered)
        if producer.flush(60) or failed:
            raise SystemExit(f"the output was not written: {failed[:1]}")
        done = {(it.topic(), it.partition()): it.offset() + 1 for it in records}
        if done:
            try:
                places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in done.items()]
                consumer.commit(offsets=places, asynchronous=False)
            except KafkaException as error:
                print(f"not committed: {error}", flush=True)
    consumer.close()


if __name__ == "__main__":
    main()
