"""Cores decide and shells move: a core gets time, chance, disk and network from its caller.

A file whose docstring begins with `Core:` is a core, and so is every file of a package whose `__init__.py` says so,
unless its own docstring begins with `Shell:`. What is not allowed is denied: a core may import the modules of `PURE`,
the types of `INTERFACES`, and other cores, so all that it reaches through those is allowed, too. Imports for type
checkers do not count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.house.test_arrows import ROOT, imports

ROOMS = ("protocol", "settings", "runtime", "storage", "kraft", "broker", "barnabas", "jepsen-style")

PURE = frozenset(
    """
    __future__ abc array ast base64 binascii bisect collections contextlib copy dataclasses datetime decimal difflib
    enum errno fnmatch fractions functools hashlib heapq hmac inspect ipaddress itertools json logging math operator
    re shlex statistics string struct traceback types typing unicodedata urllib uuid zlib
    cramjam crc32c fastavro google jsonschema lz4 numpy pyarrow pydantic re2 xxhash zstandard
    """.split()  # noqa: SIM905
)
"""Modules that compute from their arguments. `logging` is the one sink: a core learns nothing from it. The parts of
`datetime` and `uuid` that ask a clock or draw an id are in `REACHING_CALLS`."""

INTERFACES = frozenset({"runtime.world", "runtime.decisions", "histories.history", "histories.views"})
"""Modules with the types of what is outside. A core is given objects of them, however those came about."""

REACHING_NAMES = frozenset({"open", "input", "print", "exec", "eval", "compile", "__import__", "breakpoint"})
REACHING_CALLS = frozenset({"now", "today", "utcnow", "uuid1", "uuid4", "getnode"})

EXCEPTIONS: dict[str, tuple[str, ...]] = {
    # Loads message modules or the table of settings, or generates code, once and for good.
    "protocol/api_keys.py": ("importlib.import_module",),
    "runtime/late.py": ("importlib.import_module",),
    "protocol/records/crc.py": (
        "importlib.machinery.PathFinder",
        "importlib.util.find_spec",
        "importlib.util.module_from_spec",
    ),
    "protocol/codec/source.py": ("compile", "exec"),
    "protocol/structs.py": ("exec",),
    "runtime/request_times.py": ("exec",),
    # Counts references.
    "runtime/freeing.py": ("sys",),
    "settings/definitions.py": ("pathlib.Path",),
    # Value types of modules that also read files.
    "barnabas/pipeline/batch_rows.py": (
        "barnabas.pipeline.log_files.Chunk",
        "barnabas.pipeline.log_transactions.AbortedBatches",
    ),
    # Types of exceptions.
    "barnabas/pipeline/spark_errors.py": ("py4j.protocol.Py4JError", "pyspark.errors.PySparkException"),
    # Names the file of a checker that failed.
    "jepsen-style/checkers/all_checkers.py": ("pathlib.Path", "histories.recorder.HistoryError"),
    # A lock, no thread: the directory is used by the loop and by the worker thread that compacts and syncs.
    "storage/log_directory.py": ("threading",),
    "storage/open_files.py": ("threading",),
    "storage/segment_removal.py": ("threading",),
    "storage/segment_swaps.py": ("threading",),
    # Runs a callback, and logs its mistake.
    "broker/purgatory.py": ("runtime.background.run_callback",),
    # The type `random.Random`: the stream of numbers comes from the caller.
    "barnabas/cluster/hostile/arguments.py": ("runtime.simulated.chance.Stream",),
    "barnabas/cluster/hostile/bodies.py": ("runtime.simulated.chance.Stream",),
    "barnabas/cluster/hostile/requests.py": ("runtime.simulated.chance.Stream",),
}
"""Imports and calls that a core may make nevertheless."""

PACKAGES_THAT_REACH_OUT = frozenset(
    {"barnabas", "barnabas.cluster", "barnabas.client.consumer", "barnabas.client.producer"}
)
"""Packages whose `__init__.py` is not a core, but loads nothing either: names are imported at their first use, and
Python's path is checked for packages that hide ours."""


@cache
def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def is_core(path: Path) -> bool:
    if docstring(path).startswith(("Core:", "Shell:")):
        return docstring(path).startswith("Core:")
    packages = [path.parent, *path.parent.parents]
    inits = [each / "__init__.py" for each in packages[: packages.index(ROOT)]]
    return any(init.exists() and docstring(init).startswith("Core:") for init in inits)


def module_name(path: Path) -> str:
    top = ROOT / "jepsen-style" if "jepsen-style" in path.parts else ROOT
    parts = path.relative_to(top).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


MODULES = {module_name(path): path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))}
CORES = {name: path for name, path in MODULES.items() if is_core(path)}


def is_allowed(name: str) -> bool:
    """`name` is a module, or a module and a name in it."""
    module = name if name in MODULES else name.rpartition(".")[0]
    if module in MODULES:
        return module in INTERFACES or module in CORES
    return name.partition(".")[0] in PURE


def reaching_calls(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in REACHING_NAMES:
                yield node.func.id
            elif isinstance(node.func, ast.Attribute) and node.func.attr in REACHING_CALLS:
                yield node.func.attr


def packages_of(name: str) -> Iterator[str]:
    """Packages that Python imports before the module."""
    parts = name.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts)))


def violations(path: Path) -> set[str]:
    found = {name for name in imports(path) if not is_allowed(name)} | set(reaching_calls(path.read_text()))
    return found - set(EXCEPTIONS.get(str(path.relative_to(ROOT)), ()))


@pytest.mark.parametrize("name", CORES)
def test_a_core_does_not_reach_outside(name: str) -> None:
    assert violations(CORES[name]) == set()
    for package in packages_of(name):
        if package in MODULES and package not in PACKAGES_THAT_REACH_OUT:
            assert {each for each in imports(MODULES[package]) if not is_allowed(each)} == set(), package


@pytest.mark.parametrize(
    "source",
    [
        "from barnabas.runtime.channel import Channel",
        "import threading",
        "def f():\n    import trio",
        "from datetime import datetime\ndatetime.now()",
        "open('x')",
        "import importlib",
        "from broker import node",
    ],
)
def test_imports_of_a_core_from_outside_are_found(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "core.py"
    path.write_text(source)
    monkeypatch.setattr("tests.house.test_cores.ROOT", tmp_path)
    assert violations(path)


def test_pure_and_type_checking_imports_of_a_core_are_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "core.py"
    path.write_text(
        "from typing import TYPE_CHECKING\n"
        "from barnabas.runtime.world import Chance\nfrom barnabas.protocol.errors import ErrorCode\n"
        "if TYPE_CHECKING:\n    import trio\n"
    )
    monkeypatch.setattr("tests.house.test_cores.ROOT", tmp_path)
    assert violations(path) == set()


def test_every_exception_is_still_needed() -> None:
    for place, names in EXCEPTIONS.items():
        path = ROOT / place
        assert set(names) <= {*imports(path), *reaching_calls(path.read_text())}, place
