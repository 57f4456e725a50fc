"""A history from its Parquet tables instead of its lines: whole, or only what belongs to some of its keys.

Nothing of it is parsed but notes and the values of operations that are neither sends nor polls. A part of a history
numbers its lines anew; `numbers` says what they are called in the whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from histories.history import INFO, TYPES, UNKNOWN, Epochs, History, Ints, Lines, Micro, Operations
from histories.parquet import MOPS, OPS
from histories.recorder import HistoryError
from histories.views import Views

CARRYING_FS = ("send", "poll", "txn")
"""Operations whose records are in `mops.parquet`."""
SHORT_COLUMNS = ("i", "process", "type", "f", "t_ns", "wall_ms", "client", "node", "error", "invocation")
LONG_COLUMNS = ("error_text", "value", "note")
MICRO_COLUMNS = ("i", "step", "kind", "key", "offset", "value", "leader_epoch")
_TOLD_BY_NOTES = ("rebalances", "committed", "from_beginning", "leader_epochs")
"""What checkers of sends and polls look for in notes."""
_KINDS = {"send": 0, "poll": 1}


class Part(NamedTuple):
    """Of a history."""

    history: History
    numbers: Ints
    """The `i` that each line has in the whole."""


def read_whole(directory: Path, run: Mapping[str, Any], views: Views) -> Part:
    """Of a run's directory. Raises HistoryError in one line."""
    try:
        with pq.ParquetFile(directory / OPS) as file:
            batches = file.iter_batches(200_000, columns=[*SHORT_COLUMNS, *LONG_COLUMNS])
            operations = pa.concat_tables([slim(pa.Table.from_batches([batch])) for batch in batches])
        there = pq.read_schema(directory / MOPS).names
        micro = pq.read_table(directory / MOPS, columns=[name for name in MICRO_COLUMNS if name in there])
    except FileNotFoundError as error:
        raise HistoryError(f"{directory} has no {Path(error.filename).name}: `check {directory}` writes it") from error
    except (OSError, pa.ArrowInvalid) as error:
        raise HistoryError(f"{directory}: {error}") from error
    return of_tables(operations, micro, run, views)


def slim(operations: Any) -> Any:
    """The table without values and notes that no checker of sends and polls reads."""
    carrying = pc.is_in(operations.column("f"), value_set=pa.array(CARRYING_FS))
    note = operations.column("note")
    wanted = pc.match_substring_regex(pc.fill_null(note, ""), f'"({"|".join(_TOLD_BY_NOTES)})')
    nothing = pa.scalar(None, pa.string())
    columns = {
        "value": pc.if_else(carrying, nothing, operations.column("value")),
        "note": pc.if_else(pc.and_(carrying, pc.invert(wanted)), nothing, note),
        "error_text": pc.if_else(carrying, nothing, operations.column("error_text")),
    }
    for name, column in columns.items():
        operations = operations.set_column(operations.column_names.index(name), name, column)
    return operations


def of_tables(operations: Any, micro: Any, run: Mapping[str, Any], views: Views) -> Part:
    """Of a table in the form of `history.parquet`, in any order, and one of `mops.parquet` in its order.

    Invocation and completion of an operation have to be both there, if there are both.
    """
    order = np.argsort(_ints(operations, "i"), kind="stable")
    operations = operations.take(pa.array(order))
    numbers = _ints(operations, "i")
    process, process_names = _processes(operations.column("process"))
    kind, _ = _coded(operations.column("type"), TYPES)
    f, fs = _coded(operations.column("f"))
    node, nodes = _coded(operations.column("node"))
    client, clients = _coded(operations.column("client"))
    error, errors = _coded(operations.column("error"))
    raw, starts, noted = _lines_kept(operations)
    lines = Lines(
        process, kind, f, _ints(operations, "t_ns"), _ints(operations, "wall_ms"), node, client, error, noted
    )

    invoked = np.flatnonzero((kind == TYPES.index("invoke")) & (process >= 0))
    completions = np.flatnonzero(np.asarray(operations.column("invocation").is_valid()))
    began = np.searchsorted(numbers, _ints(operations, "invocation", missing=0)[completions])
    completed = np.full(len(invoked), UNKNOWN, dtype=np.int64)
    completed[np.searchsorted(invoked, began)] = completions
    outcome = np.where(completed >= 0, kind[completed] if len(kind) else completed, INFO)
    of_operations = Operations(invoked, completed, outcome, process[invoked], f[invoked])
    epochs, commits = _notes(operations, raw, starts, noted)
    history = History(
        run,
        lines,
        of_operations,
        _micro(micro, numbers, of_operations),
        fs,
        nodes,
        clients,
        errors,
        process_names,
        views,
        epochs,
        commits,
        raw,
        starts,
    )
    return Part(history, numbers)


