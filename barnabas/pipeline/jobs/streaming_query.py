"""Runs a streaming query in the foreground; on SIGINT and SIGTERM the query is stopped in an orderly way."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from barnabas.pipeline.spark_errors import refusal

POLL_SECONDS = 0.2
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Streamed:
    """Counts of a query."""

    records: int = 0
    batches: int = 0
    last_batch: int = -1


def finish(start: Callable[[], Any]) -> Streamed:
    """Run a query to its end, or stop it if a signal arrives, which is then raised. PipelineError if it fails."""
    from pyspark.errors import PySparkException

    streamed = Streamed()
    query = start()
    with _deferred_signals() as signals:
        try:
            while not signals and not query.awaitTermination(POLL_SECONDS):
                _count(query, streamed)
        except PySparkException as error:
            raise refusal(error) from None
        finally:
            if query.isActive:
                query.stop()
            _count(query, streamed)
    for number in signals:
        # The previous handlers are in place again.
        signal.raise_signal(number)
    return streamed


@contextmanager
def _deferred_signals() -> Iterator[list[int]]:
    """Collects signals within the block instead of raising them: after an interrupted call to Spark, the next call
    would read its answer.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {number: signal.signal(number, lambda number, frame: received.append(number)) for number in SIGNALS}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _count(query: Any, streamed: Streamed) -> None:
    """Add the batches completed since the last call; Spark keeps the last hundred."""
    for progress in query.recentProgress:
        number, records = progress["batchId"], progress["numInputRows"]
        if number > streamed.last_batch and records:
            streamed.records += records
            streamed.batches += 1
            streamed.last_batch = number
