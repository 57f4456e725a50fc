"""Detection of Chromium and playwright."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MISSING = ROOT / ".cache" / "page" / "missing"
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"


def missing() -> dict[str, tuple[str, str]]:
    """Thing to (`impossible` or `failed`, why), as `install.sh` found it."""
    if not MISSING.exists():
        return {}
    lines = [line.split("\t", 2) for line in MISSING.read_text().splitlines()]
    return {thing: (kind, why) for thing, kind, why in lines}


def lacking() -> str:
    """Reason why tests in Chromium cannot run here; empty if they can."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed: pip install -e '.[page-test]'"
    if not Path(CHROMIUM).exists():
        return missing().get("chromium", ("", "there is no chromium; tests/page/install.sh installs it"))[1]
    return ""


def could_be_had() -> bool:
    """Whether install.sh did not run, or failed although installing is possible: then a skip is an error."""
    return missing().get("chromium", ("", ""))[0] != "impossible"
