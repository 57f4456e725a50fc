"""A member of a group with confluent-kafka, that reads and commits: `member.py SETTINGS TOPIC`.

Each line that goes out is JSON: `{"partitions": [0, 3]}` when its assignment is another, `{"values": ["7"]}` for what
it read. At the end of its input it commits, leaves the group, and ends.
"""

from __future__ import annotations

import json
import sys
import threading

from confluent_kafka import Consumer, KafkaError, KafkaException

NOT_NOW = {
    getattr(KafkaError, name)
    for name in ("REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "STALE_MEMBER_EPOCH", "_NO_OFFSET", "UNKNOWN_MEMBER_ID")
}
"""In the middle of a rebalance nobody's commit is taken."""


def main(settings: str, topic: str) -> None:
    stopped = threading.Event()
    threading.Thread(target=stop_with_input, args=(stopped,), daemon=True).start()
    consumer = Consumer(json.loads(settings))
    consumer.subscribe([topic])
    uncommitted, partitions = False, set[int]()
    while not stopped.is_set() or uncommitted:
        messages = consumer.consume(100, 0.1)
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
        if messages:
            report(values=[message.value().decode() for message in messages])
            uncommitted = True
        assigned = {each.partition for each in consumer.assignment()}
        if assigned != partitions:
            partitions = assigned
            report(partitions=sorted(partitions))
        try:
            if uncommitted and partitions:
                consumer.commit(asynchronous=False)
            uncommitted = False
        except KafkaException as error:
            if error.args[0].code() not in NOT_NOW:
                raise
    consumer.close()


def report(**what: object) -> None:
    print(json.dumps(what), flush=True)


def stop_with_input(stopped: threading.Event) -> None:
    sys.stdin.read()
    stopped.set()


if __name__ == "__main__":
    main(*sys.argv[1:])
