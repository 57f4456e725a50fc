"""`applyInArrow` of groups and of pairs of groups where there is no pandas: Spark's own asks for it, and uses none.

Of PySpark 4.2.0, which is the one that the pipeline runs on, as in `mapping.py`. A group is in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def apply_to_groups(frame: Any, by: Sequence[str], step: Callable[[Any], Any], schema: str) -> Any:
    """The frame of what `step` makes of the pyarrow Table of each group."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import _create_udf
    from pyspark.util import PythonEvalType

    function = _create_udf(step, schema, PythonEvalType.SQL_GROUPED_MAP_ARROW_UDF)
    columns = function(*[frame[name] for name in frame.columns])
    return DataFrame(frame.groupBy(*by)._jgd.flatMapGroupsInArrow(columns._jc), frame.sparkSession)


def apply_to_pairs(left: Any, right: Any, by: Sequence[str], step: Callable[[Any, Any, Any], Any], schema: str) -> Any:
    """The frame of what `step` makes of the key (pyarrow scalars) and the two Tables that have it; one may be empty."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F
    from pyspark.sql.udf import _create_udf
    from pyspark.util import PythonEvalType

    # Both may be made of the same frame: columns of the right one get an identity of their own.
    right = right.select(*[F.col(name).alias(name) for name in right.columns])
    function = _create_udf(step, schema, PythonEvalType.SQL_COGROUPED_MAP_ARROW_UDF)
    columns = function(*[left[name] for name in left.columns], *[right[name] for name in right.columns])
    groups = left.groupBy(*by)._jgd.flatMapCoGroupsInArrow(right.groupBy(*by)._jgd, columns._jc)
    return DataFrame(groups, left.sparkSession)