def _ints(table: Any, name: str, missing: int = UNKNOWN) -> Ints:
    column = table.column(name).cast(pa.int64()).fill_null(missing)
    return np.asarray(column.to_numpy(), dtype=np.int64)


def _coded(column: Any, names: Sequence[str] | None = None) -> tuple[Ints, list[str]]:
    """Numbers, and what they stand for; -1 for null."""
    encoded = column.cast(pa.string()).combine_chunks().dictionary_encode()
    found = encoded.dictionary.to_pylist()
    codes = np.asarray(encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64)
    if names is None:
        return codes, found
    known = np.array([*(names.index(name) for name in found), -1], dtype=np.int64)
    return known[codes], list(names)


def _processes(column: Any) -> tuple[Ints, dict[int, str]]:
    """Names that are no numbers are below zero, in the order of their coming."""
    codes, names = _coded(column)
    others: dict[int, str] = {}
    numbers = []
    for name in names:
        if name.isdigit():
            numbers.append(int(name))
        else:
            numbers.append(-1 - len(others))
            others[numbers[-1]] = name
    return np.array([*numbers, UNKNOWN], dtype=np.int64)[codes], others


def _lines_kept(operations: Any) -> tuple[bytes, Ints, Any]:
    """(lines as JSON, where each begins, which have notes): of those that somebody may want to read again. The others
    are empty."""
    keep = pc.or_(
        operations.column("note").is_valid(),
        pc.invert(pc.is_in(operations.column("f"), value_set=pa.array(CARRYING_FS))),
    )
    kept = np.flatnonzero(np.asarray(keep))
    noted = np.zeros(len(operations), dtype=np.bool_)
    sizes = np.zeros(len(operations) + 1, dtype=np.int64)
    pieces = []
    for place, row in zip(kept.tolist(), operations.take(pa.array(kept)).to_pylist(), strict=True):
        piece = _line(place, row)
        pieces.append(piece)
        sizes[place + 1] = len(piece)
        noted[place] = row["note"] is not None
    return b"".join(pieces), np.cumsum(sizes)[:-1], noted


def _line(place: int, row: Mapping[str, Any]) -> bytes:
    process = row["process"]
    line: dict[str, Any] = {
        "i": place,
        "process": int(process) if process.isdigit() else process,
        **{name: row[name] for name in ("type", "f", "t_ns", "wall_ms")},
        "value": None if row["value"] is None else json.loads(row["value"]),
        **{name: row[name] for name in ("client", "node") if row[name] is not None},
    }
    if row["error"] is not None:
        line["error"] = [row["error"], row["error_text"] or ""]
    if row["note"] is not None:
        line["note"] = json.loads(row["note"])
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _notes(operations: Any, raw: bytes, starts: Ints, noted: Any) -> tuple[Epochs, Ints]:
    found: list[tuple[int, int, int]] = []
    commits = []
    places = np.flatnonzero(noted)
    notes = operations.column("note").take(pa.array(places)).to_pylist()
    for place, text in zip(places.tolist(), notes, strict=True):
        note = json.loads(text)
        found += [(place, int(key), epoch) for key, epoch in (note.get("leader_epochs") or {}).items()]
        if "committed" in note or "committed_seen" in note:
            commits.append(place)
    line, key, epoch = np.array(found, dtype=np.int64).reshape(-1, 3).T
    return Epochs(line, key, epoch), np.array(commits, dtype=np.int64)


def _micro(micro: Any, numbers: Ints, operations: Operations) -> Micro:
    rows = np.full(len(numbers), UNKNOWN, dtype=np.int64)
    rows[operations.shown_by] = np.arange(len(operations))
    operation = rows[np.searchsorted(numbers, _ints(micro, "i"))] if len(micro) else np.empty(0, dtype=np.int64)
    kinds, names = _coded(micro.column("kind"))
    kind = np.array([*(_KINDS[name] for name in names), UNKNOWN], dtype=np.int64)[kinds]
    # What was written before readers were asked for epochs has none.
    has_epochs = "leader_epoch" in micro.column_names
    epochs = _ints(micro, "leader_epoch") if has_epochs else np.full(len(micro), UNKNOWN, dtype=np.int64)
    columns = (
        *(operation, _ints(micro, "step"), kind),
        *(_ints(micro, name) for name in ("key", "offset", "value")),
        epochs,
    )
    order = np.argsort(operation, kind="stable")
    return Micro(*(column[order] for column in columns))
