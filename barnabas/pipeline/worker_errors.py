"""Errors in Spark's Python workers: one line, without the traceback that Spark would print."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.pipeline.errors import PipelineError
from barnabas.protocol.errors import KafkaError

HIDE = "SPARK_HIDE_TRACEBACK"
"""Environment variable that Spark reads when it reports an error of a worker."""


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Turn KafkaErrors into PipelineErrors, and hide the traceback of both in Spark's workers.

    A worker ends with its first error, so no other traceback is hidden.
    """
    try:
        yield
    except (PipelineError, KafkaError) as error:
        if _in_worker():
            os.environ[HIDE] = "1"
        if isinstance(error, PipelineError):
            raise
        raise PipelineError(f"the cluster returned {error}") from None


def _in_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and str(spec.name).startswith("pyspark.")
