"""Spark looks for modules named so, and takes `DefaultSource` for a format: `spark.read.format("barnabas")`."""

from __future__ import annotations

from barnabas.pipeline.source import BarnabasDataSource as DefaultSource

__all__ = ["DefaultSource"]
