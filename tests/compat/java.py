"""Kafka's own programs, each in a JVM of its own against one cluster."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

LOG4J = Path(__file__).parent / "java-tools" / "log4j2.properties"
FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", f"-Dlog4j2.configurationFile={LOG4J}")
"""A tool lives for a second: nothing but its start counts."""
TIMEOUT_SECONDS = 60
_WARNING = re.compile(r"(?:WARN|ERROR|FATAL) ")

TOOLS = {
    "acls": "org.apache.kafka.tools.AclCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "share-consumer-perf-test": "org.apache.kafka.tools.ShareConsumerPerformance",
    "share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "storage": "kafka.tools.StorageTool",
    "streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "verifiable-share-consumer": "org.apache.kafka.tools.VerifiableShareConsumer",
}
"""By the names of the scripts in Kafka's distribution, without `kafka-` and `.sh`."""


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """Exit code and output of a program."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


@dataclass(frozen=True, slots=True)
class Java:
    """Runs the tools; `bootstrap` is given to those that take it."""

    libs: Path
    bootstrap: str = ""
    archive: Path | None = None
    """Loaded classes of an earlier run (class data sharing): half of a tool's start is to load them."""

    def run(self, tool: str, *words: str, stdin: str = "", code: int = 0, expected: str = "") -> ToolOutput:
        """Output of a tool. Fails if the exit code is not `code`, or if the tool succeeds with a warning that lacks
        the words `expected`.
        """
        done = subprocess.run(
            self.command(tool, *words),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        printed = ToolOutput(done.returncode, done.stdout, done.stderr)
        said = f"{tool} {' '.join(words)} ended with {printed.code}:\n{printed.out}{printed.err}"
        assert printed.code == code, said
        if code == 0:
            warnings = [line for line in printed.err.splitlines() if _WARNING.match(line)]
            assert [line for line in warnings if not expected or expected not in line] == [], said
        return printed

    def ask(self, tool: str, *words: str, stdin: str = "", code: int = 0, expected: str = "") -> ToolOutput:
        """Runs a tool with the cluster's bootstrap servers."""
        address = ("--bootstrap-server", self.bootstrap)
        return self.run(tool, *address, *words, stdin=stdin, code=code, expected=expected)

    def with_archive(self, target: Path) -> Java:
        """A copy that starts faster; lists the cluster's topics to find the classes to archive."""
        flags = (*FLAGS, f"-XX:ArchiveClassesAtExit={target}", "-cp", f"{self.libs}{os.sep}*")
        command = ["java", *flags, TOOLS["topics"], "--bootstrap-server", self.bootstrap, "--list"]
        subprocess.run(command, capture_output=True, timeout=TIMEOUT_SECONDS, check=True)
        return Java(self.libs, self.bootstrap, target if target.exists() else None)

    def command(self, tool: str, *words: str) -> list[str]:
        archive = [f"-XX:SharedArchiveFile={self.archive}"] if self.archive else []
        return ["java", *FLAGS, *archive, "-cp", f"{self.libs}{os.sep}*", TOOLS[tool], *words]
