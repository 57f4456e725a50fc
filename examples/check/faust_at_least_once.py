"""Correct for at-least-once: an agent of faust that waits for each output before it goes on to the next record."""

from __future__ import annotations

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
    topic_disable_leader=True,
    web_enabled=False,
)
inputs = app.topic(os.environ["INPUT_TOPIC"], key_serializer="raw", value_serializer="raw")
outputs = app.topic(os.environ["OUTPUT_TOPIC"], key_serializer="raw", value_serializer="raw")


@app.agent(inputs)
async def work(stream: Any) -> None:
    async for event in stream.events():
        await outputs.send(key=event.key, value=event.value)


if __name__ == "__main__":
    faust.Worker(app, loglevel="info").execute_from_commandline()
