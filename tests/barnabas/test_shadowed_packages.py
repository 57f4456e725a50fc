"""A project with folders of our names gets one clear error, or can use the client."""

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


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "protocol").mkdir()
    (tmp_path / "protocol" / "__init__.py").write_text("HERE = 'of the project'\n")
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "__init__.py").touch()
    return tmp_path


def test_a_hidden_package_is_named_in_one_line(project: Path) -> None:
    result = python("import barnabas", [project, ROOT])
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: barnabas needs its own package protocol, but {project / 'protocol'} comes ")


def test_an_imported_package_of_that_name_counts(project: Path) -> None:
    result = python("import protocol, barnabas", [project, ROOT])
    assert "ImportError: barnabas needs its own package protocol" in result.stderr
    inserted = f"import sys, protocol; sys.path.insert(0, {str(ROOT)!r}); import barnabas"
    assert "ImportError: barnabas needs its own package protocol" in python(inserted, [project, ROOT]).stderr


def test_packages_that_clients_do_not_need_may_be_hidden(project: Path) -> None:
    (project / "protocol" / "__init__.py").unlink()
    (project / "protocol").rmdir()
    result = python("import storage; from barnabas import TopicPartition; print(storage.__file__)", [project, ROOT])
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(project / "storage" / "__init__.py")
    refused = python("import barnabas.cluster", [project, ROOT])
    assert "ImportError: barnabas needs its own package storage" in refused.stderr


def test_a_missing_package_is_reported(tmp_path: Path) -> None:
    (tmp_path / "barnabas").symlink_to(ROOT / "barnabas")
    result = subprocess.run(
        [sys.executable, "-S", "-c", "import barnabas"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert "ImportError: barnabas is not complete: its package protocol is missing" in result.stderr


def test_importing_barnabas_imports_nothing_else() -> None:
    program = "import sys, barnabas; print(sorted({'trio', 'pydantic', 'protocol', 'runtime'} & set(sys.modules)))"
    assert python(program, [ROOT]).stdout.strip() == "[]"


def test_the_version_is_that_of_the_package() -> None:
    from barnabas.runtime.channel import CLIENT_SOFTWARE_VERSION

    import barnabas

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert barnabas.__version__ == project["version"] == CLIENT_SOFTWARE_VERSION


def test_every_name_can_be_imported() -> None:
    import barnabas

    for name in barnabas.__all__:
        assert getattr(barnabas, name) is not None
    assert set(barnabas.__all__) <= set(dir(barnabas))
    with pytest.raises(AttributeError, match="no attribute 'Consumr'"):
        _ = barnabas.Consumr  # type: ignore[attr-defined]
