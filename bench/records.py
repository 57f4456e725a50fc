"""Cost of encoding, walking and checking one record, in microseconds of CPU: in Python, in runs, and compiled.

The batches are of 16384 bytes. Usage: records.py [--rounds N]
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from types import ModuleType

sys.path.insert(0, str(Path(__file__).parent.parent))

from barnabas.protocol.records import layout, scan
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.layout import Fields
from barnabas.protocol.records.record import COMPILED, decode_records
from barnabas.protocol.records.runs import check_in_runs, walk_in_runs

BATCH_BYTES = 16_384
NOW = 1_700_000_000_000


def as_python(name: str) -> ModuleType:
    path = Path(layout.__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"{name}_as_python", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shapes() -> dict[str, list[Fields]]:
    random = Random(1)
    found: dict[str, list[Fields]] = {"100 B": [(0, NOW, None, b"v" * 100, ()) for _ in range(145)]}
    found["100 B, key of 10 B"] = [(0, NOW, b"k" * 10, b"v" * 100, ()) for _ in range(135)]
    found["1000 B"] = [(0, NOW, None, b"v" * 1000, ()) for _ in range(16)]
    found["0 to 200 B, keys of 5 to 15 B"] = [
        (0, NOW + index // 40, b"k" * random.randint(5, 15), b"v" * random.randint(0, 200), ()) for index in range(135)
    ]
    found["100 B, two headers"] = [(0, NOW, None, b"v" * 100, (("a", b"1"), ("b", b"22"))) for _ in range(132)]
    return found


def cost_us(work: Callable[[], object], records: int, rounds: int) -> float:
    """The least of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(20):
            work()
        best = min(best, time.process_time() - began)
    return best / 20 / records * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    python, scan_in_python = as_python("layout"), as_python("scan")
    ways: dict[str, Callable[[list[Fields], bytes], Callable[[], object]]] = {
        "lay out": lambda records, data: partial(python.lay_out, records, NOW, None, None),
        "walk": lambda records, data: partial(python.walk, data, 0, len(records), 0, NOW),
        "check": lambda records, data: partial(scan_in_python.check, data, 0, 0, len(records)),
        "check in runs": lambda records, data: partial(check_in_runs, data, 0, 0, len(records)),
        "walk in runs": lambda records, data: partial(walk_in_runs, data, 0, len(records), 0, NOW),
    }
    if COMPILED:
        ways["compiled: lay out"] = lambda records, data: partial(layout.lay_out, records, NOW, None, None)
        ways["compiled: walk"] = lambda records, data: partial(layout.walk, data, 0, len(records), 0, NOW)
        ways["compiled: check"] = lambda records, data: partial(scan.check, data, 0, 0, len(records))
    ways["build_batch, as it is"] = lambda records, data: partial(build_batch, records)
    ways["decode_records, as it is"] = lambda records, data: partial(decode_records, build_batch(records))
    print("| µs for each record | " + " | ".join(ways) + " |")
    print("|---|" + "---:|" * len(ways))
    for shape, records in shapes().items():
        data, _ = layout.lay_out(records, NOW, None, None)
        costs = [cost_us(way(records, data), len(records), rounds) for way in ways.values()]
        print(f"| {shape} | " + " | ".join(f"{cost:.3f}" for cost in costs) + " |")


if __name__ == "__main__":
    main()
