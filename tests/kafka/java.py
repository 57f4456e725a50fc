"""Compiles the Java side where it has changed, and makes the command line of a run."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.kafka.lists import FOLDER

ROOT = FOLDER.parent.parent
CACHE = ROOT / ".cache" / "kafka-tests"
JARS = CACHE / "jars"
CLASSES = CACHE / "classes"
PARTS = ("runner", "cluster")
"""Folders of sources; Kafka itself is tested without the second one."""

HEAP = "1g"


def sources() -> Iterator[Path]:
    yield from sorted(path for path in (FOLDER / "java").rglob("*") if path.is_file())


def compile_sources() -> None:
    stamp = CLASSES / "sources"
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources())).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    shutil.rmtree(CLASSES, ignore_errors=True)
    for part in PARTS:
        folder, target = FOLDER / "java" / part, CLASSES / part
        target.mkdir(parents=True)
        files = [str(path) for path in folder.rglob("*.java")]
        command = [
            _program("javac"),
            "-nowarn",
            "-XDsuppressNotes",
            "-d",
            str(target),
            "-cp",
            class_path(PARTS),
            *files,
        ]
        subprocess.run(command, check=True)
        if (folder / "META-INF").exists():
            shutil.copytree(folder / "META-INF", target / "META-INF")
    stamp.write_text(digest)


def class_path(parts: tuple[str, ...]) -> str:
    """The parts come first: one of their classes has the name of a class of Kafka's."""
    return ":".join([*(str(CLASSES / part) for part in reversed(parts)), str(JARS / "*")])


def run_command(out: Path, parts: tuple[str, ...], repeat: int) -> list[str]:
    properties = {
        "barnabas.plan": out / "plan.json",
        "barnabas.out": out,
        "java.io.tmpdir": out / "tmp",
        "kafka.cluster.test.repeat": repeat,
        "log4j2.configurationFile": FOLDER / "log4j2.yaml",
    }
    return [
        _program("java"),
        f"-Xmx{HEAP}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        "-XX:+EnableDynamicAgentLoading",
        *(f"-D{key}={value}" for key, value in properties.items()),
        "-cp",
        class_path(parts),
        "barnabas.runner.Main",
    ]


def _program(name: str) -> str:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/{name}" if home else name
