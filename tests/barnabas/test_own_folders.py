"""A project may have folders with the names of our rooms."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def python(program: str, path: list[Path], *options: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in a folder of the project, with these folders first on Python's path."""
    return subprocess.run(
        [sys.executable, *options, "-c", program],
        capture_output=True,
        text=True,
        cwd=path[0],
        env={"PYTHONPATH": ":".join(map(str, path))},
        check=False,
    )


ROOMS = ("broker", "kraft", "protocol", "runtime", "settings", "storage")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ROOMS:
        (tmp_path / f"{name}.py").write_text("HERE = 'in the project'\n")
    return tmp_path


def test_a_project_may_have_modules_of_the_rooms_names(project: Path) -> None:
    program = (
        f"import {', '.join(ROOMS)}\n"
        "import barnabas.cluster.local, barnabas.cluster.simulated, barnabas.pytest_plugin\n"
        "from barnabas import Consumer, Producer\n"
        f"print({' == '.join(f'{name}.HERE' for name in ROOMS)})\n"
    )
    result = python(program, [project, ROOT])
    assert result.stdout == "True\n", result.stderr


def test_the_rooms_are_in_the_package_as_links() -> None:
    for name in ROOMS:
        assert (ROOT / "barnabas" / name).readlink() == Path("..") / name


def test_importing_barnabas_imports_nothing_else() -> None:
    heavy = {"trio", "pydantic", "barnabas.protocol", "barnabas.runtime"}
    program = f"import sys, barnabas; print(sorted({heavy!r} & set(sys.modules)))"
    assert python(program, [ROOT]).stdout.strip() == "[]"


def test_the_version_is_that_of_the_package() -> None:
    import barnabas
    from barnabas.runtime.channel import CLIENT_SOFTWARE_VERSION

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert barnabas.__version__ == project["version"] == CLIENT_SOFTWARE_VERSION


def test_every_name_can_be_imported() -> None:
    import barnabas

    for name in barnabas.__all__:
        assert getattr(barnabas, name) is not None
    assert set(barnabas.__all__) <= set(dir(barnabas))
    with pytest.raises(AttributeError, match="no attribute 'Consumr'"):
        _ = barnabas.Consumr  # type: ignore[attr-defined]
