"""Errors of Spark, which are pages long, become one line."""

from __future__ import annotations

import pytest

from barnabas.pipeline.errors import PipelineError, TimedOut
from barnabas.pipeline.spark_errors import one_line, refusal

OURS_IN_A_TASK = """[STREAM_FAILED] Query [id = 12, runId = 13] terminated with exception: Job aborted
 SQLSTATE: XXKST
org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/barnabas/pipeline/source.py", line 88, in read
    raise PipelineError(line)
barnabas.pipeline.errors.PipelineError: offsets 3 to 9 of flights-0 were deleted; start with --checkpoint another

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:588)
Driver stacktrace:
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (OURS_IN_A_TASK, "offsets 3 to 9 of flights-0 were deleted; start with --checkpoint another"),
        (
            OURS_IN_A_TASK.replace("PipelineError: o", "TimedOut: o"),
            "offsets 3 to 9 of flights-0 were deleted; start with --checkpoint another",
        ),
        (
            "x\n[USER_RAISED_EXCEPTION] the value of t-0@5 does not match --value-schema: {} SQLSTATE: P0001\n\tat a",
            "the value of t-0@5 does not match --value-schema: {}",
        ),
        (
            "AnalysisException: [PATH_NOT_FOUND] Path does not exist: file:/x.parquet. SQLSTATE: 42K03",
            "Path does not exist: file:/x.parquet; check the path",
        ),
        (
            "[TASK_WRITE_FAILED] Task failed while writing rows to file:/lake. SQLSTATE: 58030\n\tat x\n"
            "Caused by: java.io.IOException: No space left on device\n\tat java.io",
            "the disk is full; free some space and run the same command again, it resumes",
        ),
        (
            "Py4JJavaError: An error\nCaused by: java.lang.A: outer\n\tat x\nCaused by: java.lang.B: inner\n\tat y",
            "java.lang.B: inner",
        ),
        (
            "IllegalArgumentException: Error parsing 'soon' to interval. Please ensure that the value provided is in a",
            "--trigger must be a time such as '10 seconds' or '1 minute'",
        ),
        ("KafkaError: TOPIC_AUTHORIZATION_FAILED: flights", "TOPIC_AUTHORIZATION_FAILED: flights"),
        ("something else\nand more", "something else"),
        ("", "Spark reported no reason"),
    ],
)
def test_the_relevant_line(text: str, line: str) -> None:
    assert one_line(text) == line


def test_a_pipeline_error_is_unchanged() -> None:
    error = TimedOut("nobody answers")
    assert refusal(error) is error


def test_the_causes_of_an_error_are_searched() -> None:
    try:
        try:
            raise PipelineError("this is why")
        except PipelineError as inner:
            raise RuntimeError("wrapped by Spark") from inner
    except RuntimeError as error:
        assert refusal(error).line == "this is why"


def test_a_line_is_never_a_page() -> None:
    assert len(one_line("x" * 5_000)) <= 300
