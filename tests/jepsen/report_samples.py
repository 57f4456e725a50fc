"""Run directories for the tests of reports, as a run would leave them: a queue workload under faults, from a seed.

Nothing here breaks or checks anything: the story is written straight into the files, with the anomalies asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from operations import NEMESIS, place_of

WALL_MS = 1_772_366_400_000
NODES = ("broker-1", "broker-2", "broker-3", "controller-101", "controller-102", "controller-103")
KINDS = ("kill", "pause", "partition", "message", "power", "slow")
SHOWN = ("lost-write", "duplicate", "inconsistent-offsets", "G1a")
"""Anomalies that can be planted into the history itself."""


@dataclass
class Sample:
    """A run to be written by `write` into a directory."""

    seconds: float = 120.0
    rate: float = 80.0
    keys: int = 6
    processes: int = 8
    seed: int = 7
    anomalies: Sequence[str] = ()
    """Each with what it takes in the history, if it is one of SHOWN; else named by some operations of it."""
    faults_every_s: float = 15.0
    hostile: str = ""
    """Text that stands wherever a run takes text from elsewhere."""
    checked: bool = True
    _lines: list[dict[str, Any]] = field(default_factory=list)
    _findings: list[dict[str, Any]] = field(default_factory=list)

    def write(self, directory: Path) -> Path:
        chance = Random(self.seed)
        directory.mkdir(parents=True, exist_ok=True)
        faults = list(self._faults(chance))
        self._play(chance, faults)
        for name, lines in (("history.jsonl", self._lines), ("views.jsonl", self._views(chance, faults))):
            with open(directory / name, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        (directory / "run.json").write_text(json.dumps(self._run()))
        if self.checked:
            (directory / "verdict.json").write_text(json.dumps(self._verdict(chance)))
        (directory / "logs").mkdir(exist_ok=True)
        for node in NODES:
            text = "".join(self._log(node, chance, faults))
            (directory / "logs" / f"{node}.log").write_bytes(text.encode("utf-8", "surrogatepass"))
        return directory

    def _run(self) -> dict[str, Any]:
        return {
            "name": f"queue-local-7{self.hostile}",
            "workload": "queue",
            "world": "local",
            "seed": self.seed,
            "time_seconds": self.seconds,
            "rate": self.rate,
            "concurrency": self.processes,
            "nemesis": list(KINDS),
            "clients": ["barnabas", "confluent"],
            "plant": self.hostile or None,
            "options": {"isolation": "read_committed", "idempotence": True, "subscribe": False, "keys": self.keys},
            "settings": {"num.partitions": "2"},
            "versions": {"barnabas": "0.1.0", "python": "3.11.2"},
            "began": datetime.fromtimestamp(WALL_MS / 1e3, UTC).isoformat(),
            "cannot": {"clock": "needs root", "power": f"no loop devices {self.hostile}"},
            "replay": f"python jepsen-style run queue --cluster local --seed {self.seed} {self.hostile}".strip(),
        }

    def _faults(self, chance: Random) -> Iterator[tuple[str, str, float, float]]:
        """Kind, target, from, to."""
        t_s, n = self.faults_every_s * 0.6, 0
        while t_s < self.seconds - 20 and self.faults_every_s:
            yield KINDS[n % len(KINDS)], NODES[chance.randrange(6)], t_s, t_s + 3 + chance.random() * 5
            t_s, n = t_s + self.faults_every_s, n + 1

    def _play(self, chance: Random, faults: Sequence[tuple[str, str, float, float]]) -> None:
        """Invocations and completions in the order of time; what the log holds is decided at completions."""
        moments: list[tuple[float, int, dict[str, Any]]] = []
        free = [0.0] * self.processes
        ids = list(range(self.processes))
        invented = 0
        for step in range(int(self.seconds * self.rate)):
            slot = step % self.processes
            start_s = max(step / self.rate, free[slot])
            f = chance.choices(("send", "poll", "txn", "assign"), (45, 45, 8, 2))[0]
            if start_s >= self.seconds:
                continue
            under = [fault for fault in faults if fault[2] <= start_s <= fault[3]]
            took_s = chance.lognormvariate(-5.2, 0.7) if f != "poll" else 0.02 + 0.08 * chance.random()
            outcome = "ok"
            if under and chance.random() < 0.25:
                took_s = 0.2 + chance.random() * (under[0][3] - start_s)
                outcome = chance.choices(("ok", "fail", "info"), (6, 1, 1))[0]
            elif f == "txn" and chance.random() < 0.1:
                outcome = "fail"
            end_s = start_s + took_s
            call = {"process": ids[slot], "f": f, "key": chance.randrange(self.keys), "outcome": outcome}
            moments += [(start_s, 2 * step, call), (end_s, 2 * step + 1, call)]
            if outcome == "info":
                invented += 1
                ids[slot] = self.processes + invented
            free[slot] = end_s + 1e-4
        for number, (kind, target, start_s, end_s) in enumerate(faults, 1):
            value = {"number": number, "kind": kind, "targets": [target], "because": self.hostile or "chosen"}
            ends = "heal" if kind in ("partition", "message", "slow") else "start" if kind != "pause" else "resume"
            for t_s, f, type_ in (
                (start_s, kind, "invoke"),
                (start_s + 0.05, kind, "info"),
                (end_s, ends, "invoke"),
                (end_s + 0.1, ends, "info"),
            ):
                moments.append((t_s, -number, {"process": NEMESIS, "f": f, "type": type_, "value": value}))
        self._write_lines(sorted(moments, key=lambda moment: moment[:2]))

    def _write_lines(self, moments: Sequence[tuple[float, int, dict[str, Any]]]) -> None:
        logs: list[list[int]] = [[] for _ in range(self.keys)]
        position: dict[tuple[int, int], int] = {}
        values = [0] * self.keys
        to_plant = [each for each in self.anomalies if each in SHOWN]
        started: set[int] = set()
        for t_s, _, call in moments:
            line: dict[str, Any] = {"i": len(self._lines), "process": call["process"], "f": call["f"]}
            line |= {"t_ns": int(t_s * 1e9), "wall_ms": WALL_MS + int(t_s * 1e3)}
            self._lines.append(line)
            if call["process"] == NEMESIS:
                line |= {"type": call["type"], "value": call["value"]}
                continue
            key = call["key"]
            line["client"] = "barnabas" if call["process"] % 2 else "confluent"
            if id(call) not in started:
                started.add(id(call))
                values[key] += 1
                call["value"] = values[key]
                asked = {"send": [["send", key, call["value"]]], "poll": [["poll"]], "assign": list(range(self.keys))}
                line |= {"type": "invoke", "value": asked.get(call["f"], [["send", key, call["value"]], ["poll"]])}
                call["invoked"] = line["i"]
                continue
            line |= {"type": call["outcome"], "node": f"broker-{key % 3 + 1}"}
            if call["outcome"] != "ok":
                line["error"] = [
                    "NotLeaderOrFollowerException" if call["outcome"] == "info" else "ProducerFencedException",
                    self.hostile or "the leader has moved",
                ]
            planted = to_plant[0] if to_plant and t_s > self.seconds * 0.3 and call["f"] == "send" else None
            if planted is not None and (call["outcome"] == "fail") != (planted == "G1a"):
                planted = None
            line["value"] = self._micro(call, logs, position, planted)
            if planted is not None:
                to_plant.pop(0)
                self._findings.append(
                    {
                        "anomaly": planted,
                        "where": str(place_of(key)),
                        "operations": [line["i"]],
                        "told": f"key {key}: value {call['value']} was acknowledged at {t_s:.3f} s. {self.hostile}",
                        "legal": False,
                    }
                )
            for finding in self._findings:
                wanted = f"{finding['told'].split('value ')[1].split()[0]}]"
                if call["f"] == "poll" and len(finding["operations"]) < 4 and wanted in json.dumps(line["value"]):
                    finding["operations"].append(line["i"])

    def _micro(self, call: dict[str, Any], logs: list[list[int]], position: dict[Any, int], planted: str | None) -> Any:
        key, process, value = call["key"], call["process"], call["value"]
        sent: list[Any] = ["send", key, value]
        if call["f"] in ("send", "txn") and (call["outcome"] == "ok" or planted == "G1a"):
            sent = ["send", key, [len(logs[key]), value]]
            if planted != "lost-write":
                logs[key].append(value)
            if planted == "duplicate":
                logs[key].append(value)
            if planted == "inconsistent-offsets":
                logs[key][-1] = value + 1_000_000
        if call["f"] == "send":
            return [sent]
        if call["f"] == "assign":
            for each in range(self.keys):
                position[process, each] = max(len(logs[each]) - 20, 0)
            return list(range(self.keys))
        polled: dict[str, list[list[int]]] = {}
        for each in range(self.keys) if call["outcome"] == "ok" else ():
            start = position.get((process, each), len(logs[each]))
            end = min(len(logs[each]), start + 30)
            position.setdefault((process, each), start)
            if end > start:
                polled[str(each)] = [[offset, logs[each][offset]] for offset in range(start, end)]
                position[process, each] = end
        return [sent, ["poll", polled]] if call["f"] == "txn" else [["poll", polled]]

    def _views(self, chance: Random, faults: Sequence[tuple[str, str, float, float]]) -> Iterator[dict[str, Any]]:
        ends = [0.0] * self.keys
        epochs, leaders = [0] * self.keys, [key % 3 + 1 for key in range(self.keys)]
        controller = "controller-101"
        for second in range(int(self.seconds)):
            gone = {target: kind for kind, target, start_s, end_s in faults if start_s <= second <= end_s}
            states = {
                node: {"kill": "dead", "power": "dead", "pause": "paused"}.get(gone.get(node, ""), "running")
                for node in NODES
            }
            if states[controller] != "running":
                controller = next(node for node in NODES[3:] if states[node] == "running")
            alive = [n for n in (1, 2, 3) if states[f"broker-{n}"] == "running"]
            views = []
            for key in range(self.keys):
                ends[key] += self.rate * 0.5 / self.keys
                if leaders[key] not in alive:
                    leaders[key], epochs[key] = chance.choice(alive), epochs[key] + 1
                end, place = int(ends[key]), place_of(key)
                for n in alive:
                    view = [f"broker-{n}", place.topic, place.partition, max(0, end - (0 if n == leaders[key] else 9))]
                    views.append([*view, end, epochs[key], leaders[key], alive])
            yield {"t_ns": second * 10**9, "views": views, "states": states, "controller": controller}

    def _log(self, node: str, chance: Random, faults: Sequence[tuple[str, str, float, float]]) -> Iterator[str]:
        for _, target, start_s, end_s in faults:
            for t_s, level, text in (
                (start_s + 0.3, "WARNING", f"connection to {target} ended {self.hostile}"),
                (start_s + 0.4 + chance.random(), "INFO", "partition t0-0: leader epoch 4, led by 2"),
                (end_s + 0.2, "INFO", f"{target} is back"),
            ):
                when = datetime.fromtimestamp(WALL_MS / 1e3 + t_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
                yield f"{when}Z {level:7} broker.replication: {node}: {text}\n"
            yield "    a line that continues the one above\n"

    def _verdict(self, chance: Random) -> dict[str, Any]:
        for anomaly in (each for each in self.anomalies if each not in SHOWN):
            numbers = sorted(chance.sample(range(len(self._lines)), min(3, len(self._lines))))
            self._findings.append(
                {
                    "anomaly": anomaly,
                    "where": str(place_of(chance.randrange(self.keys))),
                    "operations": numbers,
                    "told": f"something about {anomaly} {self.hostile}",
                    "legal": anomaly.startswith("G0"),
                }
            )
        bad = any(not finding["legal"] for finding in self._findings)
        return {
            "valid": "false" if bad else "true",
            "findings": self._findings,
            "figures": {
                "stats": {"operations": len(self._lines), "ok share": 0.97, "by f": {"send": {"ok": 12, "fail": 3}}},
                "queue": {"unseen": 0, "worst lag": 1.25, "text": self.hostile or "calm"},
            },
            "unknown_because": "",
        }
