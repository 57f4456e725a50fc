"""Core: the exception by which a serializer has a schema looked up: it cannot wait itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.client.errors import SerializationException


class SchemaNeeded(SerializationException):
    """The schema is not known yet. Clients call `look_up` in a thread, and try again; only `send_nowait` and share
    consumers raise it."""

    def __init__(self, topic: str, look_up: Callable[[], None]) -> None:
        super().__init__(f"topic {topic}: the schema is not known yet; it is looked up by send() and enqueue() alone")
        self.look_up = look_up
        """Blocks. Raises SerializationException."""
        self.again: Callable[[], Any] = lambda: None
        """Prepares the record again; set by the producer."""
