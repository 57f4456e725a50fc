"""`DataFrame.mapInArrow` and `applyInArrow` without pandas, which PySpark's own versions require but do not use.

They call internals of PySpark 4.2.0, the version that the pipeline pins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any


def map_in_arrow(frame: Any, step: Callable[[Iterable[Any]], Iterator[Any]], schema: str) -> Any:
    """The result of applying `step` to the Arrow batches of each partition; `schema` is that of the result, as in
    `name string, count long`."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import _create_udf
    from pyspark.util import PythonEvalType

    function = _create_udf(step, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    columns = function(*[frame[name] for name in frame.columns])
    return DataFrame(frame._jdf.mapInArrow(columns._jc, False, None), frame.sparkSession)


def apply_to_groups(frame: Any, by: Sequence[str], step: Callable[[Any], Any], schema: str) -> Any:
    """The result of applying `step` to the pyarrow Table of each group, which must fit into memory."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import _create_udf
    from pyspark.util import PythonEvalType

    function = _create_udf(step, schema, PythonEvalType.SQL_GROUPED_MAP_ARROW_UDF)
    columns = function(*[frame[name] for name in frame.columns])
    return DataFrame(frame.groupBy(*by)._jgd.flatMapGroupsInArrow(columns._jc), frame.sparkSession)
