"""Prints each production file with the first sentence of its docstring, room by room.

Usage: `python docs/print_map.py [ROOM ...]`, for example `broker/replication`; all rooms if none is named.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("protocol", "settings", "runtime", "storage", "kraft", "broker", "barnabas", "jepsen-style", "bench")


def first_sentence(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return paragraph.split(". ")[0].rstrip(".")


def main() -> None:
    for room in sys.argv[1:] or ROOMS:
        print(f"\n{room}/")
        for path in sorted((ROOT / room).rglob("*.py")):
            sentence = first_sentence(path)
            if sentence:
                print(f"  {path.relative_to(ROOT / room)!s:44} {sentence}")


if __name__ == "__main__":
    main()
