"""Makes and ends clusters for the Java side: a line of JSON on standard input asks, a line on standard output answers.

    create  {"name", "levels", "users": [...], "nodes": [NODE...]}
                                                     formats the nodes of a new cluster; the old one must be dropped;
                                                     users in the form of --add-scram
    add     {"node": NODE}                           formats one more broker
    start   {"ids": [...]}                           starts nodes and waits until the brokers know each other
    stop    {"id"}                                   asks a node to stop, and kills it after 30 s
    say     {"principal"}                            the principal of peers whose builder returns what the test says
    drop    {"keep": bool}                           kills what still runs; keeps logs and settings of nodes if asked to

NODE is {"id", "role", "settings", "disks" or "log_dirs"}. Port 0 in its listeners stands for a free port; the answer
names the settings that the node was given in the end. One cluster exists at a time. Nodes are forked from this
process, which has imported them, and end with it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from barnabas.cluster.plan import MODULES
from barnabas.kraft.first_users import WrongUser, first_users
from barnabas.kraft.metadata.bootstrap import UnknownLevel, bootstrap_records
from barnabas.runtime.identity import ANONYMOUS
from tests.kafka.cluster import Cluster
from tests.kafka.node import Node, Refused
from tests.kafka.peers import SAID_FILE
from tests.kafka.ports import Ports


@dataclass(slots=True)
class Server:
    """Answers the commands; knows the cluster of the moment."""

    root: Path
    ports: Ports = field(default_factory=Ports)
    cluster: Cluster | None = None
    made: int = 0
    said: str = ""
    """The principal that the test said last."""

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._do(command)
        except Refused as error:
            return {"refused": str(error)}
        except Exception as error:  # any mistake is the answer: the test that asked fails with it
            return {"error": f"{type(error).__name__}: {error}"}

    def _do(self, command: dict[str, Any]) -> dict[str, Any]:
        match command["do"]:
            case "create":
                return self._create(command)
            case "add":
                return {"nodes": [_described(node) for node in self._now().add([command["node"]])]}
            case "start":
                self._now().start(command["ids"])
                return {}
            case "stop":
                self._now().stop(command["id"])
                return {}
            case "say":
                self.said = command["principal"]
                if self.cluster is not None:
                    self._pass_on(self.cluster.folder)
                return {}
            case "drop":
                return {"lost": self.drop(bool(command["keep"]))}
            case other:
                raise ValueError(f"there is no command {other!r}")

    def _create(self, command: dict[str, Any]) -> dict[str, Any]:
        self.drop(keep=True)
        self.made += 1
        folder = self.root / f"{self.made:04d}-{command['name']}"
        folder.mkdir(parents=True)
        self._pass_on(folder)
        try:
            records = bootstrap_records(command["levels"])
            users = first_users(command["users"], records[0].feature_level, random.SystemRandom())
        except (UnknownLevel, WrongUser) as error:
            raise Refused(str(error)) from None
        self.cluster = Cluster(folder, self.ports, [*records, *users])
        nodes = self.cluster.add(command["nodes"])
        return {"cluster_id": self.cluster.id, "nodes": [_described(node) for node in nodes]}

    def _pass_on(self, folder: Path) -> None:
        (folder / f"{SAID_FILE}.new").write_text(self.said or str(ANONYMOUS))
        (folder / f"{SAID_FILE}.new").rename(folder / SAID_FILE)

    def drop(self, keep: bool) -> list[str]:
        cluster, self.cluster = self.cluster, None
        return cluster.drop(keep) if cluster is not None else []

    def _now(self) -> Cluster:
        if self.cluster is None:
            raise RuntimeError("there is no cluster")
        return self.cluster


def _described(node: Node) -> dict[str, Any]:
    described = {key: getattr(node, key) for key in ("id", "role", "settings", "log_dirs", "ports")}
    return described | {"pid": node.pid, "tier_events": str(node.tier_events)}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for module in MODULES.values():
        import_module(module)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    server = Server(Path(sys.argv[1]))
    try:
        for line in sys.stdin:
            answers.write(json.dumps(server.answer(json.loads(line))) + "\n")
            answers.flush()
    finally:
        server.drop(keep=True)


if __name__ == "__main__":
    main()
