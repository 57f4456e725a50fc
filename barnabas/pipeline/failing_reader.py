"""A stream reader that raises one error from every method.

If creating a stream reader fails, Spark tries to stop the reader that does not exist, and only that second error is
reported. So the source returns this reader, which fails with the real error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.worker_errors import errors_in_one_line


class FailingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, error: PipelineError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:
        self._fail()

    def getDefaultReadLimit(self) -> Any:
        self._fail()

    def prepareForTriggerAvailableNow(self) -> None:
        self._fail()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        self._fail()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._fail()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        self._fail()

    def _fail(self) -> NoReturn:
        with errors_in_one_line():
            raise self._error
