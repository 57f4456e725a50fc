"""How long it takes, and how much memory, to check a history of many operations: split over executors by
`barnabas pipeline history`, and by one process for comparison.

The history is made at once as Parquet: processes send unique values, others poll each of them soon after; every
promise is kept, but for a few lies that are planted.

Usage: long_histories.py [--operations N] [--directory DIR] [--master MASTER] [--one]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from measuring import Meter, with_descendants

from barnabas.pipeline.jobs import history as jobs
from barnabas.pipeline.session import open_session

KEYS = 64
SENDERS = 40
CHUNK = 1_000_000
"""Operations that are made at a time."""


def write(directory: Path, operations: int, lies: int) -> None:
    """Every second operation polls what the one before it has sent. A lie is a poll of what nobody sent."""
    directory.mkdir(parents=True, exist_ok=True)
    run = {"workload": "queue", "options": {"subscribe": False}, "final_done": True}
    (directory / "run.json").write_text(json.dumps(run))
    lie_at = set((np.arange(1, lies + 1) * (operations // (lies + 1)) // 2 * 2 + 1).tolist())
    writers: dict[str, pq.ParquetWriter] = {}
    try:
        for start in range(0, operations, CHUNK):
            numbers = np.arange(start, min(start + CHUNK, operations))
            lying = np.isin(numbers, list(lie_at))
            for name, part in (("history", lines(numbers)), ("mops", micro(numbers, lying))):
                if name not in writers:
                    writers[name] = pq.ParquetWriter(directory / f"{name}.parquet", part.schema, compression="zstd")
                writers[name].write_table(part)
    finally:
        for writer in writers.values():
            writer.close()


def lines(numbers: Any) -> Any:
    """Two for each operation, one behind the other."""
    count = 2 * len(numbers)
    operation = np.repeat(numbers, 2)
    is_ok = np.arange(count) % 2 == 1
    polls = operation % 2 == 1
    sent = operation // 2
    process = np.where(polls, SENDERS + sent % KEYS, sent % SENDERS)
    i = 2 * operation + is_ok
    places = pc.binary_join_element_wise(
        pa.array(np.where(polls, '[["poll",{"', '[["send",')),
        pa.array(sent % KEYS).cast(pa.string()),
        pa.array(np.where(polls, '":[[', ",[")),
        pa.array(sent // KEYS).cast(pa.string()),
        ",",
        pa.array(sent).cast(pa.string()),
        pa.array(np.where(polls, "]]}]]", "]]]")),
        "",
    )
    texts = {"run_id": "large", "client": "barnabas"}
    columns: dict[str, Any] = {name: pa.repeat(text, count) for name, text in texts.items()}
    nothing = pa.nulls(count, pa.string())
    columns |= {
        "i": i,
        "process": pa.array(process).cast(pa.string()),
        "type": pa.array(np.where(is_ok, "ok", "invoke")),
        "f": pa.array(np.where(polls, "poll", "send")),
        "t_ns": i * 1000,
        "wall_ms": i // 1000,
        "node": nothing,
        "error": nothing,
        "error_text": nothing,
        "invocation": pa.array(i - 1, mask=~is_ok),
        "value": places,
        "note": nothing,
    }
    return pa.table(columns)


def micro(numbers: Any, lying: Any) -> Any:
    sent = numbers // 2
    return pa.table(
        {
            "run_id": pa.repeat("large", len(numbers)),
            "i": 2 * numbers + 1,
            "step": np.zeros(len(numbers), dtype=np.int32),
            "kind": pa.array(np.where(numbers % 2, "poll", "send")),
            "key": sent % KEYS,
            "offset": sent // KEYS,
            "value": np.where(lying, -1 - sent, sent),
            # A leader after the other, for a while each.
            "leader_epoch": pa.array((sent // KEYS // 1_000).astype(np.int32), mask=numbers % 2 == 0),
        }
    )


def memory_gib(pids: set[int]) -> float:
    """The most that each of them ever had, added up."""
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        total += next((int(line.split()[1]) for line in text.splitlines() if line.startswith("VmHWM")), 0)
    return total / 1024 / 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--lies", type=int, default=10)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--one", action="store_true", help="by one process, without Spark")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = options.directory or Path(temporary) / "large"
        began = time.monotonic()
        if not (directory / "mops.parquet").exists():
            write(directory, options.operations, options.lies)
        told: dict[str, Any] = {"operations": options.operations, "made_s": round(time.monotonic() - began, 1)}
        with Meter([]) as meter:
            told |= by_one(directory) if options.one else by_spark(directory, options.master)
        told |= {"wall_s": meter.fields["wall_s"], "cpu_s": meter.fields["client_cpu_s"]}
    print(json.dumps(told))


def by_spark(directory: Path, master: str) -> dict[str, Any]:
    """All checkers, over executors. The time has the start of the session in it."""
    session = open_session(master, "histories", {"spark.driver.memory": "3g"})
    [judged] = jobs.check(session, jobs.find_runs([str(directory)]), jobs.checkers_folder())
    told = verdict_of(judged.verdicts) | {"parts": judged.parts, "valid": judged.valid}
    told["peak_gib"] = round(memory_gib(with_descendants([os.getpid()])), 2)
    session.stop()
    return told


def by_one(directory: Path) -> dict[str, Any]:
    """All checkers over the same columns, in this process."""
    sys.path.insert(0, str(jobs.checkers_folder()))
    from checkers.all_checkers import of_every_run, standard
    from histories.columns import read_whole
    from histories.views import Views

    began = time.monotonic()
    run = json.loads((directory / "run.json").read_text())
    history = read_whole(directory, run, Views.empty()).history
    loaded = time.monotonic()
    verdicts = {each.name: each.check(history) for each in (*standard("queue"), *of_every_run(run))}
    return {
        "loaded_s": round(loaded - began, 1),
        **verdict_of(verdicts),
        "peak_gib": round(memory_gib({os.getpid()}), 2),
    }


def verdict_of(verdicts: Mapping[str, Any]) -> dict[str, Any]:
    """Who does not say that all is well, and how much was found: the same, however it was checked."""
    said = {name: each.valid for name, each in verdicts.items() if each.valid != "true"}
    return {"said": said, "findings": sum(len(each.findings) for each in verdicts.values())}


if __name__ == "__main__":
    main()
