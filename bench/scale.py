"""Many partitions on one cluster: memory, idle CPU, failover, stop and start, and the cost of requests about all.

Starts three brokers and three controllers in a new directory, creates topics of 100 partitions with three replicas
each, and prints one line of JSON for each measurement, with the fields of the other benchmarks. `scale.steps` are the
steps of the event loops above 20 ms, by task, and by API where they are of requests. `--plain` leaves them out, and
their cost, which is a few percent.

Usage: scale.py [--data DIRECTORY] [--partitions N] [--base-port 30300] [--out F] [--plain | --stacks]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from measuring import Results, cpu_s, memory_mib
from step_report import StepReport

from barnabas.client.admin import NewTopic, OffsetSpec
from barnabas.client.metadata import TopicPartition
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.plan import Programs
from barnabas.cluster.processes import State
from barnabas.runtime.step_watchdog import MEASURE_STEPS, WITH_STACKS
from barnabas.sync import Admin, Producer

IN_A_TOPIC = 100
IN_A_REQUEST = 20
IDLE_SECONDS = 20.0
LIMIT_SECONDS = 600.0
POLL_SECONDS = 0.5
SAMPLE_SECONDS = 0.1
SAMPLED = 10
"""Topics that are described while a change is waited for. To describe all of them costs the brokers and this program
seconds of the processor, which would be part of what is measured."""
QUIET_CORES = 0.2
KILLED = "broker-3"


class Scale:
    def __init__(self, data: Path, base_port: int, partitions: int, results: Results, measured: str) -> None:
        environment = {MEASURE_STEPS: measured} if measured else {}
        self._cluster = LocalCluster(data, base_port, programs=Programs(environment=environment))
        self._steps = StepReport(self._cluster, results) if measured else None
        self._topics = [f"scale-{number}" for number in range(partitions // IN_A_TOPIC)]
        self._partitions = len(self._topics) * IN_A_TOPIC
        self._results = results

    def run(self) -> None:
        cluster = self._cluster
        cluster.up()
        cluster.wait_ready()
        try:
            self._measure()
        finally:
            self._timed("stop", self._stop)

    def _measure(self) -> None:
        cluster = self._cluster
        self._report("idle-start")
        self._timed("create", self._create)
        self._timed("full-isr", lambda: self._wait(lambda parts: all(len(isr) == 3 for _, isr in parts)))
        self._timed("settle", self._settle)
        self._memory("memory.after-creation")
        self._report("create")
        self._idle()
        self._report("idle")
        for name, ask in self._questions():
            self._timed(name, ask)
            self._report(name)
        self._timed("produce", self._produce)
        self._report("produce")
        cluster.kill(KILLED)
        dead = cluster.layout.node(KILLED).id
        self._timed("failover", lambda: self._wait(lambda parts: all(leader not in (-1, dead) for leader, _ in parts)))
        self._report("failover")
        cluster.start(KILLED)
        self._timed("rejoin", lambda: self._wait(lambda parts: all(len(isr) == 3 for _, isr in parts)))
        self._report("rejoin")
        if self._steps is not None:
            self._steps.add_requests()
        self._timed("stop", self._stop, all_nodes=1)
        self._timed("start", self._start)
        self._report("stop-and-start")
        self._memory("memory.after-start")

    def _create(self) -> None:
        with self._admin() as admin:
            for first in range(0, len(self._topics), IN_A_REQUEST):
                names = self._topics[first : first + IN_A_REQUEST]
                admin.create_topics([NewTopic(name, IN_A_TOPIC, 3) for name in names])

    def _stop(self) -> None:
        killed = self._cluster.down(LIMIT_SECONDS)
        if killed:
            raise TimeoutError(f"killed, because they did not stop: {', '.join(killed)}")

    def _start(self) -> float:
        self._cluster.up()
        self._cluster.wait_ready(LIMIT_SECONDS)
        return self._wait(lambda parts: all(len(isr) == 3 for _, isr in parts))

    def _report(self, phase: str) -> None:
        """Long steps of the event loops since the last report."""
        if self._steps is not None:
            self._steps.add(phase)

    def _questions(self) -> list[tuple[str, Callable[[], None]]]:
        """Requests about all partitions."""
        return [
            ("metadata", self._list),
            ("describe", self._describe),
            ("list-offsets", self._list_offsets),
            ("log-dirs", self._describe_log_dirs),
            ("elect", self._elect),
            ("reassignments", self._list_reassignments),
        ]

    def _list(self) -> None:
        with self._admin() as admin:
            assert len(admin.list_topics()) == len(self._topics)

    def _describe(self) -> None:
        with self._admin() as admin:
            found = admin.describe_topics(self._topics)
        assert sum(len(topic.partitions) for topic in found.values()) == self._partitions

    def _list_offsets(self) -> None:
        with self._admin() as admin:
            found = admin.list_offsets(dict.fromkeys(self._all(), OffsetSpec.latest()))
        assert len(found) == self._partitions

    def _describe_log_dirs(self) -> None:
        with self._admin() as admin:
            found = admin.describe_log_dirs()
        assert sum(len(it.replicas) for paths in found.values() for it in paths.values()) >= 3 * self._partitions

    def _elect(self) -> None:
        with self._admin() as admin:
            admin.elect_leaders()

    def _list_reassignments(self) -> None:
        with self._admin() as admin:
            assert not admin.list_partition_reassignments()

    def _produce(self) -> None:
        """One record for each partition."""
        with Producer(bootstrap_servers=self._cluster.bootstrap_servers) as producer:
            sent = [producer.enqueue(each.topic, b"x", partition=each.partition) for each in self._all()]
            for each in sent:
                each.result()

    def _all(self) -> list[TopicPartition]:
        return [TopicPartition(name, index) for name in self._topics for index in range(IN_A_TOPIC)]

    def _wait(self, is_done: Callable[[Iterable[tuple[int, list[int]]]], bool]) -> float:
        """Until leaders and in-sync replicas of all partitions are as wanted. Returns the time at which the look that
        found that began."""
        sample = list({*self._topics[:: max(1, len(self._topics) // SAMPLED)], self._topics[-1]})
        end = time.monotonic() + LIMIT_SECONDS
        with self._admin() as admin:
            while (began := time.monotonic()) < end:
                if not self._is_done(admin, sample, is_done):
                    time.sleep(SAMPLE_SECONDS)
                elif self._is_done(admin, self._topics, is_done):
                    return began
                else:
                    time.sleep(POLL_SECONDS)
        raise TimeoutError(f"not done after {LIMIT_SECONDS} s")

    def _is_done(
        self, admin: Admin, names: list[str], is_done: Callable[[Iterable[tuple[int, list[int]]]], bool]
    ) -> bool:
        # A broker that is behind does not know all of them yet.
        topics = admin.describe_topics(names).succeeded
        parts = [part for topic in topics.values() for part in topic.partitions]
        return len(parts) == len(names) * IN_A_TOPIC and is_done([(part.leader, list(part.isr)) for part in parts])

    def _settle(self) -> None:
        """Until the brokers have made their logs: the controllers count replicas as in sync from the beginning."""
        pids, end = self._pids(), time.monotonic() + LIMIT_SECONDS
        before = cpu_s(pids)
        while time.monotonic() < end:
            time.sleep(1)
            now = cpu_s(pids)
            if now - before < QUIET_CORES:
                return
            before = now
        raise TimeoutError(f"the nodes are busy after {LIMIT_SECONDS} s")

    def _idle(self) -> None:
        pids = self._pids()
        before = cpu_s(pids)
        time.sleep(IDLE_SECONDS)
        share = (cpu_s(pids) - before) / IDLE_SECONDS
        self._results.add("scale.idle", "cores", 1, share, partitions=self._partitions)

    def _memory(self, name: str) -> None:
        pss, rss = memory_mib(self._pids())
        brokers, _ = memory_mib(self._pids("broker"))
        self._results.add(
            f"scale.{name}", "MiB", 1, pss, partitions=self._partitions, rss_mib=rss, brokers_mib=brokers
        )

    def _timed(self, name: str, work: Callable[[], float | None], **fields: float) -> None:
        """`work` returns the time at which it was done, None: when it returns."""
        started = time.monotonic()
        cpu = cpu_s(self._pids())
        done = work() or time.monotonic()
        fields["cpu_s"] = cpu_s(self._pids()) - cpu
        self._results.add(f"scale.{name}", "s", 1, done - started, partitions=self._partitions, **fields)

    def _pids(self, role: str = "") -> list[int]:
        running = [node for node in self._cluster.processes() if node.state == State.RUNNING.value]
        return [node.pid for node in running if node.pid and node.name.startswith(role)]

    def _admin(self) -> Admin:
        return Admin(bootstrap_servers=self._cluster.bootstrap_servers)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="a directory to make; by default a temporary one")
    parser.add_argument("--partitions", type=int, default=30_000)
    parser.add_argument("--base-port", type=int, default=30_300)
    parser.add_argument("--out", default=None)
    parser.add_argument("--label", default="barnabas")
    parser.add_argument("--plain", action="store_true", help="do not measure the steps of the event loops")
    parser.add_argument("--stacks", action="store_true", help="log the stacks of steps above 20 ms")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        data = options.data or Path(temporary)
        results = Results(options.out, options.label)
        measured = "" if options.plain else WITH_STACKS if options.stacks else "1"
        Scale(data, options.base_port, options.partitions, results, measured).run()


if __name__ == "__main__":
    main()
