"""What Spark says when a job fails, in one line that says what to do.

An error comes out of Spark wrapped: an exception of an executor's Python is text inside of a Java exception inside of a
Python one. What one of ours said in there is its line; of Spark's own the commonest are known here.
A core: it reads texts.
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
"""Conditions that only say that something inside of them failed."""

_KNOWN = (
    (
        "Python worker failed to connect back",
        "the machine is too busy: Spark's Python did not start in 10 s; run the same command again, which goes on",
    ),
    ("No space left on device", "the disk is full; make room and run the same command again, which goes on"),
    ("Java heap space", "Spark has too little memory; give more with --conf spark.driver.memory=4g"),
    ("GC overhead limit exceeded", "Spark has too little memory; give more with --conf spark.driver.memory=4g"),
    ("to interval. Please ensure", "--trigger: not a time, as in '10 seconds' or '1 minute'"),
    ("Could not parse Master URL", "--master: not an address of Spark, as in local[*] or spark://host:7077"),
    ("All masters are unresponsive", "nobody answers at --master; check that the Spark cluster is up"),
)
_HINTS = {
    "PATH_NOT_FOUND": "check the path",
    "UNABLE_TO_INFER_SCHEMA": "there is no Parquet file; check the path",
    "UNRESOLVED_COLUMN.WITH_SUGGESTION": "check the column's name",
    "PARSE_SYNTAX_ERROR": "write a schema as in 'year INT, origin STRING'",
    "CONCURRENT_STREAM_LOG_UPDATE": "another job works with the same --checkpoint; wait for its end",
}
_LONGEST = 300


def refusal(error: BaseException) -> PipelineError:
    """The same as one line."""
    if isinstance(error, PipelineError):
        return error
    return PipelineError(one_line(_text(error)))


@contextmanager
def in_one_line() -> Iterator[None]:
    """What Spark refuses within the block is a PipelineError."""
    try:
        yield
    except spark_errors() as error:
        raise refusal(error) from None


def spark_errors() -> tuple[type[Exception], ...]:
    """What calls to Spark raise, for an `except`; nothing where there is no Spark."""
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
    except ImportError:
        return ()
    return (PySparkException, Py4JError)


def one_line(text: str) -> str:
    """The line that matters in what Spark said."""
    for sign, told in _KNOWN:
        if sign in text:
            return told
    for pattern in (_OUR_LINE, _RAISED, _KAFKA_LINE):
        if found := pattern.findall(text):
            return _short(found[-1])
    inner = [(name, told) for name, told in _CONDITION.findall(text) if name.split(".")[0] not in _OUTER]
    if inner:
        name, told = inner[-1]
        hint = _HINTS.get(name)
        return _short(told.rstrip(".")) + (f"; {hint}" if hint else "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    caused = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return _short((caused or lines or ["Spark says nothing"])[-1 if caused else 0])


def _text(error: BaseException) -> str:
    """All that is said, the causes behind it too."""
    parts: list[str] = []
    each: BaseException | None = error
    while each is not None:
        parts.append(f"{type(each).__name__}: {each}")
        each = each.__cause__ or each.__context__
    return "\n".join(parts)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
