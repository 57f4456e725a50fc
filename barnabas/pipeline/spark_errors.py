"""Core: errors of Spark as one line that says what to do.

Spark wraps errors: an exception in an executor's Python arrives as text inside a Java exception inside a Python one.
The line of a PipelineError is found in that text; for the most common errors of Spark the line is here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.pipeline import errors
from barnabas.pipeline.errors import PipelineError

_OURS = "|".join(sorted((name for name, kind in vars(errors).items() if isinstance(kind, type)), key=len, reverse=True))
_OUR_LINE = re.compile(rf"(?:^|[\s.:])(?:{_OURS}): +(\S[^\n]*)", re.MULTILINE)
_KAFKA_LINE = re.compile(r"(?:^|\s|\.)KafkaError: +(\S[^\n]*)", re.MULTILINE)
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] +(\S[^\n]*?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] +(\S[^\n]*?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_OUTER = {"STREAM_FAILED", "FAILED_EXECUTE_UDF", "TASK_WRITE_FAILED", "UNKNOWN_EXCEPTION"}
"""Conditions that only wrap another failure."""

_KNOWN = (
    (
        "Python worker failed to connect back",
        "the machine is too busy: Spark's Python did not start in time; run the same command again, it resumes",
    ),
    ("No space left on device", "the disk is full; free some space and run the same command again, it resumes"),
    ("Java heap space", "Spark has too little memory; give more with --conf spark.driver.memory=4g"),
    ("GC overhead limit exceeded", "Spark has too little memory; give more with --conf spark.driver.memory=4g"),
    ("to interval. Please ensure", "--trigger must be a time such as '10 seconds' or '1 minute'"),
    ("Could not parse Master URL", "--master must be a Spark master URL such as local[*] or spark://host:7077"),
    ("All masters are unresponsive", "no Spark master answers at --master; check that the Spark cluster is up"),
)
_HINTS = {
    "PATH_NOT_FOUND": "check the path",
    "UNABLE_TO_INFER_SCHEMA": "no Parquet file found; check the path",
    "UNRESOLVED_COLUMN.WITH_SUGGESTION": "check the column's name",
    "PARSE_SYNTAX_ERROR": "a schema looks like 'year INT, origin STRING'",
    "CONCURRENT_STREAM_LOG_UPDATE": "another job uses the same --checkpoint; wait until it ends",
}
_LONGEST = 300


def refusal(error: BaseException) -> PipelineError:
    """The error as one line."""
    if isinstance(error, PipelineError):
        return error
    return PipelineError(one_line(_text(error)))


@contextmanager
def in_one_line() -> Iterator[None]:
    """Turn errors of Spark within the block into PipelineErrors."""
    try:
        yield
    except spark_errors() as error:
        raise refusal(error) from None


def spark_errors() -> tuple[type[Exception], ...]:
    """The exceptions that calls to Spark raise, for an `except` clause; empty without PySpark."""
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
    except ImportError:
        return ()
    return (PySparkException, Py4JError)


def one_line(text: str) -> str:
    """The relevant line in a text of Spark."""
    for sign, line in _KNOWN:
        if sign in text:
            return line
    for pattern in (_OUR_LINE, _RAISED, _KAFKA_LINE):
        if found := pattern.findall(text):
            return _short(found[-1])
    inner = [(name, line) for name, line in _CONDITION.findall(text) if name.split(".")[0] not in _OUTER]
    if inner:
        name, line = inner[-1]
        hint = _HINTS.get(name)
        return _short(line.rstrip(".")) + (f"; {hint}" if hint else "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    caused = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return _short((caused or lines or ["Spark reported no reason"])[-1 if caused else 0])


def _text(error: BaseException) -> str:
    """The messages of the error and of its causes."""
    parts: list[str] = []
    each: BaseException | None = error
    while each is not None:
        parts.append(f"{type(each).__name__}: {each}")
        each = each.__cause__ or each.__context__
    return "\n".join(parts)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
