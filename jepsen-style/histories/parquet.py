"""A run's history as Parquet, for those who read months of them: `ops`, `mops`, `faults` and `views`.

| file | a row is |
| --- | --- |
| `history.parquet` | a line of the history; its value and note are JSON |
| `mops.parquet` | a record that a micro-operation sent or polled |
| `faults.parquet` | a fault from its beginning to its end |
| `views.parquet` | what one node said of one partition in one look |

All have the column `run_id`, the name of the run's directory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from histories.history import TYPES, History
from histories.recorder import HistoryError

OPS, MOPS, FAULTS, VIEWS = "history.parquet", "mops.parquet", "faults.parquet", "views.parquet"
CHUNK = 100_000
"""Lines whose values are in memory at a time."""


def write(directory: Path) -> list[Path]:
    """Of a run that was recorded; over what was there. Raises HistoryError in one line."""
    return write_history(History.load(directory), directory)


def write_history(history: History, directory: Path) -> list[Path]:
    """Gives the four files."""
    run_id = directory.resolve().name
    tables = (
        (OPS, _ops(history, run_id)),
        (MOPS, iter([_mops(history, run_id)])),
        (FAULTS, iter([_faults(history, run_id)])),
        (VIEWS, iter([_views(history, run_id)])),
    )
    written = []
    for name, chunks in tables:
        path = directory / name
        try:
            first = next(chunks)
            with pq.ParquetWriter(path, first.schema, compression="zstd") as writer:
                writer.write_table(first)
                for chunk in chunks:
                    writer.write_table(chunk)
        except OSError as error:
            raise HistoryError(f"{path}: {error.strerror or error}") from error
        written.append(path)
    return written


def _ops(history: History, run_id: str) -> Iterator[Any]:
    schema = pa.schema(
        [
            ("run_id", pa.dictionary(pa.int32(), pa.string())),
            ("i", pa.int64()),
            ("process", pa.string()),
            ("type", pa.string()),
            ("f", pa.string()),
            ("t_ns", pa.int64()),
            ("wall_ms", pa.int64()),
            ("client", pa.string()),
            ("node", pa.string()),
            ("error", pa.string()),
            ("error_text", pa.string()),
            ("invocation", pa.int64()),
            ("value", pa.string()),
            ("note", pa.string()),
        ]
    )
    lines = history.lines
    for start in range(0, max(1, len(history)), CHUNK):
        end = min(start + CHUNK, len(history))
        part = slice(start, end)
        texts: list[str | None] = []
        values: list[str | None] = []
        notes: list[str | None] = []
        for i in range(start, end):
            line = json.loads(history.line(i))
            error = line.get("error")
            texts.append(error[1] if error else None)
            values.append(_json(line.get("value")))
            notes.append(_json(line.get("note") or None))
        processes = [history.process_names.get(each, str(each)) for each in lines.process[part].tolist()]
        invocation = history.invocations[part]
        columns = [
            _repeated(run_id, end - start),
            np.arange(start, end),
            processes,
            [TYPES[type_] for type_ in lines.type[part].tolist()],
            _named(history.fs, lines.f[part]),
            lines.t_ns[part],
            lines.wall_ms[part],
            _named(history.clients, lines.client[part]),
            _named(history.nodes, lines.node[part]),
            _named(history.errors, lines.error[part]),
            texts,
            pa.array(invocation, mask=invocation < 0),
            values,
            notes,
        ]
        yield pa.table(columns, schema=schema)


def _mops(history: History, run_id: str) -> Any:
    micro = history.micro
    shown = history.operations.shown_by[micro.operation]
    return pa.table(
        {
            "run_id": _repeated(run_id, len(micro)),
            "i": shown,
            "step": micro.step.astype(np.int32),
            "kind": pa.DictionaryArray.from_arrays(pa.array(micro.kind.astype(np.int32)), ["send", "poll"]),
            "key": micro.key,
            "offset": pa.array(micro.offset, mask=micro.offset < 0),
            "value": micro.value,
            "leader_epoch": pa.array(micro.leader_epoch.astype(np.int32), mask=micro.leader_epoch < 0),
        }
    )


def _faults(history: History, run_id: str) -> Any:
    faults = history.faults
    columns = {
        "run_id": _repeated(run_id, len(faults)),
        "number": pa.array([fault.number for fault in faults], pa.int64()),
        "kind": pa.array([fault.kind for fault in faults], pa.string()),
        "f": pa.array([fault.f for fault in faults], pa.string()),
        "targets": pa.array([list(fault.targets) for fault in faults], pa.list_(pa.string())),
        "began_ns": pa.array([fault.began_ns for fault in faults], pa.int64()),
        "acted_ns": pa.array([fault.acted_ns for fault in faults], pa.int64()),
        "ended_ns": pa.array([fault.ended_ns for fault in faults], pa.int64()),
        "value": pa.array([_json(fault.value) for fault in faults], pa.string()),
    }
    return pa.table(columns)


def _views(history: History, run_id: str) -> Any:
    views = history.views
    topics = [place.topic for place in views.places]
    partitions = np.array([place.partition for place in views.places], dtype=np.int32)
    isrs = pa.array([list(isr) for isr in views.isrs], pa.list_(pa.int32()))
    states = [views.states[look].get(views.nodes[node]) for look, node in zip(views.look, views.node, strict=True)]
    columns = {
        "run_id": _repeated(run_id, len(views)),
        "t_ns": views.t_ns,
        "node": _named(views.nodes, views.node),
        "state": pa.array(states, pa.string()),
        "topic": _named(topics, views.place),
        "partition": partitions[views.place] if len(views) else partitions[:0],
        "high_watermark": views.high_watermark,
        "log_end_offset": views.log_end_offset,
        "leader_epoch": views.leader_epoch,
        "leader": views.leader.astype(np.int32),
        "isr": isrs.take(pa.array(views.isr)),
    }
    return pa.table(columns)


def _named(names: Sequence[str], numbers: np.ndarray[Any, np.dtype[np.int64]]) -> Any:
    """None where there is no name."""
    indices = pa.array(numbers.astype(np.int32), mask=numbers < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string())).cast(pa.string())


def _repeated(name: str, count: int) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, dtype=np.int32)), [name])


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
