"""`DataFrame.mapInArrow` where there is no pandas: Spark's own asks for it, and uses none of it.

Of PySpark 4.2.0, which is the one that the pipeline runs on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any


def map_in_arrow(frame: Any, step: Callable[[Iterable[Any]], Iterator[Any]], schema: str) -> Any:
    """The frame that `step` makes of the Arrow batches of each partition of `frame`; `schema` is that of the result,
    as in `name string, count long`."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import _create_udf
    from pyspark.util import PythonEvalType

    function = _create_udf(step, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    columns = function(*[frame[name] for name in frame.columns])
    return DataFrame(frame._jdf.mapInArrow(columns._jc, False, None), frame.sparkSession)
