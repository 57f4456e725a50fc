"""Histories that no cluster made: short stories, line by line, and long ones of a log that keeps every promise.

The checkers are tried on them. `LegalCluster` is a model of what Kafka promises to its clients: appends in order,
transactions that interleave and become visible at their commit, readers that see what is committed up to the first open
transaction, processes whose operations end in ok, fail or an unknown outcome.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from histories.history import History
from histories.views import Views
from operations import NEMESIS, Operation, OperationType

STEP_NS = 1_000_000
"""Between two lines."""


class Story:
    """A short history, line by line. Each call is one line, or an invocation with its completion at once."""

    def __init__(self, **run: Any) -> None:
        self.run: dict[str, Any] = {"workload": "queue", "options": {"subscribe": True}, **run}
        self.operations: list[Operation] = []
        self.looks: list[Mapping[str, Any]] = []
        self._now_ns = 0

    def history(self) -> History:
        return History.of(self.operations, self.run, Views.of(self.looks))

    def line(
        self, process: int | str, type_: OperationType, f: str, value: Any, note: Mapping[str, Any] | None = None
    ) -> int:
        i = len(self.operations)
        self._now_ns += STEP_NS
        wall_ms = self._now_ns // 1_000_000
        self.operations.append(
            Operation(i, process, type_, f, value, self._now_ns, wall_ms, "barnabas", None, None, note or {})
        )
        return i

    def invoke(self, process: int, f: str, value: Any) -> int:
        return self.line(process, "invoke", f, value)

    def done(
        self, process: int, f: str, value: Any, type_: OperationType = "ok", note: Mapping[str, Any] | None = None
    ) -> int:
        """Invoked and completed at once; gives the completion's `i`."""
        self.invoke(process, f, _asked(value))
        return self.line(process, type_, f, value, note)

    def send(
        self,
        process: int,
        key: int,
        value: int,
        offset: int | None,
        type_: OperationType = "ok",
        **note: Any,
    ) -> int:
        return self.done(process, "send", [["send", key, [offset, value]]], type_, note)

    def poll(
        self, process: int, found: Mapping[int, Sequence[tuple[int, int]]], type_: OperationType = "ok", **note: Any
    ) -> int:
        """`found`: key to (offset, value)."""
        return self.done(process, "poll", [polled(found)], type_, note)

    def txn(self, process: int, micro: Sequence[Any], type_: OperationType = "ok", **note: Any) -> int:
        return self.done(process, "txn", list(micro), type_, note)

    def assign(self, process: int, keys: Sequence[int], f: str = "assign", **note: Any) -> int:
        return self.done(process, f, list(keys), "ok", note)

    def fault(self, f: str, number: int, *targets: str, **more: Any) -> None:
        """It begins to act, and has acted."""
        value = {"number": number, "targets": list(targets), **more}
        self.line(NEMESIS, "invoke", f, value)
        self.line(NEMESIS, "info", f, value)

    def look(self, views: Sequence[Sequence[Any]], states: Mapping[str, str] | None = None) -> None:
        """Rows as in `views.jsonl`."""
        self._now_ns += STEP_NS
        self.looks.append({"t_ns": self._now_ns, "views": views, "states": states or {}, "controller": None})

    def wait(self, seconds: float) -> None:
        self._now_ns += int(seconds * 1e9)


def sent(key: int, value: int, offset: int | None) -> list[Any]:
    """A micro-operation that is done."""
    return ["send", key, [offset, value]]


def polled(found: Mapping[int, Sequence[tuple[int, int]]]) -> list[Any]:
    """Likewise; key to (offset, value)."""
    return ["poll", {str(key): [list(record) for record in records] for key, records in found.items()}]


