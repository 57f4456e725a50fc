"""A streaming query from its start to its end, for a person at a terminal: interrupted, it stops in good order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from barnabas.pipeline.spark_errors import refusal

LOOK_SECONDS = 0.2
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Streamed:
    """What a query did while we looked on."""

    records: int = 0
    batches: int = 0
    last_batch: int = -1


def finish(start: Callable[[], Any]) -> Streamed:
    """Runs a query to its end. PipelineError if it fails; whatever interrupts us stops it first."""
    from pyspark.errors import PySparkException

    streamed = Streamed()
    query = start()
    with _heard() as signals:
        try:
            while not signals and not query.awaitTermination(LOOK_SECONDS):
                _count(query, streamed)
        except PySparkException as error:
            raise refusal(error) from None
        finally:
            if query.isActive:
                query.stop()
            _count(query, streamed)
    for number in signals:
        # To who was asked first, and now it can be raised.
        signal.raise_signal(number)
    return streamed


@contextmanager
def _heard() -> Iterator[list[int]]:
    """Signals that came within the block, and interrupted nothing: a call to Spark that is broken off takes the answer
    of the next one for its own.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = {number: signal.signal(number, lambda *told: came.append(told[0])) for number in SIGNALS}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _count(query: Any, streamed: Streamed) -> None:
    """Batches that ended since the last look; Spark remembers a hundred of them."""
    for progress in query.recentProgress:
        number, records = progress["batchId"], progress["numInputRows"]
        if number > streamed.last_batch and records:
            streamed.records += records
            streamed.batches += 1
            streamed.last_batch = number
