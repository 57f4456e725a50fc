"""A Spark driver whose query ends at a given moment; a program for the tests of the sink.

The argument is a JSON object with the target and `end`: the batch, and the moment around its EndTxn, at which this
process and its JVM are killed. If `fail_task` names a file, the first task that writes fails once after its rows are
written. The result of each batch is a JSON line on standard output.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from barnabas.pipeline import sink as sinks
from barnabas.pipeline.blocking_cluster import BlockingCluster
from barnabas.pipeline.errors import PipelineError
from barnabas.pipeline.producing import ProduceTask
from barnabas.pipeline.sink import Sink
from barnabas.pipeline.transaction import Transaction
from barnabas.protocol.messages.end_txn import EndTxnRequest

CHEAP = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.streaming.pollingDelay": "50ms",
}


def report(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def end() -> None:
    """SIGKILL for all processes of this driver at once."""
    os.killpg(0, signal.SIGKILL)


class FailsOnce:
    """A task that is lost after it has written everything."""

    def __init__(self, task: ProduceTask, marker: str) -> None:
        self.task = task
        self.marker = marker

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        import os

        reports = list(self.task(batches))
        wrote = any(each["records"] for report in reports for each in report.to_pylist())
        if wrote:
            try:
                os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                raise RuntimeError("the executor is lost")
        yield from reports


def arrange_end(batch_id: int, moment: str) -> None:
    commit, call = Transaction.commit, BlockingCluster.call
    ours: list[bool] = []

    def commit_and_die(self: Transaction, group_id: str, offsets: Any) -> None:
        [(number, _)] = offsets.values()
        ours.append(number == batch_id)
        commit(self, group_id, offsets)
        if ours[-1] and moment == "after":
            report(ends=moment)
            end()

    def call_and_die(self: BlockingCluster, node_id: int | None, request: Any, *, version: int | None = None) -> Any:
        if isinstance(request, EndTxnRequest) and ours[-1:] == [True] and moment == "in":
            assert node_id is not None
            report(ends=moment)
            self.connection(node_id).send(request, 5_000, version=version)
            end()
        return call(self, node_id, request, version=version)

    Transaction.commit = commit_and_die  # type: ignore[method-assign]
    BlockingCluster.call = call_and_die  # type: ignore[method-assign]


def main(place: dict[str, Any]) -> int:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    arrange_end(place["end"]["batch"], place["end"]["moment"])
    if place.get("fail_task"):
        sinks.ProduceTask = lambda *given: FailsOnce(ProduceTask(*given), place["fail_task"])  # type: ignore[misc,assignment]
    builder = SparkSession.builder.master("local[2,4]")
    for key, value in CHEAP.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    start(session, sink_of(place), place, report).awaitTermination()
    return 0


def sink_of(place: dict[str, Any]) -> Sink:
    return Sink(sinks.sink_settings(place["bootstrap"], place["topic"], place["query"], retry_timeout_ms=60_000))


def start(session: Any, sink: Sink, place: dict[str, Any], report: Callable[..., None]) -> Any:
    """Start the query."""
    from pyspark.sql import functions as f

    def write(frame: Any, batch_id: int) -> None:
        try:
            sink(frame, batch_id)
        except PipelineError as error:
            report(refused=str(error), kind=type(error).__name__)
            raise
        assert sink.last is not None
        report(**sink.last._asdict())

    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", place["rows"]).load()
    number = f.col("value").cast("string")
    writer = rows.select(number.alias("key"), number.alias("value")).writeStream.foreachBatch(write)
    return writer.option("checkpointLocation", place["checkpoint"]).start()


if __name__ == "__main__":
    code = main(json.loads(sys.argv[1]))
    sys.stdout.flush()
    os._exit(code)
