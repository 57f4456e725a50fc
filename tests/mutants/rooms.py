"""The rooms that are mutated, and the tests that must notice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Room:
    """Paths are relative to `root`."""

    name: str
    sources: tuple[str, ...]
    """Directories; their files are mutated, but not those of directories inside them."""
    tests: tuple[str, ...]
    root: Path = ROOT

    def files(self) -> list[Path]:
        return [path for source in self.sources for path in sorted((self.root / source).glob("*.py"))]


CLUSTERS = ("tests/broker/apis",)
"""Stories of whole simulated clusters pass by every room; those that a mutation meets are tried quickest first."""

ROOMS = {
    room.name: room
    for room in (
        Room("storage", ("storage",), ("tests/storage", "tests/broker/test_log_cleaner.py", *CLUSTERS)),
        Room("kraft/raft", ("kraft/raft",), ("tests/kraft/raft", "tests/kraft/node", *CLUSTERS)),
        Room("kraft/controller", ("kraft/controller",), ("tests/kraft/controller", "tests/kraft/node", *CLUSTERS)),
        Room(
            "broker/replication",
            ("broker/replication",),
            ("tests/broker/replication", "tests/broker/test_fetch_wakeups.py", *CLUSTERS),
        ),
        Room("broker/transactions", ("broker/transactions",), ("tests/broker/transactions", *CLUSTERS)),
        Room("broker/groups", ("broker/groups",), ("tests/broker/groups", *CLUSTERS)),
        Room(
            "broker/coordinator",
            ("broker/coordinator",),
            ("tests/broker/coordinator", "tests/broker/transactions", "tests/broker/groups", *CLUSTERS),
        ),
    )
}
