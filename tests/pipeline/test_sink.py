"""Checks of the sink before and after the tasks, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.pipeline.errors import PipelineError, Untrusted, WrongUse
from barnabas.pipeline.sink import (
    check_columns,
    check_reports,
    refuse_speculation,
    refuse_stage_retry,
    sink_settings,
)
from barnabas.pipeline.task_reports import PartitionReport
from barnabas.protocol.records.compression import Compression

pytestmark = pytest.mark.feature("PL-03")

SERVERS = "127.0.0.1:9092"


def report(partition: int, **changes: Any) -> PartitionReport:
    return PartitionReport("flights", partition, 10, 0, 9, 500, 4, partition)._replace(**changes)


def test_options_become_settings() -> None:
    settings = sink_settings(SERVERS, "flights", "load", compression_type="zstd", transaction_timeout_ms=1000)
    assert settings.producing.compression is Compression.ZSTD
    assert settings.transactional_id == "spark-sink-load"
    assert sink_settings(SERVERS, None, "load", delivery="at-least-once").transactional_id is None


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"delivery": "at-most-once"}, "must be exactly-once or at-least-once"),
        ({"compression_type": "brotli"}, "none, gzip, snappy, lz4 or zstd"),
        ({"transaction_timeout_ms": 0}, "transaction_timeout_ms must be at least 1; got 0"),
        ({"batch_bytes": -1}, "batch_bytes must be at least 1; got -1"),
        ({"linger": 5}, "the sink has no option linger"),
    ],
)
def test_an_invalid_option_is_an_error(options: Any, line: str) -> None:
    with pytest.raises(WrongUse, match=line):
        sink_settings(SERVERS, "flights", "load", **options)


def test_a_query_needs_a_name() -> None:
    with pytest.raises(WrongUse, match="query_id must not be empty"):
        sink_settings(SERVERS, "flights", "")


# ---- reports


def test_tasks_that_each_wrote_their_own_partition_are_trusted() -> None:
    check_reports([report(0), report(1), report(0, topic="gates")])


def test_two_tasks_in_one_partition_are_not() -> None:
    """Their sequences are equal, so a leader may have taken the second's batches for duplicates of the first's."""
    with pytest.raises(Untrusted, match="2 tasks wrote to flights-1"):
        check_reports([report(0), report(1), report(1)])


def test_a_final_failure_outweighs_a_retriable_one() -> None:
    again = report(0, refusal="task 0 was retried", retriable=True)
    with pytest.raises(Untrusted, match="was retried"):
        check_reports([again, report(1)])
    with pytest.raises(PipelineError, match="too large") as caught:
        check_reports([again, report(1, refusal="too large")])
    assert not isinstance(caught.value, Untrusted)


# ---- Spark


def session(speculation: str | None = None, attempts: dict[int, int] | None = None) -> Any:
    settings = {} if speculation is None else {"spark.speculation": speculation}
    stages = {stage: SimpleNamespace(currentAttemptId=attempt) for stage, attempt in (attempts or {}).items()}
    context = SimpleNamespace(
        getConf=lambda: SimpleNamespace(get=settings.get),
        statusTracker=lambda: SimpleNamespace(getStageInfo=stages.get),
    )
    return SimpleNamespace(sparkContext=context)


def test_copies_of_slow_tasks_are_refused() -> None:
    refuse_speculation(session())
    refuse_speculation(session("false"))
    with pytest.raises(WrongUse, match=r"spark\.speculation must be false"):
        refuse_speculation(session("true"))


def test_a_stage_that_was_run_again_is_not_trusted() -> None:
    """Its tasks are first attempts again, while those of the first run may still write."""
    refuse_stage_retry(session(attempts={4: 0}), [report(0), report(1)])
    with pytest.raises(Untrusted, match="stage 4 ran 2 times"):
        refuse_stage_retry(session(attempts={4: 1}), [report(0), report(1)])


# ---- columns


def test_columns_that_the_sink_does_not_know_are_left_out() -> None:
    types = {"value": "binary", "offset": "bigint", "topic": "string", "key": "string"}
    assert check_columns(types, "flights") == ["key", "value"]
    assert check_columns(types, None) == ["key", "value", "topic"]


@pytest.mark.parametrize(
    ("types", "line"),
    [
        ({"a": "int", "b": "int"}, r"need a column 'value' of bytes or text; got a, b"),
        ({"value": "struct<a:int>"}, "'value' must be string or binary; got struct<a:int>"),
        ({"value": "string", "partition": "bigint"}, "'partition' must be int; got bigint"),
        ({"value": "string", "headers": "map<string,binary>"}, "'headers' must be .*; got map"),
    ],
)
def test_a_wrong_schema_is_an_error(types: dict[str, str], line: str) -> None:
    with pytest.raises(WrongUse, match=line):
        check_columns(types, "flights")


def test_rows_need_a_topic_from_somewhere() -> None:
    with pytest.raises(WrongUse, match="need a column 'topic'"):
        check_columns({"value": "string"}, None)