def _asked(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    asked = []
    for micro in value:
        if isinstance(micro, list) and micro and micro[0] == "send":
            asked.append(["send", micro[1], micro[2][1] if isinstance(micro[2], list) else micro[2]])
        elif isinstance(micro, list) and micro and micro[0] == "poll":
            asked.append(["poll"])
        else:
            asked.append(micro)
    return asked


@dataclass(frozen=True)
class LegalOptions:
    """Options of a long history."""

    operations: int = 200
    processes: int = 5
    keys: int = 4
    max_writes_per_key: int = 64
    transactions: float = 0.3
    """Share of the operations that send or poll which are transactions."""
    fails: float = 0.06
    unknowns: float = 0.04
    subscribe: bool = True
    max_polled: int = 8
    """Records of one key in one poll."""
    elections: float = 0.1
    """Probability that a partition gets another leader before its next record."""


@dataclass
class _Log:
    """The log of one key: at each offset a value and its writer, or a control record."""

    values: list[tuple[int, int] | None] = field(default_factory=list)
    """(value, writer), None for a control record."""
    epochs: list[int] = field(default_factory=list)
    """Epoch of the leader that appended each of them."""
    epoch: int = 0
    """Epoch of the current leader."""
    open: dict[int, int] = field(default_factory=dict)
    """Writers whose transaction is open, with their first offset here."""
    end: int = 0
    """Values that were ever asked to be sent."""

    @property
    def stable(self) -> int:
        return min(self.open.values(), default=len(self.values))


@dataclass
class _Process:
    """One of them, until it ends."""

    number: int
    positions: dict[int, int] = field(default_factory=dict)
    subscribed: bool = False
    writer: int = -1
    """Writer of the operation in progress."""
    f: str = ""
    value: list[Any] = field(default_factory=list)
    next: int = 0
    """Micro-operation to do."""
    before: dict[int, int] = field(default_factory=dict)
    """Positions at its beginning."""
    epochs: list[list[int]] = field(default_factory=list)
    """Polled ranges: key, first and last offset, leader epoch."""


class LegalCluster:
    """Makes one history, always the same from the same seed."""

    def __init__(self, options: LegalOptions, seed: int) -> None:
        self._options = options
        self._chance = random.Random(seed)
        self._elections = random.Random(f"{seed}/elections")
        self._logs: dict[int, _Log] = {}
        self._aborted: set[int] = set()
        self._writers = 0
        self._live = list(range(options.keys))
        self._next_key = options.keys
        self._committed: dict[int, int] = {}
        """Committed offsets of the group, by key."""
        self._processes = [_Process(number) for number in range(options.processes)]
        self._i = 0

    def run(self) -> Iterator[Operation]:
        """All lines; at the end one process reads everything."""
        begun = 0
        while begun < self._options.operations:
            place = self._chance.randrange(len(self._processes))
            process = self._processes[place]
            if process.f:
                yield from self._go_on(process, place)
            else:
                begun += 1
                yield self._begin(process)
        for place, process in enumerate(self._processes):
            while process.f:
                yield from self._go_on(process, place)
        yield from self._read_everything()

    # ---- what comes next

    def _begin(self, process: _Process) -> Operation:
        chance, options = self._chance, self._options
        process.before, process.next = dict(process.positions), 0
        process.epochs = []
        draw = chance.random()
        if not process.positions or draw < 0.05:
            process.f = "subscribe" if options.subscribe and chance.random() < 0.4 else "assign"
            process.value = sorted(chance.sample(self._live, chance.randint(1, len(self._live))))
        elif draw < 0.06:
            process.f, process.value = "crash", []
        elif chance.random() < options.transactions:
            process.f = "txn"
            process.value = [self._draw_micro() for _ in range(chance.randint(1, 4))]
        else:
            micro = self._draw_micro()
            process.f, process.value = micro[0], [micro]
        process.writer = self._writers
        self._writers += 1
        return self._line(process, "invoke", _asked(process.value))

    def _draw_micro(self) -> list[Any]:
        if self._chance.random() < 0.5:
            return ["poll"]
        place = self._chance.randrange(len(self._live))
        key = self._live[place]
        log = self._logs.setdefault(key, _Log())
        log.end += 1
        if log.end >= self._options.max_writes_per_key:
            self._live[place] = self._next_key
            self._next_key += 1
        return ["send", key, [None, log.end]]

    # ---- doing it

    def _go_on(self, process: _Process, place: int) -> Iterator[Operation]:
        if process.f in ("assign", "subscribe"):
            yield self._change_assignment(process)
        elif process.f == "crash":
            yield self._end(process, place, "info", None)
        elif process.next < len(process.value):
            self._do_micro(process)
        else:
            yield self._complete(process, place)

    def _change_assignment(self, process: _Process) -> Operation:
        subscribes = process.f == "subscribe"
        kept = process.positions if not subscribes and not process.subscribed else {}
        started = not process.positions and not subscribes
        source = self._committed if subscribes else {}
        process.positions = {key: kept.get(key, source.get(key, 0)) for key in process.value}
        process.subscribed = subscribes
        note = {"from_beginning": True} if started else {}
        line = self._line(process, "ok", process.value, note)
        process.f = ""
        return line

    def _do_micro(self, process: _Process) -> None:
        micro = process.value[process.next]
        if micro[0] == "send":
            log = self._logs[micro[1]]
            if process.f == "txn":
                log.open.setdefault(process.writer, len(log.values))
            self._append(log, (micro[2][1], process.writer))
            process.value[process.next] = sent(micro[1], micro[2][1], len(log.values) - 1)
        else:
            process.value[process.next] = polled(
                {key: records for key in process.positions if (records := self._poll(process, key))}
            )
        process.next += 1

    def _append(self, log: _Log, record: tuple[int, int] | None) -> None:
        """By the leader that it has now."""
        log.epoch += self._elections.random() < self._options.elections
        log.values.append(record)
        log.epochs.append(log.epoch)

    def _poll(self, process: _Process, key: int) -> list[tuple[int, int]]:
        log = self._logs.setdefault(key, _Log())
        most = self._chance.randint(0, self._options.max_polled)
        found: list[tuple[int, int]] = []
        position = process.positions[key]
        while position < log.stable and len(found) < most:
            held = log.values[position]
            if held is not None and held[1] not in self._aborted:
                found.append((position, held[0]))
                self._note_epoch(process, key, position)
            position += 1
        process.positions[key] = position
        return found

    def _note_epoch(self, process: _Process, key: int, offset: int) -> None:
        epoch = self._logs[key].epochs[offset]
        mine = [range_ for range_ in process.epochs if range_[0] == key]
        if mine and mine[-1][3] == epoch and mine[-1][2] < offset:
            mine[-1][2] = offset
        else:
            process.epochs.append([key, offset, offset, epoch])

    def _complete(self, process: _Process, place: int) -> Operation:
        draw = self._chance.random()
        options = self._options
        keys = {micro[1] for micro in process.value if micro[0] == "send"}
        if process.f == "poll":
            type_: OperationType = "ok" if draw >= options.fails else "fail"
        elif process.f == "send":
            # It is in the log: what surely failed would not be.
            type_ = "ok" if draw >= options.unknowns else "info"
        else:
            ends_well = draw >= options.fails + options.unknowns
            type_ = "ok" if ends_well else "fail" if draw < options.fails else "info"
            took_place = ends_well or (type_ == "info" and self._chance.random() < 0.5)
            if not took_place:
                self._aborted.add(process.writer)
            for key in sorted(keys):
                log = self._logs[key]
                self._append(log, None)
                del log.open[process.writer]
        if type_ != "ok":
            process.positions = dict(process.before)
        elif process.subscribed:
            self._committed.update(process.positions)
        if type_ == "info":
            value = process.value
            if self._chance.random() < 0.5:
                value = [["send", each[1], [None, each[2][1]]] if each[0] == "send" else each for each in value]
            return self._end(process, place, "info", value)
        line = self._line(process, type_, process.value)
        process.f = ""
        return line

    def _end(self, process: _Process, place: int, type_: OperationType, value: Any) -> Operation:
        line = self._line(process, type_, value)
        process.f = ""
        self._processes[place] = _Process(process.number + len(self._processes))
        return line

    def _line(
        self, process: _Process, type_: OperationType, value: Any, note: Mapping[str, Any] | None = None
    ) -> Operation:
        i = self._i
        self._i += 1
        t_ns = i * STEP_NS
        if type_ != "invoke" and process.epochs:
            note = {**(note or {}), "read_epochs": process.epochs}
        return Operation(
            i, process.number, type_, process.f, value, t_ns, t_ns // 1_000_000, "barnabas", note=note or {}
        )

    # ---- the end

    def _read_everything(self) -> Iterator[Operation]:
        reader = _Process(max(process.number for process in self._processes) + len(self._processes))
        reader.f, reader.value = "assign", sorted(self._logs)
        yield self._line(reader, "invoke", reader.value)
        yield self._line(reader, "ok", reader.value, {"from_beginning": True})
        reader.f, reader.positions = "poll", dict.fromkeys(reader.value, 0)
        while any(position < len(self._logs[key].values) for key, position in reader.positions.items()):
            reader.value, reader.next, reader.epochs = [["poll"]], 0, []
            yield self._line(reader, "invoke", [["poll"]])
            self._do_micro(reader)
            yield self._line(reader, "ok", reader.value)


def legal_history(options: LegalOptions, seed: int) -> list[Operation]:
    """A history in which nothing is wrong."""
    return list(LegalCluster(options, seed).run())
