"""Mutations that nobody can notice, judged one by one in `equivalent.tsv`, each with a reason.

A line names the file, the text of the source line, the change, and why no caller can see it. The text stands for the
line, so that a judgement survives an edit elsewhere in the file, and ends with an edit of its own line. A change `*`
stands for every change of that line.
"""

from __future__ import annotations

from pathlib import Path

from tests.mutants.mutations import Mutation

JUDGED = Path(__file__).with_name("equivalent.tsv")
COLUMNS = 4


class Equivalents:
    """Mutations judged to be equivalent, with reasons."""

    def __init__(self, reasons: dict[tuple[str, str, str], str]) -> None:
        self._reasons = reasons

    @classmethod
    def read(cls, path: Path = JUDGED) -> Equivalents:
        """Raises ValueError."""
        reasons = {}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if not line or line.startswith("#"):
                continue
            cells = line.split("\t")
            if len(cells) != COLUMNS or not all(cell.strip() for cell in cells):
                raise ValueError(f"{path}:{number}: has {len(cells)} cells, not file, source line, change and reason")
            reasons[cells[0], cells[1], cells[2]] = cells[3]
        return cls(reasons)

    def reason(self, mutation: Mutation, root: Path) -> str | None:
        """Why nobody can notice it; None if it was not judged."""
        file = str(mutation.path.relative_to(root))
        exact = self._reasons.get((file, mutation.source, mutation.change))
        return exact or self._reasons.get((file, mutation.source, "*"))

    def judged(self) -> list[tuple[str, str, str]]:
        """File, source line, change."""
        return list(self._reasons)
