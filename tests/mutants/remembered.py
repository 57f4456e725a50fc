"""Which tests pass by which line, remembered between two runs: to measure it takes longer than to try a small sample.

What is known of a test counts while its module, all helpers of tests, and the sources that it passes by stay as they
are. The rest is measured again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from tests.mutants.passing import Passing
from tests.mutants.rooms import Room

FOLDER = Path(".cache") / "mutants"


class Remembered:
    """The file of one room."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._path = room.root / FOLDER / f"{room.name.replace('/', '-')}.json"

    def known(self, tests: Iterable[str]) -> Passing:
        """The part that still counts, of these tests."""
        try:
            kept = json.loads(self._path.read_text(encoding="utf-8"))
            passing = Passing.read(kept["passing"])
            digests: dict[str, str] = kept["digests"]
        except (OSError, ValueError, KeyError):
            return Passing()
        now = self._digests(passing.seconds)
        changed = {name for name in {*digests, *now} if digests.get(name) != now.get(name)}
        if "helpers" in changed:
            return Passing()
        passed_by = {str(Path(file).relative_to(self._room.root)): lines for file, lines in passing.tests.items()}
        touched = {test for file in changed & passed_by.keys() for found in passed_by[file].values() for test in found}
        wanted = {*tests} & passing.seconds.keys()
        return passing.only({test for test in wanted - touched if test.partition("::")[0] not in changed})

    def keep(self, passing: Passing) -> None:
        """Raises OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        kept = {"digests": self._digests(passing.seconds), "passing": asdict(passing)}
        self._path.write_text(json.dumps(kept), encoding="utf-8")

    def _digests(self, tests: Iterable[str]) -> dict[str, str]:
        """By path: sources, and modules of tests; one of all other files of tests together."""
        root = self._room.root
        paths = {root / test.partition("::")[0] for test in tests} | {*self._room.files()}
        found = {str(path.relative_to(root)): _digest([path]) for path in sorted(paths)}
        helpers = sorted(path for path in (root / "tests").rglob("*.py") if not path.name.startswith("test_"))
        return found | {"helpers": _digest(path for path in helpers if "mutants" not in path.parts)}


def _digest(paths: Iterable[Path]) -> str:
    digest = sha256()
    for path in paths:
        digest.update(path.read_bytes() if path.exists() else b"")
    return digest.hexdigest()
