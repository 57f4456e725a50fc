"""A streaming query from its start to its end, for a person at a terminal: interrupted, it stops in good order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from barnabas.pipeline.refusals import refusal

LOOK_SECONDS = 0.2


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
    try:
        while not query.awaitTermination(LOOK_SECONDS):
            _count(query, streamed)
    except PySparkException as error:
        raise refusal(error) from None
    finally:
        if query.isActive:
            query.stop()
        _count(query, streamed)
    return streamed


def _count(query: Any, streamed: Streamed) -> None:
    """Batches that ended since the last look; Spark remembers a hundred of them."""
    for progress in query.recentProgress:
        number, records = progress["batchId"], progress["numInputRows"]
        if number > streamed.last_batch and records:
            streamed.records += records
            streamed.batches += 1
            streamed.last_batch = number
