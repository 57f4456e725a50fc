"""Nodes that joined a cluster of processes after it was made, and nodes that left it: `DATA/members.json`.

An added node has the settings of the first one of its role, with an id, ports and a directory of its own. Controllers
come and go only if the voters of the metadata log can change (KIP-853); then no file names voters.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from barnabas.cluster.errors import ClusterError, WrongArgument

MEMBERS_FILE = "members.json"
MOST_OF_A_ROLE = 99
"""Controllers listen a hundred ports above the brokers."""
FIRST_IDS = {"broker": 1, "controller": 101}
"""Lowest id by role, in the usual shape."""


@dataclass(frozen=True, slots=True)
class Members:
    """Changes to the nodes of a shape."""

    added: tuple[int, ...] = ()
    """Ids of brokers."""
    removed: tuple[str, ...] = ()
    """Names of nodes."""
    added_controllers: tuple[int, ...] = ()
    """Ids of controllers."""
    has_living_voters: bool = False
    """The metadata log keeps the voters (`kraft.version` 1)."""
    cells: int = 1
    """Brokers on a host."""

    @classmethod
    def read(cls, data: Path) -> Members:
        """Raises `ClusterError`."""
        path = data / MEMBERS_FILE
        try:
            found = json.loads(path.read_text())
            return cls(
                tuple(map(int, found["added"])),
                tuple(map(str, found["removed"])),
                tuple(map(int, found.get("added_controllers", ()))),
                bool(found.get("has_living_voters", False)),
                int(found.get("cells", 1)),
            )
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ClusterError(f"{path} cannot be read: {error}") from None

    def write(self, data: Path) -> None:
        data.mkdir(parents=True, exist_ok=True)
        (data / MEMBERS_FILE).write_text(json.dumps(asdict(self)) + "\n")

    def with_broker(self, known: Iterable[int]) -> tuple[Members, int]:
        """A further broker, whose id none of `known` has had; and that id. Raises `WrongArgument`."""
        broker_id = self._next_id("broker", (*known, *self.added))
        return replace(self, added=(*self.added, broker_id)), broker_id

    def with_controller(self, known: Iterable[int]) -> tuple[Members, int]:
        """The same for a controller."""
        controller_id = self._next_id("controller", (*known, *self.added_controllers))
        return replace(self, added_controllers=(*self.added_controllers, controller_id)), controller_id

    def with_brokers(self, count: int, known: Sequence[int]) -> Members:
        """Add brokers until there are `count`. Raises `WrongArgument`."""
        if count < len(known):
            raise WrongArgument(f"--brokers {count}: there are {len(known)}; `barnabas cluster remove` removes one")
        members, ids = self, list(known)
        for _ in range(count - len(known)):
            members, broker_id = members.with_broker(ids)
            ids.append(broker_id)
        return members

    def with_cells(self, cells: int, *, is_new: bool) -> Members:
        """The brokers share hosts. Raises `WrongArgument` if they do so otherwise already."""
        if not is_new and cells != self.cells:
            raise WrongArgument(f"--cells {cells}: this cluster was made with {self.cells}, which cannot be changed")
        return replace(self, cells=cells)

    def without(self, name: str) -> Members:
        """The node has left."""
        return replace(
            self,
            added=tuple(each for each in self.added if f"broker-{each}" != name),
            added_controllers=tuple(each for each in self.added_controllers if f"controller-{each}" != name),
            removed=(*self.removed, name),
        )

    def _next_id(self, role: str, known: Iterable[int]) -> int:
        names = [name.rpartition("-")[2] for name in self.removed if name.startswith(f"{role}-")]
        first = FIRST_IDS[role]
        node_id = max([first - 1, *known, *map(int, names)]) + 1
        if node_id >= first + MOST_OF_A_ROLE:
            raise WrongArgument(f"a {role} must have an id of at most {first + MOST_OF_A_ROLE - 1}; got {node_id}")
        return node_id
