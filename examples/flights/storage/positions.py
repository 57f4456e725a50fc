"""The last position of every plane, and how far the topic was read: both change in one transaction.

So a tracker that is killed at any moment goes on where its table ends, and counts no report twice.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from protocol.position import Position


class Positions:
    """One database; one tracker writes it."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path)
        with self._database:
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS positions "
                "(plane TEXT PRIMARY KEY, latitude REAL, longitude REAL, altitude INTEGER, reports INTEGER)"
            )
            self._database.execute("CREATE TABLE IF NOT EXISTS read (partition INTEGER PRIMARY KEY, offset INTEGER)")

    def take(self, plane: str, position: Position, partition: int, offset: int) -> None:
        """A report that was read at `offset`."""
        with self._database:
            self._database.execute(
                "INSERT INTO positions VALUES (?, ?, ?, ?, 1) ON CONFLICT (plane) DO UPDATE SET "
                "latitude = excluded.latitude, longitude = excluded.longitude, altitude = excluded.altitude, "
                "reports = reports + 1",
                (plane, position.latitude, position.longitude, position.altitude),
            )
            self._database.execute("INSERT OR REPLACE INTO read VALUES (?, ?)", (partition, offset + 1))

    def next_offset(self, partition: int) -> int:
        """Offset of the next report to read."""
        row = self._database.execute("SELECT offset FROM read WHERE partition = ?", (partition,)).fetchone()
        return row[0] if row else 0

    def last(self, plane: str) -> Position | None:
        row = self._database.execute(
            "SELECT latitude, longitude, altitude FROM positions WHERE plane = ?", (plane,)
        ).fetchone()
        return Position(*row) if row else None

    def reports(self) -> dict[str, int]:
        """Number of reports of each plane."""
        return dict(self._database.execute("SELECT plane, reports FROM positions ORDER BY plane"))

    def close(self) -> None:
        self._database.close()
