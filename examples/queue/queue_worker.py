"""Works on jobs until it is stopped; any number of workers share them: `python queue_worker.py BOOTSTRAP`."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Awaitable, Callable

import trio

from barnabas import ShareConsumer

JOBS, GROUP = "jobs", "workers"
Handler = Callable[[dict], Awaitable[None]]

log = logging.getLogger(__name__)


class TryAgain(Exception):
    """The job may succeed later."""


async def work(bootstrap_servers: str, handle: Handler, world=None) -> None:
    """One worker, until it is cancelled: a job under way is then released for the others."""
    async with ShareConsumer(
        JOBS,
        bootstrap_servers=bootstrap_servers,
        group_id=GROUP,
        world=world,
        share_acknowledgement_mode="explicit",
        share_acquire_mode="record_limit",
        reject_on=(ValueError, KeyError),
    ) as consumer:
        while True:
            # Few at a time: a lock lasts for 30 s, and is renewed only while its own job runs.
            for record in await consumer.poll(timeout_ms=500, max_records=5):
                try:
                    async with record:
                        await handle(json.loads(record.value))
                except TryAgain as error:
                    log.info("offset %d, delivery %d: %s", record.offset, record.delivery_count, error)
                except (ValueError, KeyError) as error:
                    log.warning("offset %d is rejected: %r", record.offset, error)


async def say(job: dict) -> None:
    print(job["say"])


if __name__ == "__main__":
    trio.run(work, sys.argv[1], say)
