"""Signals interrupt a query between calls to Spark, and it is stopped before they are raised."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

pytest.importorskip("pyspark")

from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.jobs.streaming_query import Streamed, finish


class Query:
    """A scripted stand-in for Spark's StreamingQuery."""

    def __init__(self, *looks: Any) -> None:
        self._looks = list(looks)
        self.isActive = True
        self.recentProgress: list[dict[str, int]] = []
        self.stopped = 0

    def awaitTermination(self, seconds: float) -> bool:
        look = self._looks.pop(0)
        if isinstance(look, signal.Signals):
            os.kill(os.getpid(), look)
            return False
        if isinstance(look, Exception):
            self.isActive = False
            raise look
        if isinstance(look, list):
            self.recentProgress = look
            return False
        self.isActive = not look
        return bool(look)

    def stop(self) -> None:
        self.stopped += 1
        self.isActive = False


class Terminated(BaseException):
    pass


def test_batches_are_counted_once_each_and_empty_ones_are_none() -> None:
    first = {"batchId": 3, "numInputRows": 10}
    empty = {"batchId": 4, "numInputRows": 0}
    query = Query([first], [first, empty], [first, empty, {"batchId": 5, "numInputRows": 7}], True)
    assert finish(lambda: query) == Streamed(17, 2, 5)
    assert not query.stopped


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_a_signal_stops_the_query_first(number: signal.Signals, raised: type[BaseException]) -> None:
    query = Query(False, number, False)

    def terminate(*_: object) -> None:
        assert query.stopped == 1
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        with pytest.raises(raised):
            finish(lambda: query)
        assert query.stopped == 1
        assert signal.getsignal(signal.SIGTERM) is terminate
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_failure_of_a_query_is_one_line() -> None:
    from pyspark.errors import StreamingQueryException

    query = Query(StreamingQueryException("x\n[USER_RAISED_EXCEPTION] the value of t-0@5 does not fit SQLSTATE: P0001"))
    with pytest.raises(PipelineError, match=r"^the value of t-0@5 does not fit$"):
        finish(lambda: query)
