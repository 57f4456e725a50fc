"""Apache Kafka itself, in one small JVM that is broker and controller: what our client has to get along with, too."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from barnabas.cluster.probe import NoAnswer, ask
from barnabas.kraft.format import FormatRequest, format_directories
from barnabas.kraft.metadata.bootstrap import bootstrap_records
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.metadata_log import FeatureLevelRecord
from barnabas.protocol.primitives import uuid_to_string
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.uuids import random_uuid
from barnabas.settings.properties import render_properties
from barnabas.testing.cluster import NO_RETENTION
from tests.compat.available import ROOT
from tests.compat.java import FLAGS

NODE_ID = 1
READY_SECONDS = 60.0
STOP_SECONDS = 60.0
ARCHIVE = ROOT / ".cache" / "compat" / "kafka-server.jsa"
"""Its loaded classes, kept from one run to the next: most of its start is to load them."""
_POLL_SECONDS = 0.05

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": str(NODE_ID),
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # One node cannot keep three copies of anything.
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # Little of everything: what is made for one test need not carry a company.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.index.size.max.bytes": "1048576",
    **NO_RETENTION,
}


class ApacheKafka:
    """One node; its data, its settings and what it says are in one directory."""

    def __init__(
        self,
        libs: Path,
        data: Path,
        ports: tuple[int, int],
        settings: dict[str, str],
        levels: Mapping[str, int] | None = None,
        plugins: Path | None = None,
    ) -> None:
        """`ports`: for clients, and for the controller. `settings` come on top of those that make it small, `levels` on
        top of the default feature levels that we support. `plugins` is a directory of further classes."""
        extra = levels or {}
        self._records = [
            *bootstrap_records(),
            *(FeatureLevelRecord(name=name, feature_level=level) for name, level in extra.items()),
        ]
        self.libs = libs
        self._plugins = plugins
        self.data = data
        self.port, self.controller_port = ports
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._new_archive = data / "classes.jsa"

    def start(self) -> None:
        """Returns when it takes requests of clients."""
        self.data.mkdir(parents=True, exist_ok=True)
        logs = self.data / "logs"
        chance = random.SystemRandom()
        cluster_id = uuid_to_string(random_uuid(chance))
        # With our own formatter: its files are Kafka's, and a JVM less has to start.
        format_directories(RealDisk(), FormatRequest(cluster_id, NODE_ID, [str(logs)], self._records), chance)
        config = self.data / "server.properties"
        config.write_text(render_properties(self._all_settings(logs)))
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                self._command(config),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
            )
        try:
            self._wait_ready()
        except BaseException:
            self.stop()
            raise

    def _command(self, config: Path) -> list[str]:
        classes, flags = f"{self.libs}{os.sep}*", self._archive_flags()
        if self._plugins is not None:
            classes, flags = f"{classes}{os.pathsep}{self._plugins}", []  # the archive is for the same classpath only
        return ["java", *FLAGS, *flags, "-cp", classes, "kafka.Kafka", str(config)]

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        else:
            if self._new_archive.exists():
                ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(self._new_archive, ARCHIVE)

    @property
    def _said(self) -> Path:
        return self.data / "server.log"

    def _all_settings(self, logs: Path) -> dict[str, str]:
        address, controller = f"127.0.0.1:{self.port}", f"127.0.0.1:{self.controller_port}"
        return {
            **_SETTINGS,
            "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{address}",
            "controller.quorum.voters": f"{NODE_ID}@{controller}",
            "log.dirs": str(logs),
            **self._settings,
        }

    def _archive_flags(self) -> list[str]:
        jars = max(jar.stat().st_mtime for jar in self.libs.glob("*.jar"))
        if ARCHIVE.exists() and ARCHIVE.stat().st_mtime > jars:
            return [f"-XX:SharedArchiveFile={ARCHIVE}"]
        return [f"-XX:ArchiveClassesAtExit={self._new_archive}"]

    def _wait_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + READY_SECONDS
        while not self._serves():
            ended = self._process.poll()
            assert ended is None, f"Apache Kafka ended with {ended}:\n{self._said.read_text(errors='replace')[-2000:]}"
            assert time.monotonic() < deadline, f"Apache Kafka does not serve after {READY_SECONDS:.0f} s"
            time.sleep(_POLL_SECONDS)

    def _serves(self) -> bool:
        try:
            return bool(ask(self.port, MetadataRequest(topics=[]), MetadataResponse).brokers)
        except NoAnswer:
            return False
