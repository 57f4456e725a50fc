"""What a stream is given that cannot be read: it says why, at whatever is asked of it first.

Where making a reader of a stream fails, Spark goes on to stop the reader that it has not got, and that is all that
anybody hears of it.
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
        self._tell()

    def getDefaultReadLimit(self) -> Any:
        self._tell()

    def prepareForTriggerAvailableNow(self) -> None:
        self._tell()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        self._tell()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._tell()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        self._tell()

    def _tell(self) -> NoReturn:
        with errors_in_one_line():
            raise self._error
