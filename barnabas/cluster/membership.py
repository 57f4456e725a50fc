"""Brokers that joined a cluster of processes after it was made, and nodes that left it: `DATA/members.json`.

An added broker has the settings of broker 1, with an id, ports and a directory of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from barnabas.cluster.errors import ClusterError, WrongArgument

MEMBERS_FILE = "members.json"
MOST_BROKERS = 99
"""Controllers listen a hundred ports above the brokers."""


@dataclass(frozen=True, slots=True)
class Members:
    """Changes to the nodes of a shape."""

    added: tuple[int, ...] = ()
    """Ids of brokers."""
    removed: tuple[str, ...] = ()
    """Names of nodes."""

    @classmethod
    def read(cls, data: Path) -> Members:
        """Raises `ClusterError`."""
        path = data / MEMBERS_FILE
        try:
            found = json.loads(path.read_text())
            return cls(tuple(map(int, found["added"])), tuple(map(str, found["removed"])))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ClusterError(f"{path} cannot be read: {error}") from None

    def write(self, data: Path) -> None:
        data.mkdir(parents=True, exist_ok=True)
        (data / MEMBERS_FILE).write_text(json.dumps({"added": self.added, "removed": self.removed}) + "\n")

    def with_broker(self, known: Iterable[int]) -> tuple[Members, int]:
        """A further broker, whose id none of `known` has had; and that id. Raises `WrongArgument`."""
        names = [name.rpartition("-")[2] for name in self.removed if name.startswith("broker-")]
        broker_id = max([*known, *self.added, *map(int, names)], default=0) + 1
        if broker_id > MOST_BROKERS:
            raise WrongArgument(f"a broker must have an id of at most {MOST_BROKERS}; got {broker_id}")
        return Members((*self.added, broker_id), self.removed), broker_id

    def without(self, name: str) -> Members:
        """The node has left."""
        return Members(tuple(each for each in self.added if f"broker-{each}" != name), (*self.removed, name))
