"""Found by PySpark itself, by its name: `spark.read.format("barnabas-segments")` works without registering anything."""

from barnabas.pipeline.segment_source import SegmentDataSource


class DefaultSource(SegmentDataSource):
    """The names that PySpark looks for in a module `pyspark_*`."""
