"""A recorded history as columns: arrays over its lines, its operations, its micro-operations.

A line of `history.jsonl` becomes one place in each of the `Lines` columns; an invocation and its completion together
are one row of `Operations`; each record that a micro-operation sent or polled is one row of `Micro`. There is no
object for an operation: who wants to see one asks for `operation(i)`, which reads its line again.
"""

from __future__ import annotations

import json
import mmap
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

from histories.faults import Fault, pair_faults
from histories.lines import Parsed, parse_lines
from histories.recorder import HISTORY, RUN, VIEWS, HistoryError
from histories.views import Views
from operations import Operation

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
T = TypeVar("T")

INVOKE, OK, FAIL, INFO = range(4)
TYPES = ("invoke", "ok", "fail", "info")
"""By the numbers in the columns."""

SEND, POLL = range(2)
"""Kinds of micro-operation."""

UNKNOWN = -1
"""No offset, no completion, no name."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Columns over the lines of the history; the place is the operation's `i`."""

    process: Ints
    """Those that are no numbers are below zero: `History.process_names`."""
    type: Ints
    f: Ints
    """Index into `History.fs`."""
    t_ns: Ints
    wall_ms: Ints
    node: Ints
    """Index into `History.nodes`."""
    client: Ints
    """Index into `History.clients`."""
    error: Ints
    """Index into `History.errors`."""
    noted: Bools
    """There is a note."""

    def __len__(self) -> int:
        return len(self.type)


@dataclass(frozen=True, slots=True)
class Operations:
    """Columns over the clients' operations, in the order of their invocations; faults are not among them."""

    invoked: Ints
    """The `i` of the invocation."""
    completed: Ints
    """The `i` of the completion; UNKNOWN if there is none."""
    outcome: Ints
    """OK, FAIL or INFO; INFO also if there is no completion."""
    process: Ints
    f: Ints

    def __len__(self) -> int:
        return len(self.invoked)

    @property
    def shown_by(self) -> Ints:
        """The `i` under which findings name an operation: of its completion, or else of its invocation."""
        return np.where(self.completed >= 0, self.completed, self.invoked)


@dataclass(frozen=True, slots=True)
class Micro:
    """Columns over what micro-operations sent and polled, in the order of operations and inside them."""

    operation: Ints
    """Row of `Operations`."""
    step: Ints
    """Index of the micro-operation in its operation."""
    kind: Ints
    """SEND or POLL."""
    key: Ints
    offset: Ints
    """UNKNOWN if no response contained it."""
    value: Ints
    leader_epoch: Ints
    """Leader epoch of the batch in which a record was polled; UNKNOWN for sends, and if no response contained it."""

    def __len__(self) -> int:
        return len(self.operation)

    def where(self, chosen: Bools) -> Micro:
        return Micro(
            self.operation[chosen],
            self.step[chosen],
            self.kind[chosen],
            self.key[chosen],
            self.offset[chosen],
            self.value[chosen],
            self.leader_epoch[chosen],
        )


@dataclass(frozen=True, slots=True)
class Epochs:
    """Columns over notes: the leader epoch in which a key's sends were acknowledged."""

    line: Ints
    """The `i` of the completion."""
    key: Ints
    epoch: Ints


