"""The well-behaved producer, in a process of its own: `python -m attacks.quiet_producer BOOTSTRAP FILE`.

It sends 100 records a second over three partitions, idempotent and with acks=all, until its standard input ends, and
writes a line to FILE for each record that it sends (`S number time`), that is acknowledged (`A number time`) or that
fails (`F number time`). Times are those of CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import sys
import time
from typing import TextIO

import trio

from barnabas import Producer
from barnabas.protocol.errors import KafkaError
from barnabas.runtime.channel import ChannelError

TOPIC = "quiet"
PARTITIONS = 3
RECORDS_PER_SECOND = 100
CLOSE_SECONDS = 20.0


async def produce(bootstrap: str, output: TextIO) -> None:
    stop = trio.Event()
    async with (
        Producer(bootstrap_servers=bootstrap.split(","), linger_ms=0, delivery_timeout_ms=120_000) as producer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(_wait_for_end_of_input, stop)
        began = trio.current_time()
        number = 0
        while not stop.is_set():
            nursery.start_soon(_send, producer, number, output)
            number += 1
            await trio.sleep_until(began + number / RECORDS_PER_SECOND)
        nursery.cancel_scope.deadline = trio.current_time() + CLOSE_SECONDS


async def _send(producer: Producer, number: int, output: TextIO) -> None:
    _write(output, "S", number)
    try:
        await producer.send(TOPIC, b"record %d" % number, partition=number % PARTITIONS)
    except (KafkaError, ChannelError):
        _write(output, "F", number)
    else:
        _write(output, "A", number)


def _write(output: TextIO, what: str, number: int) -> None:
    output.write(f"{what} {number} {time.monotonic():.6f}\n")


async def _wait_for_end_of_input(stop: trio.Event) -> None:
    await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
    stop.set()


def main() -> None:
    bootstrap, path = sys.argv[1:]
    with open(path, "w", buffering=1, encoding="utf-8") as output:
        trio.run(produce, bootstrap, output)


if __name__ == "__main__":
    main()
