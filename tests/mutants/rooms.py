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


APIS = "tests/broker/apis"
"""Stories of whole simulated clusters. A room takes those that are about its matter."""

ROOMS = {
    room.name: room
    for room in (
        Room(
            "storage",
            ("storage", "storage/remote"),
            ("tests/storage", "tests/broker/test_log_cleaner.py", "tests/broker/test_gap_flushing.py"),
        ),
        Room("kraft/raft", ("kraft/raft",), ("tests/kraft/raft", "tests/kraft/node")),
        Room(
            "kraft/controller",
            ("kraft/controller",),
            ("tests/kraft/controller", "tests/kraft/node", f"{APIS}/test_new_partitions.py"),
        ),
        Room(
            "broker/replication",
            ("broker/replication",),
            (
                "tests/broker/replication",
                f"{APIS}/test_fetch.py",
                f"{APIS}/test_follower_reads.py",
                f"{APIS}/test_life.py",
                f"{APIS}/test_log_dir_moves.py",
                f"{APIS}/test_new_partitions.py",
                f"{APIS}/test_offsets.py",
                f"{APIS}/test_throttled_reassignment.py",
                f"{APIS}/test_transactional_partitions.py",
            ),
        ),
        Room(
            "broker/transactions",
            ("broker/transactions",),
            ("tests/broker/transactions", f"{APIS}/test_transactional_partitions.py", f"{APIS}/test_bystanders.py"),
        ),
        Room(
            "broker/groups",
            ("broker/groups",),
            ("tests/broker/groups", f"{APIS}/test_consumer_groups.py", f"{APIS}/test_group_offsets.py"),
        ),
        Room(
            "broker/coordinator",
            ("broker/coordinator",),
            (
                "tests/broker/coordinator",
                "tests/broker/transactions/test_transaction_shell.py",
                f"{APIS}/test_consumer_groups.py",
                f"{APIS}/test_group_offsets.py",
                f"{APIS}/test_transactional_partitions.py",
            ),
        ),
        Room("protocol/sasl", ("protocol/sasl",), ("tests/protocol/sasl",)),
    )
}
