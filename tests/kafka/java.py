"""Compiles the Java side where it has changed, and makes the command line of a run."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.kafka.lists import FOLDER

ROOT = FOLDER.parent.parent
CACHE = ROOT / ".cache" / "kafka-tests"
JARS = CACHE / "jars"
PARTS = ("runner", "cluster")
"""Folders of sources; Kafka itself is tested without the second one."""

HEAP = "1g"


def compiled() -> Path:
    """Where the classes of these very sources are: a run that still uses older ones is not disturbed."""
    sources = sorted(path for path in (FOLDER / "java").rglob("*") if path.is_file())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    classes = CACHE / "classes" / digest
    if classes.exists():
        return classes
    unfinished = CACHE / "classes" / f"{digest}-{os.getpid()}"
    for part in PARTS:
        folder, target = FOLDER / "java" / part, unfinished / part
        target.mkdir(parents=True)
        files = [str(path) for path in folder.rglob("*.java")]
        seen = class_path(unfinished, PARTS)
        subprocess.run(
            [_program("javac"), "-nowarn", "-XDsuppressNotes", "-d", str(target), "-cp", seen, *files], check=True
        )
        if (folder / "META-INF").exists():
            shutil.copytree(folder / "META-INF", target / "META-INF")
    unfinished.rename(classes)
    return classes


def class_path(classes: Path, parts: tuple[str, ...]) -> str:
    """The parts come first: one of their classes has the name of a class of Kafka's."""
    return ":".join([*(str(classes / part) for part in reversed(parts)), str(JARS / "*")])


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
        class_path(compiled(), parts),
        "barnabas.runner.Main",
    ]


def _program(name: str) -> str:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/{name}" if home else name
