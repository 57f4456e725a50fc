"""How a worker of Spark tells what is wrong: in one line, where Spark would add a page of a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.pipeline.errors import PipelineError
from protocol.errors import KafkaError

HIDE = "SPARK_HIDE_TRACEBACK"
"""Spark looks at it when it tells an error of a worker."""


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """What the cluster refuses within the block is a PipelineError, and a worker of Spark says nothing else of it.

    Such a worker ends with its first error, so nobody else's traceback is hidden.
    """
    try:
        yield
    except (PipelineError, KafkaError) as error:
        if _in_worker():
            os.environ[HIDE] = "1"
        if isinstance(error, PipelineError):
            raise
        raise PipelineError(f"the cluster says {error}") from None


def _in_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and str(spec.name).startswith("pyspark.")
