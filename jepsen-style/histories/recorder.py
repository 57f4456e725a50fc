"""Writes a run into its directory while it happens: `run.json`, `history.jsonl`, `views.jsonl`.

However the run ends, every line that was written is there; only the last one may be torn, and `History.load` leaves it
out. It has no clock: callers pass the time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from histories.whole import write_whole
from operations import Completion, Moment, OperationType

if TYPE_CHECKING:
    from worlds.cluster import ReplicaView

RUN = "run.json"
HISTORY = "history.jsonl"
VIEWS = "views.jsonl"

_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


class HistoryError(Exception):
    """A history cannot be written or read; the reason in one line."""


class Recorder:
    """Recorder of one run. It creates the directory, which must not contain another run's history.

    Raises HistoryError if nothing more can be written (a full disk); what was written before stays.
    """

    def __init__(self, directory: Path, run: Mapping[str, Any]) -> None:
        self.directory = directory
        self.run = dict(run)
        self.operations = 0
        """Written so far: the `i` of the next one."""
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._write_run()
            self._history = open(directory / HISTORY, "xb", buffering=0)  # noqa: SIM115 - open as long as the run
            self._views = open(directory / VIEWS, "xb", buffering=0)  # noqa: SIM115
        except FileExistsError as error:
            raise HistoryError(f"{directory} already holds a history: name another directory with --store") from error
        except OSError as error:
            raise HistoryError(f"{directory}: {error.strerror}: name another directory with --store") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(
        self,
        at: Moment,
        process: int | str,
        type: OperationType,
        f: str,
        content: Completion,
        library: str | None = None,
    ) -> int:
        """One `Operation` with the value, node, error and note of `content`; gives its `i`."""
        i = self.operations
        line: dict[str, Any] = {"i": i, "process": process, "type": type, "f": f, "value": content.value}
        line["t_ns"], line["wall_ms"] = at
        evidence_by_name = {"client": library, "node": content.node, "error": content.error, "note": content.note}
        for name, evidence in evidence_by_name.items():
            if evidence:
                line[name] = evidence
        self._append(self._history, HISTORY, line)
        self.operations = i + 1
        return i

    def view(self, t_ns: int, views: Iterable[ReplicaView], states: Mapping[str, str], controller: str | None) -> None:
        """Record the nodes' views of their replicas, all at about `t_ns`."""
        rows = [
            [
                view.node,
                view.place.topic,
                view.place.partition,
                view.high_watermark,
                view.log_end_offset,
                view.leader_epoch,
                view.leader,
                list(view.isr),
            ]
            for view in views
        ]
        line = {"t_ns": t_ns, "views": rows, "states": dict(states), "controller": controller}
        self._append(self._views, VIEWS, line)

    def amend(self, **more: Any) -> None:
        """Into `run.json`, what is known only later: `cannot`, `versions`, `ended`."""
        self.run.update(more)
        self._write_run()

    def close(self) -> None:
        """Everything is on the disk when this returns. May be called again."""
        for file in (self._history, self._views):
            if not file.closed:
                with file:
                    os.fsync(file.fileno())

    def _append(self, file: Any, name: str, line: Mapping[str, Any]) -> None:
        try:
            data = memoryview(_ENCODER.encode(line).encode() + b"\n")
            while data:
                data = data[file.write(data) :]
        except OSError as error:
            raise HistoryError(f"{self.directory / name}: {error.strerror}: the run ends here") from error

    def _write_run(self) -> None:
        # Renamed into its place: a full disk must not cost the run.json that was there.
        try:
            write_whole(self.directory / RUN, json.dumps(self.run, indent=2, ensure_ascii=False) + "\n")
        except OSError as error:
            raise HistoryError(f"{self.directory / RUN}: {error.strerror}: the run ends here") from error
