"""Wrong for at-least-once: an agent of faust that starts a task for each record. The record counts as processed when
the next one is taken, so its offset is committed while the task still works, and a crash loses it.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from typing import Any

import faust

app = faust.App(
    os.environ["GROUP_ID"],
    broker="kafka://" + os.environ["BOOTSTRAP_SERVERS"],
    datadir=tempfile.mkdtemp(),
    consumer_auto_offset_reset="earliest",
    broker_session_timeout=int(os.environ["SESSION_TIMEOUT_MS"]) / 1000,
    broker_heartbeat_interval=1.0,
    broker_commit_interval=0.5,
    topic_disable_leader=True,
    web_enabled=False,
)
inputs = app.topic(os.environ["INPUT_TOPIC"], key_serializer="raw", value_serializer="raw")
outputs = app.topic(os.environ["OUTPUT_TOPIC"], key_serializer="raw", value_serializer="raw")
tasks: set[asyncio.Task[None]] = set()


@app.agent(inputs)
async def work(stream: Any) -> None:
    async for event in stream.events():
        task = asyncio.create_task(write(event.key, event.value))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


async def write(key: bytes, value: bytes) -> None:
    await asyncio.sleep(1)  # asks a service
    await outputs.send(key=key, value=value)


if __name__ == "__main__":
    faust.Worker(app, loglevel="info").execute_from_commandline()
