"""Wrong for exactly-once: Quix Streams without a processing guarantee, which is at-least-once."""

from __future__ import annotations

import os
import tempfile

from quixstreams import Application

app = Application(
    broker_address=os.environ["BOOTSTRAP_SERVERS"],
    consumer_group=os.environ["GROUP_ID"],
    auto_offset_reset="earliest",
    state_dir=tempfile.mkdtemp(),
    auto_create_topics=False,
    consumer_extra_config={"session.timeout.ms": int(os.environ["SESSION_TIMEOUT_MS"])},
)
inputs = app.topic(os.environ["INPUT_TOPIC"], key_deserializer="bytes", value_deserializer="bytes")
outputs = app.topic(os.environ["OUTPUT_TOPIC"], key_serializer="bytes", value_serializer="bytes")
app.dataframe(inputs).to_topic(outputs)

if __name__ == "__main__":
    app.run()