@dataclass
class History:
    """The history of one run. Checkers read it and never change it."""

    run: Mapping[str, Any]
    """The content of `run.json`."""
    lines: Lines
    operations: Operations
    micro: Micro
    fs: Sequence[str]
    nodes: Sequence[str]
    clients: Sequence[str]
    errors: Sequence[str]
    process_names: Mapping[int, str]
    """Names of the processes with negative numbers."""
    views: Views
    epochs: Epochs
    commit_lines: Ints
    """The `i` of completions whose notes speak of committed offsets."""
    _raw: bytes | mmap.mmap = field(repr=False)
    _starts: Ints = field(repr=False)
    _memo: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def load(cls, directory: Path) -> History:
        """Load a run directory, without a torn last line. Raises HistoryError in one line."""
        try:
            run = json.loads((directory / RUN).read_text(encoding="utf-8"))
            path = directory / HISTORY
            with open(path, "rb") as file:
                raw: bytes | mmap.mmap = b""
                if path.stat().st_size:
                    raw = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError as error:
            raise HistoryError(
                f"{directory} is no run: it has no {Path(error.filename).name} (runs are directories below store/)"
            ) from error
        except OSError as error:
            raise HistoryError(f"{directory}: {error.strerror}") from error
        except ValueError as error:
            raise HistoryError(f"{directory / RUN} is no JSON: {error}") from error
        if not isinstance(run, dict):
            raise HistoryError(f"{directory / RUN} is no JSON object")
        return cls._of(run, raw, str(path), Views.load(directory / VIEWS))

    @classmethod
    def of(
        cls, operations: Iterable[Operation], run: Mapping[str, Any] | None = None, views: Views | None = None
    ) -> History:
        """A history of these operations, as if they had been recorded and loaded."""
        raw = b"".join(encode(operation) for operation in operations)
        return cls._of(run or {}, raw, "history", views if views is not None else Views.empty())

    @classmethod
    def _of(cls, run: Mapping[str, Any], raw: bytes | mmap.mmap, name: str, views: Views) -> History:
        parsed = parse_lines(raw, name)
        process, type_, f, t_ns, wall_ms, node, client, error = (_array(column) for column in parsed.columns)
        noted = np.array(parsed.noted, dtype=np.bool_)
        lines = Lines(process, type_, f, t_ns, wall_ms, node, client, error, noted)
        invoked, completed = _array(parsed.invoked), _array(parsed.completed)
        outcome = np.where(completed >= 0, lines.type[completed], INFO)
        epoch_line, epoch_key, epoch = (_array(column) for column in parsed.epochs)
        operations = Operations(invoked, completed, outcome, lines.process[invoked], lines.f[invoked])
        return cls(
            run,
            lines,
            operations,
            _micro(parsed),
            parsed.fs.names,
            parsed.nodes.names,
            parsed.clients.names,
            parsed.errors.names,
            parsed.process_names,
            views,
            Epochs(epoch_line, epoch_key, epoch),
            _array(parsed.commits),
            raw,
            _array(parsed.starts),
        )

    def __len__(self) -> int:
        """Lines."""
        return len(self.lines)

    def __iter__(self) -> Iterator[Operation]:
        """Every line as an object: for workloads whose histories are small."""
        return map(self.operation, range(len(self)))

    def operation(self, i: int) -> Operation:
        """The operation of line `i`, parsed again."""
        return decode(json.loads(self.line(i)))

    def line(self, i: int) -> bytes:
        """Line `i` as it was recorded."""
        start = int(self._starts[i])
        end = int(self._starts[i + 1]) if i + 1 < len(self._starts) else len(self._raw)
        return self._raw[start:end]

    def value(self, i: int) -> Any:
        return json.loads(self.line(i)).get("value")

    def note(self, i: int) -> Mapping[str, Any]:
        """The note of line `i`; empty if there is none."""
        return json.loads(self.line(i)).get("note") or {} if self.lines.noted[i] else {}

    def each(self, *fs: str) -> Iterator[tuple[Operation, Operation | None]]:
        """Invocation and completion of the operations called so, of all if none is named, in their order. Costs an
        object for each: for workloads whose histories are small."""
        wanted = {self.fs.index(f) for f in fs if f in self.fs}
        for invoked, completed, f in zip(
            self.operations.invoked.tolist(),
            self.operations.completed.tolist(),
            self.operations.f.tolist(),
            strict=True,
        ):
            if not fs or f in wanted:
                yield self.operation(invoked), self.operation(completed) if completed >= 0 else None

    def called(self, *fs: str) -> Bools:
        """Mask of the rows of `operations` with one of these functions."""
        return np.isin(self.operations.f, [self.fs.index(f) for f in fs if f in self.fs])

    @cached_property
    def invocations(self) -> Ints:
        """Over lines: for a completion the `i` of its invocation, else UNKNOWN."""
        operations = self.operations
        found = np.full(len(self), UNKNOWN, dtype=np.int64)
        done = operations.completed >= 0
        found[operations.completed[done]] = operations.invoked[done]
        return found

    @cached_property
    def faults(self) -> Sequence[Fault]:
        """Faults of the run, in order."""
        nemesis = [process for process, name in self.process_names.items() if name == "nemesis"]
        lines = np.flatnonzero(np.isin(self.lines.process, nemesis))
        return pair_faults([self.operation(i) for i in lines.tolist()])

    def once(self, name: str, make: Callable[[History], T]) -> T:
        """Cache for values that several checkers need: the first of them computes it."""
        if name not in self._memo:
            self._memo[name] = make(self)
        return cast(T, self._memo[name])


def encode(operation: Operation) -> bytes:
    """One line of `history.jsonl`."""
    names = ("i", "process", "type", "f", "value", "t_ns", "wall_ms")
    line: dict[str, Any] = {name: getattr(operation, name) for name in names}
    for name in ("client", "node", "error", "note"):
        if more := getattr(operation, name):
            line[name] = dict(more) if isinstance(more, Mapping) else more
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def decode(line: Mapping[str, Any]) -> Operation:
    """The other way round."""
    error = line.get("error")
    return Operation(
        line["i"],
        line["process"],
        line["type"],
        line["f"],
        line.get("value"),
        line["t_ns"],
        line["wall_ms"],
        line.get("client"),
        line.get("node"),
        (error[0], error[1]) if error else None,
        line.get("note") or {},
    )


def _micro(parsed: Parsed) -> Micro:
    """The completions' micro-operations, put into the order of the operations."""
    columns = [_array(column) for column in parsed.micro]
    order = np.argsort(columns[0], kind="stable")
    if np.array_equal(order, np.arange(len(order))):
        return Micro(*columns)
    return Micro(*(column[order] for column in columns))


def _array(column: array[int]) -> Ints:
    """Without a copy."""
    return np.frombuffer(column, dtype=np.int64)
