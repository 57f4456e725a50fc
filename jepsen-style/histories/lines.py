"""From the lines of `history.jsonl` to columns of integers.

Many lines are parsed by one call, because that is most of the time it takes to load a history.
"""

from __future__ import annotations

import gc
import json
import mmap
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from histories.recorder import HistoryError

_TYPES = {"invoke": 0, "ok": 1, "fail": 2, "info": 3}
_CHUNK_BYTES = 1 << 22
_MICRO_FS = frozenset(("send", "poll", "txn"))
"""Functions whose values are lists of micro-operations."""


class Names:
    """Gives each name a number, in the order of their coming; None is -1."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str | None, int] = {None: -1}

    def number(self, name: str | None) -> int:
        found = self._numbers.get(name)
        if found is None:
            if not isinstance(name, str):
                raise ValueError(f"{name!r} is no name")
            found = self._numbers[name] = len(self.names)
            self.names.append(name)
        return found


class Parsed:
    """Columns that grow."""

    def __init__(self) -> None:
        self.columns = [array("q") for _ in range(8)]
        """process, type, f, t_ns, wall_ms, node, client, error."""
        self.noted = bytearray()
        self.epochs = [array("q") for _ in range(3)]
        """Line, key and leader epoch of sends, from notes."""
        self.commits = array("q")
        """Lines whose notes speak of committed offsets."""
        self.starts = array("q")
        self.invoked = array("q")
        self.completed = array("q")
        self.micro = [array("q") for _ in range(7)]
        """operation, step, kind, key, offset, value, leader epoch."""
        self.fs, self.nodes, self.clients, self.errors = Names(), Names(), Names(), Names()
        self.process_names: dict[int, str] = {}


def parse_lines(raw: bytes | mmap.mmap, name: str) -> Parsed:
    """All whole lines. Raises HistoryError that names the line which is none."""
    parser = _Parser(name)
    # Nothing that is made here refers to itself, and there is much of it: to look for rings costs a third of the time.
    collects = gc.isenabled()
    gc.disable()
    try:
        for start, end in _chunks(raw):
            first = len(parser.parsed.starts)
            lines = _parse(raw[start:end], first, name)
            _add_starts(parser.parsed.starts, raw, start, end)
            if len(lines) != len(parser.parsed.starts) - first:
                _raise_for_line(raw[start:end], first, name)
            for line in lines:
                parser.take(line)
    finally:
        if collects:
            gc.enable()
    parser.finish()
    return parser.parsed


def _chunks(raw: bytes | mmap.mmap) -> Iterator[tuple[int, int]]:
    """Stretches of whole lines. What comes after the last line's end was torn off while it was written."""
    whole = raw.rfind(b"\n") + 1
    start = 0
    while start < whole:
        end = whole if whole - start <= _CHUNK_BYTES else raw.find(b"\n", start + _CHUNK_BYTES) + 1
        yield start, end
        start = end


def _parse(chunk: bytes, first: int, name: str) -> list[Any]:
    try:
        parsed: list[Any] = json.loads(b"[" + chunk[:-1].replace(b"\n", b",") + b"]")
    except (ValueError, RecursionError):
        _raise_for_line(chunk, first, name)
        raise
    return parsed


def _raise_for_line(chunk: bytes, first: int, name: str) -> None:
    """Raises HistoryError for the first line that is not one JSON text."""
    for number, line in enumerate(chunk[:-1].split(b"\n"), first + 1):
        try:
            json.loads(line)
        except (ValueError, RecursionError) as error:
            raise HistoryError(f"{name}, line {number} is no JSON: {error}") from error


def _add_starts(starts: array[int], raw: bytes | mmap.mmap, start: int, end: int) -> None:
    while start < end:
        starts.append(start)
        start = raw.find(b"\n", start) + 1


