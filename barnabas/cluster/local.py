"""A cluster of processes on this machine: up, down, and what a fault test does to single nodes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from barnabas.cluster.breakable_programs import what_joins
from barnabas.cluster.errors import ClusterError, WrongArgument
from barnabas.cluster.keeping import LOCK_FILE, KeepFile
from barnabas.cluster.layout import LOCAL_SHAPE, Layout, Node
from barnabas.cluster.local_store import LocalStore, find_program
from barnabas.cluster.membership import Members
from barnabas.cluster.node_faults import NodeFaults
from barnabas.cluster.plan import LAUNCHER_REFUSES, MODULES, Plan, Programs, Start
from barnabas.cluster.ports import is_free
from barnabas.cluster.probe import Key, NoAnswer
from barnabas.cluster.processes import ProcessId, State, state_of
from barnabas.cluster.status import (
    ClusterStatus,
    NodeStatus,
    broker_view,
    leaderless_partitions,
    quorum_answerers,
    quorum_status,
    read_processes,
    read_status,
)
from barnabas.security.addresses import PORTS_ABOVE
from barnabas.security.local_security import LocalSecurity

STOP_SECONDS = 30.0
"""Maximum time for a clean shutdown; then the node is killed."""
READY_SECONDS = 60.0
_POLL_SECONDS = 0.02
_LAUNCH_SECONDS = 60.0


class LocalCluster:
    """Six processes and one directory. Methods block; they may be called from any process, one at a time.

    Names are those of the configuration files: `broker-1` to `broker-3`, `controller-101` to
    `controller-103`. Everything raises `ClusterError`, one line, where it cannot do what was asked.
    """

    def __init__(
        self,
        data_dir: str | Path,
        base_port: int | None = None,
        overrides: Mapping[str, str] | None = None,
        config_dir: str | Path = LOCAL_SHAPE,
        programs: Programs | None = None,
        *,
        restarts: bool = False,
    ) -> None:
        """With `restarts`, nodes that end by themselves are started again; a fault test wants to see them end."""
        self._shape = Path(config_dir)
        self._overrides = dict(overrides or {})
        self._programs = programs or Programs()
        self._restarts = restarts
        self.layout = Layout.open(Path(data_dir).absolute(), base_port, self._shape)

    @property
    def security(self) -> LocalSecurity | None:
        """None for a cluster without security."""
        return LocalSecurity.of(self.layout.data) if self.layout.is_secure else None

    def make_secure(self) -> None:
        """Give the cluster certificates, users and listeners for them, from its next start on. It stays secure."""
        self.layout = replace(self.layout, is_secure=True)

    def make_larger(self, brokers: int | None, cells: int | None) -> None:
        """Have this many brokers, and this many of them on a host, from the next start on. Raises `WrongArgument`."""
        layout = self.layout
        members = Members.read(layout.data)
        if cells is not None:
            members = members.with_cells(cells, is_new=not (layout.data / "cluster.json").exists())
        if brokers is not None:
            members = members.with_brokers(brokers, [node.id for node in layout.brokers])
        members.write(layout.data)
        larger = Layout.open(layout.data, layout.base_port, self._shape)
        self.layout = replace(larger, is_secure=layout.is_secure, has_s3=layout.has_s3)

    @property
    def s3(self) -> LocalStore | None:
        """None for a cluster without an S3 server."""
        return LocalStore(self.layout) if self.layout.has_s3 else None

    def add_s3(self) -> None:
        """Give the cluster an S3 server and tiered storage, from its next start on. It keeps them."""
        find_program()
        self.layout = replace(self.layout, has_s3=True)

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self.layout.nodes

    @property
    def bootstrap_servers(self) -> str:
        return self.layout.bootstrap_servers

    def up(self) -> list[str]:
        """Starts what does not run, on the data there is; gives the names of what was started."""
        with self._only_one():
            missing = [node for node in self.nodes if not self._is_alive(node)]
            self._refuse_to_part([node.name for node in self.nodes if node not in missing])
            self._refuse_taken_ports(missing)
            self.layout.save()
            if self.security is not None:
                self.security.ensure(self.layout)
            if self.s3 is not None:
                self.s3.start()
            for node in missing:
                self._render_config(node)
            self._launch(missing)
            return [node.name for node in missing]

    def down(self, timeout_seconds: float = STOP_SECONDS) -> list[str]:
        """Stops brokers, then controllers, in good order; gives the names of those that had to be killed."""
        with self._only_one():
            killed = [
                name
                for group in (self.layout.brokers, self.layout.controllers)
                for name in self._stop_all(group, timeout_seconds)
            ]
            if self.s3 is not None:
                self.s3.stop()
            return killed

    def start(self, *names: str) -> None:
        """Starts nodes as they were configured when the cluster came up."""
        nodes = [self.layout.node(name) for name in names]
        with self._only_one():
            for node in nodes:
                if self._is_alive(node):
                    raise ClusterError(f"{node.name} runs already")
                if not self.layout.config_file(node).exists():
                    self.layout.save()
                    if self.security is not None:
                        self.security.ensure(self.layout)
                    self._render_config(node)
            self._refuse_taken_ports(nodes)
            self._launch(nodes)

    def stop(self, name: str, timeout_seconds: float = STOP_SECONDS) -> bool:
        """Asks one node to leave in good order; False if it had to be killed."""
        node = self.layout.node(name)
        self._process(node)
        with self._only_one():
            return not self._stop_all([node], timeout_seconds)

    def kill(self, *names: str) -> None:
        """Ends nodes at once (SIGKILL), all at the same time, and returns when they are gone. They stay down."""
        self._let_go([self.layout.node(name) for name in names])
        processes = {name: self._process(self.layout.node(name)) for name in names}
        for process in processes.values():
            process.send(signal.SIGKILL)
        for name, process in processes.items():
            if not process.wait_gone(STOP_SECONDS):
                raise ClusterError(f"{name} (process {process.pid}) does not end")

    def pause(self, name: str) -> None:
        """Freezes one node (SIGSTOP): it answers nothing and notices nothing."""
        self._process(self.layout.node(name)).send(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Lets a paused node go on."""
        self._process(self.layout.node(name)).send(signal.SIGCONT)

    @property
    def faults(self) -> NodeFaults:
        """Cut links, wrong clocks, full disks. Raises `ClusterError` unless the nodes were started to be broken."""
        if self._programs.modules == MODULES and what_joins(self.layout) is None:
            raise ClusterError("the nodes of this cluster cannot be broken: start them with programs=BREAKABLE")
        return NodeFaults(self.layout)

    def processes(self) -> list[NodeStatus]:
        """The nodes' processes; asks no node."""
        return read_processes(self.layout)

    def status(self, topics: Sequence[str] | None = None) -> ClusterStatus:
        """Processes, quorum and the partitions of `topics` (all if None); asks the nodes that run."""
        return read_status(self.layout, topics, self._key)

    def wait_ready(self, timeout_seconds: float = READY_SECONDS) -> float:
        """Waits until writes with acks=all succeed through any broker; gives the seconds it took.

        That is: there is an active controller, every broker names every broker to clients (so all are
        registered and none is fenced), and somebody leads every partition. Raises `ClusterError` when a node has
        ended or the time is over.
        """
        return self.wait_until(self.not_ready, timeout_seconds)

    def wait_until(self, what_is_missing: Callable[[], str], timeout_seconds: float) -> float:
        """Polls until `what_is_missing` gives nothing; gives the seconds it took."""
        began = time.monotonic()
        while True:
            self._refuse_dead()
            asked = time.monotonic()
            missing = what_is_missing()
            elapsed = time.monotonic() - began
            if not missing:
                return elapsed
            if elapsed > timeout_seconds:
                raise ClusterError(f"not ready after {timeout_seconds:.0f} s: {missing}{self._complaint()}")
            # Questions that are expensive must not keep the nodes from getting ready.
            time.sleep(max(_POLL_SECONDS, time.monotonic() - asked))

    def _refuse_dead(self) -> None:
        for node in self.nodes:
            if state_of(self.layout.pid_file(node)) is State.DEAD:
                raise ClusterError(f"{node.name} has ended: {self._last_words(node)}")

    def not_ready(self) -> str:
        """Reason why not every broker accepts writes yet; empty if all do."""
        expected = {node.id for node in self.layout.brokers}
        for broker in self.layout.brokers:
            try:
                view = broker_view(broker.port, self._key)
            except NoAnswer as error:
                return f"{broker.name} does not answer ({error})"
            if view.cluster_id != self.layout.cluster_id:
                return f"port {broker.port} belongs to cluster {view.cluster_id}"
            if not expected <= view.brokers:
                return f"{broker.name} does not see brokers {sorted(expected - view.brokers)} yet"
        for broker in self.layout.brokers:
            try:
                leaderless = leaderless_partitions(broker.port, self._key)
            except NoAnswer as error:
                return f"{broker.name} does not answer ({error})"
            if leaderless:
                return f"{leaderless[0]} has no leader"
        answered = quorum_status(quorum_answerers(self.layout, self._key), self._key)
        return "" if answered else "there is no active controller"

    @property
    def _key(self) -> Key | None:
        return None if self.security is None else self.security.admin_key

    def _render_config(self, node: Node) -> None:
        own = {} if self.security is None else self.security.settings_of(node)
        own |= {} if self.s3 is None else self.s3.settings_of(node)
        self.layout.render_config(node, own | self._overrides, self._shape)

    def _refuse_to_part(self, running: Sequence[str]) -> None:
        """Nodes that run where they were started would not find those that come up elsewhere."""
        there = Layout.open(self.layout.data, shape=self._shape).base_port
        if running and there != self.layout.base_port:
            raise ClusterError(
                f"{', '.join(running)} of this cluster {'run' if len(running) > 1 else 'runs'} at base port {there}; "
                f"it can move to {self.layout.base_port} after `barnabas cluster down`"
            )

    def _refuse_taken_ports(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            for port in (*self._ports_of(node), node.http_port):
                if port is not None and not is_free(port):
                    raise ClusterError(
                        f"port {port}, which {node.name} needs, is taken by another process; "
                        "--base-port and --data make another cluster"
                    )

    def _ports_of(self, node: Node) -> list[int]:
        above = PORTS_ABOVE.values() if self.security is not None and node.is_broker else (0,)
        return [node.port + each for each in above]

    def _launch(self, nodes: Sequence[Node]) -> None:
        if not nodes:
            return
        self._let_go(nodes)
        programs = what_joins(self.layout) or self._programs
        plan = Plan(self.layout.cluster_id, [self._start_of(node, programs.modules) for node in nodes], self._restarts)
        try:
            launched = subprocess.run(
                [sys.executable, "-P", "-m", "barnabas.cluster.launcher"],
                input=plan.to_json(),
                env=code_environment() | dict(programs.environment),
                capture_output=True,
                text=True,
                timeout=_LAUNCH_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ClusterError(f"the nodes could not be started within {_LAUNCH_SECONDS:.0f} s") from None
        if launched.returncode:
            lines = launched.stderr.strip().splitlines()
            kind = WrongArgument if launched.returncode == LAUNCHER_REFUSES else ClusterError
            raise kind(lines[-1] if lines else f"the launcher failed with {launched.returncode}")

    def _start_of(self, node: Node, modules: Mapping[str, str]) -> Start:
        return Start(
            modules[node.role],
            node.id,
            str(self.layout.config_file(node)),
            self.layout.log_directories(node),
            str(self.layout.log_file(node)),
            str(self.layout.pid_file(node)),
        )

    def _stop_all(self, nodes: Sequence[Node], timeout_seconds: float) -> list[str]:
        """SIGTERM to all of them, then waiting; the names of those that had to be killed."""
        deadline = time.monotonic() + timeout_seconds
        self._let_go(nodes)
        running = [(node, process) for node in nodes if (process := self._running(node)) is not None]
        for _node, process in running:
            process.send(signal.SIGTERM)
            process.send(signal.SIGCONT)  # a paused node cannot handle the first
        killed = []
        for node, process in running:
            if not process.wait_gone(max(0.0, deadline - time.monotonic())):
                process.send(signal.SIGKILL)
                process.wait_gone(STOP_SECONDS)
                killed.append(node.name)
            self.layout.pid_file(node).unlink(missing_ok=True)
        for node in nodes:
            if state_of(self.layout.pid_file(node)) is State.DEAD:
                self.layout.pid_file(node).unlink(missing_ok=True)
        return killed

    def _let_go(self, nodes: Sequence[Node]) -> None:
        """Removes them from their keepers, so that they are not restarted."""
        for node in nodes:
            KeepFile.beside(self.layout.pid_file(node)).remove()

    def _is_alive(self, node: Node) -> bool:
        return self._running(node) is not None

    def _running(self, node: Node) -> ProcessId | None:
        process = ProcessId.read(self.layout.pid_file(node))
        return process if process is not None and process.alive else None

    def _process(self, node: Node) -> ProcessId:
        process = self._running(node)
        if process is None:
            raise ClusterError(f"{node.name} does not run; `barnabas cluster start {node.name}` starts it")
        return process

    def _last_words(self, node: Node) -> str:
        """The last line of a node's log that is about a failure, else the last one."""
        lines = self._end_of_log(node)
        return (_failures(lines) or lines or ["its log is empty"])[-1]

    def _complaint(self) -> str:
        """The last failure that a node logged, to append to another message; may be empty."""
        for node in self.nodes:
            if failures := _failures(self._end_of_log(node)):
                return f"; {node.name} logged: {failures[-1]}"
        return ""

    def _end_of_log(self, node: Node) -> list[str]:
        try:
            return self.layout.log_file(node).read_text(errors="replace").splitlines()[-200:]
        except OSError:
            return []

    @contextlib.contextmanager
    def _only_one(self) -> Iterator[None]:
        """Two that start or stop the same cluster at once would start nodes twice: the second waits."""
        run = self.layout.data / "run"
        run.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(run / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _failures(lines: Sequence[str]) -> list[str]:
    """The lines of a traceback are indented."""
    return [line for line in lines if (" ERROR " in line or " CRITICAL " in line) and not line.startswith(" ")]


def code_environment() -> dict[str, str]:
    """Ours, with this very code first on the path: a node must not be another version of it.

    Compiled code may be kept, whatever the caller's habit is: compiling ours again costs more than all the rest
    of a start.
    """
    root = str(Path(__file__).resolve().parents[2])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    path = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = f"{root}{os.pathsep}{path}" if path else root
    return environment
