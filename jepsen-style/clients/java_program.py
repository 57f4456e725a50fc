"""The program `java/WorkClient.java`: compiled once, with Kafka's jars, and run as a process for each client."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

from clients.library_missing import LibraryMissing

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).resolve().parent / "java" / "WorkClient.java"
FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx96m", "-Dlog4j2.level=OFF")
"""Many of them live at a time, and none for long."""
JAR = "work-client.jar"
ARCHIVE = "classes.jsa"
_COMPILE_SECONDS = 120.0


def check() -> str:
    """The version of Kafka's client. LibraryMissing where there is no Java, or none of Kafka's jars."""
    for tool in ("java", "javac"):
        if shutil.which(tool) is None:
            raise LibraryMissing(f"--client java: there is no {tool} (apt install default-jdk-headless)")
    found = re.search(r"kafka-clients-([\d.]+)\.jar", next(_libs().glob("kafka-clients-*.jar")).name)
    return found[1] if found else "unknown"


def command() -> list[str]:
    """Runs it. Compiles it if need be; LibraryMissing if that fails."""
    classes = _compiled()
    archive = classes / ARCHIVE
    archived = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
    return ["java", *FLAGS, *archived, *_program(classes)]


def _program(classes: Path) -> list[str]:
    return ["-cp", f"{classes / JAR}{os.pathsep}{_libs()}{os.sep}*", SOURCE.stem]


def _libs() -> Path:
    named = os.environ.get("KAFKA_LIBS")
    libs = Path(named) if named else ROOT / ".cache" / "kafka-libs"
    if not any(libs.glob("kafka-clients-*.jar")) or not any(libs.glob("jackson-databind-*.jar")):
        raise LibraryMissing(
            f"--client java: there are no Kafka jars in {libs}: "
            "run tests/compat/install.sh, or name their directory in KAFKA_LIBS"
        )
    return libs


def _compiled() -> Path:
    """The directory of its jar."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    target = ROOT / ".cache" / "jepsen-java" / digest
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as fresh:
        classes, result = Path(fresh) / "classes", Path(fresh) / "result"
        classes.mkdir()
        result.mkdir()
        words = ["javac", "-nowarn", "-d", str(classes), "-cp", f"{_libs()}{os.sep}*", str(SOURCE)]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LibraryMissing(f"--client java: {error}") from error
        if done.returncode:
            line = next((line for line in done.stderr.splitlines() if "error:" in line), done.stderr.strip()[:200])
            raise LibraryMissing(f"--client java: {line}")
        # An archive of loaded classes takes no directories.
        with zipfile.ZipFile(result / JAR, "w") as jar:
            for path in sorted(classes.rglob("*.class")):
                jar.write(path, str(path.relative_to(classes)))
        try:
            result.rename(target)
            _archive(target)
        except OSError:
            # Somebody else compiled the same meanwhile.
            if not target.exists():
                raise
    return target


def _archive(classes: Path) -> None:
    """Half of a start is to load Kafka's classes: an archive of those that are needed makes it faster. It can be done
    without."""
    one = {name: {"bootstrap.servers": "127.0.0.1:1"} for name in ("admin", "producer", "consumer")}
    words = ["java", *FLAGS, f"-XX:ArchiveClassesAtExit={classes / ARCHIVE}", *_program(classes), "archive"]
    try:
        subprocess.run(
            words,
            input=json.dumps({"patience_ms": 1, **one}) + "\n",
            text=True,
            capture_output=True,
            timeout=_COMPILE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        (classes / ARCHIVE).unlink(missing_ok=True)