class _Parser:
    """Line by line, in their order."""

    def __init__(self, name: str) -> None:
        self.parsed = Parsed()
        self._name = name
        self._now_ns = 0
        """Time of the previous line."""
        self._processes: dict[str, int] = {}
        self._open: dict[int, tuple[int, Any]] = {}
        """Process to the row of its open operation and the micro-operations it was to do."""

    def take(self, line: Any) -> None:
        parsed = self.parsed
        number = len(parsed.noted)
        try:
            process, kind, f = line["process"], _TYPES[line["type"]], line["f"]
            if f is None:
                raise ValueError("f is null")
            if line["i"] != number:
                raise HistoryError(f"{self._name}, line {number + 1}: i is {line['i']} where {number} should be")
            get = line.get
            fields = (line["t_ns"], line["wall_ms"])
            if type(process) is not int:
                process = self._name_process(process)
            elif process < 0:
                raise ValueError(f"process {process} is below zero")
            if fields[0] < self._now_ns:
                raise ValueError(f"t_ns goes back from {self._now_ns} to {fields[0]}")
            self._now_ns = fields[0]
            error = get("error")
            columns = parsed.columns
            columns[0].append(process)
            columns[1].append(kind)
            columns[2].append(parsed.fs.number(f))
            columns[3].append(fields[0])
            columns[4].append(fields[1])
            columns[5].append(parsed.nodes.number(get("node")))
            columns[6].append(parsed.clients.number(get("client")))
            columns[7].append(parsed.errors.number(error[0] if error else None))
            note = get("note")
            parsed.noted.append(bool(note))
            if note:
                self._take_note(number, note)
            if process >= 0:
                if f in _MICRO_FS:
                    self._pair(process, kind, number, get("value"), note and note.get("read_epochs"))
                else:
                    self._pair(process, kind, number, None, None)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error_:
            raise HistoryError(
                f"{self._name}, line {number + 1} is no operation: {type(error_).__name__}: {error_}"
            ) from error_

    def finish(self) -> None:
        """Close operations that never completed: their outcome is unknown."""
        for row, micro in self._open.values():
            self._flatten(row, micro, None)

    def _name_process(self, name: str) -> int:
        number = self._processes.get(name)
        if number is None:
            number = self._processes[name] = -1 - len(self._processes)
            self.parsed.process_names[number] = name
        return number

    def _take_note(self, number: int, note: Mapping[str, Any]) -> None:
        lines, keys, epochs = self.parsed.epochs
        for key, epoch in (note.get("leader_epochs") or {}).items():
            lines.append(number)
            keys.append(int(key))
            epochs.append(epoch)
        if "committed" in note or "committed_seen" in note:
            self.parsed.commits.append(number)

    def _pair(self, process: int, kind: int, number: int, micro: Any, read_epochs: Any) -> None:
        parsed = self.parsed
        if kind == 0:
            if process in self._open:
                raise ValueError(f"process {process} invokes while an operation of it is under way")
            self._open[process] = (len(parsed.invoked), micro)
            parsed.invoked.append(number)
            parsed.completed.append(-1)
            return
        if process not in self._open:
            raise ValueError(f"process {process} completes what it did not invoke")
        row, asked = self._open.pop(process)
        parsed.completed[row] = number
        self._flatten(row, asked if micro is None else micro, read_epochs)

    def _flatten(self, row: int, micro: Any, read_epochs: Any) -> None:
        if not isinstance(micro, list):
            return
        operations, steps, kinds, keys, offsets, values, epochs = self.parsed.micro
        by_key = _by_key(read_epochs) if read_epochs else {}
        for step, each in enumerate(micro):
            if not isinstance(each, list) or len(each) < 2:
                continue
            if each[0] == "send":
                sent = each[2]
                offset, value = sent if type(sent) is list else (None, sent)
                operations.append(row)
                steps.append(step)
                kinds.append(0)
                keys.append(each[1])
                offsets.append(-1 if offset is None else offset)
                values.append(value)
                epochs.append(-1)
            elif each[0] == "poll" and each[1]:
                polled: Mapping[str, list[list[int]]] = each[1]
                for key, records in polled.items():
                    # Most of a history are records that were polled.
                    count = len(records)
                    operations.extend([row] * count)
                    steps.extend([step] * count)
                    kinds.extend([1] * count)
                    keys.extend([int(key)] * count)
                    offsets.extend([record[0] for record in records])
                    values.extend([record[1] for record in records])
                    ranges = by_key.get(int(key))
                    epochs.extend([-1] * count if ranges is None else _epochs_of(records, ranges))


Range = tuple[int, int, int]
"""First and last offset, leader epoch."""


def _by_key(read_epochs: Sequence[Sequence[int]]) -> dict[int, list[Range]]:
    """The last one first, so that they can be taken one after the other."""
    found: dict[int, list[Range]] = {}
    for key, first, last, epoch in reversed(read_epochs):
        found.setdefault(key, []).append((first, last, epoch))
    return found


def _epochs_of(records: Sequence[Sequence[int]], ranges: list[Range]) -> list[int]:
    """The epoch of each record. Ranges are in the order in which records were given; those that are over are taken
    away, so that a key which is polled twice by one operation goes on where it was."""
    if not records:
        return []
    first, last, epoch = ranges[-1] if ranges else (0, -1, -1)
    if first == records[0][0] and last == records[-1][0] and len(records) <= last - first + 1:
        # One range for all: so it is nearly always.
        ranges.pop()
        return [epoch] * len(records)
    found = []
    for record in records:
        offset = record[0]
        while ranges and not ranges[-1][0] <= offset <= ranges[-1][1]:
            ranges.pop()
        found.append(ranges[-1][2] if ranges else -1)
        if ranges and offset == ranges[-1][1]:
            ranges.pop()
    return found
